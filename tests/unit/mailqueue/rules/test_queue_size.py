"""How many mails a queue holds: sums that are as sure as their least sure part, and when rows are looked at instead."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.size import (
    CountedBy,
    SizeKind,
    SliceCount,
    WriterTally,
    due_tallied,
    due_tallies_at,
    due_ttl_seconds,
    is_of_due,
    others_were_at_work,
    size_of,
    tallied,
)
from mailmend.mailqueue.rules.slices import EPOCH, slice_of

DAY = timedelta(days=1)
NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
SETTLED = WriterTally(UUID(int=1), 3, 1, settled=True, is_foreign=False)

TALLIES = st.builds(
    WriterTally, st.uuids(), st.integers(0, 50), st.integers(0, 50), st.booleans(), st.just(value=False)
)


@given(st.lists(TALLIES, min_size=1, max_size=6))
def test_sums_never_go_below_nothing(tallies: list[WriterTally]) -> None:
    """More marks than mails is no number of mails, and not sure; nor is what is not settled."""
    waiting = sum(one.enqueued - one.marked for one in tallies)
    sure = waiting >= 0 and all(one.settled for one in tallies)
    assert tallied(tallies) == SliceCount(max(0, waiting), exact=sure, counted_by=CountedBy.TALLIES)


def test_a_slice_of_which_every_mail_is_marked_is_surely_empty() -> None:
    """As is one in which nothing was ever put."""
    nothing = SliceCount(0, exact=True, counted_by=CountedBy.TALLIES)
    assert tallied([WriterTally(UUID(int=1), 2, 2, settled=True, is_foreign=False)]) == nothing
    assert tallied([WriterTally(UUID(int=1), 0, 0, settled=True, is_foreign=False)]) == nothing


@given(st.lists(TALLIES, max_size=3), TALLIES)
def test_foreign_mails_are_not_summed(tallies: list[WriterTally], one: WriterTally) -> None:
    """Nor is a slice that nobody tells anything of."""
    foreign = WriterTally(one.writer, one.enqueued, one.marked, one.settled, is_foreign=True)
    assert tallied([*tallies, foreign]) is None
    assert tallied([]) is None


def test_a_size_is_as_sure_as_its_least_sure_slice() -> None:
    """And says how it was found."""
    sure = SliceCount(3, exact=True, counted_by=CountedBy.TALLIES)
    unsure = SliceCount(2, exact=False, counted_by=CountedBy.TALLIES)
    looked_at = SliceCount(1, exact=True, counted_by=CountedBy.METADATA)
    assert (size_of([sure, sure], [sure]).kind, size_of([sure, sure], [sure]).mails) == (SizeKind.EXACT, 6)
    assert size_of([sure, unsure], []).kind is SizeKind.ESTIMATE
    assert size_of([sure], [unsure]).counted_by is CountedBy.TALLIES
    assert size_of([sure, looked_at], []).counted_by is CountedBy.METADATA
    assert size_of([], [sure, unsure]).delayed == 5
    assert size_of([sure], [unsure]).kind is SizeKind.ESTIMATE
    assert size_of([sure], [looked_at]).counted_by is CountedBy.METADATA
    assert size_of([], []).kind is SizeKind.EXACT
    assert size_of([sure, unsure], [looked_at]).slices_read == 2, "of mails that wait"


@given(st.lists(TALLIES, max_size=3), st.integers(0, 30), st.integers(0, 30))
def test_others_are_seen_only_where_all_is_reported(tallies: list[WriterTally], rows: int, marked: int) -> None:
    """Never while a sum is open, never for what was counted, always for a row too many."""
    seen = others_were_at_work(tallies, rows, marked)
    enqueued, finished = sum(one.enqueued for one in tallies), sum(one.marked for one in tallies)
    if not all(one.settled for one in tallies):
        assert not seen
    elif rows > enqueued:
        assert seen
    elif marked <= finished:
        assert not seen


@given(st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1)), st.integers(1, 86_400))  # noqa: DTZ001 - made aware below
def test_no_waiting_slice_has_the_tallies_of_delayed_mails(at: datetime, seconds: int) -> None:
    """Whatever the window: slices begin at whole seconds, and these do not."""
    start = slice_of(at.replace(tzinfo=EPOCH.tzinfo), timedelta(seconds=seconds))
    assert not is_of_due(start)
    assert is_of_due(due_tallies_at(start))
    assert slice_of(due_tallies_at(start), timedelta(seconds=1)) == start


@given(st.lists(st.integers(-400, 400), min_size=1, max_size=9), st.integers(-20, 20))
def test_no_tally_expires_while_another_is_relied_on(written: list[int], asked: int) -> None:
    """Whenever each was written, up to a year ahead: all are there, or the rows are counted."""
    due_slice = EPOCH + 20_000 * DAY
    place, now = due_tallies_at(due_slice), due_slice + asked * DAY
    sure = WriterTally(UUID(int=1), 1, 0, settled=True, is_foreign=False)
    lives = [due_slice + day * DAY for day in written if day <= asked]
    expired = [at for at in lives if at + timedelta(seconds=due_ttl_seconds(place, at)) <= now]
    assert not expired or due_tallied(due_slice, [sure], now) is None


def test_sizes_are_reported_in_json_by_these_words() -> None:
    """A contract with scripts."""
    assert [kind.value for kind in SizeKind] == ["exact", "estimate"]
    assert [found.value for found in CountedBy] == ["tallies", "metadata", "broker"]


def test_a_tally_counts_what_was_never_written_for_nothing() -> None:
    """As a row has it whose process was killed before its first sum."""
    row = {"writer": UUID(int=1), "enqueued": None, "marked": None, "settled": None, "isforeign": None}
    assert WriterTally.of(row) == WriterTally(UUID(int=1), 0, 0, settled=False, is_foreign=False)
    tallies = {"writer": UUID(int=1), "enqueued": 3, "marked": 1, "settled": True, "isforeign": False}
    assert WriterTally.of(tallies) == SETTLED
    assert WriterTally.of(tallies | {"isforeign": True}).is_foreign


@pytest.mark.parametrize(
    ("rows", "marked", "others"),
    [(3, 1, False), (3, 2, True), (4, 0, True), (2, 2, False), (3, 0, False)],
    ids=["as caught", "a mark too many", "a row too many", "rows are gone", "a mark too few"],
)
def test_others_were_at_work_where_there_is_more_than_was_reported(rows: int, marked: int, others: bool) -> None:
    """Three enqueued, one marked; fewer rows say nothing, and neither does a sum that is still open."""
    assert others_were_at_work([SETTLED], rows, marked) is others
    still_open = WriterTally(UUID(int=2), 0, 0, settled=False, is_foreign=False)
    assert not others_were_at_work([SETTLED, still_open], rows, marked)


def test_a_slice_of_delayed_mails_is_counted_by_its_tallies_for_half_of_their_life() -> None:
    """Fifteen days of thirty, and a day at least, however late one is written."""
    place = due_tallies_at(NOON)
    assert place == NOON + timedelta(milliseconds=1), "where the rows of those that are there already lie"
    assert due_tallied(NOON, [SETTLED], NOON + 15 * DAY - timedelta(seconds=1)) == tallied([SETTLED])
    assert due_tallied(NOON, [SETTLED], NOON + 15 * DAY) is None
    assert due_ttl_seconds(place, NOON) == 30 * 86_400
    assert due_ttl_seconds(place, NOON + 29 * DAY + timedelta(hours=1)) == 86_400
    assert isinstance(due_ttl_seconds(place, NOON), int)
