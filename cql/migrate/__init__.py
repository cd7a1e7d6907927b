"""A keyspace taken from one state of its schema to the next: under a lease, journalled, and told by a history."""
