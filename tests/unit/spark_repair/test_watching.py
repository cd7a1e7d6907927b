"""Progress is reported while Spark works, never backwards, and never at the price of the work."""

import threading
from collections.abc import Iterator

import pytest

from mailmend.spark_repair import progress as engine
from mailmend.spark_repair.progress import watched
from tests.support.progress import SilentProgress


def test_what_is_measured_is_reported_once() -> None:
    figures: Iterator[int] = iter([5, 5, 9])
    progress = SilentProgress()
    reported = engine._Reported(lambda: next(figures), progress)
    reported.tell()
    reported.tell()
    assert progress.steps == 5
    reported.tell()
    assert progress.steps == 9


def test_progress_never_goes_back() -> None:
    figures = iter([9, 3, 10])
    progress = SilentProgress()
    reported = engine._Reported(lambda: next(figures), progress)
    for _ in range(3):
        reported.tell()
    assert progress.steps == 10


def test_a_measure_that_fails_fails_nothing() -> None:
    progress = SilentProgress()
    with watched(lambda: 1 // 0, progress):
        pass
    assert progress.steps == 0


def test_it_is_reported_during_the_work_too() -> None:
    seen = threading.Event()
    progress = SilentProgress()

    def measure() -> int:
        seen.set()
        return 7

    with watched(measure, progress):
        assert seen.wait(10)
    assert progress.steps == 7
    assert not [one for one in threading.enumerate() if one.name == "mailmend-progress"]


def test_nothing_is_measured_after_a_failure() -> None:
    """The request that failed may have no answer yet: the next one to the same JVM would wait for it."""
    measured_by = []

    def measure() -> int:
        measured_by.append(threading.current_thread().name)
        return 7

    with pytest.raises(RuntimeError), watched(measure, SilentProgress()):
        raise RuntimeError

    assert threading.current_thread().name not in measured_by
