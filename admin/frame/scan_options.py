"""The options of a scan: one value, which check, repair, apply and simulate pass on whole."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.model.operations import Level
from mailmend.repair.clock import MARGIN_SECONDS, SKEW_SECONDS
from mailmend.repair.mending.engine import DELAY_SECONDS

DELAY: Final = timedelta(seconds=DELAY_SECONDS)
SKEW: Final = timedelta(seconds=SKEW_SECONDS)
MARGIN: Final = timedelta(seconds=MARGIN_SECONDS)

OF_EVERY_SCAN: Final = (
    "engine",
    "master",
    "spark_conf",
    "rows_per_second",
    "pace",
    "level",
    "delay",
    "clock_skew",
)
"""The options of each scan. The other fields of `ScanOptions` are options of a scan of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How a keyspace is scanned; the names are the names of the options.

    A request of messages is such a value itself. A request of queues or blobs holds one, because a
    check, a repair or a plan makes it.

    Attributes:
        engine: "auto", "spark" or "local".
        pace: "auto" (slow down while the cluster suffers), "full", or None: auto in a job.
        torn: "report", "accept" or "fill".
        without: columns and tables that are neither compared nor written.
        delay: between the scan and the second look.
        clock_skew: the greatest difference between any two clocks.
    """

    engine: str = "auto"
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    rows_per_second: int | None = None
    pace: str | None = None
    level: Level = Level.LOCAL_QUORUM
    torn: str = "report"
    without: tuple[str, ...] = ()
    delay: timedelta = DELAY
    clock_skew: timedelta = SKEW
    no_writers: bool = False
    staging: str | None = None
