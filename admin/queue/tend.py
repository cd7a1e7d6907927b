"""`mailmend queue tend`: the background tasks of queues, as a service, or one round of them."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import stop_signal
from mailmend.admin.frame.options import FILE, flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import ALL, DRY_RUN, QUEUE_ARGUMENT, queue_settings, unless
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer
from mailmend.admin.queue.sweep import sweep_json, swept_line, would_sweep_lines
from mailmend.mailqueue.comparison import Swept, TendedDeletions, Upkeep
from mailmend.mailqueue.concurrency import paused
from mailmend.mailqueue.metrics import TrafficSums, pace_between
from mailmend.mailqueue.prometheus import PrometheusCounts, gauges_text
from mailmend.mailqueue.queue import MailQueue
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.ids import QueueName

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
    queues = list[MailQueue]()
    rounds = list[TendedQueue]()
    for name in names:
        async with connections.open(name, metrics.counts, dry_run=dry_run) as queue:
            moved = await queue.move_due(dry_run=dry_run)
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

    async def keep_current(self, queues: Sequence[MailQueue], stop: asyncio.Event) -> None:
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
        self, queues: Sequence[MailQueue], before: Mapping[QueueName, TrafficSums | None]
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
