"""The background tasks of queues: due mails, sweeps, renewals, tallies, deletions; as a service, or one round."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.event_loop import stop_signal
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer
from mailmend.mailqueue.background import paused
from mailmend.mailqueue.metrics import TrafficSums, pace_between
from mailmend.mailqueue.prometheus import PrometheusCounts, gauges_text
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.upkeep import Upkeep
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
