"""What is written to MLflow, and what is read back to know what is missing."""
