"""The cleanup of a whole keyspace: what goes, in which order, and that it may end anywhere."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.cleanup.cleaning import CleanupSettings, QueueCleanup
from mailmend.mailqueue.cleanup.scan import LocalQueueScan, LocalQueueScanner, QueueScanner
from mailmend.mailqueue.cleanup.writes import CleanedQueue, FindingsRecord
from mailmend.mailqueue.codec import row_of
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.cleanup import MarksRule
from mailmend.model.catalog.ledger import REPAIR_FINDING
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS, SLICE_TALLIES
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, Remove
from mailmend.model.ports import Progress
from mailmend.model.projections.verdicts import HARMLESS, Verdict
from mailmend.model.table import Row
from mailmend.repair.ledger.runs import Ledger, RunState
from mailmend.repair.mending.limits import Pace, PacedAsyncTables
from mailmend.repair.mending.runner import close_killed
from tests.support.progress import SilentProgress
from tests.support.queue_world import Fortune, outlived
from tests.support.queues import (
    CONTENT,
    HOUR,
    MINUTE,
    NOON,
    OF_JAMES,
    QUEUE,
    Process,
    TwinQueue,
    drained,
    enqueued,
    fill,
    finish,
    mail,
    names_of,
    queued,
    twin_queue,
)
from tests.support.striking import refusing

MICROSECOND = timedelta(microseconds=1)
SETTINGS = CleanupSettings(as_of=0, delay_seconds=60)


async def cleaned(
    twin: TwinQueue,
    process: Process,
    settings: CleanupSettings = SETTINGS,
    *,
    scanner: QueueScanner | None = None,
    dry_run: bool = False,
) -> CleanedQueue:
    scanner = scanner or LocalQueueScanner(twin.memory, twin.clock)
    cleanup = QueueCleanup(process.view, scanner, SilentProgress(), twin.blobs, twin.broker)
    settings = replace(settings, as_of=settings.as_of or twin.clock.micros() - 30 * MICROS)
    (one,) = await cleanup.run(settings, None if dry_run else process.sweeper)
    return one


def left(one: CleanedQueue) -> dict[Verdict, int]:
    """What a run leaves that it should not."""
    stays = [found for found in one.findings.values() if found.result is None and found.verdict not in HARMLESS]
    return dict(sum((Counter({found.verdict: found.number}) for found in stays), Counter()))


def rows_left(twin: TwinQueue) -> int:
    return len(twin.rows(ENQUEUED_MAILS))


async def test_finished_slices_go_and_waiting_mails_stay(twin: TwinQueue, process: Process) -> None:
    await fill(twin, process, range(6), done=4)
    one = await cleaned(twin, process)
    assert (one.rows, rows_left(twin)) == (4, 2)
    assert (twin.browse_start, twin.content_start) == (NOON + 4 * HOUR, NOON + 4 * HOUR)
    assert await names_of(process.view.browse(twin.name)) == ["mail-4", "mail-5"]
    assert queued(0).blobs.body not in twin.blobs.ids


async def test_where_an_hour_begins_between_the_looks_the_content_start_stays_behind_the_browse_start(
    twin: TwinQueue, process: Process
) -> None:
    """The browse start moves as far as both looks allow; the later one alone would allow a slice more."""
    await fill(twin, process, range(4), done=4)
    twin.clock.turn_to(NOON + 9 * HOUR - 30 * MINUTE / 60)
    await cleaned(twin, process)
    assert (twin.browse_start, twin.content_start) == (NOON + 7 * HOUR, NOON + 7 * HOUR)


async def test_slices_before_the_content_start_go_too(twin: TwinQueue, process: Process) -> None:
    """The online sweep never sees them."""
    await fill(twin, process, range(4), done=4)
    await process.view.starts.advance_browse_start(twin.name, NOON, NOON + 2 * HOUR)
    await process.view.starts.advance_content_start(twin.name, NOON, NOON + 2 * HOUR)
    twin.clock.advance(20 * HOUR.total_seconds())
    one = await cleaned(twin, process)
    assert (one.rows, rows_left(twin)) == (4, 0)


async def test_a_dry_run_tells_the_same_and_writes_nothing(twin: TwinQueue, process: Process) -> None:
    await fill(twin, process, range(6), done=4)
    before = twin.rows(ENQUEUED_MAILS)
    reported = await cleaned(twin, process, dry_run=True)
    assert reported.found == {Verdict.OVER: 4, Verdict.START_BEHIND: 1}
    assert (twin.rows(ENQUEUED_MAILS), twin.browse_start) == (before, NOON)
    done = await cleaned(twin, process)
    assert (done.found, done.over) == (reported.found, reported.over)


@dataclass(slots=True)
class LateRow:
    """A scanner; once both scans are done, a slow clock's mail comes into a slice that is over."""

    twin: TwinQueue
    row: Row
    scans: int = 0

    def scan(self, progress: Progress) -> LocalQueueScan:
        found = LocalQueueScanner(self.twin.memory, self.twin.clock).scan(progress)
        self.scans += 1
        if self.scans > 1:
            self.twin.put_row(self.row)
        return found

    def interrupt(self) -> None:
        raise AssertionError


