"""Trying again where tries are awaited: the same policy, the same bounds, and never a count twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from cql.driver.asynchronous import InTurn
from cql.memory import MemoryTables
from model.catalog.mail import FIRST_UNSEEN, MAILBOX_COUNTERS
from model.errors import AccessDenied, CannotReach, MailmendError, TimedOut, WrongUse
from model.operations import Count, Put, Write
from repair.retries import AwaitedRetries, RetryPolicy
from tests.support.clock import VirtualClock, uuid_at

T = TypeVar("T")
MAILBOX = uuid_at(0, 1)
COUNT = Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": 1})


class Failing(InTurn):
    """Tables whose writes fail so many times, then succeed."""

    def __init__(self, failures: int, error: MailmendError) -> None:
        super().__init__(MemoryTables(lambda: 0))
        self.failures, self.error = failures, error
        self.sent: list[Sequence[Write]] = []

    async def write(self, write: Write) -> None:
        """Fail or not."""
        for error in await self.write_all([write]):
            if error:
                raise error

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """Fail or not."""
        await asyncio.sleep(0)
        self.sent.append(list(writes))
        return [self.error if len(self.sent) <= self.failures else None for _ in writes]


class Steps:
    """A step that is told how each of its tries ends."""

    def __init__(self, *ends: object) -> None:
        self.ends = list(ends)
        self.tries = 0

    async def __call__(self) -> object:
        """The next end."""
        await asyncio.sleep(0)
        self.tries += 1
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end


def put(uid: int) -> Put:
    """A write that may be repeated."""
    return Put(FIRST_UNSEEN, {"mailboxid": MAILBOX, "uid": uid}, at=1)


def run(story: Callable[[AwaitedRetries], Awaitable[T]], policy: RetryPolicy | None = None) -> tuple[T, list[float]]:
    """What the story comes to, and the waits in it."""
    clock = VirtualClock()
    retries = AwaitedRetries(clock, policy or RetryPolicy())

    async def told() -> T:
        return await story(retries)

    return asyncio.run(told()), clock.slept


def test_what_succeeds_is_sent_once() -> None:
    """No failure, no wait."""
    tables = Failing(0, TimedOut("no"))
    assert run(lambda retries: retries.write_all(tables, [put(1), put(2)])) == ([None, None], [])
    assert len(tables.sent) == 1


def test_nothing_is_sent_for_nothing() -> None:
    """An empty batch asks nobody."""
    tables = Failing(0, TimedOut("no"))
    assert run(lambda retries: retries.write_all(tables, []))[0] == []
    assert tables.sent == []


def test_five_retries_after_the_first_try() -> None:
    """James's policy: six tries in all, and then the last error is handed back."""
    error = TimedOut("no")
    tables = Failing(99, error)
    errors, slept = run(lambda retries: retries.write_all(tables, [put(1)]))
    assert (errors, len(tables.sent), len(slept)) == ([error], 6, 5)


def test_one_write_that_never_succeeds_raises_its_last_error() -> None:
    """Whoever writes one thing wants to hear of it at once."""
    error, tables = TimedOut("no"), Failing(99, TimedOut("no"))
    tables.error = error
    with pytest.raises(TimedOut) as raised:
        run(lambda retries: retries.write(tables, put(1)))
    assert raised.value is error
    assert len(tables.sent) == 6


def test_one_write_that_succeeds_late_is_done() -> None:
    """Its failures are nobody's business."""
    tables = Failing(3, CannotReach("no"))
    _, slept = run(lambda retries: retries.write(tables, put(1)))
    assert (len(tables.sent), len(slept)) == (4, 3)


def test_only_what_failed_is_sent_again() -> None:
    """A write that got through is not repeated with the others."""

    class OneFails(Failing):
        async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
            """The second of the first round fails."""
            await super().write_all(writes)
            return [None, self.error, None][: len(writes)] if len(self.sent) == 1 else [None] * len(writes)

    tables = OneFails(0, TimedOut("no"))
    assert run(lambda retries: retries.write_all(tables, [put(1), put(2), put(3)]))[0] == [None] * 3
    assert tables.sent[1] == [put(2)]


@pytest.mark.parametrize("error", [AccessDenied("no"), WrongUse("no")])
def test_what_would_not_change_is_not_tried_again(error: MailmendError) -> None:
    """Only what may pass is."""
    tables, step = Failing(99, error), Steps(error)
    assert run(lambda retries: retries.write_all(tables, [put(1)])) == ([error], [])
    with pytest.raises(type(error)):
        run(lambda retries: retries.call(step))
    assert (len(tables.sent), step.tries) == (1, 1)


def test_a_count_is_sent_once() -> None:
    """It is not idempotent."""
    tables = Failing(99, TimedOut("no"))
    run(lambda retries: retries.write_all(tables, [COUNT]))
    assert len(tables.sent) == 1


@pytest.mark.parametrize("step", [Steps(7), Steps(TimedOut("no"), TimedOut("no"), 7)])
def test_a_call_comes_to_what_its_last_try_comes_to(step: Steps) -> None:
    """Whatever the first ones met; a plain function that returns something to await serves as well."""
    assert run(lambda retries: retries.call(lambda: step()))[0] == 7  # noqa: PLW0108 - that is what is tried


def test_waits_grow_within_their_bounds() -> None:
    """Each wait is drawn between 10 ms and a bound that doubles, never over a second."""
    tables = Failing(99, TimedOut("no"))
    _, slept = run(lambda retries: retries.write_all(tables, [put(1)]), RetryPolicy(retries=9))
    bounds = [min(1.0, 0.020 * 2**number) for number in range(9)]
    assert all(0.010 <= wait <= bound for wait, bound in zip(slept, bounds, strict=True))


def test_nothing_is_sent_after_the_deadline() -> None:
    """A try that would begin too late is not made."""
    tables = Failing(99, TimedOut("no"))
    clock = VirtualClock()
    deadline = clock.micros() + 1
    asyncio.run(AwaitedRetries(clock).write_all(tables, [put(1)], deadline))
    assert len(tables.sent) == 1


@pytest.mark.parametrize(
    ("step", "found"), [(Steps(1), 1), (Steps(None, None, 3), 3), (Steps(None, None, None, 4), None)]
)
def test_rounds_end_with_the_first_result(step: Steps, found: int | None) -> None:
    """Of three rounds at most."""
    assert run(lambda retries: retries.rounds(lambda: step(), 3))[0] == found  # noqa: PLW0108 - that is what is tried
    assert step.tries == (found or 3)


def test_cancelling_ends_it_between_two_tries() -> None:
    """No further try is made for somebody who went."""

    async def story() -> int:
        clock, tables = VirtualClock(), Failing(99, TimedOut("no"))
        trying = asyncio.create_task(AwaitedRetries(clock).write(tables, put(1)))
        for _ in range(10):
            await asyncio.sleep(0)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
        return len(tables.sent)

    assert asyncio.run(story()) == 1
