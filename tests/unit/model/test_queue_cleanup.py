"""Which rows and marks of a queue nobody needs, from the counts of a scan."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.queue.cleanup import (
    BrokerSide,
    QueueDrift,
    QueuePartition,
    QueueStarts,
    RowCounts,
    ScannedQueue,
    confirmed,
    judged,
    why_marks_stay,
)
from model.queue.starts import furthest_browse_start
from tests.support.queues import HOUR, NOON, QUEUE

NOW = NOON + 10 * HOUR


def place(hours: int, bucket: int = 0) -> QueuePartition:
    return QueuePartition(QUEUE, NOON + hours * HOUR, bucket)


def scanned(browse: int | None, partitions: dict[int, tuple[int, int]], **more: int) -> ScannedQueue:
    """A queue whose slices, by hours after noon, have so many rows, and so many marked ones."""
    start = None if browse is None else NOON + browse * HOUR
    counts = {place(hours): RowCounts(*pair) for hours, pair in partitions.items()}
    return ScannedQueue(QUEUE, QueueStarts(start, start), counts, **more)


class TestJudged:
    """What a scan comes to."""

    def test_finished_slices_before_the_first_waiting_mail_are_over(self) -> None:
        found = judged(scanned(0, {-2: (3, 3), 0: (2, 2), 1: (2, 1), 2: (4, 4)}), NOW, HOUR, marks_expire=True)
        assert found.over == {place(-2), place(0)}
        assert found.browse_start == NOON + HOUR
        assert found.drift == {QueueDrift.OVER: 5, QueueDrift.START_BEHIND: 1}

    def test_a_waiting_mail_before_the_browse_start_is_stranded_and_keeps_its_partition(self) -> None:
        found = judged(scanned(3, {1: (2, 1), 2: (1, 1), 3: (1, 0)}), NOW, HOUR, marks_expire=True)
        assert found.over == {place(2)}
        assert found.drift == {QueueDrift.OVER: 1, QueueDrift.STRANDED: 1}
        assert found.first_left(found.over, HOUR) == NOON + HOUR

    def test_nothing_is_over_without_a_browse_start(self) -> None:
        found = judged(scanned(None, {0: (2, 2)}), NOW, HOUR, marks_expire=True)
        assert (found.over, found.drift) == (frozenset(), {QueueDrift.NO_BROWSE_START: 1})

    def test_orphan_marks_are_drift_only_where_they_never_expire(self) -> None:
        queue = scanned(9, {}, marks=5, orphan_marks=4)
        assert judged(queue, NOON + 9 * HOUR, HOUR, marks_expire=False).drift == {QueueDrift.ORPHAN_MARK: 4}
        assert judged(queue, NOON + 9 * HOUR, HOUR, marks_expire=True).drift == {}

    def test_a_start_that_somebody_put_back_is_told(self) -> None:
        starts = QueueStarts(NOON, NOON, NOON + HOUR)
        found = judged(ScannedQueue(QUEUE, starts), NOON + HOUR, HOUR, marks_expire=True)
        assert found.drift == {QueueDrift.START_MOVED_BACK: 1}

    def test_a_missing_content_start_is_told(self) -> None:
        found = judged(ScannedQueue(QUEUE, QueueStarts(NOON)), NOON + HOUR, HOUR, marks_expire=True)
        assert found.drift == {QueueDrift.NO_CONTENT_START: 1}

    @given(
        st.integers(-5, 12),
        st.dictionaries(st.integers(-8, 14), st.sampled_from([(1, 0), (1, 1), (3, 0), (3, 2), (3, 3)])),
    )
    def test_no_waiting_mail_and_no_slice_within_the_grace_is_ever_over(
        self, browse: int, partitions: dict[int, tuple[int, int]]
    ) -> None:
        found = judged(scanned(browse, partitions), NOW, HOUR, marks_expire=True)
        assert all(len(set(found.scanned.partitions[one])) == 1 for one in found.over)
        edge = max(furthest_browse_start(NOW, HOUR), NOON + browse * HOUR)
        assert all(one.slice_start < edge for one in found.over)
        left = found.first_left(found.over, HOUR)
        assert left is not None
        assert all(one.slice_start >= left for one in found.scanned.partitions.keys() - found.over)


def test_only_what_was_over_twice_with_the_same_rows_is_confirmed() -> None:
    first = judged(scanned(5, {0: (2, 2), 1: (2, 2), 2: (2, 2)}), NOW, HOUR, marks_expire=True)
    second = judged(scanned(5, {0: (2, 2), 1: (3, 3), 2: (2, 1)}), NOW, HOUR, marks_expire=True)
    assert confirmed(first, second) == {place(0)}


EMPTY = BrokerSide(0, 0, 0)


@pytest.mark.parametrize(
    ("sides", "partitions", "delayed", "why"),
    [
        ([EMPTY, EMPTY], {0: (2, 2)}, False, None),
        ([EMPTY, BrokerSide(0, None, 0)], {}, False, "does not tell"),
        ([BrokerSide(1, 0, 0), EMPTY], {}, False, "1 messages"),
        ([EMPTY, BrokerSide(0, 2, 0)], {}, False, "2 unacked"),
        ([EMPTY, BrokerSide(0, 0, 3)], {}, False, "3 dead letters"),
        ([EMPTY, EMPTY], {0: (2, 1)}, False, "1 mails wait"),
        ([EMPTY, EMPTY], {}, True, "delayed"),
    ],
)
def test_marks_go_only_where_no_delivery_can_need_them(
    sides: list[BrokerSide], partitions: dict[int, tuple[int, int]], delayed: bool, why: str | None
) -> None:
    stay = why_marks_stay(scanned(0, partitions), sides, delayed=delayed)
    assert stay is None if why is None else why in str(stay)


def test_the_window_of_an_hour_is_not_assumed() -> None:
    found = judged(scanned(0, {0: (1, 1)}), NOON + 3 * HOUR, timedelta(minutes=10), marks_expire=True)
    assert found.browse_start == NOON + 3 * HOUR - timedelta(minutes=20)
