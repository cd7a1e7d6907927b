"""Staging of scans that can be continued: rows of each token segment, kept as Parquet until the run is complete."""
