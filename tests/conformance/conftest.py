"""Each adapter of the ports in turn: whatever a test of this folder says holds for all of them."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Contact, Keyspace, connect
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.rules.configuration import AGGREGATE
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import JavaMissing, LocalServerError
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Remove
from mailmend.model.ports import AsyncTables, Tables
from mailmend.repair.clock import SystemClock
from mailmend.repair.mending.limits import Pace, PacedTables
from tests.support.in_turn import InTurn
from tests.support.james_itself import JamesItself, james_process
from tests.support.james_jars import james_command
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer, unavailable
from tests.support.tables import ALL, micros


@pytest.fixture(scope="session")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port, cassandra.local_dc)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def james(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JamesItself]:
    try:
        java, classpath = james_command()
    except (JavaMissing, LocalServerError) as error:
        unavailable(error)
    with james_process(classpath, java, tmp_path_factory.mktemp("james") / "log") as james:
        yield james


@pytest.fixture(scope="session")
def keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"d_conformance_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), ALL))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", "paced", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def tables(request: pytest.FixtureRequest) -> Tables:
    if request.param == "memory":
        return MemoryTables(micros)
    if request.param == "paced":
        return PacedTables(MemoryTables(micros), Pace(1e9, SystemClock()), at_once_max=3)
    keyspace: Keyspace = request.getfixturevalue("keyspace")
    return keyspace


@pytest.fixture(scope="session")
def queue_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    """A keyspace with the mail queue's tables, James's and ours, and its configuration's, on the real server."""
    name = f"e_queue_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), (*QUEUE_TABLES, EVENT_STORE)))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def queue_tables(request: pytest.FixtureRequest) -> AsyncTables:
    """The mail queue's tables, awaited, behind each adapter; a real server's are shared: use queues of your own."""
    if request.param == "memory":
        return InTurn(MemoryTables(micros))
    keyspace: Keyspace = request.getfixturevalue("queue_keyspace")
    keyspace.write(Remove(EVENT_STORE, (AGGREGATE,)))  # how queues are cut is one setting for all of a keyspace
    return AsyncKeyspace(keyspace)


@pytest.fixture
def k() -> str:
    return uuid4().hex
