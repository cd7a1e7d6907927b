"""`mailmend queue configure` on a real Cassandra: in keyspaces of two generations of James, and in one without any."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.mailqueue.configuration import EVENTS
from mailmend.mailqueue.rules.configuration import AGGREGATE
from mailmend.model.catalog.james_tables import EVENT_STORE, SUBSCRIPTION
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Read
from mailmend.model.table import Table
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.james_queue import james_queue_rows
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

OLDER = "older than the static column"


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as cluster:
        yield cluster


@pytest.fixture(params=[EVENT_STORE, pytest.param(EVENTS, id=OLDER)], ids=lambda _: "newest")
def keyspace(cluster: CassandraCluster, request: pytest.FixtureRequest) -> Iterator[Keyspace]:
    """A keyspace with eventStore as that generation has it, in which James has set its defaults."""
    table: Table = request.param
    keyspace = created(cluster, f"e_configure_{uuid4().hex[:8]}", Schema((), (table,)))
    for row in james_queue_rows(table):
        keyspace.write(Put(table, row))
    yield keyspace
    dropped(cluster, (keyspace.name,))


@pytest.fixture
def mailmend(cassandra: CassandraServer, tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, cassandra)


def test_shown_refused_set_and_shown_again(mailmend: CommandLine, keyspace: Keyspace) -> None:
    place = ("--keyspace", keyspace.name, "--json")
    shown = mailmend("queue", "configure", *place)
    refused = mailmend("queue", "configure", "--slice-window", "7m", *place)
    tried = mailmend("queue", "configure", "--slice-window", "10m", "--dry-run", *place)
    changed = mailmend("queue", "configure", "--slice-window", "10m", "--buckets", "2", *place)

    assert [ended.code for ended in (shown, refused, tried, changed)] == [0, 2, 0, 0], changed.err
    assert shown.json["configuration"] == {"slice_window_seconds": 3_600, "buckets": 1, "pace": 1_000}
    assert "6m or 10m" in refused.err
    assert [one["event"] for one in tried.json["history"]] == [0]
    assert [one["event"] for one in changed.json["history"]] == [0, 1]
    assert mailmend("queue", "configure", *place).json["configuration"] == changed.json["configuration"]
    first, _ = keyspace.read(Read(EVENTS, (AGGREGATE,)))
    assert first.row["event"] == james_queue_rows(EVENTS)[0]["event"]


def test_a_keyspace_without_an_event_store_is_no_place_for_it(mailmend: CommandLine, cluster: CassandraCluster) -> None:
    keyspace = created(cluster, f"e_configure_{uuid4().hex[:8]}", Schema((), (SUBSCRIPTION,)))
    ended = mailmend("queue", "configure", "--keyspace", keyspace.name)
    dropped(cluster, (keyspace.name,))

    assert (ended.code, ended.out) == (2, "")
    assert f"keyspace '{keyspace.name}' lacks table eventstore" in ended.err
    assert "mailmend schema verify" in ended.err
