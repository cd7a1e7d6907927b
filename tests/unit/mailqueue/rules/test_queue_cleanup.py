"""Which rows and marks of a queue nobody needs, from the counts of a scan."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.cleanup import (
    BrokerSide,
    QueuePartition,
    QueuePlace,
    QueueStarts,
    RowCounts,
    ScannedQueue,
    confirmed,
    findings_of,
    found_twice,
    judged,
    why_marks_stay,
)
from mailmend.mailqueue.rules.slices import furthest_browse_start
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import OVER_VERDICTS, QUEUE_VERDICTS, Verdict
from tests.support.queues import HOUR, NOON, QUEUE

NOW = NOON + 10 * HOUR


def place(hours: int, bucket: int = 0) -> QueuePartition:
    return QueuePartition(QUEUE, NOON + hours * HOUR, bucket)


def scanned(browse: int | None, partitions: dict[int, tuple[int, int]], **more: Any) -> ScannedQueue:
    """A queue whose slices, by hours after noon, have so many rows, and so many marked ones."""
    start = None if browse is None else NOON + browse * HOUR
    counts = {place(hours): RowCounts(*pair) for hours, pair in partitions.items()}
    return ScannedQueue(QUEUE, QueueStarts(start, start), counts, **more)


def sums(found: Mapping[QueuePlace, int]) -> dict[Verdict, int]:
    counted: Counter[Verdict] = Counter()
    for (verdict, _), number in found.items():
        counted[verdict] += number
    return dict(counted)


UNSWEPT = QueueStarts(NOON, None)


class TestJudged:
    """What a scan comes to."""

    @pytest.mark.parametrize(
        ("queue", "now", "over", "found"),
        [
            pytest.param(
                scanned(0, {-2: (3, 3), 0: (2, 2), 1: (2, 1), 2: (4, 4)}),
                NOW,
                {-2, 0},
                {Verdict.BEFORE_CONTENT: 3, Verdict.OVER: 2, Verdict.START_BEHIND: 1, Verdict.FINISHED: 5},
                id="finished slices before the first waiting mail are over",
            ),
            pytest.param(
                scanned(3, {1: (2, 1), 2: (1, 1), 3: (1, 0)}),
                NOW,
                {2},
                {Verdict.BEFORE_CONTENT: 1, Verdict.STRANDED: 1, Verdict.FINISHED: 1},
                id="a waiting mail before the browse start is stranded and keeps its partition",
            ),
            pytest.param(
                scanned(None, {0: (2, 2)}),
                NOW,
                set(),
                {Verdict.NO_BROWSE_START: 1, Verdict.FINISHED: 2},
                id="nothing is over without a browse start",
            ),
            pytest.param(
                scanned(8, {}),
                NOW,
                set(),
                {},
                id="a start that may move since the turn of a slice is not stuck",
            ),
            pytest.param(
                scanned(8, {}),
                NOW + HOUR,
                set(),
                {Verdict.START_BEHIND: 1},
                id="a start that has not moved for a whole slice is stuck",
            ),
            pytest.param(
                scanned(8, {8: (1, 1)}),
                NOW,
                {8},
                {Verdict.OVER: 1, Verdict.START_BEHIND: 1},
                id="a start that has to move before rows can go is behind",
            ),
            pytest.param(
                ScannedQueue(QUEUE, QueueStarts(NOON, NOON, NOON + HOUR)),
                NOON + HOUR,
                set(),
                {Verdict.START_MOVED_BACK: 1},
                id="a start that somebody put back",
            ),
            pytest.param(
                ScannedQueue(QUEUE, UNSWEPT, {place(-1): RowCounts(2, 2)}),
                NOON + HOUR,
                {-1},
                {Verdict.NO_CONTENT_START: 1, Verdict.OVER: 2},
                id="a missing content start",
            ),
            pytest.param(
                scanned(
                    8, {8: (5, 2), 9: (1, 0)}, tallied={NOON + 7 * HOUR: 9, NOON + 8 * HOUR: 5, NOON + 9 * HOUR: 1}
                ),
                NOON + 9 * HOUR,
                set(),
                {Verdict.FINISHED: 2, Verdict.TALLY_DIFFERS: 2},
                id="tallies of slices that are browsed differ from their rows",
            ),
            pytest.param(
                scanned(8, {8: (1, 0)}, tallied={NOON + 9 * HOUR: 4}),
                NOON + 9 * HOUR,
                set(),
                {Verdict.TALLY_DIFFERS: 4},
                id="tallies of a slice without rows",
            ),
        ],
    )
    def test_what_a_scan_shows_is_found(
        self, queue: ScannedQueue, now: datetime, over: set[int], found: dict[Verdict, int]
    ) -> None:
        judgement = judged(queue, now, HOUR, marks_expire=True)
        assert (set(judgement.over), sums(judgement.found)) == ({place(hours) for hours in over}, found)

    def test_a_mail_that_waits_for_longer_than_rows_live_is_reported(self) -> None:
        queue = scanned(0, {0: (3, 1), 4: (1, 0)})
        for row_ttl, overstayed in ((5 * HOUR, 2), (9 * HOUR, 0), (timedelta(), 0)):
            found = judged(queue, NOW, HOUR, marks_expire=True, row_ttl=row_ttl).found
            assert found.get(QueuePlace(Verdict.OVERSTAYED, place(0)), 0) == overstayed

    def test_orphan_marks_are_reported_only_where_they_never_expire_and_are_no_drift(self) -> None:
        queue = scanned(9, {}, marks=5, orphan_marks=4)
        lasting, expiring = (judged(queue, NOON + 9 * HOUR, HOUR, marks_expire=expire) for expire in (False, True))
        assert (sums(lasting.found), expiring.found) == ({Verdict.ORPHAN_MARK: 4}, {})
        assert not lasting.is_drift

    def test_the_content_start_stops_before_what_is_left(self) -> None:
        found = judged(scanned(3, {1: (2, 1), 2: (1, 1), 3: (1, 0)}), NOW, HOUR, marks_expire=True)
        assert found.first_left(found.over, NOON + 3 * HOUR, HOUR) == NOON + HOUR

    def test_the_content_start_stops_at_the_browse_start(self) -> None:
        found = judged(scanned(0, {0: (1, 1)}), NOW, HOUR, marks_expire=True)
        assert found.first_left(found.over, NOON + HOUR, HOUR) == NOON + HOUR

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
        assert found.browse_start is not None
        left = found.first_left(found.over, found.browse_start, HOUR)
        assert all(one.slice_start >= left for one in found.scanned.partitions.keys() - found.over)


def test_only_what_was_over_twice_with_the_same_rows_is_confirmed() -> None:
    first = judged(scanned(5, {0: (2, 2), 1: (2, 2), 2: (2, 2)}), NOW, HOUR, marks_expire=True)
    second = judged(scanned(5, {0: (2, 2), 1: (3, 3), 2: (2, 1)}), NOW, HOUR, marks_expire=True)
    assert confirmed(first, second) == {place(0)}
    found = found_twice(first, second, confirmed(first, second))
    assert {at.key: number for at, number in found.items() if at.verdict in OVER_VERDICTS} == {place(0): 2}


def test_what_only_the_later_look_could_pass_is_not_confirmed() -> None:
    """The same rows at both, and the grace was over for the second slice at the second look alone."""
    queue = scanned(0, {0: (2, 2), 1: (2, 2)})
    first = judged(queue, NOON + 2 * HOUR, HOUR, marks_expire=True)
    second = judged(queue, NOW, HOUR, marks_expire=True)

    assert second.over == {place(0), place(1)}
    assert confirmed(first, second) == {place(0)} == confirmed(second, first)


def test_a_slice_counts_the_rows_of_all_its_buckets_and_of_no_other_slice() -> None:
    counts = {place(0, 0): RowCounts(3, 1), place(0, 1): RowCounts(4, 2), place(1, 0): RowCounts(8, 8)}
    queue = ScannedQueue(QUEUE, UNSWEPT, counts)

    assert queue.counts_in(NOON) == RowCounts(7, 3)
    assert queue.counts_in(NOON + 2 * HOUR) == RowCounts(0, 0)


def test_what_both_looks_showed_is_found_as_far_as_it_was_the_same() -> None:
    counts = {0: (2, 2), 1: (2, 1), 4: (3, 0), 8: (2, 0)}
    tallied = {NOON + 8 * HOUR: 9, NOON + 9 * HOUR: 9}
    looks = [
        judged(scanned(5, counts | {9: (more, 0)}, tallied=tallied), NOW, HOUR, marks_expire=True) for more in (1, 2)
    ]
    looks[1] = replace(looks[1], found={**looks[1].found, QueuePlace(Verdict.STRANDED, place(4)): 1})
    before, after = looks
    assert found_twice(before, after, confirmed(before, after)) == {
        (Verdict.BEFORE_CONTENT, place(0)): 2,
        (Verdict.STRANDED, place(1)): 1,
        (Verdict.STRANDED, place(4)): 1,
        (Verdict.FINISHED, (QUEUE,)): 1,
        (Verdict.TALLY_DIFFERS, (QUEUE, NOON + 8 * HOUR)): 7,
        (Verdict.START_BEHIND, (QUEUE,)): 1,
    }


def test_every_verdict_on_queues_ends_in_a_finding_with_what_was_there() -> None:
    starts = QueueStarts(NOON, NOON + HOUR, NOON + 2 * HOUR)
    queue = ScannedQueue(QUEUE, starts, {place(0): RowCounts(2, 1)}, tallied={NOON: 9})
    keys = {Verdict.TALLY_DIFFERS: (QUEUE, NOON), Verdict.BLOBS_GONE: (*place(0), QUEUE)}
    of_queue = {Verdict.FINISHED, Verdict.ORPHAN_MARK, *(one for one in QUEUE_VERDICTS if "START" in one.value)}
    places = [QueuePlace(one, (QUEUE,) if one in of_queue else keys.get(one, place(0))) for one in QUEUE_VERDICTS]

    ended = findings_of(dict.fromkeys(places, 2), queue)

    judgements = {at: (one.suspect, one.verdict, one.number) for at, one in ended.items()}
    assert judgements == {
        at: (Suspect(QUEUE_VERDICTS[at.verdict].table, at.key, at.verdict), at.verdict, 2) for at in places
    }
    before = {at.verdict: one.projected and one.projected.row for at, one in ended.items()}
    of_slice = {"queuename": QUEUE, "timerangestart": NOON}
    assert before[Verdict.OVER] == {**of_slice, "bucketid": 0, "rows": 2, "marked": 1}
    assert before[Verdict.TALLY_DIFFERS] == {**of_slice, "tallied": 9, "rows": 2, "marked": 1}
    assert before[Verdict.START_BEHIND] == {
        "queuename": QUEUE,
        "browsestart": NOON,
        "contentstart": NOON + HOUR,
        "furtheststart": NOON + 2 * HOUR,
    }
    assert before[Verdict.BLOBS_GONE] is None


EMPTY = BrokerSide(0, 0, 0)
UNTOLD = "the broker does not tell what is in consumers' hands (--broker-management)"


@pytest.mark.parametrize(
    ("sides", "partitions", "delayed", "why"),
    [
        ([EMPTY, EMPTY], {0: (2, 2)}, False, None),
        ([EMPTY, BrokerSide(0, None, 0)], {}, False, UNTOLD),
        ([BrokerSide(None, 0, 0), EMPTY], {}, False, UNTOLD),
        ([BrokerSide(0, 0, None), EMPTY], {}, False, UNTOLD),
        ([BrokerSide(silent="it is away"), EMPTY], {}, False, "the broker could not be asked: it is away"),
        ([EMPTY, BrokerSide(silent="it is away")], {}, False, "the broker could not be asked: it is away"),
        ([BrokerSide(1, 0, 0), EMPTY], {}, False, "the broker holds 1 messages, 0 unacked, 0 dead letters"),
        ([EMPTY, BrokerSide(0, 2, 0)], {}, False, "the broker holds 0 messages, 2 unacked, 0 dead letters"),
        ([EMPTY, BrokerSide(0, 0, 3)], {}, False, "the broker holds 0 messages, 0 unacked, 3 dead letters"),
        ([EMPTY, EMPTY], {0: (2, 1)}, False, "1 mails wait in the tables, and may be published again"),
        ([EMPTY, EMPTY], {}, True, "mails are delayed, and will be published again"),
    ],
)
def test_marks_go_only_where_no_delivery_can_need_them(
    sides: list[BrokerSide], partitions: dict[int, tuple[int, int]], delayed: bool, why: str | None
) -> None:
    assert why_marks_stay(scanned(0, partitions), sides, delayed=delayed) == why


def test_the_window_of_an_hour_is_not_assumed() -> None:
    found = judged(scanned(0, {0: (1, 1)}), NOON + 3 * HOUR, timedelta(minutes=10), marks_expire=True)
    assert found.browse_start == NOON + 3 * HOUR - timedelta(minutes=20)


def test_a_partition_is_named_by_the_milliseconds_of_its_slice() -> None:
    named = QueuePartition.at_millis("spool", 1_795_000_500_250, 7)
    assert named == ("spool", datetime(2026, 11, 18, 11, 15, 0, 250_000, tzinfo=UTC), 7)


def test_what_only_the_second_look_showed_is_not_found() -> None:
    nothing = judged(scanned(9, {}, marks=5), NOW, HOUR, marks_expire=False)
    second = replace(nothing, found={QueuePlace(Verdict.STRANDED, place(4)): 1})
    assert found_twice(nothing, second, ()) == {}


def test_a_scanned_queue_counts_the_rows_of_all_partitions_and_of_those_the_unmarked_ones() -> None:
    queue = scanned(0, {0: (2, 2), 1: (3, 1), 5: (4, 3)}, marks=6)

    assert (queue.rows, queue.waiting, queue.marks) == (9, 3, 6)


def test_a_queue_of_which_a_scan_saw_nothing_has_no_rows_no_marks_and_no_starts() -> None:
    queue = ScannedQueue(QUEUE)

    assert (queue.rows, queue.waiting, queue.marks, queue.orphan_marks) == (0, 0, 0, 0)
    assert (queue.starts.browse, queue.starts.content, queue.starts.furthest) == (None, None, None)
    assert judged(queue, NOW, HOUR, marks_expire=False).found == {}


@pytest.mark.parametrize(
    ("browse", "first_live"), [(None, 0), (0, 0), (1, 3), (3, 3), (4, None)], ids=["no start", "0", "1", "3", "4"]
)
def test_the_first_live_slice_is_the_first_from_the_browse_start_on_with_a_waiting_mail(
    browse: int | None, first_live: int | None
) -> None:
    queue = scanned(browse, {3: (1, 0), 0: (2, 1), 2: (2, 2)})

    assert queue.first_live == (None if first_live is None else NOON + first_live * HOUR)
