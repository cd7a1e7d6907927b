"""Where the servers of queues are that tests and the processes they start share."""

from dataclasses import dataclass, field

from mailmend.cql.driver.contact import Contact
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the three sides of the queues of one keyspace are; `management_port` is the broker's HTTP API's."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    broker_port: int
    vhost: str
    endpoint: str
    bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    broker_host: str = "127.0.0.1"
    management_port: int = 0

    @property
    def contact(self) -> Contact:
        return Contact(self.hosts, self.port)

    @property
    def broker(self) -> BrokerSettings:
        """Of RabbitMQ; what does not answer is given up soon."""
        host = Host(self.broker_host, self.broker_port)
        return BrokerSettings((host,), self.vhost, publish_confirm_seconds=3, answer_seconds=3)

    @property
    def blobs(self) -> S3Settings:
        return S3Settings(self.endpoint, self.bucket, self.access_key, self.secret_key, allow_http=True)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "MAILMEND_HOST": self.hosts[0],
            "MAILMEND_PORT": str(self.port),
            "MAILMEND_KEYSPACE": self.keyspace,
            "MAILMEND_LEDGER_KEYSPACE": f"{self.keyspace}_ledger",
            "MAILMEND_BROKER": f"amqp://guest@{self.broker_host}:{self.broker_port}/{self.vhost}",
            "MAILMEND_BROKER_PASSWORD": "guest",
            "MAILMEND_BROKER_MANAGEMENT": f"http://{self.broker_host}:{self.management_port}",
            "MAILMEND_BLOBS": f"s3://{self.bucket}?endpoint={self.endpoint}",
            "MAILMEND_S3_ACCESS_KEY": self.access_key,
            "MAILMEND_S3_SECRET_KEY": self.secret_key,
        }
