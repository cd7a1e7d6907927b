"""Broker, tables and blobs held against each other, and what is mended of what they do not agree in."""
