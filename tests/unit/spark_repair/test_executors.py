"""Executors are waited for: until they are all there, and not for ever."""

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from mailmend.model.errors import CannotReach, ExitCode
from mailmend.spark_repair.executors import LOOK_SECONDS, STEADY_LOOKS, WAIT_SECONDS_MAX, await_executors, steady_number
from mailmend.spark_repair.session import SparkSettings, _start_failure
from tests.support.clock import VirtualClock

AWAY = "spark://somewhere:7077"


def coming(*numbers: int) -> Callable[[], int]:
    """One number for each look; the last one stays."""
    looks: Iterator[int] = chain(numbers, repeat(numbers[-1]))
    return lambda: next(looks)


def context(master: str, executors: int, *, stopped: bool = False) -> Any:
    """As much of Spark's context as is asked."""
    status = SimpleNamespace(size=lambda: executors + 1)
    java = SimpleNamespace(isStopped=lambda: stopped, getExecutorMemoryStatus=lambda: status)
    return SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: java))


def seconds(clock: VirtualClock, since: int) -> float:
    return (clock.micros() - since) / 1_000_000


def test_it_waits_until_no_more_come() -> None:
    clock = VirtualClock()
    begun = clock.micros()
    assert steady_number(coming(0, 0, 1, 1, 2), AWAY, clock) == 2
    assert seconds(clock, begun) == (4 + STEADY_LOOKS) * LOOK_SECONDS


def test_none_in_the_end_is_said() -> None:
    clock = VirtualClock()
    begun = clock.micros()
    with pytest.raises(CannotReach, match="no executor") as caught:
        steady_number(coming(0), AWAY, clock)
    assert AWAY in str(caught.value)
    assert "--spark-conf" in str(caught.value)
    assert caught.value.exit_code is ExitCode.CANNOT_REACH
    assert seconds(clock, begun) == WAIT_SECONDS_MAX


def test_executors_that_come_and_go_are_taken_in_the_end() -> None:
    clock = VirtualClock()
    restless = chain.from_iterable(repeat((3, 4)))
    assert steady_number(lambda: next(restless), AWAY, clock) == 4


def test_an_application_that_the_cluster_ended_is_no_crash() -> None:
    clock = VirtualClock()
    begun = clock.micros()
    with pytest.raises(CannotReach, match="ended our application"):
        await_executors(context(AWAY, 0, stopped=True), clock)
    assert clock.micros() == begun


def test_the_driver_is_no_executor_and_one_process_waits_for_nobody() -> None:
    clock = VirtualClock()
    begun = clock.micros()
    await_executors(context("local[2]", 0), clock)
    assert clock.micros() == begun
    await_executors(context(AWAY, 1), clock)
    assert seconds(clock, begun) == STEADY_LOOKS * LOOK_SECONDS


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:",
            "no master answers",
        ),
        ("java.lang.IllegalArgumentException: Executor memory 1 must be at least 471859200.", "must be at least"),
    ],
)
def test_a_cluster_that_does_not_take_us_is_reported_by_its_reason(said: str, expected: str) -> None:
    error = RuntimeError(f"An error occurred while calling None.org.apache.spark.sql.SparkSession.\n: {said}\n\tat x.Y")
    failure = _start_failure(SparkSettings(AWAY), error)
    assert f"Spark did not start on {AWAY}: " in failure.what
    assert expected in failure.what
    assert "An error occurred" not in failure.what
