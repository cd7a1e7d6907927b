"""What a trial writes and reads, and in which order: the history is replayed as it was, and reads are spread."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.schema.measuring import NAMES, SampledMessage
from mailmend.admin.schema.trial import (
    SCALED,
    TABLES,
    history_of,
    percentile,
    read_cost,
    reads_of,
    spread,
    trial_tables,
    turned,
    waves_of,
    writes_of,
)
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_COMPACTIONS, MESSAGE_ID, CompactionChoice
from mailmend.model.operations import Change, Put
from tests.support.clock import uuid_at
from tests.support.histories import histories

UNTIL = 1_700_000_000_000_000


def sampled(count: int) -> list[SampledMessage]:
    found = []
    for put, _, *changes in histories(2, count // 2, days=100, until=UNTIL):
        assert isinstance(put, Put)
        later = [one for one in changes if isinstance(one, Change)][:1]
        row = {**put.row, **(later[0].assign if later else {})}
        cells = tuple(row.get(name) for name in NAMES)
        found.append(SampledMessage(cells, put.at or 0, later[0].at if later else None))
    return found


def message(added: int = 10, changed: int | None = 90, **cells: Any) -> SampledMessage:
    row = {"mailboxid": UUID(int=1), "uid": 7, "messageid": uuid_at(5), **cells}
    return SampledMessage(tuple(row.get(name) for name in NAMES), added, changed)


@given(st.integers(2, 60), st.integers(1, 50))
def test_waves_hold_every_event_once_in_the_order_of_time(count: int, waves: int) -> None:
    events = history_of(sampled(count))
    parts = waves_of(events, waves)

    assert [event for part in parts for event in part] == sorted(events)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) == min(waves, len(events))


def test_no_message_makes_no_wave() -> None:
    assert waves_of(history_of([]), 5) == []


def test_events_are_additions_and_changes_in_the_order_of_time() -> None:
    messages = [message(10, 90), message(20, None), message(5, 15)]

    assert history_of(messages) == [(5, 2, False), (10, 0, False), (15, 2, True), (20, 1, False), (90, 0, True)]


def test_the_last_wave_ends_with_the_last_event() -> None:
    assert [len(wave) for wave in waves_of(history_of([message(at, None) for at in range(10)]), 3)] == [3, 3, 4]


def test_a_change_comes_after_its_addition_and_carries_its_own_time() -> None:
    message = next(one for one in sampled(20) if one.changed_at)

    added, changed = writes_of(message, changed=False), writes_of(message, changed=True)

    assert [write.at for write in added if isinstance(write, Put)] == [message.added_at] * 2
    assert [write.at for write in changed if isinstance(write, Change)] == [message.changed_at] * 2
    assert [write.table for write in (*added, *changed)] == [*TABLES, *TABLES]


def test_a_message_that_never_changed_is_added_as_it_is() -> None:
    message = next(one for one in sampled(40) if one.changed_at is None)
    put = writes_of(message, changed=False)[0]

    assert isinstance(put, Put)
    assert put.row == message.row


def test_a_message_that_will_change_comes_without_flags_and_labels() -> None:
    (first, _) = writes_of(message(flagseen=True, userflags=frozenset({"0x"}), modseq=4), changed=False)

    assert isinstance(first, Put)
    assert first.row["flagseen"] is False
    assert first.row["userflags"] is None
    assert (first.row["modseq"], first.at) == (4, 10)


def test_labels_are_added_by_the_change_and_flags_are_set_by_it() -> None:
    """As James does it: a set grows, it is not overwritten."""
    one = message(flagseen=True, modseq=4, userflags=frozenset({"0xx"}))

    for write in writes_of(one, changed=True):
        assert isinstance(write, Change)
        assert (write.assign, write.add) == ({"flagseen": True, "modseq": 4}, {"userflags": frozenset({"0xx"})})
        assert (write.key, write.at) == (write.table.key_of(one.row), 90)


@pytest.mark.parametrize("labels", [None, frozenset()])
def test_where_there_are_no_labels_none_are_added(labels: frozenset[str] | None) -> None:
    """A set that is empty would write a cell that the truth does not have."""
    for write in writes_of(message(flagseen=True, userflags=labels), changed=True):
        assert isinstance(write, Change)
        assert write.add == {}


def test_a_column_that_the_sample_lacks_is_written_by_nobody() -> None:
    for write in writes_of(message(flagseen=True), changed=True):
        assert isinstance(write, Change)
        assert write.assign == {"flagseen": True}


@pytest.mark.parametrize("choice", CompactionChoice)
def test_the_copys_tables_have_small_sstables_and_all_else_as_chosen(choice: CompactionChoice) -> None:
    """A sample in one SSTable would make every choice look the same."""
    for made, declared in zip(trial_tables(choice), TABLES, strict=True):
        assert made.compaction is not None
        assert made.compaction.strategy == MESSAGE_COMPACTIONS[choice].strategy
        assert made.compaction.options == {**MESSAGE_COMPACTIONS[choice].options, **SCALED[choice]}
        assert made.columns == declared.columns
    assert (SCALED[choice] == {}) is (choice is CompactionChoice.TWCS)


def test_mailboxes_are_opened_and_messages_looked_up_all_over_the_sample() -> None:
    opened, looked_up = reads_of(sampled(50), 10)

    assert [read.table for read in opened] == [MESSAGE_ID] * 10
    assert [read.table for read in looked_up] == [IMAP_UID] * 10
    assert len({read.key for read in opened}) == 2
    assert len({read.key for read in looked_up}) == 10


def test_of_large_mailboxes_fewer_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mailboxes of 25: 750 rows are 30 of them; 20 are opened at least, unless fewer are asked for."""
    monkeypatch.setattr("mailmend.admin.schema.trial.ROWS_OPENED_MAX", 750)
    opened, looked_up = reads_of(sampled(50), 200)
    assert (len(opened), len(looked_up)) == (30, 200)

    monkeypatch.setattr("mailmend.admin.schema.trial.ROWS_OPENED_MAX", 1)
    assert len(reads_of(sampled(50), 200)[0]) == 20
    assert len(reads_of(sampled(50), 5)[0]) == 5


