"""Values of stored messages."""
