"""The three servers of a mail queue together, for tests in which processes on them die."""

from collections.abc import Iterator

import pytest

from tests.support.brokers import Broker
from tests.support.object_stores import S3
from tests.support.queue_processes import QueueProcesses, queue_processes
from tests.support.servers import CassandraServer


@pytest.fixture(scope="session")
def _processes(
    cassandra: CassandraServer, rabbitmq: Broker, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueueProcesses]:
    folder = tmp_path_factory.mktemp("ledgers")
    with rabbitmq.vhost() as vhost, queue_processes(cassandra, rabbitmq, vhost, s3, folder) as processes:
        yield processes


@pytest.fixture
def processes(_processes: QueueProcesses, s3: S3) -> QueueProcesses:
    return _processes.in_bucket(s3)
