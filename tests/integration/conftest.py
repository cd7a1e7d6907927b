"""The servers that integration tests of a queue share."""

from collections.abc import Iterator

import pytest

from tests.support.brokers import Broker
from tests.support.object_stores import S3
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer


@pytest.fixture(scope="session")
def servers(
    cassandra: CassandraServer, rabbitmq: Broker, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealQueue]:
    bucket = s3.bucket()
    blobs = {
        "MAILMEND_BLOBS": f"s3://{bucket.bucket}?endpoint={s3.endpoint}",
        "MAILMEND_S3_ACCESS_KEY": s3.access_key,
        "MAILMEND_S3_SECRET_KEY": s3.secret_key,
    }
    with real_queue(cassandra, rabbitmq, tmp_path_factory.mktemp("home"), blobs) as queue:
        yield queue


@pytest.fixture
def queue(servers: RealQueue) -> RealQueue:
    servers.empty()
    return servers
