"""The scheduler that the product ships with, and the only importer of ray."""
