"""What a schema is after a statement, computed without a server."""
