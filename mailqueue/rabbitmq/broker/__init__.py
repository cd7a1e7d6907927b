"""The message broker: RabbitMQ, and its twin in memory."""
