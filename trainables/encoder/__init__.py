"""The encoder to be trained: found, fetched, checked and built."""
