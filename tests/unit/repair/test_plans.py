"""What follows from a change of the truth: whatever the order of arrival, the projections end as the truth says."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX_COUNTERS,
    MAILBOX_RECENTS,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGES,
)
from mailmend.model.operations import Change, Count, Put, Read, Remove
from mailmend.model.projections.family import Filter
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, Row, canonical_value
from mailmend.repair.store.message import Flags, SystemFlag
from mailmend.repair.store.plans import (
    Consequence,
    counts_for,
    merged_counts,
    recounts_for,
    suspects_of,
    truth_keys,
    writes_for,
)
from tests.support.clock import START, uuid_at
from tests.support.repairing import truth_row

STAMP = START
WORDS = ("work", "later", "urgent")

flags = st.builds(
    Flags,
    st.frozensets(st.sampled_from(list(SystemFlag))),
    st.frozensets(st.sampled_from(WORDS)),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Row | None]:
    """The states of one truth row: absent, inserted, flagged any number of times, perhaps deleted."""
    states: list[Row | None] = [None]
    for modseq, some in enumerate(draw(st.lists(flags, min_size=1, max_size=5)), start=1):
        states.append({**truth_row(1), **some.as_row(), "modseq": modseq})
    return [*states, None] if draw(st.booleans()) else states


def steps_of(states: list[Row | None]) -> list[list[Consequence]]:
    """The projection writes of each change, under the stamp of its moment."""
    pairs = pairwise(states)
    return [list(writes_for(MESSAGES, before, after, STAMP + number)) for number, (before, after) in enumerate(pairs)]


def applied(writes: list[Consequence]) -> MemoryTables:
    """Tables on which the writes arrived in this order."""
    tables = MemoryTables(lambda: STAMP + 1_000_000)
    for one in writes:
        tables.write(one.write)
    return tables


def as_demanded(tables: MemoryTables, truth: Row | None) -> bool:
    """Whether mirror and filters say what the truth demands."""
    key = (truth_row(1)["mailboxid"], 1)
    mirrored = tables.read(Read(MESSAGE_ID, key))
    if (truth is not None) != bool(mirrored):
        return False
    if truth is not None and not MESSAGES.mirror.agree(truth, mirrored[0].row):
        return False
    return all(
        bool(tables.read(Read(one.table, key))) == (truth is not None and one.when.holds(truth))
        for one in MESSAGES.filters
    )


@given(histories(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_any_order_of_arrival_converges(states: list[Row | None], chance: Any, copies: int) -> None:
    """Writes that arrive late, twice, or in reverse end in the state that the last truth demands."""
    # Given every write of a history, some of them several times
    writes = [one for step in steps_of(states) for one in step] * copies
    # When they arrive in any order at all
    chance.shuffle(writes)
    # Then the projections say what the last state of the truth demands
    assert as_demanded(applied(writes), states[-1])


@given(histories())
def test_the_last_change_heals_lost_ones(states: list[Row | None]) -> None:
    """The mirror is whole even when every earlier write of it was lost."""
    last = steps_of(states)[-1]
    mirrored = applied(last).read(Read(MESSAGE_ID, (truth_row(1)["mailboxid"], 1)))
    truth = states[-1]
    assert (truth is None and not mirrored) or (truth is not None and MESSAGES.mirror.agree(truth, mirrored[0].row))


@given(histories(), st.data())
def test_nothing_comes_back_after_a_delete(states: list[Row | None], data: st.DataObject) -> None:
    """A write that was under way when the message was deleted makes no row, not even half a one."""
    # Given a history that ends in a delete, whose writes are all there but one
    ended = [*(state for state in states if state is not None), None]
    steps = steps_of([None, *ended])
    late = data.draw(st.sampled_from([one for step in steps[:-1] for one in step]))
    tables = applied([one for step in steps for one in step if one is not late])
    # When that one arrives after the delete
    tables.write(late.write)
    # Then there is still nothing
    assert as_demanded(tables, None)


@given(histories())
def test_counts_add_up(states: list[Row | None]) -> None:
    """The deltas of all changes sum up to what the last truth adds."""
    total: Counter[str] = Counter()
    for before, after in pairwise(states):
        for one in counts_for(MESSAGES, before, after):
            assert isinstance(one.write, Count)
            total.update(one.write.deltas)
    last = states[-1]
    expected = MESSAGES.counts[0].deltas_of(last) if last is not None else {"count": 0, "unseen": 0}
    assert {name: total[name] for name in expected} == expected


@given(histories())
def test_sets_are_changed_element_by_element(states: list[Row | None]) -> None:
    """No write assigns a set, which would leave a range tombstone in the row."""
    for step in steps_of(states):
        for one in step:
            cells = one.write.row if isinstance(one.write, Put) else getattr(one.write, "assign", {})
            assert not any(one.write.table.column(name).is_collection for name in cells)


@given(histories())
def test_everything_carries_the_stamp_of_its_change(states: list[Row | None]) -> None:
    """Every write of a change bears that change's stamp, and nothing else."""
    for number, step in enumerate(steps_of(states)):
        assert {getattr(one.write, "at", None) for one in step} <= {STAMP + number}


