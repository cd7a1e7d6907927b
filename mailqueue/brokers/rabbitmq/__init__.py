"""RabbitMQ as the mail queue's broker; aio-pika and what lies below it are known to `amqp` alone.

Connections are aio-pika's plain ones, made anew by `amqp.Link`. Its robust ones know one host, wait a fixed time and
without end, and declare and consume anew by themselves: but a queue is looked at before it is declared, and a consumer
that was lost is to be counted and told of.
"""

from mailqueue.brokers.rabbitmq.broker import RabbitBroker

__all__ = ["RabbitBroker"]
