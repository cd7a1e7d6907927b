"""A sample of messages: whole mailboxes within the bound, write times as they were, and no text that anybody wrote."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.schema.measuring import (
    CHANGED,
    MAILBOXES_AT_ONCE,
    NAMES,
    SCANNED_PER_ROW,
    Sample,
    SampledMessage,
    blanked,
    draw_sample,
    live_table,
    sampled,
    with_history,
)
from mailmend.cql.memory import MemoryTables
from mailmend.cql.schema.generations import GENERATIONS, Generation
from mailmend.model.catalog.mail import MAIL_TABLES, MESSAGE_ID
from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level, Put, Read, Scan, Seen, Write
from mailmend.model.ports import Silent
from tests.support.clock import uuid_at
from tests.support.histories import DAY, histories
from tests.support.progress import SilentProgress
from tests.support.schemas import columns_of, with_columns

UNTIL = 1_700_000_000_000_000
LIVE = Schema((), MAIL_TABLES)


def tables_with(messages: Iterable[tuple[Write, ...]]) -> MemoryTables:
    tables = MemoryTables(lambda: UNTIL)
    for writes in messages:
        tables.write_all(writes)
    return tables


def sample_of(tables: MemoryTables, rows: int) -> Sample:
    return draw_sample(tables, LIVE, rows, Silent())


def test_mailboxes_are_whole_and_their_times_are_kept() -> None:
    sample = sample_of(tables_with(histories(6, 40, days=300, until=UNTIL)), rows=100)

    assert sample.mailboxes == 2
    assert len(sample.messages) == 80
    assert sample.passed_over == 4
    assert 40 < sample.changed < 80
    assert 200 < sample.history_seconds / 86_400 <= 300
    assert not sample.by_birth


def test_a_mailbox_of_which_the_end_was_not_seen_is_left_out() -> None:
    sample = sample_of(tables_with(histories(1, 60, days=300, until=UNTIL)), rows=2)

    assert sample == Sample([], 0, 0)


def test_rows_that_were_written_all_at_once_get_their_history_from_the_messages_births() -> None:
    restored = [
        tuple(Put(one.table, one.row, at=UNTIL) for one in writes if isinstance(one, Put))
        for writes in histories(2, 50, days=300, until=UNTIL - DAY)
    ]

    sample = sample_of(tables_with(restored), rows=100)

    assert sample.by_birth
    assert sample.changed == 0
    assert sample.history_seconds / 86_400 > 200


def test_nothing_that_people_wrote_is_kept() -> None:
    tables = tables_with([])
    (added, *_), *_ = histories(1, 1, days=1, until=UNTIL)
    assert isinstance(added, Put)
    row = {**added.row, "userflags": frozenset({"project secret", "boss"}), "headercontent": "1_692_abc"}
    tables.write(Put(MESSAGE_ID, row, at=UNTIL))

    (message,) = sample_of(tables, rows=10).messages

    assert message.row["headercontent"] == "x" * 9
    assert sorted(map(len, message.row["userflags"])) == [4, 14]
    assert "secret" not in str(message)
    assert message.row["uid"] == row["uid"]


@given(st.frozensets(st.text(min_size=1, max_size=30), max_size=12))
def test_blanked_labels_stay_as_many_and_hold_no_letter_of_their_own(labels: frozenset[str]) -> None:
    blank = blanked(labels)

    assert len(blank) == len(labels)
    assert all(set(label) <= set("0123456789x") for label in blank)


class Watched(MemoryTables):
    """Tables that remember how they were read, and may not be readable."""

    def __init__(self, fails: MailmendError | None = None) -> None:
        super().__init__(lambda: UNTIL)
        self.fails = fails
        self.batches: list[Sequence[Read]] = []
        self.scanned = 0

    def scan(self, scan: Scan) -> Any:
        for row in super().scan(scan):
            self.scanned += 1
            yield row

    def read_all(self, reads: Any) -> Any:
        self.batches.append(list(reads))
        return [self.fails] * len(self.batches[-1]) if self.fails else super().read_all(self.batches[-1])


def tables_of(sizes: Sequence[int], fails: MailmendError | None = None) -> Watched:
    tables = Watched(fails)
    for number, size in enumerate(sizes):
        mailbox = UUID(int=number + 1)
        for uid in range(1, size + 1):
            row = {"mailboxid": mailbox, "uid": uid, "messageid": uuid_at(UNTIL, number * 1_000 + uid), "modseq": uid}
            tables.write(Put(MESSAGE_ID, row, at=UNTIL - uid))
    return tables


class TestBound:
    """How many rows are taken, and how many are looked at for it."""

    def test_a_mailbox_that_fills_the_bound_exactly_still_fits(self) -> None:
        assert len(draw_sample(tables_of([10]), LIVE, 10, Silent()).messages) == 10
        assert draw_sample(tables_of([11]), LIVE, 10, Silent()) == Sample([], 0, 1)

    @given(st.lists(st.integers(1, 12), max_size=12), st.integers(1, 40))
    def test_mailboxes_are_whole_and_the_bound_holds(self, sizes: list[int], rows: int) -> None:
        sample = draw_sample(tables_of(sizes), LIVE, rows, Silent())

        assert len(sample.messages) <= rows
        taken: dict[UUID, int] = {}
        for message in sample.messages:
            taken[message.row["mailboxid"]] = taken.get(message.row["mailboxid"], 0) + 1
        assert all(sizes[mailbox.int - 1] == count for mailbox, count in taken.items())
        assert len(taken) == sample.mailboxes
        if sum(sizes) <= rows:
            assert len(sample.messages) >= min(0.9 * rows, sum(sizes))

    def test_the_search_ends_though_nothing_fits(self) -> None:
        tables = tables_of([30] * 10)

        draw_sample(tables, LIVE, 5, Silent())

        assert 5 * SCANNED_PER_ROW <= tables.scanned <= 5 * SCANNED_PER_ROW + 1

    def test_few_mailboxes_are_read_at_once_each_with_its_times(self) -> None:
        tables = tables_of([2] * (MAILBOXES_AT_ONCE + 1))

        draw_sample(tables, LIVE, 100, Silent())

        assert [len(batch) for batch in tables.batches] == [MAILBOXES_AT_ONCE, 1]
        assert {(read.level, read.times) for batch in tables.batches for read in batch} == {(Level.LOCAL_QUORUM, True)}

    def test_a_mailbox_that_cannot_be_read_ends_it(self) -> None:
        with pytest.raises(CannotReach, match="away"):
            draw_sample(tables_of([3], CannotReach("the node is away")), LIVE, 10, Silent())

    def test_progress_is_reported_of_both_stages(self) -> None:
        progress = SilentProgress()

        draw_sample(tables_of([3, 4]), LIVE, 50, progress)

        assert progress.stages == {"choosing mailboxes": 50, "reading their rows": 7}


class TestTimes:
    """When a row was added, and when it was changed."""

    @pytest.mark.parametrize(("later", "changed"), [(0, False), (1_000_000, False), (1_000_001, True)])
    def test_cells_of_one_addition_may_lie_a_second_apart(self, later: int, changed: bool) -> None:
        row = {"messageid": uuid_at(1), "flagseen": True}

        message = sampled(Seen(row, {"modseq": UNTIL, "flagseen": UNTIL + later}))

        assert message.added_at == UNTIL
        assert message.changed_at == (UNTIL + later if changed else None)

    def test_a_row_that_tells_no_time_is_as_old_as_its_message(self) -> None:
        message = sampled(Seen({"messageid": uuid_at(UNTIL)}, {}))

        assert (message.added_at, message.changed_at) == (UNTIL, None)

    def test_what_a_change_writes_is_flags_their_version_and_labels(self) -> None:
        assert set(CHANGED) == {name for name in NAMES if name.startswith("flag")} | {"modseq", "userflags"}
        assert len([name for name in CHANGED if name.startswith("flag")]) == 6


def born(at: int, added: int, message: UUID | None = None) -> SampledMessage:
    cells = {"messageid": message or uuid_at(at)}
    return SampledMessage(tuple(cells.get(name) for name in NAMES), added, added + DAY)


class TestRestored:
    """Rows that were all written at once."""

    @staticmethod
    def _by_birth(births_days: float, writes_days: float) -> bool:
        end = UNTIL - round(births_days * DAY)
        messages = [
            SampledMessage(born(end, UNTIL).cells, UNTIL, None),
            SampledMessage(born(UNTIL, UNTIL).cells, UNTIL + round(writes_days * DAY), None),
        ]
        return with_history(Sample(messages, 1, 0)).by_birth

    @pytest.mark.parametrize(
        ("births_days", "writes_days", "by_birth"),
        [(100, 0.5, True), (100, 10, True), (100, 10.1, False), (1, 1, False), (0, 0, False)],
    )
    def test_births_count_where_they_span_ten_times_as_long(
        self, births_days: float, writes_days: float, by_birth: bool
    ) -> None:
        assert self._by_birth(births_days, writes_days) is by_birth

    def test_ids_without_a_believable_time_are_left_out(self) -> None:
        old, young = born(UNTIL - 700 * DAY, UNTIL), born(UNTIL - DAY, UNTIL)
        strange = [
            born(0, UNTIL, uuid4()),
            born(788_918_399_999_999, UNTIL),
            born(UNTIL + 1, UNTIL),
        ]
        sample = Sample([replace(one, changed_at=None) for one in (old, *strange, young)], 1, 3)

        found = with_history(sample)

        assert [one.added_at for one in found.messages] == [UNTIL - 700 * DAY, UNTIL - DAY]
        assert (found.by_birth, found.mailboxes, found.passed_over, found.changed) == (True, 1, 3, 0)

    def test_without_any_believable_birth_the_write_times_stand(self) -> None:
        sample = Sample([born(0, UNTIL, uuid4())], 1, 0)

        assert with_history(sample) == sample


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_older_tables_are_read_by_the_columns_that_they_have(generation: Generation) -> None:
    table = live_table(generation.schema)

    live = {column.name for column in columns_of(generation.schema, "messageidtable")}
    assert {column.name for column in table.columns} == live & set(NAMES)
    assert table.key == MESSAGE_ID.key


def test_a_column_that_the_live_table_lacks_is_null_in_the_sample() -> None:
    few = with_columns(LIVE, "messageidtable", [one for one in MESSAGE_ID.columns if one.name != "save_date"])
    tables = tables_with(histories(1, 5, days=10, until=UNTIL))

    assert "save_date" not in {column.name for column in live_table(few).columns}
    assert "save_date" in {column.name for column in live_table(LIVE).columns}
    assert len(draw_sample(tables, few, 10, Silent()).messages) == 5
