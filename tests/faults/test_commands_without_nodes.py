"""The commands where the cluster refuses: wrong credentials, and half of the ring away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.local import ClusterRequest
from cql.driver.session import connect
from cql.render import schema_cql
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import MAIL
from tests.support.servers import CassandraServer, ThreeNodes, local_node

pytestmark = [pytest.mark.cassandra]

QUICK = ("--engine", "local", "--delay", "0")


@pytest.fixture(scope="module")
def guarded() -> Iterator[CassandraServer]:
    """A node that asks who one is."""
    with local_node(ClusterRequest(authenticator="PasswordAuthenticator", heap_mib=512)) as server:
        yield server


@pytest.fixture
def mailmend(guarded: CassandraServer, tmp_path: Path) -> CommandLine:
    """A shell that knows where the node is."""
    return command_line(tmp_path, guarded)


def test_wrong_credentials(mailmend: CommandLine) -> None:
    """Exit 4, which user, which options; never the password."""
    ended = mailmend("check", *QUICK, "--username", "cassandra", MAILMEND_PASSWORD="hunter2")

    assert (ended.code, "refused the credentials" in ended.err) == (4, True), ended.err
    assert "--password-file" in ended.err
    assert "hunter2" not in ended.err + ended.out
    assert "Traceback" not in ended.err


def test_no_credentials(mailmend: CommandLine) -> None:
    """A node that wants some says so."""
    ended = mailmend("check", *QUICK)

    assert (ended.code, "Traceback" in ended.err) == (4, False), ended.err


def test_right_credentials_from_a_file(mailmend: CommandLine, tmp_path: Path) -> None:
    """They let one in: what fails next is that there is no such keyspace."""
    secret = tmp_path / "secret"
    secret.write_text("cassandra\n")

    ended = mailmend("check", *QUICK, "--username", "cassandra", "--password-file", str(secret))

    assert (ended.code, "does not exist" in ended.err) == (2, True), ended.err


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
