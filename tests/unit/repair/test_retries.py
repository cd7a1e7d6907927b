"""Trying again: how often, how fast, until when, and what is never tried twice."""

from collections.abc import Sequence

import pytest

from model.catalog.mail import FIRST_UNSEEN, MAILBOX_COUNTERS
from model.errors import AccessDenied, CannotReach, DoubtfulWrite, MailmendError, TimedOut
from model.operations import Count, Put, Write
from repair.retries import Retries, RetryPolicy
from tests.support.clock import VirtualClock, uuid_at

MAILBOX = uuid_at(0, 1)


class Failing:
    """Tables whose writes fail so many times each, then succeed."""

    def __init__(self, failures: int, error: MailmendError) -> None:
        self.failures, self.error = failures, error
        self.sent: list[Sequence[Write]] = []

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """Fail or not."""
        self.sent.append(list(writes))
        return [self.error if len(self.sent) <= self.failures else None for _ in writes]


def put(uid: int) -> Put:
    """A write that may be repeated."""
    return Put(FIRST_UNSEEN, {"mailboxid": MAILBOX, "uid": uid}, at=1)


COUNT = Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": 1})


def test_what_succeeds_is_sent_once() -> None:
    """No failure, no wait."""
    clock, tables = VirtualClock(), Failing(0, TimedOut("no"))
    assert Retries(clock).write_all(tables, [put(1), put(2)]) == [None, None]  # type: ignore[arg-type]
    assert (len(tables.sent), clock.slept) == (1, [])


def test_nothing_is_sent_for_nothing() -> None:
    """An empty batch asks nobody."""
    tables = Failing(0, TimedOut("no"))
    assert Retries(VirtualClock()).write_all(tables, []) == []  # type: ignore[arg-type]
    assert tables.sent == []


def test_five_retries_after_the_first_try() -> None:
    """James's policy: six tries in all, and then the last error is handed back."""
    clock, error = VirtualClock(), TimedOut("no")
    tables = Failing(99, error)
    assert Retries(clock).write_all(tables, [put(1)]) == [error]  # type: ignore[arg-type]
    assert len(tables.sent) == 6
    assert len(clock.slept) == 5


@pytest.mark.parametrize("seed", range(20))
def test_waits_grow_within_their_bounds(seed: int) -> None:
    """Each wait is drawn between 10 ms and a bound that doubles, never over a second."""
    clock = VirtualClock(seed)
    Retries(clock, RetryPolicy(retries=9)).write_all(Failing(99, TimedOut("no")), [put(1)])  # type: ignore[arg-type]
    bounds = [min(1.0, 0.020 * 2**number) for number in range(9)]
    assert all(0.010 <= wait <= bound for wait, bound in zip(clock.slept, bounds, strict=True))


def test_only_what_failed_is_sent_again() -> None:
    """A write that got through is not repeated with the others."""

    class OneFails(Failing):
        def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
            """The second of the first round fails."""
            super().write_all(writes)
            return [None, self.error, None][: len(writes)] if len(self.sent) == 1 else [None] * len(writes)

    tables = OneFails(0, TimedOut("no"))
    assert Retries(VirtualClock()).write_all(tables, [put(1), put(2), put(3)]) == [None] * 3  # type: ignore[arg-type]
    assert tables.sent[1] == [put(2)]


def test_a_count_is_never_sent_again() -> None:
    """It is not idempotent: what failed with it is repeated without it."""
    tables = Failing(1, DoubtfulWrite("no"))
    errors = Retries(VirtualClock()).write_all(tables, [COUNT, put(1)])  # type: ignore[arg-type]
    assert [type(error) for error in errors] == [DoubtfulWrite, type(None)]
    assert tables.sent[1] == [put(1)]


def test_what_cannot_pass_is_not_repeated() -> None:
    """Refused permissions stay refused."""
    tables = Failing(9, AccessDenied("no"))
    Retries(VirtualClock()).write_all(tables, [put(1)])  # type: ignore[arg-type]
    assert len(tables.sent) == 1


def test_no_try_begins_after_the_deadline() -> None:
    """A stamp must not be older than A when its last write is sent."""
    clock = VirtualClock()
    tables = Failing(99, TimedOut("no"))
    Retries(clock).write_all(tables, [put(1)], deadline=clock.micros() + 100_000)  # type: ignore[arg-type]
    assert sum(clock.slept) < 0.1
    assert len(tables.sent) < 6


def test_a_call_is_repeated_until_it_reaches() -> None:
    """The result of the first try that gets through."""
    answers = iter([TimedOut("no"), CannotReach("no"), None])

    def step() -> str:
        error = next(answers)
        if error:
            raise error
        return "there"

    assert Retries(VirtualClock()).call(step) == "there"


def test_a_call_that_never_reaches_raises_its_last_error() -> None:
    """Our own kind of error, nothing of the library's."""
    tries: list[int] = []

    def step() -> None:
        tries.append(1)
        raise TimedOut(f"try {len(tries)}")

    with pytest.raises(TimedOut, match="try 6"):
        Retries(VirtualClock()).call(step)


@pytest.mark.parametrize("error", [AccessDenied("no"), MailmendError("no")])
def test_a_call_that_cannot_help_itself_is_not_repeated(error: MailmendError) -> None:
    """An error that no time cures is raised at once."""
    clock = VirtualClock()

    def step() -> None:
        raise error

    with pytest.raises(type(error)):
        Retries(clock).call(step)
    assert clock.slept == []


def test_rounds_end_with_the_first_result() -> None:
    """A compare-and-set is repeated until it wins."""
    answers = iter([None, None, 7])
    assert Retries(VirtualClock()).rounds(lambda: next(answers), 10) == 7


def test_rounds_are_bounded() -> None:
    """So many and no more; then the answer is None."""
    tries: list[int] = []
    assert Retries(VirtualClock()).rounds(lambda: tries.append(1), 4) is None
    assert len(tries) == 4
