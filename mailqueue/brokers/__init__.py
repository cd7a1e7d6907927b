"""The message broker: what it is made of, its adapter for RabbitMQ, its twin in memory."""