@given(histories())
def test_a_filter_is_touched_only_where_its_condition_changed(states: list[Row | None]) -> None:
    """A flag update writes to a filter only if it moves the message in or out of it: tombstones cost readers."""
    for (before, after), step in zip(pairwise(states), steps_of(states), strict=True):
        for one in step:
            if isinstance(one.projection, Filter):
                was = before is not None and one.projection.when.holds(before)
                assert was != (after is not None and one.projection.when.holds(after))


def test_a_change_of_nothing_writes_nothing() -> None:
    """No row before and none after: nothing follows."""
    assert writes_for(MESSAGES, None, None, STAMP) == ()
    assert counts_for(MESSAGES, None, None) == ()


def test_null_columns_are_left_alone() -> None:
    """A column that the truth lacks is not written, so no tombstone is left in its place."""
    row = truth_row(1, save_date=None, userflags=frozenset({"work"}))
    (first, *_) = writes_for(MESSAGES, None, row, 1)
    assert isinstance(first.write, Change)
    assert None not in first.write.assign.values()


def test_a_union_grows_only() -> None:
    """Taking a keyword from a message takes nothing from the mailbox's; a new one is added."""
    old, new = truth_row(1, userflags=frozenset({"a", "b"})), truth_row(1, userflags=frozenset({"b", "c"}))
    (change,) = [one.write for one in writes_for(MESSAGES, old, new, 7) if one.write.table is APPLICABLE_FLAG]
    assert change == Change(APPLICABLE_FLAG, (old["mailboxid"],), add={"userflags": frozenset({"c"})}, at=7)
    assert [one.write.table for one in writes_for(MESSAGES, old, {**old, "modseq": 9}, 7)] == [MESSAGE_ID]


def test_canonical_nulls_count_as_unset() -> None:
    """A row whose flags are null is unseen, as James reads it, and is counted so."""
    row = truth_row(1, flagseen=None)
    (count,) = counts_for(MESSAGES, None, row)
    assert count.write == Count(MAILBOX_COUNTERS, (row["mailboxid"],), {"count": 1, "unseen": 1})
    assert canonical_value(IMAP_UID.column("flagseen"), row) is False


def test_counts_of_one_mailbox_are_merged() -> None:
    """A batch adds to each counter once; what cancels out is not sent."""
    row, seen = truth_row(1), truth_row(1, flagseen=True)
    (alone,) = counts_for(MESSAGES, None, seen)
    assert alone.write == Count(MAILBOX_COUNTERS, (row["mailboxid"],), {"count": 1})
    both = merged_counts((*counts_for(MESSAGES, None, row), *counts_for(MESSAGES, None, seen)))
    counts, group = MESSAGES.counts[0], (row["mailboxid"],)
    assert both == (Consequence(counts, Count(MAILBOX_COUNTERS, group, {"count": 2, "unseen": 1})),)
    read = merged_counts((*counts_for(MESSAGES, None, row), *counts_for(MESSAGES, row, seen)))
    assert read == (Consequence(counts, Count(MAILBOX_COUNTERS, group, {"count": 1})),)
    assert counts_for(MESSAGES, row, {**row, "modseq": 9}) == ()
    assert merged_counts((*counts_for(MESSAGES, None, row), *counts_for(MESSAGES, row, None))) == ()


