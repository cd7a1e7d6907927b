"""Trying again: how often, how fast, until when, and what is never tried twice; for code that blocks or awaits."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import FIRST_UNSEEN, MAILBOX_COUNTERS
from mailmend.model.errors import AccessDenied, CannotReach, DoubtfulWrite, MailmendError, TimedOut
from mailmend.model.operations import Count, Put, Write
from mailmend.repair.retries import FOREVER, AsyncRetries, Retries, RetryPolicy
from tests.support.clock import VirtualClock, uuid_at
from tests.support.in_turn import InTurn

MAILBOX = uuid_at(0, 1)
COUNT = Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": 1})


class Failing(MemoryTables):
    """Tables whose writes come to what is told for each round, and then succeed."""

    def __init__(self, *rounds: Sequence[MailmendError | None]) -> None:
        super().__init__(lambda: 0)
        self.rounds = list(rounds)
        self.sent: list[Sequence[Write]] = []

    def write(self, write: Write) -> None:
        for error in self.write_all([write]):
            if error:
                raise error

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        self.sent.append(list(writes))
        return list(self.rounds.pop(0)) if self.rounds else [None] * len(writes)


class Steps:
    """A step that is told how each of its tries ends; the last end is that of all later tries too."""

    def __init__(self, *ends: object) -> None:
        self.ends, self.tries = list(ends), 0

    def __call__(self) -> Any:
        end = self.ends[min(self.tries, len(self.ends) - 1)]
        self.tries += 1
        if isinstance(end, BaseException):
            raise end
        return end


class Blocking:
    """Retries as code that blocks has them."""

    def __init__(self, clock: VirtualClock, policy: RetryPolicy) -> None:
        retries = Retries(clock, policy)
        self.write_all, self.call, self.rounds = retries.write_all, retries.call, retries.rounds


class Awaiting:
    """Retries as code that awaits has them, each in a loop of its own."""

    def __init__(self, clock: VirtualClock, policy: RetryPolicy) -> None:
        self.retries = AsyncRetries(clock, policy)

    def write_all(
        self, tables: Failing, writes: Sequence[Write], deadline: int = FOREVER
    ) -> list[MailmendError | None]:
        return asyncio.run(self.retries.write_all(InTurn(tables), writes, deadline))

    def call(self, step: Callable[[], Any]) -> Any:
        return asyncio.run(self.retries.call(_result(step)))

    def rounds(self, step: Callable[[], Any], most: int) -> Any:
        return asyncio.run(self.retries.rounds(_result(step), most))


def _result(step: Callable[[], Any]) -> Callable[[], Any]:
    async def taken() -> Any:
        await asyncio.sleep(0)
        return step()

    return taken


Form = Callable[[VirtualClock, RetryPolicy], Blocking | Awaiting]


@pytest.fixture(params=[Blocking, Awaiting])
def form(request: pytest.FixtureRequest) -> Form:
    made: Form = request.param
    return made


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def retries(form: Form, clock: VirtualClock) -> Blocking | Awaiting:
    return form(clock, RetryPolicy())


def put(uid: int) -> Put:
    return Put(FIRST_UNSEEN, {"mailboxid": MAILBOX, "uid": uid}, at=1)


def never(error: MailmendError) -> Failing:
    return Failing(*[[error]] * 99)


def test_what_succeeds_is_sent_once(retries: Blocking | Awaiting, clock: VirtualClock) -> None:
    tables = Failing()
    assert retries.write_all(tables, [put(1), put(2)]) == [None, None]
    assert (len(tables.sent), clock.slept) == (1, [])


def test_nothing_is_sent_for_nothing(retries: Blocking | Awaiting) -> None:
    tables = Failing()
    assert retries.write_all(tables, []) == []
    assert tables.sent == []


def test_five_retries_after_the_first_try(retries: Blocking | Awaiting, clock: VirtualClock) -> None:
    """James's policy: six tries in all, and then the last error is handed back."""
    error = TimedOut("no")
    tables = never(error)
    assert retries.write_all(tables, [put(1)]) == [error]
    assert (len(tables.sent), len(clock.slept)) == (6, 5)