async def test_a_mail_that_comes_after_the_last_scan_survives_with_its_bytes(twin: TwinQueue, process: Process) -> None:
    await fill(twin, process, range(4), done=4)
    twin.clock.advance(20 * HOUR.total_seconds())
    late = queued(9)
    await twin.blobs.keep(late.blobs.body, b"content")
    row = row_of(twin.name, NOON, 0, NOON, late)
    one = await cleaned(twin, process, scanner=LateRow(twin, row))
    assert left(one) == {Verdict.OVER: 1}
    assert [found["enqueueid"] for found in twin.rows(ENQUEUED_MAILS)] == [late.enqueue_id]
    assert late.blobs.body in twin.blobs.ids


async def test_rows_with_a_stamp_from_the_future_survive_and_are_reported(twin: TwinQueue, process: Process) -> None:
    """Their writer's clock was an hour ahead."""
    await fill(twin, process, range(2))
    for row in twin.rows(ENQUEUED_MAILS):
        twin.memory.write(Put(ENQUEUED_MAILS, row, at=twin.clock.micros() + 30 * HOUR // MICROSECOND))
    await finish(process, range(2))
    twin.clock.advance(20 * HOUR.total_seconds())
    one = await cleaned(twin, process)
    assert (one.rows, left(one)) == (0, {Verdict.OVER: 2})
    assert rows_left(twin) == 2


async def test_a_mail_before_the_browse_start_is_reported_and_left(twin: TwinQueue, process: Process) -> None:
    await fill(twin, process, range(4))
    await finish(process, range(1, 4))
    twin.put_start(BROWSE_START, NOON + 2 * HOUR)
    twin.clock.advance(20 * HOUR.total_seconds())
    one = await cleaned(twin, process)
    assert one.found[Verdict.STRANDED] == 1
    assert (rows_left(twin), twin.content_start) == (1, NOON)


async def test_tallies_that_differ_from_rows_are_reported_and_set_right(twin: TwinQueue, process: Process) -> None:
    """As a killed process leaves them: a size that calls itself exact would be wrong for as long as the slice is."""
    await fill(twin, process, range(1))
    await process.view.tallies.flush()
    twin.clock.advance(MINUTE.total_seconds())
    await process.view.tables.write(Put(SLICE_TALLIES, tally(NOON, enqueued=5)))
    reported = await cleaned(twin, twin.parts(), dry_run=True)
    assert reported.found == {Verdict.TALLY_DIFFERS: 5}
    done = await cleaned(twin, twin.parts())
    assert [(one.verdict, one.result) for one in done.findings.values()] == [(Verdict.TALLY_DIFFERS, Verdict.FIXED)]
    assert not (await cleaned(twin, twin.parts(), dry_run=True)).findings


async def test_rows_without_a_start_get_one_and_are_listed(twin: TwinQueue, process: Process) -> None:
    twin.put_row(row_of(twin.name, NOON, 0, NOON, queued(0)))
    for blob in (queued(0).blobs.header, queued(0).blobs.body):
        await twin.blobs.keep(blob, b"content")
    twin.clock.advance(HOUR.total_seconds())
    one = await cleaned(twin, process)
    assert (one.found[Verdict.NO_BROWSE_START], left(one), twin.browse_start) == (1, {}, NOON)
    assert await names_of(process.view.browse(twin.name)) == ["mail-0"]


async def test_a_waiting_mail_without_its_bytes_is_reported_and_a_finished_one_is_not(
    twin: TwinQueue, process: Process
) -> None:
    await fill(twin, process, range(3), done=1)
    for number in range(2):
        await twin.blobs.delete(queued(number).blobs.body)
    one = await cleaned(twin, process, dry_run=True)
    gone = [found.suspect.key for found in one.are(Verdict.BLOBS_GONE)]
    assert gone == [(twin.name, NOON + HOUR, 0, queued(1).enqueue_id)]


async def test_findings_are_in_the_ledger_with_what_was_there_and_what_became_of_it(
    twin: TwinQueue, process: Process
) -> None:
    await fill(twin, process, range(4), done=3)
    ledger = Ledger(MemoryTables(twin.clock.micros), twin.clock)
    run = ledger.start("mail", "repair queues", twin.clock.micros() - 30 * MICROS, {})
    scanner = LocalQueueScanner(twin.memory, twin.clock)
    cleanup = QueueCleanup(process.view, scanner, SilentProgress(), twin.blobs, twin.broker)
    settings = replace(SETTINGS, as_of=run.as_of)
    await cleanup.run(settings, process.sweeper, FindingsRecord(run.as_of, ledger, run.id))
    kept = sorted(ledger.findings(run.id), key=lambda one: (one.verdict.value, one.suspect.key))
    assert [(one.verdict, one.result, one.number) for one in kept] == [
        *[(Verdict.OVER, Verdict.FIXED, 1)] * 3,
        (Verdict.START_BEHIND, Verdict.FIXED, 1),
    ]
    assert [one.projected and one.projected.row.get("marked") for one in kept] == [1, 1, 1, None]
    close_killed(ledger, "mail", "repair queues", twin.memory)
    closed = ledger.get(run.id)
    assert (closed.state, closed.summary["fixed"]) == (RunState.INTERRUPTED, {"OVER": 3, "START_BEHIND": 1})


async def test_removals_keep_the_pace_of_rows(twin: TwinQueue) -> None:
    await fill(twin, twin.parts(), range(6))
    await finish(twin.parts(), range(6))
    twin.clock.advance(20 * HOUR.total_seconds())
    seconds = []
    for rows_per_second in (None, 10):
        process, pace = twin.parts(), Pace(rows_per_second, twin.clock)
        paced = QueueView(PacedAsyncTables(process.view.tables, pace), twin.clock, twin.own)
        cleanup = QueueCleanup(paced, LocalQueueScanner(twin.memory, twin.clock), SilentProgress(), twin.blobs)
        settings = CleanupSettings(twin.clock.micros() - 30 * MICROS, delay_seconds=0)
        began = twin.clock.micros()
        await cleanup.run(settings, process.sweeper if rows_per_second else None)
        seconds.append((twin.clock.micros() - began) / MICROS)
    assert rows_left(twin) == 0
    assert seconds[0] == 0
    assert seconds[1] >= 6 * 3 / 10


def tally(at: datetime, *, enqueued: int) -> Row:
    counts = {"enqueued": enqueued, "marked": 0, "settled": True, "isforeign": False}
    return {"queuename": QUEUE, "timerangestart": at, "writer": UUID(int=7), **counts}


class TestMarks:
    """In tables of James marks never expire."""

    @pytest.fixture
    def twin(self) -> TwinQueue:
        return twin_queue(own=OF_JAMES)

    async def test_they_stay_unless_it_is_said_what_proves_them_useless(
        self, twin: TwinQueue, process: Process
    ) -> None:
        await self._finished(twin, process)
        one = await cleaned(twin, process)
        assert (one.marks, len(twin.marked)) == (0, 4)
        assert "--marks" in str(one.marks_stay)

    async def test_of_a_queue_that_is_empty_at_the_broker_they_go(self, twin: TwinQueue, process: Process) -> None:
        await self._finished(twin, process)
        one = await cleaned(twin, process, replace(SETTINGS, marks=MarksRule.EMPTY))
        assert (one.marks, twin.marked) == (4, set())

    async def test_while_the_broker_holds_a_message_they_stay(self, twin: TwinQueue, process: Process) -> None:
        await self._finished(twin, process)
        async with await twin.process() as queue:
            await queue.enqueue(mail(), CONTENT)
        one = await cleaned(twin, process, replace(SETTINGS, marks=MarksRule.EMPTY))
        assert (one.marks, len(twin.marked)) == (0, 4)
        assert "1 messages" in str(one.marks_stay)

    @pytest.mark.parametrize("has_row", [True, False])
    async def test_of_a_mail_that_comes_and_goes_between_the_looks_it_stays(
        self, twin: TwinQueue, process: Process, monkeypatch: pytest.MonkeyPatch, *, has_row: bool
    ) -> None:
        """Nobody has to stop enqueueing: its mark was written after T, with a row or, as James may run, without one."""
        await self._finished(twin, process)
        pause, passed = twin.clock.pause, list[str]()
        twin.clock.random_uuid()  # which is also that of queued(0), and marked

        async def busy(seconds: float) -> None:
            monkeypatch.undo()
            async with await twin.process() as queue:
                (one,) = await enqueued(queue, "passes")
                passed.extend(await drained(queue, 1))
            if not has_row:
                (row,) = (row for row in twin.rows(ENQUEUED_MAILS) if row["enqueueid"] == one)
                twin.memory.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))
            await pause(seconds)

        monkeypatch.setattr(twin.clock, "pause", busy)
        found = await cleaned(twin, process, replace(SETTINGS, marks=MarksRule.EMPTY))
        assert (found.marks, found.marks_stay, passed, len(twin.marked)) == (4, None, ["passes"], 1)

    async def test_a_named_age_spares_the_younger_ones(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(2), done=1)
        twin.clock.advance(10 * HOUR.total_seconds())
        await finish(process, range(1, 2))
        twin.clock.advance(20 * MINUTE.total_seconds())
        one = await cleaned(twin, process, replace(SETTINGS, marks=MarksRule.OLD, marks_age=timedelta(hours=5)))
        assert (one.rows, one.marks) == (2, 1)
        assert twin.marked == {queued(1).enqueue_id}

    async def test_a_dry_run_counts_those_that_would_go(self, twin: TwinQueue, process: Process) -> None:
        await self._finished(twin, process)
        reported = await cleaned(twin, process, replace(SETTINGS, marks=MarksRule.EMPTY), dry_run=True)
        assert (reported.marks_due, reported.marks, len(twin.marked)) == (4, 0, 4)
        kept = await cleaned(twin, process, dry_run=True)
        assert kept.marks_due == 0

    async def test_the_mark_of_a_row_that_stands_stays(self, twin: TwinQueue, process: Process) -> None:
        """Else its mail would wait again."""
        await fill(twin, process, range(3))
        await finish(process, range(2, 3))
        await cleaned(twin, process, replace(SETTINGS, marks=MarksRule.OLD))
        assert twin.marked == {queued(2).enqueue_id}

    async def test_marks_of_rows_that_the_ledger_keeps_from_going_stay(self, twin: TwinQueue, process: Process) -> None:
        """It took no findings of starts, so nothing was written: without their marks the mails would wait again."""
        await self._finished(twin, process)
        ledger = Ledger(MemoryTables(twin.clock.micros, refusing(REPAIR_FINDING)), twin.clock)
        run = ledger.start("mail", "repair queues", twin.clock.micros() - 30 * MICROS, {})
        cleanup = QueueCleanup(
            process.view, LocalQueueScanner(twin.memory, twin.clock), SilentProgress(), twin.blobs, twin.broker
        )
        settings = replace(SETTINGS, as_of=run.as_of, marks=MarksRule.EMPTY)
        (one,) = await cleanup.run(settings, process.sweeper, FindingsRecord(run.as_of, ledger, run.id))
        assert (one.marks, rows_left(twin), len(twin.marked)) == (0, 4, 4)

    async def _finished(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(4), done=4)
        twin.clock.advance(20 * HOUR.total_seconds())


@pytest.mark.parametrize("step", range(12))
async def test_it_may_die_before_any_write_and_the_next_run_completes_it(step: int, twin: TwinQueue) -> None:
    process = twin.parts()
    await fill(twin, process, range(6), done=4)
    doomed = twin.parts(wire=Fortune().dies_before(step))
    await outlived(cleaned(twin, doomed))
    assert await names_of(process.view.browse(twin.name)) == ["mail-4", "mail-5"]
    await cleaned(twin, process)
    assert (rows_left(twin), twin.browse_start, twin.content_start) == (2, NOON + 4 * HOUR, NOON + 4 * HOUR)
