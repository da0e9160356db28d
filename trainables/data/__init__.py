"""Rows of a dataset: from the hub, a pinned download, a local file or the built-in toy pairs."""
