"""Recorded results, wherever they are, as one Results: MLflow stores, our own Parquet export, anybody's CSV."""