def test_counts_of_two_mailboxes_stay_apart() -> None:
    """Only counts of the same group are added up."""
    one, other = truth_row(1), truth_row(2, mailboxid=uuid_at(START, 99))
    assert len(merged_counts((*counts_for(MESSAGES, None, one), *counts_for(MESSAGES, None, other)))) == 2


def test_each_write_has_its_suspect() -> None:
    """What could not be written is told as the scan would tell it: what to do, where, and by which truth."""
    row = truth_row(1, flagdeleted=True, flagrecent=True, userflags=frozenset({"work"}))
    ids, there, words = ((row["messageid"],),), (row["mailboxid"], 1), {"userflags": frozenset({"work"})}
    assert truth_keys(MESSAGES, row) == ids
    assert [one.suspect(ids) for one in writes_for(MESSAGES, None, row, 1)] == [
        Suspect("messageIdTable", there, Verdict.AMEND, ids),
        Suspect("firstUnseen", there, Verdict.PROJECT, ids),
        Suspect("messageDeleted", there, Verdict.PROJECT, ids),
        Suspect("mailboxRecents", there, Verdict.PROJECT, ids),
        Suspect("applicableFlag", (row["mailboxid"],), Verdict.AMEND, ids, words),
    ]
    assert [(one.suspect(ids), one.write) for one in writes_for(MESSAGES, row, None, 1)] == [
        (Suspect(table.spelling, there, Verdict.WITHDRAW, ids), Remove(table, there, at=1))
        for table in (MESSAGE_ID, FIRST_UNSEEN, MESSAGE_DELETED, MAILBOX_RECENTS)
    ]


def test_a_doubtful_change_suspects_every_place() -> None:
    """Where nobody knows whether a row changed, everything that hangs on it is looked at, counters as a whole."""
    row = truth_row(1, userflags=frozenset({"work"}))
    ids, there, group = ((row["messageid"],),), (row["mailboxid"], 1), (row["mailboxid"],)
    placed = [
        Suspect(name, there, Verdict.AMEND, ids)
        for name in ("messageIdTable", "firstUnseen", "messageDeleted", "mailboxRecents")
    ]
    gathered = Suspect("applicableFlag", group, Verdict.AMEND, ids, {"userflags": frozenset({"work"})})
    recounted = Suspect("mailboxCounters", group, Verdict.AMEND)
    assert suspects_of(MESSAGES, row) == (*placed, gathered, recounted)
    assert suspects_of(MESSAGES, truth_row(1)) == (*placed, recounted)
    assert [one.write for one in recounts_for(MESSAGES, row)] == [Count(MAILBOX_COUNTERS, group, {})]


def test_rows_from_before_a_column_are_projected_all_the_same() -> None:
    """A truth row that older versions left without dates still gets its flags into the mirror."""
    old = truth_row(1, internaldate=None, headercontent=None)
    new = {**old, "flagseen": True, "modseq": 2, "save_date": datetime(2026, 1, 1, tzinfo=UTC)}
    tables = applied(list(writes_for(MESSAGES, old, new, 5)))
    (seen,) = tables.read(Read(MESSAGE_ID, (old["mailboxid"], 1)))
    assert seen.row["flagseen"] is True


def test_a_column_that_only_the_mirror_has_is_left_alone() -> None:
    """Somebody added one to a live keyspace: the truth says nothing about it, so no write touches it."""
    wider = MESSAGE_ID.with_columns((*MESSAGE_ID.columns, Column("note", "text")))
    family = replace(MESSAGES, mirror=replace(MESSAGES.mirror, table=wider))
    row = truth_row(1)

    (put, *_) = writes_for(family, None, row, STAMP)
    (change, *_) = writes_for(family, None, {**row, "userflags": frozenset({"work"})}, STAMP)

    assert isinstance(put.write, Put)
    assert "note" not in put.write.row
    assert isinstance(change.write, Change)
    assert "note" not in change.write.assign
