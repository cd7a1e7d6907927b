"""What fault tests share: keyspaces of mail and ledger, and the three servers of a mail queue together."""

from collections.abc import Iterator

import pytest

from mailmend.cql.driver.session import connect
from tests.support.brokers import Broker
from tests.support.commands import contact_of
from tests.support.keyspaces import LEDGER, MAIL, MailServer, created, dropped, emptied
from tests.support.object_stores import S3
from tests.support.queue_processes import QueueProcesses, queue_processes
from tests.support.servers import CassandraServer


@pytest.fixture(scope="session")
def _mail_server(cassandra: CassandraServer) -> Iterator[MailServer]:
    names = (cassandra.keyspace(), cassandra.keyspace())
    with connect(contact_of(cassandra)) as cluster:
        yield MailServer(cluster, created(cluster, names[0], MAIL), created(cluster, names[1], LEDGER))
        dropped(cluster, names)


@pytest.fixture
def mail_server(_mail_server: MailServer) -> Iterator[MailServer]:
    yield _mail_server
    emptied(_mail_server.cluster, _mail_server.mail, MAIL)
    emptied(_mail_server.cluster, _mail_server.ledger, LEDGER)


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
