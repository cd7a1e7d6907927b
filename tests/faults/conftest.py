"""The three servers of a mail queue together, for tests in which processes on them die."""

from collections.abc import Iterator

import pytest

from tests.support.brokers import Broker
from tests.support.object_stores import S3
from tests.support.queue_ground import Ground, queue_ground
from tests.support.servers import CassandraServer


@pytest.fixture(scope="session")
def _ground(
    cassandra: CassandraServer, rabbitmq: Broker, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("ledgers")
    with rabbitmq.vhost() as vhost, queue_ground(cassandra, rabbitmq, vhost, s3, folder) as ground:
        yield ground


@pytest.fixture
def ground(_ground: Ground, s3: S3) -> Ground:
    return _ground.in_bucket(s3)
