"""A keyspace as a page and as a drawing."""
