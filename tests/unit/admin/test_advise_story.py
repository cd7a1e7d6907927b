"""The whole of `schema advise` without a server: what is looked at, what a trial adds, what stands without one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from cassandra import Unauthorized

from admin.advice.advising import WATCHED, Advised, TrialWanted, advise
from admin.advice.traffic_figures import GivenTraffic
from admin.advice.trial import TrialNode
from admin.progress import Silent
from admin.settings import ConnectionSettings
from admin.wiring import Place
from model.advice import QueueSettings, Source
from model.catalog import MESSAGE_COMPACTIONS, CompactionChoice
from model.errors import JavaMissing, MailmendError, SchemaMismatch, UnknownKeyspace
from model.generations import JAMES_3_9
from model.operations import Scan
from model.schema import Schema
from model.table import Column, Kind, Row, Table
from tests.support.clock import VirtualClock
from tests.support.histories import histories
from tests.support.nodes_twin import Node, NodesTwin
from tests.support.schemas import served, without_tables
from tests.support.trial_twin import TrialServer

MAILBOXES, EACH = 3, 20
JAMES = served(JAMES_3_9.schema)
QUEUE = Table("enqueuedmailsv4", (Column("queuename", "text", Kind.PARTITION),))
VIEWS = "system_views."


class MailCluster(NodesTwin):
    """A cluster with mail of a year, and with a queue where its tables are there."""

    def __init__(self, live: Schema, *nodes: Node, mailboxes: int = MAILBOXES) -> None:
        super().__init__(*(nodes or (Node("10.0.0.1"),)), clock=VirtualClock(), mail=live)
        self.hour = self.clock.micros() // 3_600_000_000 * 3_600
        tables = self.keyspace("mail")
        for writes in histories(mailboxes, EACH, days=365, until=self.clock.micros()):
            tables.write_all(writes)

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """What traffic is measured by; schemas as ever."""
        table = text.partition(" FROM mail.")[2].partition(" ")[0]
        if not table:
            return super().query(text, values)
        if "count(*)" in text:
            return [{"mails": 7_200}]
        start = datetime.fromtimestamp(self.hour - 3_600, UTC)
        rows: Mapping[str, Sequence[Row]] = {
            "enqueuedmailsv4": [{"queuename": "spool", "timerangestart": start, "bucketid": 0}],
            "eventstore": [{"event": '{"bucketCount":1,"sliceWindow":3600}'}],
            "imapuidtable": list(self.keyspace("mail").scan(Scan(JAMES_TABLE, ("messageid",)))),
        }
        return rows.get(table, ())

    def place(self, keyspace: str = "mail") -> Place:
        """The cluster as a command holds it."""
        return Place(ConnectionSettings(keyspace=keyspace), cast("Any", self), cast("Any", self.clock))


JAMES_TABLE = next(table for table in JAMES_3_9.schema.tables if table.name == "imapuidtable")


def advised(cluster: MailCluster, trial: TrialWanted | None = None) -> Advised:
    """What a person is told."""
    return advise(cluster.place(), GivenTraffic(), trial, Silent())


def on(server: TrialServer, rows: int = 60) -> TrialWanted:
    """A trial on that server."""

    @contextmanager
    def opened() -> Iterator[TrialNode]:
        yield TrialNode(cast("Any", server))

    return TrialWanted(rows, opened, waves=2, reads=3)


@contextmanager
def _fails(error: MailmendError) -> Iterator[TrialNode]:
    raise error
    yield  # a context manager is a generator


class TestLooking:
    """What is known without a trial."""

    def test_messages_are_measured_and_nothing_is_written(self) -> None:
        """Neither to the schema nor to a row."""
        cluster = MailCluster(JAMES)
        tables = cluster.keyspace("mail")
        before = list(tables.scan(Scan(JAMES_TABLE, ("messageid", "modseq"))))

        found = advised(cluster)

        assert found.traffic.mails_per_second.source is Source.MEASURED
        assert found.messages.traffic.rates is not None
        assert found.messages.traffic.rates.looked_at == MAILBOXES * EACH
        assert found.messages.window_days is not None
        assert (found.messages.results, found.messages.advice, found.messages.untried) == ((), None, "")
        assert cluster.carried_out == []
        assert list(tables.scan(Scan(JAMES_TABLE, ("messageid", "modseq")))) == before

    def test_the_present_compaction_is_told_as_it_is(self) -> None:
        """One of the choices, or a class that is none of them."""
        for choice in CompactionChoice:
            message_id = JAMES.table("messageidtable")
            assert message_id is not None
            chosen = Table(message_id.spelling, message_id.columns, compaction=MESSAGE_COMPACTIONS[choice], options={})
            others = without_tables(JAMES, "messageidtable")
            live = Schema(others.types, (*others.tables, chosen))
            assert advised(MailCluster(live)).messages.present is choice

    def test_only_tables_that_are_there_are_asked_about(self) -> None:
        """A keyspace without a queue is not asked for its queue's tables."""
        assert set(advised(MailCluster(JAMES)).statistics.tables) == {
            name for name in WATCHED if JAMES.table(name) is not None
        }

    def test_a_queue_alone_is_advised_on(self) -> None:
        """It may have a keyspace of its own; of messages nothing is claimed."""
        events = Table("eventstore", (Column("aggregateid", "text", Kind.PARTITION),))

        found = advised(MailCluster(Schema((), (QUEUE, events))))

        assert found.settings == QueueSettings(3_600, 1)
        assert found.traffic.mails_per_second.value == 2.0
        assert (found.messages.strategy, found.messages.present, found.messages.window_days) == ("", None, None)
        assert any("renews no row of its queue" in note for note in found.notes)

    def test_what_nodes_do_not_show_is_a_note(self) -> None:
        """Two nodes, one of which lets nobody read its tables."""
        denied = Unauthorized("no")
        quiet = Node("10.0.0.2", {f"{VIEWS}disk_usage": denied, "system.local": denied})
        usage = [{"keyspace_name": "mail", "table_name": "messageidtable", "mebibytes": 8}]

        found = advised(MailCluster(JAMES, Node("10.0.0.1", {f"{VIEWS}disk_usage": usage}), quiet))

        assert (found.statistics.nodes_up, found.statistics.nodes_heard) == (2, 1)
        assert found.statistics.tables["messageidtable"].disk_bytes == 8 * 1_048_576
        assert f"{VIEWS}disk_usage may not be read" in " ".join(found.notes)

    @pytest.mark.parametrize(
        ("live", "keyspace", "refused"),
        [
            (Schema((), (Table("other", (Column("k", "int", Kind.PARTITION),)),)), "mail", SchemaMismatch),
            (JAMES, "elsewhere", UnknownKeyspace),
        ],
    )
    def test_what_is_no_mail_is_refused_before_anybody_is_asked(
        self, live: Schema, keyspace: str, refused: type[MailmendError]
    ) -> None:
        """Advice on nothing would still look like advice."""
        cluster = MailCluster(live)

        with pytest.raises(refused):
            advise(cluster.place(keyspace), GivenTraffic(), None, Silent())
        assert cluster.bound == []


