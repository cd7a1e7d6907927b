"""The progress of Spark, read from its status regularly while it works."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession

from mailmend.model.ports import Progress
from mailmend.repair.log_fields import with_log_fields

EVERY_SECONDS = 0.5

StepCount = Callable[[], int]
"""Returns the number of steps that are done since the measure was made."""


@contextmanager
def watched(measure: StepCount, progress: Progress) -> Iterator[None]:
    """Advance the progress by the measured value while the block runs."""
    reported = _Reported(measure, progress)
    done = threading.Event()
    thread = threading.Thread(
        target=with_log_fields(reported.until), args=(done,), name="mailmend-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    # Not where the block failed: its request to the JVM may have no answer yet, and the next one would wait for it.
    reported.tell()


class _Reported:
    """What was reported already, so that only the difference is reported."""

    def __init__(self, measure: StepCount, progress: Progress) -> None:
        self._measure = measure
        self._progress = progress
        self._steps = 0

    def until(self, done: threading.Event) -> None:
        while not done.wait(EVERY_SECONDS):
            self.tell()

    def tell(self) -> None:
        """Report what is new; progress never goes back."""
        with suppress(Exception):
            steps = self._measure()
            if steps > self._steps:
                self._progress.advance(steps - self._steps)
                self._steps = steps


def rows_read(session: SparkSession) -> StepCount:
    """Rows that executors have read (also from kept frames), by their last report."""
    context: Any = session.sparkContext._jsc  # noqa: SLF001 - PySpark has no public name for the rows read so far
    store = context.sc().statusStore()
    running: dict[int, int] = {}
    ended = 0

    def measure() -> int:
        nonlocal ended
        stages = store.activeStages()
        now = {stage.stageId(): stage.inputRecords() for stage in map(stages.apply, range(stages.size()))}
        for number in running.keys() - now.keys():
            ended += store.lastStageAttempt(number).inputRecords()
            del running[number]
        running.update(now)
        return ended + sum(running.values())

    return measure


def share_of_tasks(session: SparkSession, steps: int) -> StepCount:
    """`steps` times the share of finished tasks in the largest running stage."""
    tracker = session.sparkContext.statusTracker()

    def measure() -> int:
        stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
        largest = max(stages, key=lambda stage: stage.numTasks, default=None)
        if largest is None:
            return 0
        return steps * largest.numCompletedTasks // largest.numTasks

    return measure
