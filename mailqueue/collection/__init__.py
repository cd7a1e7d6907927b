"""Blob collection: what refers to a blob, and the removal of blobs that nothing refers to."""
