"""Positions in a listing: tokens that survive a round trip, and an order that mails coming and going do not disturb."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.mails import Listed, ListingPosition, Whereabouts, is_behind
from mailmend.mailqueue.rules.places import MessagePlace
from mailmend.model.errors import WrongUse
from mailmend.model.ids import EnqueueId
from tests.support.queues import queued

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
NOON_MILLIS = 1_788_004_800_000
HOUR = timedelta(hours=1)
INSTANTS = st.integers(0, 4_000_000_000_000).map(
    lambda millis: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=millis)
)
POSITIONS = st.builds(
    ListingPosition, st.sampled_from(Whereabouts), INSTANTS, INSTANTS, st.uuids(version=4).map(EnqueueId)
)

PLACES = st.builds(MessagePlace, st.integers(0, 99), st.integers(0, 2**40), st.integers(0, 2**40))
PLACED = st.builds(replace, POSITIONS, place=PLACES)
"""Positions in a listing of topics."""


@given(POSITIONS | PLACED)
def test_a_token_leads_back_to_its_position(position: ListingPosition) -> None:
    """Pages are asked for by it, maybe by another process."""
    assert ListingPosition.parse(position.token) == position


@given(POSITIONS)
def test_a_token_needs_no_quoting(position: ListingPosition) -> None:
    """Neither in a shell nor in a URL."""
    assert position.token.replace(".", "").isalnum()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "w",
        "x.1.2.3",
        "w.1.2.3",
        "w.g.1." + "0" * 32,
        "w.1.1." + "0" * 31,
        "w.1.1.1.1",
        f"w.1.1.{UUID(int=1).hex}.7:1:0.9",
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    """With a word on where to get one."""
    with pytest.raises(WrongUse, match="no position in a listing"):
        ListingPosition.parse(token)


def waiting(number: int, slice_hours: int, minutes: int) -> Listed:
    """A mail in a slice."""
    return Listed(queued(number), NOON + timedelta(minutes=minutes), slice_start=NOON + timedelta(hours=slice_hours))


def delayed(number: int, minutes: int) -> Listed:
    """A mail that is due."""
    return Listed(queued(number), NOON, Whereabouts.DELAYED, due_at=NOON + timedelta(minutes=minutes))


def test_slices_come_first_then_time_then_id() -> None:
    """A mail that was put back keeps its time but is listed with its slice; what is not due comes last."""
    mails = [waiting(2, 0, 5), waiting(1, 0, 6), waiting(3, 1, 0), waiting(4, 1, 7), delayed(5, -500), delayed(6, 1)]
    assert sorted(mails, key=lambda mail: ListingPosition.of(mail).order) == mails
    assert max(mails, key=lambda mail: ListingPosition.of(mail).order) == mails[-1]
    same = sorted([waiting(number, 0, 0) for number in range(9)], key=lambda mail: ListingPosition.of(mail).order)
    assert [mail.queued.enqueue_id for mail in same] == sorted(mail.queued.enqueue_id for mail in same)


def test_delayed_mails_that_are_due_together_stand_by_their_ids() -> None:
    """As their rows do, whenever each was enqueued."""
    late, early = (replace(delayed(number, 1), enqueued_at=NOON - number * HOUR) for number in (1, 2))
    assert ListingPosition.of(late).order < ListingPosition.of(early).order


def test_mails_of_topics_stand_by_the_places_of_their_messages() -> None:
    """Their times say nothing: producers have clocks of their own."""
    first = replace(waiting(2, 1, 9), place=MessagePlace(0, 7, 1))
    second = replace(waiting(1, 0, 0), place=MessagePlace(0, 7, 2))

    assert ListingPosition.of(first).order < ListingPosition.of(second).order


def test_a_page_begins_right_behind_the_one_before() -> None:
    """Nothing is shown twice, nothing left out, even where the last mail seen is gone by now."""
    mails = sorted(
        [waiting(number, number // 3, 0) for number in range(9)], key=lambda mail: ListingPosition.of(mail).order
    )
    position = ListingPosition.parse(ListingPosition.of(mails[3]).token)
    assert [mail for mail in mails if is_behind(mail, position)] == mails[4:]
    assert [mail for mail in mails if is_behind(mail, None)] == mails


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12), st.booleans())
def test_pages_part_mails_of_equal_times(times: list[tuple[int, int]], is_delayed: bool) -> None:
    """Due, or in a slice, at the same time, and enqueued in the same millisecond: each is on exactly one page."""
    mails = [
        Listed(queued(number), NOON + timedelta(minutes=minutes), Whereabouts.DELAYED, due_at=NOON + hours * HOUR)
        if is_delayed
        else waiting(number, hours, minutes)
        for number, (hours, minutes) in enumerate(times)
    ]
    mails.sort(key=lambda mail: ListingPosition.of(mail).order)
    for seen, last in enumerate(mails, 1):
        assert [
            mail for mail in mails if is_behind(mail, ListingPosition.parse(ListingPosition.of(last).token))
        ] == mails[seen:]


def test_a_mail_without_a_slice_is_known_by_its_time() -> None:
    """As one that only a message told of."""
    bare = Listed(queued(1), NOON)
    assert ListingPosition.of(bare).stretch == NOON
    assert ListingPosition.of(bare).token == f"w.{NOON_MILLIS:x}.{NOON_MILLIS:x}.{bare.queued.enqueue_id.hex}"
    assert ListingPosition.of(delayed(1, 0)).token.startswith("d.")
    assert not is_behind(bare, ListingPosition.of(bare))
    assert ListingPosition.of(bare).enqueue_id == UUID(bytes=bare.queued.enqueue_id.bytes)
