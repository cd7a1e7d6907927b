"""The names that scripts read advice by, all of them, and what a person sees where something was not told."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mailmend.admin.schema.advise import Advised, MessageTables, advised_json, document_of, next_lines
from mailmend.admin.schema.measuring import (
    NAMES,
    GivenTraffic,
    MessageTraffic,
    QueueTraffic,
    Sample,
    SampledMessage,
    traffic_figures,
)
from mailmend.cql.language.parser import parse
from mailmend.cql.schema.advice import Rates, ReadCost, TrialResult, choose
from mailmend.cql.statements import SetOptions
from mailmend.cql.statistics import MIB, Statistics, TableFigures
from mailmend.mailqueue.rules.advice import advise_queue
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, CompactionChoice
from mailmend.model.durations import DAY
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.documents import text_of
from tests.support.queues import configured

QUEUE, MARKS = (Table(name, (Column("q", "text", Kind.PARTITION),)) for name in ("enqueuedMailsV4", "deletedMailsV2"))
CELLS = tuple(UUID(int=1) if name == "mailboxid" else None for name in NAMES)
SAMPLE = Sample([SampledMessage(CELLS, 0, DAY * 90_000_000), SampledMessage(CELLS, 5, None)], 1, 3)
RESULTS = tuple(
    TrialResult(choice, ReadCost(7, cost, 9, 1.25, 2.5, 6), ReadCost(8, cost, 9, 0.5, 0.75, 8), 3 * MIB, 5 * MIB)
    for choice, cost in zip(CompactionChoice, (8.0, 2.0, 5.0), strict=True)
)
FIGURES = TableFigures(12_345, 678, 9 * MIB, 2 * MIB, 1.5, 3.0, 40, 17)
UNTRIED = MessageTables("SizeTieredCompactionStrategy", None, MessageTraffic(None, None), None)
TRIED = replace(
    UNTRIED, sample=SAMPLE, results=RESULTS, advice=choose(RESULTS, None, frozenset(CompactionChoice)), window_days=30
)


def advised(messages: MessageTables = TRIED, *tables: Table, **statistics: TableFigures) -> Advised:
    heard = Statistics(statistics, nodes_up=3, nodes_heard=2)
    queue = QueueTraffic("spool", Rates(5, 30, 10 * DAY, 240), configured(3_600, 1), 60, 100)
    traffic = traffic_figures(GivenTraffic(), queue, messages.traffic, heard, {"dc1": "3"})
    live = Schema((), tables or (IMAP_UID, MESSAGE_ID, QUEUE, MARKS))
    return Advised("mail", "5.0.9", live, traffic, queue.settings, advise_queue(traffic), messages, heard, ("a note",))


def document(of: Advised) -> Any:
    return json.loads(json.dumps(advised_json(of)))


def page(of: Advised) -> str:
    return text_of(document_of(of), 200)


class TestNames:
    """A contract: names are added, never changed."""

    def test_the_whole_of_it(self) -> None:
        reported = document(advised(imapuidtable=FIGURES))

        assert list(reported) == [
            "keyspace",
            "release",
            "messages",
            "queue",
            "traffic",
            "statistics",
            "notes",
            "next",
            "exit",
        ]
        assert (reported["keyspace"], reported["release"], reported["notes"], reported["exit"]) == (
            "mail",
            "5.0.9",
            ["a note"],
            0,
        )
        assert set(reported["messages"]) == {
            *("strategy", "present", "choice", "change", "too_small", "why", "window_days", "history_days"),
            *("changes_per_message", "rows", "mailboxes", "passed_over", "trial"),
        }
        assert set(reported["queue"]) == {
            *("slice_seconds", "buckets", "ttl_seconds", "window_seconds", "gc_grace_seconds", "mark_ttl_seconds"),
            *("mark_window_seconds", "mark_bloom_chance", "slack_seconds", "reasons"),
        }
        assert set(reported["traffic"]) == {
            *("mails_per_second", "peak_per_second", "longest_stay_seconds", "row_bytes", "nodes", "copies"),
            "hint_window_seconds",
        }
        assert all(set(one) == {"value", "source", "how"} for one in reported["traffic"].values())
        assert reported["traffic"]["mails_per_second"]["source"] == "measured"
        assert all(set(one) == {"setting", "value", "why"} for one in reported["queue"]["reasons"])

    def test_a_trial_is_reported_by_choice_and_kind_of_read(self) -> None:
        messages = document(advised())["messages"]

        assert (messages["strategy"], messages["present"]) == ("SizeTieredCompactionStrategy", None)
        assert (messages["choice"], messages["change"], messages["too_small"]) == ("unified", True, False)
        assert (messages["rows"], messages["mailboxes"], messages["passed_over"]) == (2, 1, 3)
        assert list(messages["trial"]) == [choice.value for choice in CompactionChoice]
        assert messages["trial"]["unified"] == {
            "mailbox": {
                "reads": 7,
                "sstables_mean": 2.0,
                "sstables_max": 9,
                "p50_ms": 1.25,
                "p99_ms": 2.5,
                "traced": 6,
            },
            "message": {
                "reads": 8,
                "sstables_mean": 2.0,
                "sstables_max": 9,
                "p50_ms": 0.5,
                "p99_ms": 0.75,
                "traced": 8,
            },
            "sstables_per_read": RESULTS[1].sstables,
            "disk_bytes": 3 * MIB,
            "rewritten_bytes": 5 * MIB,
        }

    def test_without_a_trial_the_names_stay(self) -> None:
        messages, tried = (document(advised(one))["messages"] for one in (UNTRIED, TRIED))

        assert set(messages) == set(tried)
        assert [messages[name] for name in ("choice", "change", "too_small", "window_days", "history_days")] == [
            None
        ] * 5
        assert (messages["why"], messages["rows"], messages["mailboxes"], messages["trial"]) == ([], 0, 0, {})

    def test_history_and_changes_are_those_of_all_messages(self) -> None:
        measured = replace(TRIED, traffic=MessageTraffic(Rates(1, 2, 365 * DAY, 9), 1.5))

        reported = document(advised(measured))["messages"]

        assert (reported["history_days"], reported["changes_per_message"], reported["window_days"]) == (365, 1.5, 30)

    def test_statistics_are_reported_table_by_table(self) -> None:
        reported = document(advised(TRIED, imapuidtable=FIGURES, messagev3=TableFigures()))["statistics"]

        assert (reported["nodes_up"], reported["nodes_heard"]) == (3, 2)
        assert reported["tables"]["imapuidtable"] == {
            "partitions": 12_345,
            "mean_partition_bytes": 678,
            "disk_bytes": 9 * MIB,
            "max_partition_bytes": 2 * MIB,
            "local_read_p99_ms": 1.5,
            "coordinator_read_p99_ms": 3.0,
            "rows_per_read_p99": 40,
            "tombstones_per_read_p99": 17,
        }
        assert set(reported["tables"]["messagev3"].values()) == {None}


class TestPage:
    """What a person sees."""

    def test_a_figure_that_nobody_reported_is_said_to_be_unknown(self) -> None:
        untold = page(advised(TRIED, imapuidtable=replace(FIGURES, partitions=None, disk_bytes=0)))

        row = next(line for line in untold.splitlines() if line.strip().startswith("imapuidtable"))
        for words in ("not known", "678 B", "0 MiB", "2 MiB", "1.50 ms", "17"):
            assert words in row
        assert "12,345" in page(advised(TRIED, imapuidtable=FIGURES))

    def test_without_statistics_there_is_no_table_of_them(self) -> None:
        assert "tell of the tables" not in page(advised())
        assert "Trial:" not in page(advised(UNTRIED))

    def test_the_trial_says_of_what_it_was_made(self) -> None:
        assert "Trial: 2 messages of 1 mailboxes, 1 of them changed later, 90 days" in page(advised())

    def test_square_brackets_of_others_are_text(self) -> None:
        assert "[bold]odd[/bold]" in page(replace(advised(), notes=("[bold]odd[/bold]",)))


class TestNext:
    """What to type."""

    @pytest.mark.parametrize("messages", [TRIED, UNTRIED])
    def test_every_statement_is_cql_on_a_table_that_is_there(self, messages: MessageTables) -> None:
        of = advised(messages)
        altered = []
        for line in next_lines(of):
            if line.startswith("ALTER"):
                (parsed,) = parse(line)
                assert isinstance(parsed.statement, SetOptions)
                altered.append(parsed.statement.name)
        assert all(name.keyspace == "mail" and of.live.table(name.spelling) for name in altered)
        queue = ["enqueuedmailsv4", "deletedmailsv2"]
        assert [name.spelling for name in altered] == (
            ["imapuidtable", "messageidtable", *queue] if messages is TRIED else queue
        )

    def test_tables_that_are_not_there_are_not_altered(self) -> None:
        lines = list(next_lines(advised(UNTRIED, MESSAGE_ID)))

        assert lines == ["mailmend schema plan --from-model --include-options --keyspace mail"]

    def test_rows_and_marks_have_windows_and_grace_of_their_own(self) -> None:
        of = advised(UNTRIED)
        lines = list(next_lines(of))

        assert f"rabbitmq.properties: mailqueue.view.sliceWindow={of.queue.slice_seconds}s" in lines
        assert f"rabbitmq.properties: mailqueue.view.bucketCount={of.queue.buckets}" in lines
        rows, marks = [line for line in lines if line.startswith("ALTER")]
        for line, ttl in ((rows, of.queue.ttl_seconds), (marks, of.queue.mark_ttl_seconds)):
            assert f"default_time_to_live = {ttl} " in line
            assert f"gc_grace_seconds = {of.queue.gc_grace_seconds}" in line
        assert "'compaction_window_unit': 'HOURS'" in rows
        assert "bloom_filter" not in rows
        assert f"bloom_filter_fp_chance = {of.queue.mark_bloom_chance}" in marks
