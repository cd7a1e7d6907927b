"""`mailmend queue sweep` and `tend`: one round of the queues' background tasks, or a service."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import JSON, Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import stop_signal
from mailmend.admin.frame.options import FILE, METRICS_FILE, flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, first_ids, plain, shown
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import ALL, DRY_RUN, QUEUE_ARGUMENT, queue_settings, unless
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, queue_document
from mailmend.mailqueue.comparison import Swept, TendedDeletions, Upkeep
from mailmend.mailqueue.concurrency import paused
from mailmend.mailqueue.metrics import TrafficSums, pace_between
from mailmend.mailqueue.prometheus import PrometheusCounts, gauges_text
from mailmend.mailqueue.queue import MaintainedQueue
from mailmend.mailqueue.rabbitmq.sweep import Moved
from mailmend.model.errors import ExitCode, MailmendError, WrongUse
from mailmend.model.ids import QueueName

Sweep = Swept | Moved
"""The result of a sweep, or of moving the browse start alone; of a dry run, what either would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(DryRunRequest):
    """Sweep one queue, or only move its browse start."""

    move_only: bool = False


def sweep(request: SweepRequest, caller: Caller) -> QueueAnswer[SweepRequest, Sweep]:
    """Move the browse start to the first mail, clean up before it, renew mails that would expire."""

    async def swept(connections: QueueConnections) -> QueueAnswer[SweepRequest, Sweep]:
        async with connections.open_tabled(dry_run=request.dry_run) as queue:
            found: Sweep
            if request.move_only:
                found = await queue.move_browse_start(dry_run=request.dry_run)
            else:
                found = await queue.sweep(dry_run=request.dry_run)
        if isinstance(found, Swept) and (remark := connections.marks_stay):
            caller.remark(remark)
        if was_moved_back(found):
            return QueueAnswer(request, found, ExitCode.DRIFT)
        return QueueAnswer(request, found)

    return with_queues(request.settings, swept)


def was_moved_back(found: Sweep) -> bool:
    match found:
        case Moved():
            return found.back
        case Swept():
            return found.moved_back


def sweep_document(result: QueueAnswer[SweepRequest, Sweep]) -> Document:
    request = result.request
    json = {"dry_run": request.dry_run, **sweep_json(result.found, dry_run=request.dry_run)}
    lines = _sweep_lines(request.queue, result.found, dry_run=request.dry_run)
    remarks = list[str]()
    if was_moved_back(result.found):
        remarks.append("The browse start had been moved back. James does so when it moves it without looking.")
    return queue_document(result, json, lines, remarks)


def sweep_json(found: Sweep, *, dry_run: bool) -> dict[str, Any]:
    match found:
        case Moved():
            return {"before": found.before, "browse_start": found.after, "moved_back": found.back}
        case Swept():
            json: dict[str, Any] = dict(plain(found))
            before = {name: json.pop(name) for name in ("browse_start_before", "content_start_before")}
            rescued = json.pop("rescued_ids")
            if dry_run:
                json |= {**before, "would_rescue": rescued}
            return json


def _sweep_lines(queue: str, found: Sweep, *, dry_run: bool) -> list[str]:
    match found:
        case Moved() if dry_run:
            return [NOTHING_WRITTEN, _start_line(queue, "browse", found.before, found.after)]
        case Moved():
            return [_moved_line(queue, found)]
        case Swept() if dry_run:
            return [NOTHING_WRITTEN, *would_sweep_lines(queue, found)]
        case Swept():
            return [swept_line(queue, found)]


def _new(queue: str) -> str:
    return f"{queue} is new: nothing was ever enqueued."


def swept_line(queue: str, swept: Swept) -> str:
    if swept.browse_start is None:
        return _new(queue)
    line = f"{queue} begins at {shown(swept.browse_start)}. Cleaned {swept.slices:,} slices, {swept.rows:,} rows"
    more = {"left-over blobs": swept.blobs, "mails listed again": swept.rescued, "mails renewed": swept.renewed}
    return line + "".join(f", {count:,} {what}" for what, count in more.items() if count) + "."


def _moved_line(queue: str, moved: Moved) -> str:
    if moved.before is None or moved.after is None:
        return _new(queue)
    if moved.before == moved.after:
        return f"{queue} begins at {shown(moved.after)}, as before."
    return f"{queue} begins at {shown(moved.after)}; it began at {shown(moved.before)}."


def would_sweep_lines(queue: str, swept: Swept) -> list[str]:
    lines = [_start_line(queue, "browse", swept.browse_start_before, swept.browse_start)]
    if swept.browse_start_before is None:
        return lines
    lines.append(_start_line(queue, "content", swept.content_start_before, swept.content_start))
    what = {
        "slices cleaned": swept.slices,
        "rows removed": swept.rows,
        "left-over blobs looked for": swept.blobs,
        "mails listed again": swept.rescued,
        "mails renewed": swept.renewed,
    }
    lines.append(f"There would be {', '.join(f'{count:,} {each}' for each, count in what.items())}.")
    return [*lines, *first_ids("Without a mark, before the browse start:", swept.rescued_ids, swept.rescued)]


