"""One launch: from the cells that are missing to their ends. Knows no scheduler but through a Protocol."""
