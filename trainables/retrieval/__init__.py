"""The task of retrieval: find the passages of a corpus that answer a query."""
