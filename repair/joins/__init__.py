"""Joining rows that memory does not hold: small records, spread over files by key and read back part by part."""