def _start_line(queue: str, which: str, before: datetime | None, after: datetime | None) -> str:
    if after is None:
        return _new(queue)
    if before is None:
        return f"The {which} start of {queue} would be put at {shown(after)}; it has none."
    if before == after:
        return f"The {which} start of {queue} would stay at {shown(after)}."
    return f"The {which} start of {queue} would move from {shown(before)} to {shown(after)}."


SWEEP: Final = Command(
    name="sweep",
    summary="Move the browse start, and clean up behind it.",
    about="""Only slices without any unmarked mail are cleaned; a mail that is found there all the same is put where
    listings see it, and published again. Marks stay, so nothing that was deleted comes back. They expire
    automatically, but not in tables that James made, which have no time to live: there they stay until `mailmend
    repair queues --marks` removes them. Mails that would expire soon are renewed. The last 15 minutes, and at least
    the last slice, are never touched. Consumers also sweep from time to time: the command is for queues in which
    little happens, and for an operator who does not want to wait.""",
    service="mailmend.admin.queue.tend:sweep",
    present="mailmend.admin.queue.tend:sweep_document",
    options=(QUEUE_ARGUMENT, flag("--move-only", "Only move the browse start."), DRY_RUN),
    shared=(queue_settings(broker=unless("move_only", "dry_run"), blobs=unless("move_only", "dry_run")),),
    output=(JSON, METRICS_FILE),
    examples="""
        mailmend queue sweep --dry-run              how far it would go, what would be cleaned, put back and renewed
        mailmend queue sweep
        mailmend queue sweep --move-only            the browse start alone: needs no broker
        mailmend queue sweep --json | jq .rescued""",
    exits="0 done (or nothing was to do), 1 the browse start had been moved back (James does so without looking; it "
    "is where it belongs again, or a mail holds it), 2 wrong use, 4 cannot reach: the next sweep completes what was "
    "begun.",
)


METRICS_EVERY: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class TendRequest(DryRunRequest):
    """Run the background tasks of one queue, or of all; without `once`, until it is stopped."""

    everything: bool = False
    once: bool = False
    metrics: Path | None = None


@dataclass(frozen=True, slots=True)
class TendedQueue:
    """One round on one queue, done or in a dry run only planned: delayed mails that were due, and the rest."""

    queue: QueueName
    moved_due: int
    upkeep: Upkeep


def tend(request: TendRequest, caller: Caller) -> QueueAnswer[TendRequest, Sequence[TendedQueue]]:
    """Do one round, report what it would do, or go on until a stop signal.

    Raises:
        WrongUse: the file of metrics cannot be written.
    """
    if request.dry_run and request.metrics:
        raise WrongUse("--metrics-file writes a file, and --dry-run writes nothing", mend="Leave one of them out.")
    if request.metrics:
        refuse_unwritable(request.metrics)

    async def tended(connections: QueueConnections) -> QueueAnswer[TendRequest, Sequence[TendedQueue]]:
        names = await connections.names(everything=request.everything)
        metrics = _Metrics(connections, caller, PrometheusCounts(), request.metrics)
        if request.once or request.dry_run:
            return QueueAnswer(request, await _once(connections, names, metrics, dry_run=request.dry_run))
        await _serve(connections, names, metrics, caller)
        return QueueAnswer(request, ())

    return with_queues(request.settings, tended)


async def _once(
    connections: QueueConnections, names: Sequence[QueueName], metrics: "_Metrics", *, dry_run: bool
) -> Sequence[TendedQueue]:
    queues = list[MaintainedQueue]()
    rounds = list[TendedQueue]()
    for name in names:
        async with connections.open(name, metrics.counts, dry_run=dry_run) as queue:
            moved = await queue.move_due(dry_run=dry_run)
            if not dry_run:
                await queue.return_backlogs()
            rounds.append(TendedQueue(name, moved, await queue.keep_up(dry_run=dry_run)))
            queues.append(queue)
    await metrics.write(queues, {})
    return rounds


