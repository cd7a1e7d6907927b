"""Retries: the only module that uses tenacity, and the one policy for everything that may be repeated.

Safe by default: bounded in attempts and in time; one class for code that awaits, and a bridge for code that blocks.
Plain writes that carry their own stamp may be repeated at will; a count may not (it is not idempotent), a conditional
write may not either (its writer settles it by a SERIAL read). A write is never sent once its stamp has become too old,
since a repair counts on that (docs/design.md, "Rules of time", A).
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from mailmend.model.errors import AccessDenied, CannotReach, MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Write
from mailmend.model.ports import AsyncTables, Clock, Tables

T = TypeVar("T")
ErrorKinds = tuple[type[MailmendError], ...]

_LOG = logging.getLogger("mailmend.retries")

FOREVER = 2**63
"""A deadline that never comes, in microseconds."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast to retry; the defaults are James's (5 retries, 10 ms to 1 s, jitter).

    Each wait is drawn between the shortest wait and a bound that doubles with every try.
    """

    retries: int = 5
    wait_seconds_min: float = 0.010
    wait_seconds_max: float = 1.0


JAMES = RetryPolicy()


@dataclass(frozen=True, slots=True)
class AsyncRetries:
    """Repeats what may be repeated. Waits on the given clock, so a virtual clock makes tests instant."""

    clock: Clock
    policy: RetryPolicy = JAMES

    async def write(self, tables: AsyncTables, write: Write, deadline: int = FOREVER) -> None:
        """Carry out one write that is not a count."""
        await self.call(lambda: tables.write(write), deadline)

    async def write_all(
        self, tables: AsyncTables, writes: Sequence[Write], deadline: int = FOREVER
    ) -> list[MailmendError | None]:
        """Many writes at once; failed ones are sent again, except counts. Returns each write's last error, or None.

        Args:
            tables: where to write.
            writes: independent of each other.
            deadline: microseconds; nothing is sent again after it.
        """
        return await self._send(tables.write_all, writes, deadline)

    async def call(
        self, step: Callable[[], Awaitable[T]], deadline: int = FOREVER, kinds: ErrorKinds = (CannotReach,)
    ) -> T:
        """The step's result; retried on errors of those kinds."""
        try:
            return await step()
        except kinds as error:
            retry = retry_if_exception(lambda one: passes(one, kinds))
            return await self._again(error, step, self.policy.retries, deadline, retry=retry)

    async def rounds(self, step: Callable[[], Awaitable[T | None]], most: int, deadline: int = FOREVER) -> T | None:
        """The first result that is not None, in at most `most` rounds: for compare-and-set."""
        found = await step()
        if found is not None:
            return found
        return await self._again(None, step, most - 1, deadline, retry=retry_if_result(lambda one: one is None))

    async def _send(
        self,
        send: Callable[[Sequence[Write]], Awaitable[list[MailmendError | None]]],
        writes: Sequence[Write],
        deadline: int,
    ) -> list[MailmendError | None]:
        errors: list[MailmendError | None] = [None] * len(writes)
        open_ = list(range(len(writes)))

        async def some_are_left() -> bool:
            nonlocal open_
            for place, error in zip(open_, await send([writes[place] for place in open_]), strict=True):
                errors[place] = error
            open_ = [place for place in open_ if passes(errors[place]) and not isinstance(writes[place], Count)]
            return bool(open_)

        if open_ and await some_are_left():
            await self._again(True, some_are_left, self.policy.retries, deadline, retry=retry_if_result(bool))  # noqa: FBT003
        return errors

    async def _again(
        self, first: Any, step: Callable[[], Awaitable[T]], retries: int, deadline: int, **retry: Any
    ) -> T:
        """Tenacity's loop after a first try with result `first`: most calls need no second try and no loop."""
        made = [first]

        async def take() -> T:
            if not made:
                return await step()
            ended = made.pop()
            if isinstance(ended, BaseException):
                raise ended
            result: T = ended
            return result

        waits = wait_random_exponential(
            multiplier=2 * self.policy.wait_seconds_min,
            max=self.policy.wait_seconds_max,
            min=self.policy.wait_seconds_min,
        )
        stop = stop_after_attempt(retries + 1) | _TooLate(self.clock, deadline)
        loop = AsyncRetrying(
            sleep=self._pause, wait=waits, stop=stop, before_sleep=_logged, retry_error_callback=_last, **retry
        )
        return await loop(take)

    async def _pause(self, seconds: float) -> None:
        await self.clock.pause(seconds)


class _Blocking(AsyncRetries):
    """Waits in its thread, so that its coroutines never need an event loop."""

    async def _pause(self, seconds: float) -> None:
        self.clock.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Retries:
    """`AsyncRetries` for code that blocks."""

    clock: Clock
    policy: RetryPolicy = JAMES

    def write_all(self, tables: Tables, writes: Sequence[Write], deadline: int = FOREVER) -> list[MailmendError | None]:
        async def send(some: Sequence[Write]) -> list[MailmendError | None]:
            return tables.write_all(some)

        return _ended(self._blocking._send(send, writes, deadline))  # noqa: SLF001 - the other half of this module

    def call(self, step: Callable[[], T], deadline: int = FOREVER, kinds: ErrorKinds = (CannotReach,)) -> T:
        return _ended(self._blocking.call(_awaitable(step), deadline, kinds))

    def rounds(self, step: Callable[[], T | None], most: int, deadline: int = FOREVER) -> T | None:
        return _ended(self._blocking.rounds(_awaitable(step), most, deadline))

    @property
    def _blocking(self) -> _Blocking:
        return _Blocking(self.clock, self.policy)


def _awaitable(step: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def taken() -> T:
        return step()

    return taken


def _ended(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for an event loop, so that its first step is its last."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("code that blocks does not await")


class _TooLate(stop_base):
    """Whether the deadline passes before the next try; the time until then is counted by the monotonic clock."""

    def __init__(self, clock: Clock, deadline: int) -> None:
        self._clock = clock
        self._until = clock.monotonic() + (deadline - clock.micros()) / MICROS

    def __call__(self, retry_state: RetryCallState) -> bool:
        return bool(self._clock.monotonic() + retry_state.upcoming_sleep >= self._until)


def passes(error: BaseException | None, kinds: ErrorKinds = (CannotReach,)) -> bool:
    """Whether a retry may succeed a moment later."""
    return isinstance(error, kinds) and not isinstance(error, AccessDenied)


def _logged(state: RetryCallState) -> None:
    what = None
    if state.outcome and state.outcome.failed:
        failed = state.outcome.exception()
        if isinstance(failed, MailmendError):
            what = failed.what
    _LOG.info(
        "tried again", extra={"tries": state.attempt_number, "after_seconds": state.upcoming_sleep, "error": what}
    )


def _last(state: RetryCallState) -> Any:
    assert state.outcome is not None
    return state.outcome.result()
