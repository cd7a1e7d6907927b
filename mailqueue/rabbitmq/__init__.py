"""The mail queue over RabbitMQ, with its view in Cassandra and its mails' bytes in a blob store."""
