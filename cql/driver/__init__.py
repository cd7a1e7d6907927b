"""The only package that imports the Cassandra driver: sessions, asynchronous requests, and errors as our own."""
