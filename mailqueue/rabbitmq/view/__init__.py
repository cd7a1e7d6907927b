"""The Cassandra side of the queue: rows, marks, listings, sizes, and where a queue begins."""
