"""How many mails wait, and how sure that is."""

import pytest

from mailmend.mailqueue.codec import row_of
from mailmend.mailqueue.rules.size import CountedBy, SizeKind
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, SLICE_TALLIES, OwnTables
from mailmend.model.operations import Put, Remove
from tests.support.queues import HOUR, NOON, OF_JAMES, QUEUE, Process, TwinQueue, queued, twin_queue
from tests.support.striking import Strike, everything_of


class TestSize:
    """How many mails wait, and how sure that is."""

    async def test_a_size_is_exact_once_all_is_written(self, twin: TwinQueue, process: Process) -> None:
        for number in range(9):
            await process.view.rows.place(QUEUE, queued(number))
            twin.clock.advance(1800)
        await process.view.mark(QUEUE, queued(3).enqueue_id, NOON + HOUR)
        await process.tallies.flush()
        twin.clock.turn_to(NOON + 4 * HOUR)
        rows = twin.memory.surround = Strike(everything_of(ENQUEUED_MAILS, DELETED_MAILS))
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.delayed, size.kind, size.counted_by) == (8, 0, SizeKind.EXACT, CountedBy.TALLIES)
        assert size.slices_read == 5
        assert not rows.struck

    async def test_beside_james_a_sum_is_an_estimate(self) -> None:
        """What James has enqueued since the last look is in nobody's tallies; rows that were counted are sure."""
        twin = twin_queue(own=OwnTables(shared=True))
        process = twin.parts()
        await process.view.rows.place(QUEUE, queued(1))
        await process.tallies.flush()
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind, size.counted_by) == (1, SizeKind.ESTIMATE, CountedBy.TALLIES)
        await process.view.foreign(QUEUE)
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind, size.counted_by) == (1, SizeKind.EXACT, CountedBy.METADATA)

    async def test_a_queue_that_never_was_is_empty(self, twin: TwinQueue) -> None:
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind, size.slices_read) == (0, SizeKind.EXACT, 0)

    async def test_a_process_that_was_killed_leaves_an_estimate(self, twin: TwinQueue) -> None:
        killed, other = twin.parts(), twin.parts()
        start = await killed.view.rows.place(QUEUE, queued(1))
        await other.view.rows.place(QUEUE, queued(2))
        await other.tallies.flush()
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind) == (1, SizeKind.ESTIMATE)
        for number in (1, 2):
            await other.view.mark(QUEUE, queued(number).enqueue_id, start)
        twin.clock.advance(3 * 3600)
        await other.sweeper.sweep(QUEUE)
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind) == (0, SizeKind.EXACT)

    @pytest.mark.parametrize("own", [OwnTables(), OF_JAMES], ids=["ours", "of James"])
    async def test_without_tallies_rows_are_counted(self, own: OwnTables) -> None:
        """In a keyspace of James, and where James alone has enqueued into a slice."""
        twin = twin_queue(own=own)
        process = twin.parts()
        for number in range(3):
            await process.view.rows.place(QUEUE, queued(number))
        await process.view.mark(QUEUE, queued(1).enqueue_id, NOON)
        for row in twin.rows(SLICE_TALLIES):
            twin.memory.write(Remove(SLICE_TALLIES, SLICE_TALLIES.key_of(row)))
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind, size.counted_by) == (2, SizeKind.EXACT, CountedBy.METADATA)

    async def test_where_a_foreign_mail_was_seen_rows_are_counted(self, twin: TwinQueue, process: Process) -> None:
        await process.view.rows.place(QUEUE, queued(1))
        twin.put_row(row_of(QUEUE, NOON, 0, NOON, queued(2)))
        await process.tallies.flush()
        assert (await process.view.size(QUEUE)).mails == 1
        await process.view.foreign(QUEUE)
        await process.view.foreign(QUEUE)
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind, size.counted_by) == (2, SizeKind.EXACT, CountedBy.METADATA)

    async def test_a_mail_that_is_marked_twice_counts_once(self, twin: TwinQueue) -> None:
        """By the same process, and by another that was told of the redelivery."""
        one, other = twin.parts(), twin.parts()
        for number in range(3):
            await one.view.rows.place(QUEUE, queued(number))
        for _ in range(2):
            await one.view.mark(QUEUE, queued(1).enqueue_id, NOON)
        await other.view.mark(QUEUE, queued(1).enqueue_id, NOON, redelivered=True)
        await other.view.mark_all(QUEUE, [(queued(1).enqueue_id, NOON)])
        await one.tallies.flush()
        size = await other.view.size(QUEUE)
        assert (size.mails, size.kind) == (2, SizeKind.EXACT)

    async def test_after_a_deletion_a_size_is_an_estimate(self, process: Process) -> None:
        """A consumer may have finished with one of the mails at the same moment, and counted it too."""
        for number in range(3):
            await process.view.rows.place(QUEUE, queued(number))
        await process.view.mark_all(QUEUE, [(queued(1).enqueue_id, NOON), (queued(2).enqueue_id, NOON)])
        size = await process.view.size(QUEUE)
        assert (size.mails, size.kind) == (1, SizeKind.ESTIMATE)

    async def test_counting_again_sets_right_what_was_lost(self, twin: TwinQueue) -> None:
        """A process that was killed with uncounted mails; then the size is exact, and stays so."""
        killed, other = twin.parts(), twin.parts()
        for number in range(5):
            await killed.view.rows.place(QUEUE, queued(number))
        await other.view.mark(QUEUE, queued(4).enqueue_id, NOON)
        recounted = await other.view.recount(QUEUE)
        assert (recounted.corrected, recounted.left) == (0, 1)
        await other.tallies.flush()
        twin.clock.advance(601)
        recounted = await other.view.recount(QUEUE)
        assert (recounted.corrected, recounted.left) == (1, 0)
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind, size.counted_by) == (4, SizeKind.EXACT, CountedBy.TALLIES)
        await other.view.mark(QUEUE, queued(0).enqueue_id, NOON)
        size = await other.view.size(QUEUE)
        assert (size.mails, size.kind) == (3, SizeKind.EXACT)
        assert (await other.view.recount(QUEUE)).corrected == 0

    async def test_counting_again_leaves_a_slice_in_which_something_happens(self, twin: TwinQueue) -> None:
        process, busy = twin.parts(), twin.parts()
        await process.view.rows.place(QUEUE, queued(1))
        await process.tallies.flush()
        twin.clock.advance(601)

        twin.memory.surround = Strike(
            everything_of(ENQUEUED_MAILS), then=lambda: twin.memory.write(replace_tally(twin)), times=1
        )
        recounted = await busy.view.recount(QUEUE)
        assert (recounted.corrected, recounted.left) == (0, 1)


def replace_tally(twin: TwinQueue) -> Put:
    row = twin.rows(SLICE_TALLIES)[0]
    return Put(SLICE_TALLIES, {**row, "enqueued": row["enqueued"] + 1})
