"""The one door to the Cassandra driver: sessions, failures in our words, asynchronous requests."""
