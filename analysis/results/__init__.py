"""Recorded results from MLflow, a server, Parquet or a plain table, as one table of scores."""
