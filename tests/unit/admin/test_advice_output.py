"""What advice says: the answer first, what was only assumed by name, CQL for what is there, names for scripts."""

from dataclasses import replace

import pytest

from mailmend.admin.schema.advise import (
    Advised,
    MessageTables,
    answer_lines,
    document_of,
    next_lines,
    present_choice,
    served_choices,
)
from mailmend.admin.schema.measuring import GivenTraffic, MessageTraffic, Sample, traffic_figures
from mailmend.cql.schema.advice import Rates, ReadCost, TrialResult, choose
from mailmend.cql.statistics import MIB, Statistics, TableFigures
from mailmend.mailqueue.rules.advice import advise_queue
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGE_V3, CompactionChoice
from mailmend.model.durations import DAY
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.documents import text_of

TWCS, UNIFIED, LEVELED = CompactionChoice
QUEUE = Table("enqueuedMailsV4", (Column("queueName", "text", Kind.PARTITION),))
MARKS = Table("deletedMailsV2", (Column("queueName", "text", Kind.PARTITION),))
LIVE = Schema((), (IMAP_UID, MESSAGE_ID, MESSAGE_V3))
WITH_QUEUE = Schema((), (*LIVE.tables, QUEUE, MARKS))


def result(choice: CompactionChoice, sstables: float) -> TrialResult:
    cost = ReadCost(200, sstables, int(sstables), 1.0, 2.0)
    return TrialResult(choice, cost, cost, 10 * MIB, 30 * MIB)


def advised_on(*results: TrialResult, live: Schema = LIVE, untried: str = "") -> Advised:
    messages = MessageTraffic(Rates(2, 9, 730 * DAY, 20_000), 1.2)
    statistics = Statistics({"imapuidtable": TableFigures(partitions=1_000_000)}, nodes_up=3, nodes_heard=2)
    traffic = traffic_figures(GivenTraffic(), None, messages, statistics, {"replication_factor": "3"})
    return Advised(
        keyspace="mail",
        release="5.0.9",
        live=live,
        traffic=traffic,
        settings=None,
        queue=advise_queue(traffic),
        messages=MessageTables(
            "TimeWindowCompactionStrategy",
            TWCS,
            messages,
            30,
            Sample([], 90, 2) if results else None,
            results,
            choose(results, TWCS, frozenset(CompactionChoice)) if results else None,
            untried,
        ),
        statistics=statistics,
        notes=("something was not readable.",),
    )


BETTER = (result(TWCS, 24), result(UNIFIED, 2), result(LEVELED, 4))
ALIKE = (result(TWCS, 1), result(UNIFIED, 1), result(LEVELED, 1))


def shown(advised: Advised) -> str:
    return text_of(document_of(advised), 160)


class TestAnswer:
    """The first lines."""

    def test_a_change_is_advised_with_what_is_there_and_why(self) -> None:
        first, why, *_ = answer_lines(advised_on(*BETTER))

        assert first == "Message tables: we would change to unified (they have TimeWindowCompactionStrategy)."
        assert why.strip() == "By SSTables per read unified wins: twcs 24.00, unified 2.00, leveled 4.00."

    def test_what_makes_no_difference_is_kept(self) -> None:
        lines = list(answer_lines(advised_on(*ALIKE)))

        assert lines[0].startswith("Message tables: we would keep twcs")
        assert any("too small to matter" in line for line in lines)

    def test_without_a_trial_nothing_is_claimed_of_cost(self) -> None:
        lines = list(answer_lines(advised_on()))

        assert "was not measured" in lines[0]
        assert "730 days of mail are 24 windows of 30 days" in lines[1]

    def test_what_is_assumed_is_named_at_once(self) -> None:
        assert (
            "Assumed, not measured: longest stay, bytes of a row, hint window." in list(answer_lines(advised_on()))[-1]
        )

    def test_the_whole_page_holds_trial_reasons_figures_statistics_notes_and_what_to_type(self) -> None:
        page = shown(advised_on(*BETTER, live=WITH_QUEUE))

        for words in (
            "24.00 SSTables",
            "30.0 MiB",
            "bucket count",
            "assumed",
            "2 of 3 nodes",
            "1,000,000",
            "Note: some",
        ):
            assert words in page
        assert page.index("we would change") < page.index("24.00 SSTables") < page.index("Next:")


class TestNext:
    """What to type."""

    def test_a_change_is_one_alter_for_each_message_table(self) -> None:
        lines = list(next_lines(advised_on(*BETTER)))

        alters = [line for line in lines if line.startswith("ALTER TABLE mail.")]
        assert len(alters) == 3
        assert all("'class': 'UnifiedCompactionStrategy'" in line for line in alters)
        assert "schema apply --compaction unified" in " ".join(lines)
        assert lines[-1] == ("mailmend schema plan --from-model --include-options --compaction unified --keyspace mail")

    def test_where_nothing_is_to_be_changed_no_table_is_altered(self) -> None:
        assert not [line for line in next_lines(advised_on(*ALIKE)) if line.startswith("ALTER")]


def test_a_short_history_is_not_reckoned_in_windows() -> None:
    advised = advised_on()
    young = replace(advised.messages, traffic=MessageTraffic(Rates(2, 9, 20 * DAY, 50), None))

    assert "windows of 30 days" not in " ".join(answer_lines(replace(advised, messages=young)))


@pytest.mark.parametrize(
    ("strategy", "choice"),
    [
        ("TimeWindowCompactionStrategy", TWCS),
        ("UnifiedCompactionStrategy", UNIFIED),
        ("LeveledCompactionStrategy", LEVELED),
        ("SizeTieredCompactionStrategy", None),
    ],
)
def test_the_present_choice_is_known_by_its_class(strategy: str, choice: CompactionChoice | None) -> None:
    assert present_choice(strategy) is choice


def test_unified_is_for_new_servers() -> None:
    assert served_choices("5.0.9") == frozenset(CompactionChoice)
    assert served_choices("4.1.10") == frozenset({TWCS, LEVELED})
