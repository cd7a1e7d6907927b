"""Scans that go on where they stopped: the rows of each token segment, kept as Parquet until the run is complete."""