async def _serve(
    connections: QueueConnections, names: Sequence[QueueName], metrics: "_Metrics", caller: Caller
) -> None:
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(connections.open(name, metrics.counts)) for name in names]
        stop = stack.enter_context(stop_signal())
        caller.remark(f"Tending {', '.join(names)}.")
        async with asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(queue.maintain(stop))
            if metrics.file:
                tasks.create_task(metrics.keep_current(queues, stop))
    caller.remark("Stopped on request; what was under way is finished.")


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Writes counters of this process and figures of each queue to a file, where one is named."""

    connections: QueueConnections
    caller: Caller
    counts: PrometheusCounts
    file: Path | None

    async def keep_current(self, queues: Sequence[MaintainedQueue], stop: asyncio.Event) -> None:
        """Write until a stop signal; after an error, try again at the next turn."""
        before: Mapping[QueueName, TrafficSums | None] = {}
        while True:
            try:
                before = await self.write(queues, before)
            except MailmendError as error:
                self.caller.remark(f"{self.file} is not up to date: {error.what}")
            if stop.is_set():
                return
            await paused(self.connections.clock, METRICS_EVERY, stop)

    async def write(
        self, queues: Sequence[MaintainedQueue], before: Mapping[QueueName, TrafficSums | None]
    ) -> Mapping[QueueName, TrafficSums | None]:
        if self.file is None:
            return {}
        figures = []
        sums = dict[QueueName, TrafficSums | None]()
        for queue in queues:
            first = before.get(queue.name)
            sums[queue.name] = now = await queue.traffic_sums(first)
            figures.append((await queue.figures(), pace_between(first, now)))
        write_text(self.file, self.counts.text() + gauges_text(figures), masked=False)
        return sums


def tend_document(result: QueueAnswer[TendRequest, Sequence[TendedQueue]]) -> Document:
    request = result.request
    if not (request.once or request.dry_run):
        return Document()
    queues = list[dict[str, Any]]()
    lines = list[str]()
    if request.dry_run:
        lines.append(NOTHING_WRITTEN)
    for queue in result.found:
        upkeep = _upkeep_json(queue.upkeep, dry_run=request.dry_run)
        queues.append({"queue": queue.queue, "moved_due": queue.moved_due, **upkeep})
        lines += _round_lines(queue, dry_run=request.dry_run)
    return Document({**request.home, "dry_run": request.dry_run, "queues": queues, "exit": 0}, lines)


def _upkeep_json(found: Upkeep, *, dry_run: bool) -> dict[str, Any]:
    match found:
        case Swept():
            return dict(plain(sweep_json(found, dry_run=dry_run)))
        case TendedDeletions():
            return {"deletions": {"left": found.left, "expired": found.expired}, "removed_again": found.again}


def _round_lines(tended: TendedQueue, *, dry_run: bool) -> list[str]:
    due = f"{tended.moved_due:,} delayed mails of {tended.queue} became due."
    if dry_run:
        due = f"{tended.moved_due:,} delayed mails of {tended.queue} are due, and would be moved into it."
    match tended.upkeep:
        case Swept() if dry_run:
            return [due, *would_sweep_lines(tended.queue, tended.upkeep)]
        case Swept():
            return [f"{due} {swept_line(tended.queue, tended.upkeep)}"]
        case TendedDeletions():
            return [f"{due} {_deletions_line(tended.upkeep, dry_run=dry_run)}"]


def _deletions_line(found: TendedDeletions, *, dry_run: bool) -> str:
    """What was done about messages that say which mails are deleted."""
    are = "would be" if dry_run else "are"
    line = f"{found.expired:,} notes of deletions {are} gone, {found.left:,} deletions {are} kept"
    if found.again:
        line += f"; {found.again:,} deleted mails that the broker had forgotten {are} gone again"
    return f"{line}."


def _refuse_json_of_a_service(others: dict[str, Any], context: click.Context) -> None:
    if context.params.get("as_json") and not (others["once"] or others["dry_run"]):
        raise WrongUse(
            "--json is for --once and --dry-run", mend="A service reports on stderr, and in --metrics-file FILE."
        )


TEND: Final = Command(
    name="tend",
    summary="The background work: due mails, sweeps, renewals.",
    about="""It moves due mails, sweeps slices, renews old mails and writes tallies. One such process for each
    keyspace is enough; several do no harm, and take over from each other. Without such a process, delayed mails stay
    where they are, and mails that wait for longer than the tables' time to live expire. For a queue over Pulsar it
    moves due mails, lets notes of deletions expire, and deletes again what a killed broker forgot; without it notes
    pile up. A dry run is one look at what a round would do now.""",
    service="mailmend.admin.queue.tend:tend",
    present="mailmend.admin.queue.tend:tend_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--once", "End after one round."),
        option(
            "--metrics-file",
            "Write metrics for Prometheus's node_exporter: after each round, to a file of its own.",
            "metrics",
            type=FILE,
            metavar="FILE",
        ),
        ALL,
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"), check=_refuse_json_of_a_service),),
    examples="""
        mailmend queue tend --all                                    as a service; ends in good order on SIGTERM
        mailmend queue tend --all --dry-run                          what a round would move, sweep and renew now
        mailmend queue tend --all --once                             one round, from cron or a systemd timer
        mailmend queue tend --all --metrics-file /var/lib/node_exporter/mailmend_tend.prom""",
    exits="0 it was asked to stop, or the round is done; 2 wrong use; 4 cannot reach (at the start; later it waits "
    "longer and longer between its tries, and says so on stderr).",
)
