"""What a careful user would run instead: the same work with the libraries alone. Nothing here imports pairsweep."""
