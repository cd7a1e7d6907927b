"""Trying again: the only place that knows tenacity, and the one policy for everything that may be repeated.

Safe by default: bounded in attempts and in time; for code that waits in its thread, and for code that awaits. Plain
writes that carry their own stamp may be repeated at will; a count may not (it is not idempotent), a conditional write
may not either (its writer settles it by a SERIAL read). A write is never sent once its stamp has become too old, since
a repair counts on that (DESIGN idea 4, A).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from model.errors import AccessDenied, CannotReach, MailmendError
from model.operations import Count, Write
from model.ports import AsyncTables, Clock, Tables

T = TypeVar("T")

FOREVER = 2**63
"""A deadline that never comes, in microseconds."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast to try again; the defaults are James's (5 retries, 10 ms to 1 s, jitter).

    Each wait is drawn between the shortest wait and a bound that doubles with every try.
    """

    retries: int = 5
    wait_seconds_min: float = 0.010
    wait_seconds_max: float = 1.0


JAMES = RetryPolicy()


@dataclass(frozen=True, slots=True)
class Retries:
    """Carries out what may be repeated. Waits on the clock that it is given, so a virtual one makes tests instant."""

    clock: Clock
    policy: RetryPolicy = JAMES

    def write_all(self, tables: Tables, writes: Sequence[Write], deadline: int = FOREVER) -> list[MailmendError | None]:
        """Many writes at once; those that fail are sent again, counts excepted. What is left in the end is returned.

        Args:
            tables: where to write.
            writes: independent of each other.
            deadline: microseconds; nothing is sent again after it.
        """
        errors: list[MailmendError | None] = [None] * len(writes)
        open_ = list(range(len(writes)))

        def send() -> bool:
            nonlocal open_
            for place, error in zip(open_, tables.write_all([writes[place] for place in open_]), strict=True):
                errors[place] = error
            open_ = [place for place in open_ if passes(errors[place]) and not isinstance(writes[place], Count)]
            return bool(open_)

        if open_ and send():
            self._retrying(self.policy.retries, deadline, retry=retry_if_result(bool))(_resumed(lambda: True, send))
        return errors

    def call(self, step: Callable[[], T], deadline: int = FOREVER) -> T:
        """The step's result; while it cannot reach the cluster it is taken again.

        Raises:
            CannotReach: the last try's error.
        """
        try:
            return step()
        except CannotReach as error:
            first = error

        def fail() -> T:
            raise first

        return self._retrying(self.policy.retries, deadline, retry=retry_if_exception(passes))(_resumed(fail, step))

    def rounds(self, step: Callable[[], T | None], most: int, deadline: int = FOREVER) -> T | None:
        """The first result that is not None, of at most so many rounds: how compare-and-set is repeated."""
        found = step()
        if found is not None:
            return found
        return self._retrying(most - 1, deadline, retry=retry_if_result(_is_none))(_resumed(lambda: None, step))

    def _retrying(self, retries: int, deadline: int, **options: Any) -> Retrying:
        """Tenacity's loop, which ends with the last try's own result or error."""
        return Retrying(sleep=self.clock.sleep, **_loop(self.policy, self.clock, retries, deadline), **options)


@dataclass(frozen=True, slots=True)
class AwaitedRetries:
    """`Retries` for code that awaits, by the same policy."""

    clock: Clock
    policy: RetryPolicy = JAMES

    async def write(self, tables: AsyncTables, write: Write, deadline: int = FOREVER) -> None:
        """One write that is not a count.

        Raises:
            CannotReach: the last try's error.
        """
        await self.call(lambda: tables.write(write), deadline)

    async def write_all(
        self, tables: AsyncTables, writes: Sequence[Write], deadline: int = FOREVER
    ) -> list[MailmendError | None]:
        """Many writes at once; those that fail are sent again, counts excepted. What is left in the end is returned."""
        errors: list[MailmendError | None] = [None] * len(writes)
        open_ = list(range(len(writes)))

        async def send() -> bool:
            nonlocal open_
            for place, error in zip(open_, await tables.write_all([writes[place] for place in open_]), strict=True):
                errors[place] = error
            open_ = [place for place in open_ if passes(errors[place]) and not isinstance(writes[place], Count)]
            return bool(open_)

        if open_ and await send():
            resumed = _resumed_awaiting(lambda: True, send)
            await self._retrying(self.policy.retries, deadline, retry=retry_if_result(bool))(resumed)
        return errors

    async def call(self, step: Callable[[], Awaitable[T]], deadline: int = FOREVER) -> T:
        """The step's result; while it cannot reach whom it asks it is taken again.

        Raises:
            CannotReach: the last try's error.
        """
        try:
            return await step()
        except CannotReach as error:
            first = error

        def fail() -> T:
            raise first

        resumed = _resumed_awaiting(fail, step)
        return await self._retrying(self.policy.retries, deadline, retry=retry_if_exception(passes))(resumed)

    async def rounds(self, step: Callable[[], Awaitable[T | None]], most: int, deadline: int = FOREVER) -> T | None:
        """The first result that is not None, of at most so many rounds: how compare-and-set is repeated."""
        found = await step()
        if found is not None:
            return found
        resumed = _resumed_awaiting(lambda: None, step)
        return await self._retrying(most - 1, deadline, retry=retry_if_result(_is_none))(resumed)

    def _retrying(self, retries: int, deadline: int, **options: Any) -> AsyncRetrying:
        return AsyncRetrying(sleep=self.clock.pause, **_loop(self.policy, self.clock, retries, deadline), **options)


def _loop(policy: RetryPolicy, clock: Clock, retries: int, deadline: int) -> dict[str, Any]:
    """What tenacity is told, whichever of its loops it is."""
    return {
        "wait": wait_random_exponential(
            multiplier=2 * policy.wait_seconds_min, max=policy.wait_seconds_max, min=policy.wait_seconds_min
        ),
        "stop": stop_after_attempt(retries + 1) | _TooLate(clock, deadline),
        "retry_error_callback": _last,
    }


class _TooLate(stop_base):
    """Stops before a try that would begin after the deadline."""

    def __init__(self, clock: Clock, deadline: int) -> None:
        self._clock, self._deadline = clock, deadline

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Whether the next try would come too late."""
        return self._clock.micros() + retry_state.upcoming_sleep * 1_000_000 >= self._deadline


def passes(error: BaseException | None) -> bool:
    """Whether the same thing may well succeed a moment later."""
    return isinstance(error, CannotReach) and not isinstance(error, AccessDenied)


def _last(state: RetryCallState) -> Any:
    """The result of the last try, or its error raised."""
    assert state.outcome is not None
    return state.outcome.result()


def _resumed(first: Callable[[], T], step: Callable[[], T]) -> Callable[[], T]:
    """The step, whose first try was made already and came out as `first`: most need no second, and no loop."""
    tries = chain((first,), repeat(step))
    return lambda: next(tries)()  # noqa: PLW0108 each try takes the next


def _resumed_awaiting(first: Callable[[], T], step: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """The same for a step that is awaited."""
    made = iter((first,))

    async def take() -> T:
        for outcome in made:
            return outcome()
        return await step()

    return take


def _is_none(found: object) -> bool:
    return found is None
