"""Each adapter of the ports in turn: whatever a test of this folder says holds for all of them."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from cql.memory import MemoryTables
from cql.session import CassandraCluster, Contact, Keyspace, connect
from model.schema import Schema
from repair.ports import Tables
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer
from tests.support.tables import ALL, micros


@pytest.fixture(scope="session")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    """A session on the real server."""
    with connect(Contact((cassandra.host,), cassandra.port, cassandra.local_dc)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    """A keyspace of these tests' own on the real server."""
    name = f"d_conformance_{uuid4().hex[:8]}"
    yield created(cluster, name, Schema((), ALL))
    dropped(cluster, (name,))


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def tables(request: pytest.FixtureRequest) -> Tables:
    """The tables, behind each adapter."""
    if request.param == "memory":
        return MemoryTables(micros)
    keyspace: Keyspace = request.getfixturevalue("keyspace")
    return keyspace


@pytest.fixture
def k() -> str:
    """A partition that nobody used before."""
    return uuid4().hex
