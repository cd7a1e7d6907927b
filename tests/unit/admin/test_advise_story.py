"""The whole of `schema advise` without a server: what is looked at, what a trial adds, what stands without one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from cassandra import Unauthorized

from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.schema.advise import Advised, AdviseRequest, OpenNode, advise_on
from mailmend.admin.schema.measuring import WATCHED
from mailmend.admin.schema.trial import TrialNode
from mailmend.mailqueue.rules.advice import FigureSource
from mailmend.model.catalog.mail import MESSAGE_COMPACTIONS, CompactionChoice
from mailmend.model.errors import JavaMissing, MailmendError, SchemaMismatch, UnknownKeyspace
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.model.ports import Silent
from mailmend.model.table import Column, Kind, Table
from tests.support.mail_cluster import EACH, JAMES, JAMES_TABLE, MAILBOXES, QUEUE, MailCluster
from tests.support.nodes_twin import Node
from tests.support.queues import configured
from tests.support.schemas import without_tables
from tests.support.trial_twin import TrialServer

VIEWS = "system_views."


def without_node() -> Any:
    raise AssertionError("no node is needed")


def asked(rows: int = 60, *, trial: bool = True) -> AdviseRequest:
    return AdviseRequest(connection=ConnectionSettings(), trial=trial, sample=rows, waves=2, reads=3)


def advised(cluster: MailCluster, open_node: OpenNode | None = None, rows: int = 60) -> Advised:
    request = asked(rows, trial=open_node is not None)
    return advise_on(cluster.place(), request, open_node or without_node, Silent())


def on(server: TrialServer) -> OpenNode:
    @contextmanager
    def opened() -> Iterator[TrialNode]:
        yield TrialNode(cast("Any", server))

    return opened


@contextmanager
def _fails(error: MailmendError) -> Iterator[TrialNode]:
    raise error
    yield  # a context manager is a generator


class TestLooking:
    """What is known without a trial."""

    def test_messages_are_measured_and_nothing_is_written(self) -> None:
        cluster = MailCluster(JAMES)
        tables = cluster.keyspace("mail")
        before = list(tables.scan(Scan(JAMES_TABLE, ("messageid", "modseq"))))

        found = advised(cluster)

        assert found.traffic.mails_per_second.source is FigureSource.MEASURED
        assert found.messages.traffic.rates is not None
        assert found.messages.traffic.rates.looked_at == MAILBOXES * EACH
        assert found.messages.window_days is not None
        assert (found.messages.results, found.messages.advice, found.messages.untried) == ((), None, "")
        assert cluster.carried_out == []
        assert list(tables.scan(Scan(JAMES_TABLE, ("messageid", "modseq")))) == before

    def test_the_present_compaction_is_reported_as_it_is(self) -> None:
        for choice in CompactionChoice:
            message_id = JAMES.table("messageidtable")
            assert message_id is not None
            chosen = Table(message_id.spelling, message_id.columns, compaction=MESSAGE_COMPACTIONS[choice], options={})
            others = without_tables(JAMES, "messageidtable")
            live = Schema(others.types, (*others.tables, chosen))
            assert advised(MailCluster(live)).messages.present is choice

    def test_only_tables_that_are_there_are_asked_about(self) -> None:
        assert set(advised(MailCluster(JAMES)).statistics.tables) == {
            name for name in WATCHED if JAMES.table(name) is not None
        }

    def test_a_queue_alone_is_advised_on(self) -> None:
        events = Table("eventstore", (Column("aggregateid", "text", Kind.PARTITION),))

        found = advised(MailCluster(Schema((), (QUEUE, events))))

        assert found.settings == configured(3_600, 1)
        assert found.traffic.mails_per_second.value == 2.0
        assert (found.messages.strategy, found.messages.present, found.messages.window_days) == ("", None, None)
        assert any("renews no row of its queue" in note for note in found.notes)

    def test_what_nodes_do_not_show_is_a_note(self) -> None:
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
        cluster = MailCluster(live)

        with pytest.raises(refused):
            advise_on(cluster.place(keyspace), asked(trial=False), without_node, Silent())
        assert cluster.bound == []


class TestTrial:
    """What a trial adds."""

    def test_a_choice_is_made_of_what_was_measured_and_the_copy_is_gone(self) -> None:
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
        first, second = TrialServer(), TrialServer()
        for server, seconds in ((first, 0.0), (second, 0.001)):
            cluster = MailCluster(JAMES)
            cluster.clock.advance(seconds)
            advised(cluster, on(server))
        assert not set(first.held) & set(second.held)

    def test_an_older_server_is_not_asked_to_use_what_it_lacks(self) -> None:
        cluster = MailCluster(JAMES)
        cluster.release_version = "4.1.10"
        best = TrialServer(sstables=lambda keyspace: 1 if keyspace.endswith("unified") else 9)

        advice = advised(cluster, on(best)).messages.advice

        assert advice is not None
        assert advice.choice is not CompactionChoice.UNIFIED
        assert "unified is out: this server does not know it." in advice.why

    def test_no_mailbox_that_fits_is_no_trial_and_no_failure(self) -> None:
        found = advised(MailCluster(JAMES), without_node, rows=5)

        assert found.messages.untried == "no mailbox of at most 5 messages was found (--sample takes more)"
        assert found.messages.results == ()
        assert f"No trial was made: {found.messages.untried}" in found.notes

    @pytest.mark.parametrize(
        ("open_node", "why"),
        [
            (
                lambda: _fails(JavaMissing("no Java 17 was found", mend="Install one.")),
                "no Java 17 was found. Install one.",
            ),
            (on(TrialServer(fails_at=6)), "the node went away."),
        ],
        ids=["never starts", "goes away"],
    )
    def test_a_trial_that_fails_leaves_the_rest_of_the_advice(self, open_node: Callable[[], Any], why: str) -> None:
        found = advised(MailCluster(JAMES), open_node)

        assert found.messages.untried == why
        assert found.messages.sample is not None
        assert found.messages.advice is None
        assert found.traffic.mails_per_second.source is FigureSource.MEASURED

    def test_a_keyspace_without_messages_needs_none(self) -> None:
        found = advised(MailCluster(Schema((), (QUEUE,))), on(TrialServer()))

        assert (found.messages.sample, found.messages.untried) == (None, "")
