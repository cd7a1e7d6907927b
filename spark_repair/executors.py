"""Wait until a cluster has given its executors: a pace is shared among their cores, so those have to be known.

Without this a scan would begin with the first executor that comes, and each one after it would add to the pace. And
where none ever comes, Spark would wait for ever and tell nobody but its log.
"""

from collections.abc import Callable
from typing import Any, Final

from pyspark import SparkContext

from model.errors import CannotReach
from model.ports import Clock
from spark_repair.shipping import runs_here

LOOK_SECONDS: Final = 0.5
STEADY_LOOKS: Final = 4
"""So many looks with the same number, and all have come who come at once."""

WAIT_SECONDS_MAX: Final = 300.0
"""How long the first executor may take; a busy YARN queue can need minutes."""

_MEND: Final = (
    "See the master's page: are there free workers, and do executors fit into them (--spark-conf "
    "spark.executor.memory=2g)? Without Spark: --engine local."
)


def await_executors(context: SparkContext, clock: Clock) -> None:
    """Wait until executors are there, and no more are coming; nothing to wait for in one process.

    Raises:
        CannotReach: none came, or the cluster ended the application because none could start.
    """
    if not runs_here(str(context.master)):
        jvm: Any = context._jsc  # noqa: SLF001 - no public name
        steady_number(lambda: _number(jvm.sc(), str(context.master)), str(context.master), clock)


def steady_number(number: Callable[[], int], master: str, clock: Clock) -> int:
    """The number of executors, once it is more than none and stays the same; or what there is in the end.

    Raises:
        CannotReach: there is none in the end.
    """
    last, same = 0, 0
    for _ in range(int(WAIT_SECONDS_MAX / LOOK_SECONDS)):
        now = number()
        same = same + 1 if now == last else 0
        last = now
        if now and same >= STEADY_LOOKS:
            return now
        clock.sleep(LOOK_SECONDS)
    if not last:
        raise CannotReach(f"{master} gave no executor within {WAIT_SECONDS_MAX:g} s", mend=_MEND)
    return last


def _number(context: Any, master: str) -> int:
    """Executors besides the driver, which counts itself."""
    if context.isStopped():
        raise CannotReach(f"{master} ended our application: its executors could not start", mend=_MEND)
    return int(context.getExecutorMemoryStatus().size()) - 1
