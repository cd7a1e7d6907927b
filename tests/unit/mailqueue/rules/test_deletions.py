"""Which mails are deleted, and for how long a deletion is kept."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.deletions import (
    Checkpoint,
    DeletedMail,
    Deletion,
    FilterKind,
    JamesDeletion,
    KnownDeletions,
    Notice,
    Reach,
    TopicProgress,
    progress_of,
    tending,
)
from mailmend.mailqueue.rules.mails import Listed, Mail, MailBlobs, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.places import UNPARTITIONED, Backlog, MessagePlace, PartitionBacklog, TopicPlace
from mailmend.model.ids import BlobId, EnqueueId

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SETTLED = 20 * MINUTE
WRITTEN = 20 * MINUTE
FROM_MANY, FULL = 20, 5_000


def place(entry: int, topic: str = "out") -> TopicPlace:
    return TopicPlace(topic, MessagePlace(UNPARTITIONED, 1, entry))


def reach(**entries: int) -> Reach:
    return {topic.replace("_", "-"): {UNPARTITIONED: (1, entry)} for topic, entry in entries.items()}


def enqueue_id(number: int) -> EnqueueId:
    return EnqueueId(UUID(int=number))


def listed(number: int = 1, at: datetime = AT, mail: Mail | None = None) -> Listed:
    found = mail or Mail("a", ("bob@example.org", "cy@example.org"), "al@example.org")
    return Listed(QueuedMail(enqueue_id(number), found, MailBlobs(BlobId("h"), BlobId("b"))), at, Whereabouts.WAITING)


def deletion(*numbers: int, entry: int = 0, at: datetime = AT) -> Deletion:
    return Deletion(
        place(entry, "filters"), at, tuple(DeletedMail(enqueue_id(number), place(number)) for number in numbers)
    )


def james(kind: FilterKind, value: str, entry: int = 0, at: datetime = AT) -> JamesDeletion:
    return JamesDeletion(place(entry, "filters"), at, kind, value)


def checkpoint(at: datetime, *, heard: int = 0, last: int = 9, acked: int = 9, entry: int = 50) -> Checkpoint:
    progress = TopicProgress(reach(filters=heard), reach(out=last), reach(out=acked))
    return Checkpoint(place(entry, "filters"), at, progress)


def known(*notices: Notice) -> KnownDeletions:
    found = KnownDeletions()
    for one in notices:
        found.hear(one)
    return found


def expired(notices: Sequence[Notice], now: datetime, acked: int = 9) -> list[int]:
    progress = TopicProgress({}, reach(out=9), reach(out=acked))
    return [one.place.entry for one in tending(notices, progress, now).expired]


# Which mails


def test_a_deletion_holds_for_every_copy_of_its_mails_and_for_no_other() -> None:
    found = known(deletion(1, 2))
    assert found.hold(listed(2, AT + 99 * MINUTE), place(77, "elsewhere"))
    assert not found.hold(listed(3), place(1))


def test_places_of_deleted_mails_are_kept_each_once() -> None:
    twice = Deletion(place(1, "filters"), AT, (DeletedMail(enqueue_id(1), place(5, "delayed")),))
    found = known(deletion(1), deletion(1, entry=2), twice)
    assert list(found.places) == [place(1), place(5, "delayed")]


@pytest.mark.parametrize(
    ("kind", "value", "holds"),
    [
        (FilterKind.NAME, "a", True),
        (FilterKind.NAME, "A", False),
        (FilterKind.SENDER, "al@example.org", True),
        (FilterKind.SENDER, "AL@example.org", False),
        (FilterKind.SENDER, "bob@example.org", False),
        (FilterKind.RECIPIENT, "cy@example.org", True),
        (FilterKind.RECIPIENT, "al@example.org", False),
    ],
)
def test_deletions_of_james_compare_to_the_letter(kind: FilterKind, value: str, holds: bool) -> None:
    assert known(james(kind, value)).hold(listed(), place(1)) is holds


def test_a_deletion_of_james_is_not_about_mails_that_come_later() -> None:
    found = known(james(FilterKind.NAME, "a"))
    assert found.has_james
    assert found.hold(listed(at=AT), place(1))
    assert not found.hold(listed(at=AT + timedelta(microseconds=1)), place(1))


def test_of_two_deletions_of_james_the_later_holds_in_whichever_order_they_are_heard() -> None:
    one, two = james(FilterKind.NAME, "a"), james(FilterKind.NAME, "a", 1, AT + MINUTE)
    for found in (known(one, two), known(two, one)):
        assert found.hold(listed(at=AT + MINUTE), place(1))


def test_a_clock_that_is_behind_loses_no_mail_that_comes_after_the_checkpoint() -> None:
    """By its time alone it would be one that was there."""
    found = known(james(FilterKind.NAME, "a"), checkpoint(AT + SETTLED))
    assert found.hold(listed(at=AT), place(9))
    assert not found.hold(listed(at=AT), place(10))
    assert not found.hold(listed(at=AT), place(9, "of-a-partition-that-was-not-there"))


def test_the_first_checkpoint_that_settles_a_deletion_of_james_bounds_it_in_whichever_order_they_are_heard() -> None:
    first, second = checkpoint(AT + SETTLED, last=9), checkpoint(AT + SETTLED + MINUTE, last=20, entry=51)
    for found in (known(james(FilterKind.NAME, "a"), *both) for both in ((first, second), (second, first))):
        assert found.hold(listed(at=AT), place(9))
        assert not found.hold(listed(at=AT), place(10))


def test_filters_are_called_as_james_calls_them() -> None:
    assert [(kind.word, kind.field) for kind in FilterKind] == [
        ("ByName", "name"),
        ("BySender", "sender"),
        ("ByRecipient", "recipient"),
    ]


@pytest.mark.parametrize("early", [checkpoint(AT + SETTLED - MINUTE), checkpoint(AT + SETTLED, heard=-1)])
def test_a_checkpoint_that_may_have_missed_copies_bounds_nothing(early: Checkpoint) -> None:
    assert known(james(FilterKind.NAME, "a"), early).hold(listed(at=AT), place(10))


def test_the_null_sender_has_no_name() -> None:
    assert not known(james(FilterKind.SENDER, "")).hold(listed(mail=Mail("a", ("bob@example.org",))), place(1))


# For how long

SETTLES = AT + SETTLED
LATER = SETTLES + WRITTEN


def test_a_deletion_expires_once_nothing_before_it_is_left_and_that_is_written() -> None:
    notices: list[Notice] = [deletion(1), checkpoint(SETTLES)]
    assert expired(notices, LATER - MINUTE) == []
    assert expired(notices, LATER) == [0, 50]
    assert not tending(notices, TopicProgress({}, {}, reach(out=9)), LATER).checkpoint


@pytest.mark.parametrize(
    "too_little",
    [
        checkpoint(SETTLES - MINUTE),
        checkpoint(SETTLES, heard=-1),
        checkpoint(SETTLES, acked=8),
        checkpoint(SETTLES, last=10),
    ],
)
def test_a_checkpoint_that_shows_too_little_lets_nothing_expire(too_little: Checkpoint) -> None:
    assert 0 not in expired([deletion(1), too_little], LATER)


def test_two_checkpoints_show_it_together() -> None:
    first, second = checkpoint(SETTLES, acked=3), checkpoint(LATER, last=20, acked=9, entry=51)
    assert expired([deletion(1), first], LATER) == []
    assert expired([deletion(1), first, second], LATER + WRITTEN - MINUTE) == []
    assert expired([deletion(1), first, second], LATER + WRITTEN) == [0, 50, 51]


def test_what_was_acknowledged_before_the_last_copy_was_made_shows_nothing() -> None:
    """An earlier checkpoint that lies beyond it is about other messages."""
    before = checkpoint(SETTLES - 2 * MINUTE, heard=-1, acked=9, entry=49)
    assert 0 not in expired([deletion(1), before, checkpoint(SETTLES, acked=3)], LATER)


def test_a_checkpoint_is_void_once_the_broker_has_forgotten_what_it_says() -> None:
    assert expired([deletion(1), checkpoint(SETTLES)], LATER, acked=8) == [50]


def test_a_partition_that_is_gone_keeps_the_deletion() -> None:
    partitioned = TopicProgress(reach(filters=0), {"out": {0: (1, 9)}}, {"out": {0: (1, 9)}})
    notices: list[Notice] = [deletion(1), Checkpoint(place(50, "filters"), SETTLES, partitioned)]
    assert tending(notices, TopicProgress({}, {}, {}), LATER).expired == (place(50, "filters"),)


def test_a_checkpoint_is_wanted_when_it_can_settle_something_then_from_time_to_time() -> None:
    def wanted(now: datetime, *notices: Notice) -> bool:
        return tending(notices, TopicProgress({}, {}, reach(out=9)), now).checkpoint

    first = checkpoint(SETTLES, acked=3)
    assert not wanted(SETTLES - MINUTE, deletion(1))
    assert wanted(SETTLES, deletion(1))
    assert not wanted(LATER - MINUTE, deletion(1), first)
    assert wanted(LATER, deletion(1), first)
    assert wanted(SETTLES + MINUTE, deletion(1), first, deletion(2, entry=1, at=AT + MINUTE))
    assert not wanted(LATER, first)


def test_only_those_checkpoints_stay_that_show_something() -> None:
    """The one that settles it, the last that is written, the last."""
    minutes = range(0, 40, 5)
    checkpoints = [checkpoint(SETTLES + minute * MINUTE, acked=3, entry=50 + minute) for minute in minutes]
    now = SETTLES + 36 * MINUTE
    assert expired([deletion(1), *checkpoints], now) == [55, 60, 70, 75, 80]


def test_many_small_deletions_become_one() -> None:
    few = [deletion(number, number + 1, entry=number) for number in range(FROM_MANY - 1)]
    assert tending(few, TopicProgress({}, {}, {}), AT).merged == ()
    done = tending([*few, deletion(99, entry=99)], TopicProgress({}, {}, {}), AT)
    (merged,) = done.merged
    assert [one.enqueue_id for one in merged] == [enqueue_id(number) for number in (*range(FROM_MANY), 99)]
    assert [one.place.entry for one in done.expired] == [*range(FROM_MANY - 1), 99]


def test_full_deletions_stay_as_they_are_and_none_becomes_larger() -> None:
    full = deletion(*range(FULL), entry=999)
    many = [deletion(*range(number * 1000, number * 1000 + 999), entry=number) for number in range(FROM_MANY)]
    done = tending([full, *many], TopicProgress({}, {}, {}), AT)
    assert [len(one) for one in done.merged] == [FULL, FULL, FULL, 999 * FROM_MANY - 3 * FULL]
    assert full.where not in done.expired


def test_a_deletion_of_james_that_a_later_one_outdoes_is_no_longer_needed() -> None:
    one, two = james(FilterKind.NAME, "a"), james(FilterKind.NAME, "a", 1, AT + MINUTE)
    other = james(FilterKind.NAME, "b", 2)
    assert expired([one, two, other], AT + MINUTE) == [0]
    assert expired([other, two, one], AT + MINUTE) == [0]


def test_of_two_deletions_of_james_at_the_same_time_the_one_at_the_later_place_is_kept() -> None:
    one, two = james(FilterKind.NAME, "a", 4), james(FilterKind.NAME, "a", 7)
    assert expired([two, one], AT + MINUTE) == [4]


def test_progress_is_what_was_heard_what_is_there_and_what_is_done() -> None:
    empty = PartitionBacklog((1, 4), (), (2, -1), count=0)
    backlog = Backlog({0: empty, 1: PartitionBacklog((1, 0), (), (1, 4), 2)})
    found = progress_of([deletion(1, entry=3), deletion(2, entry=1)], {"out": backlog})
    assert found == TopicProgress(reach(filters=3), {"out": {0: (2, -1), 1: (1, 4)}}, {"out": {0: (2, -1), 1: (1, 0)}})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=8), st.integers(0, 60))
def test_what_expires_was_acknowledged_before(stretches: list[tuple[int, int]], minutes: int) -> None:
    """Whatever checkpoints there are, one of them says so, and it is old enough."""
    checkpoints = [
        checkpoint(AT + minute * MINUTE, acked=acked, entry=50 + number)
        for number, (acked, minute) in enumerate(stretches)
    ]
    now = AT + minutes * MINUTE
    if 0 in expired([deletion(1), *checkpoints], now):
        shows = [one.at for one in checkpoints if one.progress.acked == reach(out=9) and one.at >= SETTLES]
        assert any(now - at >= WRITTEN for at in shows)