class TestTrial:
    """What a trial adds."""

    def test_a_choice_is_made_of_what_was_measured_and_the_copy_is_gone(self) -> None:
        """Leveled reads the fewest SSTables here; the keyspaces of the copy bear a name of their own."""
        server = TrialServer(sstables=lambda keyspace: 1 if keyspace.endswith("leveled") else 9)

        found = advised(MailCluster(JAMES), on(server))

        assert found.messages.advice is not None
        assert found.messages.advice.choice is CompactionChoice.LEVELED
        assert [one.choice for one in found.messages.results] == list(CompactionChoice)
        assert found.messages.sample is not None
        assert len(found.messages.sample.messages) == MAILBOXES * EACH
        assert server.keyspaces == {}
        assert all(name.startswith("mailmend_trial_") for name in server.held)

    def test_two_trials_at_once_do_not_share_a_name(self) -> None:
        """They may run on one node."""
        first, second = TrialServer(), TrialServer()
        for server in (first, second):
            advised(MailCluster(JAMES), on(server))
        assert not set(first.held) & set(second.held)

    def test_an_older_server_is_not_told_to_use_what_it_lacks(self) -> None:
        """The trial runs on a newer Cassandra than the user's own."""
        cluster = MailCluster(JAMES)
        cluster.release_version = "4.1.10"
        best = TrialServer(sstables=lambda keyspace: 1 if keyspace.endswith("unified") else 9)

        advice = advised(cluster, on(best)).messages.advice

        assert advice is not None
        assert advice.choice is not CompactionChoice.UNIFIED
        assert "unified is out: this server does not know it." in advice.why

    def test_no_mailbox_that_fits_is_no_trial_and_no_failure(self) -> None:
        """No node is started for it; the option that takes more is named."""

        def never() -> Any:
            raise AssertionError("no node is needed")

        found = advised(MailCluster(JAMES), TrialWanted(5, never))

        assert found.messages.untried == "no mailbox of at most 5 messages was found (--rows takes more)"
        assert found.messages.results == ()
        assert f"No trial was made: {found.messages.untried}" in found.notes

    @pytest.mark.parametrize(
        ("open_node", "why"),
        [
            (
                lambda: _fails(JavaMissing("no Java 17 was found", mend="Install one.")),
                "no Java 17 was found. Install one.",
            ),
            (lambda: on(TrialServer(fails_at=6)).open_node(), "the node went away."),
        ],
        ids=["never starts", "goes away"],
    )
    def test_a_trial_that_fails_leaves_the_rest_of_the_advice(self, open_node: Callable[[], Any], why: str) -> None:
        """Why is told among the notes; what was drawn is known still."""
        found = advised(MailCluster(JAMES), TrialWanted(60, open_node, 2, 3))

        assert found.messages.untried == why
        assert found.messages.sample is not None
        assert found.messages.advice is None
        assert found.traffic.mails_per_second.source is Source.MEASURED

    def test_a_keyspace_without_messages_needs_none(self) -> None:
        """The queue is advised on by reckoning alone."""
        found = advised(MailCluster(Schema((), (QUEUE,))), on(TrialServer()))

        assert (found.messages.sample, found.messages.untried) == (None, "")
