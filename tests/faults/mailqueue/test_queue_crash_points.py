"""Every story of a queue, ended by the death of its process before and after each step, or by each failure there.

A step is whatever others see: a write, a publish, an ack, a blob put or deleted. No size is called exact that is not.
Afterwards the queue is healed as at the end of the machine's stories, and the same must hold:
`tests.faults.mailqueue.test_queue_machine`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import pytest

from mailmend.mailqueue.rules.blob_ids import BlobsMode
from mailmend.mailqueue.rules.cleanup import MarksRule
from mailmend.model.catalog.mail_queue import BROWSE_START
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Change
from tests.faults.mailqueue.test_queue_machine import FOR_EVER, HALF_A_DAY, QueueMachine
from tests.support.queue_wires import StepFault
from tests.support.queue_world import DEATHS, Died, QueueMishap, Worker, taken
from tests.support.queues import EXPIRING, QUEUE
from tests.support.thorough import first_of

Story = Callable[[QueueMachine, Sequence[QueueMishap]], None]
"""Prepares, and then does the one thing that the mishaps befall; nothing that takes steps of worker 0 follows."""

OUTLASTING: Final = 40
"""More failures in a row than anything is tried again."""


def enqueued(machine: QueueMachine, *delays: timedelta | None) -> None:
    for place, delay in enumerate(delays):
        machine.enqueue(number=1, sender=place % 2, delay=delay, priority=None, mishaps=(), fates=())


def in_hand(machine: QueueMachine) -> None:
    enqueued(machine, None)
    machine.take(number=0, most=1, mishaps=())


def enqueue(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    machine.enqueue(number=0, sender=0, delay=None, priority=None, mishaps=mishaps, fates=())


def enqueue_delayed(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    machine.enqueue(number=0, sender=0, delay=timedelta(minutes=5), priority=None, mishaps=mishaps, fates=())


def ack(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    in_hand(machine)
    machine.ack(number=0, which=0, mishaps=mishaps)


def retry(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    in_hand(machine)
    machine.retry(number=0, which=0, delay=None, mishaps=mishaps)


def retry_at_once(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    in_hand(machine)
    machine.retry(number=0, which=0, delay=timedelta(0), mishaps=mishaps)


def reject(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    in_hand(machine)
    machine.reject(number=0, which=0, mishaps=mishaps)


def filtered(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    enqueued(machine, None, None)
    machine.delete(number=1, sender=None, mishaps=())
    machine.take(number=0, most=1, mishaps=mishaps)


def delete(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    enqueued(machine, None, None, None, timedelta(hours=3), timedelta(hours=3))
    machine.delete(number=0, sender="ada@example.org", mishaps=mishaps)


def purge(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    in_hand(machine)
    enqueued(machine, None, timedelta(days=2))
    machine.delete(number=2, sender=None, mishaps=mishaps)


def move_due(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    enqueued(machine, timedelta(seconds=30), timedelta(minutes=5), timedelta(days=2))
    machine.wait(minutes=11)
    machine.move_due(number=0, mishaps=mishaps)


def flush(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    enqueued(machine, timedelta(hours=3), timedelta(days=2))
    machine.flush(number=0, mishaps=mishaps)


def republish(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    enqueued(machine, None, None)
    machine.twin.broker.wipe()
    machine.wait(minutes=190)
    machine.republish(number=0, hours=1, mishaps=mishaps)


def swept_before(machine: QueueMachine) -> None:
    enqueued(machine, None, None)
    machine.take(number=1, most=2, mishaps=())
    machine.ack(number=1, which=0, mishaps=())
    machine.ack(number=1, which=0, mishaps=())
    machine.wait(minutes=190)
    enqueued(machine, None)
    machine.wait(minutes=190)


def move_start(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    swept_before(machine)
    machine.move_start(number=0, mishaps=mishaps)


def sweep(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    swept_before(machine)
    machine.sweep(number=0, mishaps=mishaps)


def sweep_that_rescues(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    swept_before(machine)
    past = machine.twin.clock.now.replace(minute=0, second=0, microsecond=0)
    machine.twin.memory.write(Change(BROWSE_START, (QUEUE,), {"browsestart": past}))
    machine.twin.broker.wipe()
    machine.sweep(number=0, mishaps=mishaps)


def sweep_that_renews(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    enqueued(machine, None, None)
    machine.twin.clock.advance(19 * HALF_A_DAY)
    machine.sweep(number=0, mishaps=mishaps)


def clean(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    swept_before(machine)
    machine.clean(number=0, marks=MarksRule.KEEP, mishaps=mishaps)


def clean_marks(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    swept_before(machine)
    machine.delete(number=0, sender=None, mishaps=())
    machine.work(number=1, most=1)
    machine.wait(minutes=190)
    machine.wait(minutes=190)
    machine.clean(number=0, marks=MarksRule.EMPTY, mishaps=mishaps)


def held(machine: QueueMachine, number: int, mishaps: Sequence[QueueMishap]) -> None:
    """A process has three mails of each sub-queue in hand, anchored, and their backlogs have two more."""
    enqueued(machine, *(None,) * 10)
    holds(machine, number, mishaps)


def holds(machine: QueueMachine, number: int, mishaps: Sequence[QueueMishap]) -> None:
    """A process has a consumer for some seconds."""

    async def some_seconds(worker: Worker) -> None:
        await taken(worker, 3)
        await machine.twin.clock.pause(5)

    with suppress(MailmendError, Died):
        machine.by(number, some_seconds, mishaps)


def fill_backlogs(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    held(machine, 0, mishaps)


def fetch(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    held(machine, 0, ())
    machine.ack(number=0, which=0, mishaps=())
    machine.ack(number=0, which=0, mishaps=mishaps)
    machine.ack(number=0, which=0, mishaps=())


def settle_anchored(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    held(machine, 0, ())
    machine.retry(number=0, which=0, delay=timedelta(minutes=5), mishaps=mishaps)


def reject_anchored(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    held(machine, 0, ())
    machine.reject(number=0, which=0, mishaps=mishaps)


def take_over(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    held(machine, 2, ())
    machine.leave(number=2)
    holds(machine, 0, mishaps)


def return_backlogs(machine: QueueMachine, mishaps: Sequence[QueueMishap]) -> None:
    held(machine, 2, ())
    machine.leave(number=2)
    machine.return_backlogs(number=0, mishaps=mishaps)


OF_BACKLOGS: Final[tuple[Story, ...]] = (
    fill_backlogs,
    fetch,
    settle_anchored,
    reject_anchored,
    take_over,
    return_backlogs,
)

STORIES: Final[tuple[Story, ...]] = (
    enqueue,
    enqueue_delayed,
    ack,
    retry,
    retry_at_once,
    reject,
    filtered,
    delete,
    purge,
    move_due,
    flush,
    republish,
    move_start,
    sweep,
    sweep_that_rescues,
    sweep_that_renews,
    clean,
    clean_marks,
    *OF_BACKLOGS,
)


def reported(story: Story, mode: BlobsMode, *mishaps: QueueMishap) -> tuple[str, ...]:
    machine = QueueMachine()
    own = FOR_EVER if story is clean_marks else EXPIRING
    backlogs = story in OF_BACKLOGS
    machine.begin(far=timedelta(0), minutes=60, buckets=1, mode=mode, james=False, own=own, seed=0, backlogs=backlogs)
    try:
        story(machine, mishaps)
        steps = machine.steps
        machine.a_size_is_honest()
        machine.all_is_well()
        if backlogs:
            machine.each_has_its_message()
        machine.all_ends_well()
    finally:
        machine.end()
    return steps


@pytest.mark.parametrize(
    "fault",
    first_of(sorted(StepFault, key=(StepFault.DIES_AFTER, StepFault.DONE).__contains__, reverse=True), quick=2),
    ids=lambda one: one.name.lower(),
)
@pytest.mark.parametrize("story", STORIES, ids=lambda one: one.__name__)
def test_a_story_that_ends_at_any_step_ends_well(story: Story, fault: StepFault) -> None:
    """Whatever was acknowledged comes, whatever was ended does not, and nothing is left of it."""
    steps = reported(story, BlobsMode.RANDOM)
    assert steps, "a story takes some step"
    for number in range(len(steps)):
        for times in (1,) if fault in DEATHS else (1, OUTLASTING):
            reported(story, BlobsMode.RANDOM, QueueMishap(fault, number, times))
