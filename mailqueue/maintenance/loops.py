"""What goes on in the background of a queue while somebody serves it: due mails move, tallies are told, slices swept.

Each of the three goes its own way at its own pace; one that fails is logged and tried again, longer and longer apart
while it keeps failing, and never ends the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from model.backoff import LOOK_AGAIN
from model.errors import MailmendError
from model.ids import QueueName
from model.ports import Clock

MOVE_DUE_EVERY: Final = timedelta(seconds=1)
"""How late a delayed mail may be."""

FLUSH_EVERY: Final = timedelta(milliseconds=500)

SWEEP_EVERY: Final = timedelta(minutes=5)
"""Whatever is dequeued sweeps now and then too; this serves queues in which little happens."""

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """Something to be done again and again.

    Attributes:
        every: how long after its end it begins anew.
    """

    name: str
    carry_out: Callable[[], Awaitable[Any]]
    every: timedelta


async def tend(queue: QueueName, clock: Clock, stop: asyncio.Event, chores: tuple[BackgroundJob, ...]) -> None:
    """Keep every chore going until told to stop; what is under way then is finished, and pauses are cut short."""
    async with asyncio.TaskGroup() as tasks:
        for chore in chores:
            tasks.create_task(_kept_going(queue, clock, stop, chore), name=f"{chore.name} of {queue}")


async def _kept_going(queue: QueueName, clock: Clock, stop: asyncio.Event, chore: BackgroundJob) -> None:
    failures = 0
    while not stop.is_set():
        failures = 0 if await _carried_out(queue, chore) else failures + 1
        wait = max(chore.every, LOOK_AGAIN.wait(failures)) if failures else chore.every
        await paused(clock, wait, stop)


async def _carried_out(queue: QueueName, chore: BackgroundJob) -> bool:
    """Whether it went well; a flaw of ours ends this chore no more than a server that is away."""
    try:
        await chore.carry_out()
    except MailmendError as error:
        _LOG.warning("queue %s: %s: %s", queue, chore.name, error.what)
    except Exception:  # noqa: BLE001 - logged with its trace
        _LOG.exception("queue %s: %s", queue, chore.name)
    else:
        return True
    return False


async def paused(clock: Clock, wait: timedelta, stop: asyncio.Event) -> None:
    """Until the time is over or somebody says stop."""
    pausing, stopping = asyncio.ensure_future(clock.pause(wait.total_seconds())), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((pausing, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (pausing, stopping):
            one.cancel()
        await asyncio.gather(pausing, stopping, return_exceptions=True)
