"""Three sides held against each other: what is surely lost, what only looks so, and what may be touched."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.broker import SETTLING, Depth
from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.comparison import (
    DRAIN_MAX,
    MEANINGS,
    Drained,
    LiveMail,
    Mended,
    QueueFinding,
    Reconciled,
    TablesSide,
    compared,
    left_after,
    refuse_drain,
    republishable,
)
from mailmend.mailqueue.queue import refuse_too_many
from mailmend.mailqueue.rules.mails import MailBlobs
from mailmend.model.errors import UnsafeRequest
from mailmend.model.ids import BlobId, EnqueueId, QueueName

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SPOOL = QueueName("spool")
BLOBS = MailBlobs(BlobId("1_1_header"), BlobId("1_1_body"))


def mail_id(number: int) -> EnqueueId:
    return EnqueueId(UUID(int=number))


def ids(*numbers: int) -> frozenset[EnqueueId]:
    return frozenset(mail_id(number) for number in numbers)


def live(age: timedelta = 2 * HOUR) -> LiveMail:
    return LiveMail(NOW - age, NOW - age, BLOBS)


def tables(*mails: int, marked: Collection[EnqueueId] = (), delayed: Collection[EnqueueId] = ()) -> TablesSide:
    return TablesSide({mail_id(one): live() for one in mails}, frozenset(marked), frozenset(delayed))


def depth(ready: int, unacked: int | None = 0, consumers: int = 0, dead: int = 0, limit: int | None = None) -> Depth:
    return Depth(ready, unacked, consumers, dead, limit)


def drained(*numbers: int, dead: Collection[EnqueueId] = (), marked: Collection[EnqueueId] = ()) -> Drained:
    return Drained(NOW, ids(*numbers), marked=frozenset(marked), dead=frozenset(dead))


def test_three_sides_that_agree_are_clean() -> None:
    """Marked rows that wait for their sweep and delayed mails are no finding."""
    found = compared(
        SPOOL, NOW, tables(1, 2, marked=ids(3), delayed=ids(4)), depth=depth(1, unacked=1), missing=frozenset()
    )

    assert (found.clean, found.lacking, found.surplus) == (True, 0, 0)


@pytest.mark.parametrize(
    ("broker", "lacking"),
    [
        (depth(0), 3),
        (depth(2), 1),
        (depth(1, unacked=1), 1),
        (depth(1, dead=1), 1),
        (depth(9), 0),
        (depth(0, unacked=None, consumers=1), None),
        (depth(0, unacked=None), 3),
        (replace(depth(0), counted=2), 1),
        (replace(depth(2), counted=0), 1),
    ],
)
def test_only_what_surely_lacks_is_called_lacking(broker: Depth, lacking: int | None) -> None:
    """Any message, in hand or rejected, might be that of any live mail; where that is not told, nothing is claimed."""
    found = compared(SPOOL, NOW, tables(1, 2, 3), depth=broker)

    assert found.lacking == lacking
    assert found.counts[QueueFinding.LACKS_MESSAGE] == (lacking or 0)


def test_a_mail_between_row_and_publish_is_not_called_lost() -> None:
    young = TablesSide({mail_id(1): live(SETTLING / 2)})

    assert compared(SPOOL, NOW, young, depth=depth(0)).clean
    assert compared(SPOOL, NOW, young, drained=drained()).clean


def test_a_drain_names_who_lacks_what() -> None:
    """One only in the table, one only in the broker; a marked one and a rejected one are neither."""
    found = compared(
        SPOOL, NOW, tables(1, 2, 5, marked=ids(3)), drained=drained(1, 3, 7, 8, dead=ids(5), marked=ids(8))
    )

    assert (found.without_message, found.only_in_broker) == ((mail_id(2),), (mail_id(7),))
    assert found.counts[QueueFinding.LACKS_MESSAGE] == found.counts[QueueFinding.ONLY_IN_BROKER] == 1


def test_copies_of_messages_are_no_finding() -> None:
    assert compared(SPOOL, NOW, tables(1), depth=depth(5)).clean


def test_every_finding_is_counted_and_has_a_meaning() -> None:
    side = TablesSide({mail_id(1): live()}, broken=(BrokenRow(mail_id(2), NOW, 0, "no name"),))
    found = compared(
        SPOOL,
        NOW,
        side,
        depth=depth(1, dead=1),
        missing=ids(1),
        drained=Drained(NOW, ids(9), bad=1),
    )

    assert dict(found.counts) == dict.fromkeys(QueueFinding, 1)
    assert set(MEANINGS) == set(QueueFinding)


@given(
    waiting=st.frozensets(st.integers(1, 12)),
    messages=st.frozensets(st.integers(1, 12)),
    marked=st.frozensets(st.integers(1, 12)),
)
def test_numbers_never_claim_more_than_names_show(
    waiting: frozenset[int], messages: frozenset[int], marked: frozenset[int]
) -> None:
    """Whatever is where: what is surely lacking or surplus by count is no more than a drain would name."""
    side = tables(*(waiting - marked), marked=ids(*marked))
    counted = compared(SPOOL, NOW, side, depth=depth(len(messages)))
    named = compared(SPOOL, NOW, side, depth=depth(len(messages)), drained=drained(*messages))

    assert counted.lacking is not None
    assert counted.lacking <= len(named.without_message)
    assert counted.surplus is not None
    assert counted.surplus <= len(named.only_in_broker)


class TestMending:
    """What may be done about it."""

    def found(self, side: TablesSide, broker: Depth | None = None, names: Drained | None = None) -> Reconciled:
        return compared(SPOOL, NOW, side, depth=broker, drained=names)

    def test_after_a_drain_exactly_those_are_republished_that_lack_a_message(self) -> None:
        found = self.found(tables(1, 2), names=drained(1))

        assert republishable(found, HOUR) == ids(2)
        assert republishable(found, 3 * HOUR) == frozenset()

    def test_without_a_drain_all_or_none(self) -> None:
        """None where no message surely lacks: a copy could be delivered beside the first."""
        assert republishable(self.found(tables(1, 2), depth(1)), HOUR) is None
        assert republishable(self.found(tables(1, 2), depth(2)), HOUR) == frozenset()
        assert republishable(self.found(tables(1, 2), depth(0, unacked=None, consumers=1)), HOUR) == frozenset()


class TestWhatIsLeft:
    """After mending."""

    SIDE = TablesSide({mail_id(1): live(), mail_id(2): live()}, broken=(BrokenRow(mail_id(3), NOW, 0, "no name"),))

    def found(self) -> Reconciled:
        return compared(SPOOL, NOW, self.SIDE, missing=ids(1), drained=drained(1, 9))

    def test_what_was_mended_is_not_left(self) -> None:
        mended = Mended(republished=1, marked=ids(1, 3, 9))

        assert left_after(self.found(), mended) == {}

    def test_what_was_not_is_named(self) -> None:
        assert left_after(self.found(), Mended()) == {
            QueueFinding.BROKEN_ROW: 1,
            QueueFinding.BLOB_MISSING: 1,
            QueueFinding.LACKS_MESSAGE: 1,
            QueueFinding.ONLY_IN_BROKER: 1,
        }

    def test_a_mail_that_lacked_its_message_and_was_marked_lacks_nothing(self) -> None:
        assert QueueFinding.LACKS_MESSAGE not in left_after(self.found(), Mended(marked=ids(2)))

    def test_by_count_every_live_mail_that_leaves_is_one_that_lacks_nothing(self) -> None:
        """Two lack a message, nobody knows which: with one of them gone one is left."""
        counted = compared(SPOOL, NOW, tables(1, 2), depth=depth(0))

        assert left_after(counted, Mended(marked=ids(1))) == {QueueFinding.LACKS_MESSAGE: 1}
        assert left_after(counted, Mended(marked=ids(1, 2))) == {}


class TestGuards:
    """What is refused, and how to go on."""

    @pytest.mark.parametrize(
        ("broker", "said"),
        [
            (depth(1, limit=20), "after 20 returns"),
            (depth(1, consumers=2), "2 consumers"),
            (replace(depth(1, dead=1), dead_limit=20), "drops a dead letter of spool for good after 20 returns"),
        ],
    )
    def test_a_drain_that_may_harm_needs_force(self, broker: Depth, said: str) -> None:
        with pytest.raises(UnsafeRequest, match=said):
            refuse_drain(SPOOL, broker, forced=False)
        refuse_drain(SPOOL, broker, forced=True)

    def test_a_drain_of_more_than_can_be_held_is_refused_even_by_force(self) -> None:
        with pytest.raises(UnsafeRequest, match=r"50,001 messages .* 50,000"):
            refuse_drain(SPOOL, depth(DRAIN_MAX + 1), forced=True)
        with pytest.raises(UnsafeRequest, match=r"50,001 dead letters .* 50,000"):
            refuse_drain(SPOOL, depth(0, dead=DRAIN_MAX + 1), forced=True)
        refuse_drain(SPOOL, depth(DRAIN_MAX, dead=DRAIN_MAX), forced=False)

    def test_memory_has_a_bound_with_a_number(self) -> None:
        refuse_too_many(10, "live mails", 10)
        with pytest.raises(UnsafeRequest, match="more than 10 live mails"):
            refuse_too_many(11, "live mails", 10)
