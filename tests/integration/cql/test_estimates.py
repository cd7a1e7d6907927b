"""What real nodes tell of themselves: sizes that they have recorded, what lies on their disks, what waits."""

from collections.abc import Iterator

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.nodes import pending_compactions, sizes_in
from mailmend.cql.driver.session import CassandraCluster, connect
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port)) as opened:
        yield opened


def test_a_keyspace_that_is_there_is_reported_from_every_node(cluster: CassandraCluster) -> None:
    sizes = sizes_in(cluster, "system_schema")
    tables = sizes["tables"]
    assert (tables.nodes_asked, tables.nodes) == (1, 1)
    assert tables.disk_bytes is not None
    assert "1 of 1 nodes" in str(tables)


def test_a_keyspace_that_is_not_there_has_no_sizes(cluster: CassandraCluster) -> None:
    assert sizes_in(cluster, "no_such_keyspace") == {}


def test_a_node_says_how_many_compactions_are_pending(cluster: CassandraCluster) -> None:
    assert pending_compactions(cluster) == 0, "its few tables are small"
