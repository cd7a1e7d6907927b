"""`mailmend schema advise` on a real Cassandra: what nodes tell, what is measured of traffic, and a trial."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailmend.admin.local.processes import require_free
from mailmend.admin.local.server import sweep_folders
from mailmend.admin.schema.measuring import Reading, draw_sample, message_traffic, queue_traffic
from mailmend.admin.schema.trial import PREFIX, Trial, given_node, started_node
from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.nodes import ask_every_node, sstables_of, traced
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from mailmend.cql.statistics import VIEWS, read_statistics
from mailmend.mailqueue.rules.configuration import event_json
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.ports import Silent
from mailmend.repair.clock import SystemClock
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.histories import histories
from tests.support.keyspaces import MAIL, created, dropped
from tests.support.queues import configured
from tests.support.servers import CassandraServer, ThreeNodes

pytestmark = pytest.mark.cassandra

MAILBOXES, EACH = 4, 15
HOUR = timedelta(hours=1)
_QUEUE = (
    (
        "CREATE TABLE {0}.enqueuedMailsV4 (queueName text, timeRangeStart timestamp, bucketId int, enqueueId uuid, "
        "name text, PRIMARY KEY ((queueName, timeRangeStart, bucketId), enqueueId))"
    ),
    "CREATE TABLE {0}.browseStart (queueName text PRIMARY KEY, browseStart timestamp)",
    "CREATE TABLE {0}.eventStore (aggregateId text, eventId int, event text, PRIMARY KEY (aggregateId, eventId))",
)
_EVENT = event_json(0, configured(3_600, 2))


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as connected:
        yield connected


@pytest.fixture(scope="module")
def keyspace(cluster: CassandraCluster) -> Iterator[str]:
    name = f"g_advise_{uuid4().hex[:8]}"
    mail = created(cluster, name, MAIL)
    now = datetime.now(UTC)
    for writes in histories(MAILBOXES, EACH, days=60, until=int(now.timestamp() * 1_000_000) - 3_600_000_000):
        assert mail.write_all(writes) == [None] * len(writes)
    _fill_queue(cluster, name, now.replace(minute=0, second=0, microsecond=0))
    yield name
    dropped(cluster, (name,))


def _fill_queue(cluster: CassandraCluster, name: str, hour: datetime) -> None:
    for statement in _QUEUE:
        cluster.execute_ddl(statement.format(name))
    for age, mails in ((0, 9), (1, 2), (2, 6), (4, 4)):
        for number in range(mails):
            values = ("spool", hour - age * HOUR, number % 2, uuid4())
            cluster.query(
                f"INSERT INTO {name}.enqueuedMailsV4 (queueName, timeRangeStart, bucketId, enqueueId) "
                "VALUES (?, ?, ?, ?)",
                values,
            )
    cluster.query(f"INSERT INTO {name}.browseStart (queueName, browseStart) VALUES (?, ?)", ("spool", hour - 9 * HOUR))
    cluster.query(
        f"INSERT INTO {name}.eventStore (aggregateId, eventId, event) VALUES (?, ?, ?)",
        ("CassandraMailQueueViewConfiguration", 0, _EVENT),
    )


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: str, tmp_path: Path) -> CommandLine:
    return command_line(
        tmp_path,
        cassandra,
        MAILMEND_KEYSPACE=keyspace,
        MAILMEND_SCHEMA_ADVISE_TRIAL_AT=f"{cassandra.host}:{cassandra.port}",
        MAILMEND_SCHEMA_ADVISE_WAVES="2",
        MAILMEND_SCHEMA_ADVISE_READS="4",
    )


class TestStatistics:
    """What a real server tells."""

    @pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.table)
    def test_every_virtual_table_has_the_column_that_is_read(self, cluster: CassandraCluster, view: Any) -> None:
        rows = cluster.query(f"SELECT keyspace_name, table_name, {view.column} FROM system_views.{view.table}")

        assert rows

    def test_every_figure_of_a_table_is_reported(self, cluster: CassandraCluster, keyspace: str) -> None:
        found = read_statistics(partial(ask_every_node, cluster), keyspace, ["imapuidtable"])

        assert (found.nodes_up, found.nodes_heard) == (1, 1)
        assert found.notes == ()
        assert found.hint_window_seconds == 3 * 3_600
        for view in VIEWS:
            assert getattr(found.tables["imapuidtable"], view.figure) is not None

    def test_a_table_that_is_not_there_is_the_answer_of_every_node(self, cluster: CassandraCluster) -> None:
        (answer,) = ask_every_node(cluster, "SELECT nothing FROM system_views.no_such_view")

        assert answer.error is not None
        assert not answer.rows

    def test_a_trace_tells_the_sstables_of_a_read(self, cluster: CassandraCluster, keyspace: str) -> None:
        ids = cluster.query(f"SELECT messageid FROM {keyspace}.imapuidtable LIMIT 1")
        text = f"SELECT uid FROM {keyspace}.imapuidtable WHERE messageid = ?"

        trace = traced(cluster, text, (ids[0]["messageid"],))

        assert _result(cluster, trace) == 0


def _result(cluster: CassandraCluster, trace: Any) -> int | None:
    found = (sstables_of(cluster, trace) for _ in range(2_000))
    return next((one for one in found if one is not None), None)


class TestTraffic:
    """What is measured of the queue and of the mailboxes."""

    def test_the_queue_is_measured_by_its_slices_that_are_over(self, cluster: CassandraCluster, keyspace: str) -> None:
        now = int(datetime.now(UTC).timestamp() * 1_000_000)

        found = queue_traffic(Reading(cluster), keyspace, live_schema(cluster, keyspace), now)

        assert found is not None
        assert found.rates is not None
        assert found.settings == configured(3_600, 2)
        assert found.rates.looked_at in {3, 4}  # an hour may have ended since
        assert found.rates.peak >= 6 / 3_600
        assert found.oldest_seconds is not None
        assert found.oldest_seconds >= 9 * 3_600
        assert found.mails_per_partition == pytest.approx(21 / 8)

    def test_the_mailboxes_are_measured_by_the_births_of_messages(
        self, cluster: CassandraCluster, keyspace: str
    ) -> None:
        now = int(datetime.now(UTC).timestamp() * 1_000_000)

        found = message_traffic(Reading(cluster), keyspace, live_schema(cluster, keyspace), now, partitions=None)

        assert found.rates is not None
        assert found.rates.looked_at == MAILBOXES * EACH
        assert found.rates.mean < 10 / 86_400
        assert 40 < found.rates.history_seconds / 86_400 <= 60


class TestCommand:
    """As a person types it."""

    def test_advice_without_a_trial_writes_nothing_and_needs_no_java(self, mailmend: CommandLine) -> None:
        ended = mailmend("schema", "advise", "--no-trial", "--mails-per-second", "40", "--json")

        assert ended.code == 0, ended.err
        assert ended.json["queue"]["slice_seconds"] == 300
        assert ended.json["queue"]["buckets"] >= 2
        assert ended.json["messages"]["choice"] is None
        assert ended.json["traffic"]["mails_per_second"]["source"] == "given"
        assert "ALTER TABLE" in " ".join(ended.json["next"])

    def test_the_queue_s_configuration_is_advised_within_what_it_may_become(self, mailmend: CommandLine) -> None:
        ended = mailmend("queue", "advise", "--mails-per-second", "40", "--json")

        assert ended.code == 0, ended.err
        assert ended.json["present"]["slice_seconds"] == 3_600
        assert ended.json["advised"]["slice_seconds"] == 300
        assert ended.json["advised"]["buckets"] >= ended.json["present"]["buckets"] == 2
        assert "--slice-window 5m" in ended.json["command"]
        shown = mailmend("queue", "advise")
        assert shown.code == 0, shown.err
        assert "any that divides the present 1h" in shown.out

    @pytest.mark.thorough
    def test_a_trial_measures_all_three_on_whole_mailboxes(
        self, mailmend: CommandLine, cluster: CassandraCluster
    ) -> None:
        ended = mailmend("schema", "advise", "--sample", "45", "--json")

        assert ended.code == 0, ended.err
        messages = ended.json["messages"]
        assert (messages["rows"], messages["mailboxes"], messages["passed_over"]) == (45, 3, 0)
        assert set(messages["trial"]) == {choice.value for choice in CompactionChoice}
        for measured in messages["trial"].values():
            assert measured["mailbox"]["reads"] == 4
            assert 1 <= measured["mailbox"]["sstables_mean"] <= 2
            assert measured["message"]["p99_ms"] >= measured["message"]["p50_ms"] > 0
        assert messages["choice"] in messages["trial"]
        assert messages["why"]
        left = [row["keyspace_name"] for row in cluster.query("SELECT keyspace_name FROM system_schema.keyspaces")]
        assert not [name for name in left if name.startswith("mailmend_trial_")]


@pytest.mark.thorough
def test_every_figure_is_reported_by_cassandra_4_1_too(cassandra41: CassandraServer) -> None:
    with connect(contact_of(cassandra41)) as older:
        found = read_statistics(partial(ask_every_node, older), "system_auth", ["roles"])

    assert found.notes == ()
    assert found.hint_window_seconds == 3 * 3_600
    assert all(getattr(found.tables["roles"], view.figure) is not None for view in VIEWS)


@pytest.mark.thorough
def test_each_of_three_nodes_tells_of_itself(three_nodes: ThreeNodes) -> None:
    ask = "SELECT release_version, rpc_address FROM system.local"
    with connect(Contact(three_nodes.hosts, three_nodes.port, three_nodes.local_dc)) as ring:
        answers = ask_every_node(ring, ask)
        assert sorted(answer.node for answer in answers) == sorted(three_nodes.hosts)
        assert {str(answer.rows[0]["rpc_address"]) for answer in answers} == set(three_nodes.hosts)

        found = read_statistics(partial(ask_every_node, ring), "system_auth", ["roles"])
        assert (found.nodes_up, found.nodes_heard) == (3, 3)
        assert found.notes == ()


class TestNode:
    """The folder of a trial's own Cassandra."""

    def test_what_a_killed_trial_left_is_removed_and_what_others_have_is_not(self, tmp_path: Path) -> None:
        """Its owner is known by number and start; a folder without one may be in the making."""
        left, making, other = (tmp_path / name for name in (f"{PREFIX}left", f"{PREFIX}making", "mail"))
        for folder in (left, making, other):
            folder.mkdir()
        (left / "owner.json").write_text('{"pid": 4194303, "started_at": 1.0, "mark": ""}')

        sweep_folders(PREFIX, tmp_path)

        assert not left.exists()
        assert making.exists()
        assert other.exists()

    @pytest.mark.thorough
    def test_a_trial_on_a_node_of_its_own_leaves_nothing_behind(
        self, cluster: CassandraCluster, keyspace: str, tmp_path: Path
    ) -> None:
        """Only its owner may read the copy; Ctrl-C ends the node and removes the folder like any other end."""
        sample = draw_sample(cluster.keyspace(keyspace), live_schema(cluster, keyspace), 45, Silent())

        with suppress(KeyboardInterrupt), started_node(tmp_path) as node:
            (folder,) = tmp_path.iterdir()
            port = node.cluster.contact.port
            assert folder.stat().st_mode & 0o777 == 0o700
            results = Trial(node, SystemClock(), Silent(), waves=2, reads=4).run(sample.messages)
            raise KeyboardInterrupt

        assert [one.choice for one in results] == list(CompactionChoice)
        assert all(one.disk_bytes > 1_000 for one in results)
        assert not list(tmp_path.iterdir())
        require_free("127.0.0.1", port)

    def test_a_given_node_has_no_folder_to_measure(self, cassandra: CassandraServer) -> None:
        with given_node(cassandra.host, cassandra.port) as node:
            assert node.sstables is None
            assert node.disk_bytes("system_schema") % 1_048_576 == 0
