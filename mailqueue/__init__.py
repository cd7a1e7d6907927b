"""The distributed mail queue: RabbitMQ carries it, Cassandra lists it, an object store holds its bytes."""