@given(st.lists(st.integers(), unique=True, max_size=30), st.integers(0, 40))
def test_a_spread_takes_as_many_as_are_wanted_from_all_over(items: list[int], count: int) -> None:
    found = spread(items, count)

    assert len(found) == (count if items else 0)
    if count <= len(items):
        assert found == sorted(found, key=items.index)
        assert len(set(found)) == len(found)
    else:
        assert set(found) == set(items)
        assert max(map(found.count, items), default=0) - min(map(found.count, items), default=0) <= 1


def test_nothing_is_spread_from_nothing() -> None:
    assert reads_of([], 10) == ([], [])


@given(st.lists(st.integers(), min_size=1, max_size=9), st.integers(0, 30))
def test_a_turn_keeps_the_circle(items: list[int], by: int) -> None:
    assert turned(items, by) == tuple((items * 4)[by % len(items) : by % len(items) + len(items)])


@pytest.mark.parametrize(
    ("figures", "share", "expected"),
    [
        ([], 0.5, 0),
        ([7], 0.99, 7),
        ([3, 1, 2], 0.5, 2),
        (list(range(1, 101)), 0.5, 50),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 102)), 0.99, 100),
        ([5, 1], 0.0, 1),
    ],
)
def test_a_percentile_is_a_figure_that_was_measured(figures: list[int], share: float, expected: int) -> None:
    assert percentile(figures, share) == expected


def test_what_was_not_traced_is_not_made_up() -> None:
    untraced, traced = read_cost([], [1_000, 3_000]), read_cost([1, 4], [1_000, 3_000, 2_000])

    assert (untraced.sstables_mean, untraced.sstables_max, untraced.traced, untraced.reads) == (0, 0, 0, 2)
    assert (traced.sstables_mean, traced.sstables_max, traced.traced, traced.reads) == (2.5, 4, 2, 3)
    assert (traced.p50_ms, traced.p99_ms) == (2.0, 3.0)