@pytest.mark.parametrize("seed", range(20))
def test_waits_grow_within_their_bounds(form: Form, seed: int) -> None:
    """Each wait is drawn between 10 ms and a bound that doubles, never over a second."""
    clock = VirtualClock(seed)
    form(clock, RetryPolicy(retries=9)).write_all(never(TimedOut("no")), [put(1)])
    bounds = [min(1.0, 0.020 * 2**number) for number in range(9)]
    assert all(0.010 <= wait <= bound for wait, bound in zip(clock.slept, bounds, strict=True))


def test_only_what_failed_is_sent_again(retries: Blocking | Awaiting) -> None:
    tables = Failing([None, TimedOut("no"), None])
    assert retries.write_all(tables, [put(1), put(2), put(3)]) == [None] * 3
    assert tables.sent[1:] == [[put(2)]]


def test_a_count_is_never_sent_again(retries: Blocking | Awaiting) -> None:
    tables = Failing([DoubtfulWrite("no")] * 2)
    errors = retries.write_all(tables, [COUNT, put(1)])
    assert [type(error) for error in errors] == [DoubtfulWrite, type(None)]
    assert tables.sent[1:] == [[put(1)]]


@pytest.mark.parametrize("error", [AccessDenied("no"), MailmendError("no")])
def test_what_no_time_cures_is_not_tried_again(
    retries: Blocking | Awaiting, clock: VirtualClock, error: MailmendError
) -> None:
    tables, step = never(error), Steps(error)
    assert retries.write_all(tables, [put(1)]) == [error]
    with pytest.raises(type(error)):
        retries.call(step)
    assert (len(tables.sent), step.tries, clock.slept) == (1, 1, [])


@pytest.mark.parametrize(("left", "most"), [(1, 1), (100_000, 5)])
def test_no_try_begins_after_the_deadline(
    retries: Blocking | Awaiting, clock: VirtualClock, left: int, most: int
) -> None:
    tables = never(TimedOut("no"))
    retries.write_all(tables, [put(1)], deadline=clock.micros() + left)
    assert sum(clock.slept) < left / 1_000_000
    assert len(tables.sent) <= most


@pytest.mark.parametrize("step", [Steps(7), Steps(TimedOut("no"), CannotReach("no"), 7)])
def test_a_call_is_repeated_until_it_reaches(retries: Blocking | Awaiting, step: Steps) -> None:
    step.tries = 0
    assert retries.call(step) == 7


def test_a_call_that_never_reaches_raises_its_last_error(retries: Blocking | Awaiting) -> None:
    step = Steps(*(TimedOut(f"try {number}") for number in range(1, 99)))
    with pytest.raises(TimedOut, match="try 6"):
        retries.call(step)


@pytest.mark.parametrize(("ends", "found"), [((1,), 1), ((None, None, 3), 3), ((None, None, None, 4), None)])
def test_rounds_end_with_the_first_result(retries: Blocking | Awaiting, ends: tuple[Any, ...], found: Any) -> None:
    step = Steps(*ends)
    assert retries.rounds(step, 3) == found
    assert step.tries == (found or 3)


async def test_one_write_is_repeated_and_raises_its_last_error(clock: VirtualClock) -> None:
    late, error = Failing(*[[CannotReach("no")]] * 3), TimedOut("no")
    await AsyncRetries(clock).write(InTurn(late), put(1))
    lost = never(error)
    with pytest.raises(TimedOut) as raised:
        await AsyncRetries(clock).write(InTurn(lost), put(1))
    assert raised.value is error
    assert (len(late.sent), len(lost.sent)) == (4, 6)


async def test_cancelling_ends_it_between_two_tries(clock: VirtualClock) -> None:
    tables = never(TimedOut("no"))
    trying = asyncio.create_task(AsyncRetries(clock).write(InTurn(tables), put(1)))
    for _ in range(10):
        await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert len(tables.sent) == 1
