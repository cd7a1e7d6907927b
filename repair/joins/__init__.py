"""Joins of more rows than fit into memory: small records, spread over files by key and read back part by part."""
