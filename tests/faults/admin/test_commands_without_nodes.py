"""The commands where half of the ring is away."""

from pathlib import Path

import pytest

from mailmend.cql.driver.session import connect
from mailmend.cql.render import schema_cql
from tests.support.commands import QUICK, command_line, contact_of
from tests.support.keyspaces import MAIL
from tests.support.servers import CassandraServer, ThreeNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]


def test_half_of_the_ring_away(three_nodes: ThreeNodes, tmp_path: Path) -> None:
    """Too few replicas for the level that was asked for: exit 4, no half result; with one replica's level it works."""
    name = three_nodes.keyspace()
    server = CassandraServer(three_nodes.hosts[0], three_nodes.port)
    with connect(contact_of(server)) as cluster:
        cluster.execute_ddl(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}"
        )
        for statement in schema_cql(name, MAIL):
            cluster.execute_ddl(statement)
    three_nodes.stop(2)
    three_nodes.stop(3)
    mailmend = command_line(tmp_path, server, MAILMEND_KEYSPACE=name)

    ended = mailmend("check", *QUICK)
    refused = mailmend("repair", "messages", *QUICK)
    alone = mailmend("check", *QUICK, "--level", "one")

    assert (ended.code, ended.out) == (4, "")
    assert "replica" in ended.err
    assert "Traceback" not in ended.err + refused.err
    assert refused.code == 4
    assert alone.code == 0, alone.err
