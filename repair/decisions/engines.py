"""The choice of the engine that scans a keyspace: as requested, or else the faster one by the estimated size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mailmend.model.sizes import TableSize

SPARK_ROWS_MIN: Final = 1_000_000
"""The number of truth rows from which `auto` chooses Spark; below it Spark's start costs more than its speed saves.

Measured: whole checks of 200,000 messages, 18 s with the local engine and 31 s with Spark
(docs/performance.md; two cores); some 13 of the 18 s are reading and comparing, which grow with the
rows. Spark's scan alone, in a session that is ready: 10 s for 100,000 messages and 50 s for 1
million, on a Cassandra that was slower.

Extrapolated: 18 s and 65 s for each further million meet 31 s and 44 s for each at some 800,000;
the next round number is taken, because Spark also takes a gigabyte of memory. No whole check was
measured there or above. To do so: `python -m tests.bench --only check --messages 1000000`, and
other sizes; where the two lines cross is this number.
"""

_DISK_BYTES_OF_A_ROW: Final = 130
"""Of the truth table, compressed (55 MB for the 413,886 rows of the two main tables that James wrote)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine scans ("spark" or "local"), and why.

    Attributes:
        brief: whether Spark was requested for a keyspace so small that Java's slower compiler does not pay off.
        master, spark_conf: of Spark, as they were given.
    """

    name: str
    why: str
    brief: bool = False
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)


def choose_engine(
    asked: str, given: str | None, rows: Callable[[], int | None], lacking: Callable[[], str | None]
) -> Engine:
    """Choose the engine for scanning a whole keyspace.

    Args:
        asked: "auto", "spark" or "local".
        given: an option that only Spark takes and that was given; None: no such option.
        rows: estimates the number of truth rows; None where it is not known. Not called for "local".
        lacking: tells why Spark cannot run here; None where it can. Called only before Spark is chosen.
    """
    if asked == "local":
        return Engine(asked, "asked for")
    about = rows()
    small = about is not None and about < SPARK_ROWS_MIN
    if asked == "spark":
        return Engine("spark", "asked for", brief=small)
    if given is not None:
        return Engine("spark", given, brief=small)
    size = "of unknown size"
    why = size
    if about is not None:
        size = f"about {about:,} rows"
        why = f"{size}, Spark pays from {SPARK_ROWS_MIN:,}"
    if small:
        return Engine("local", why)
    if lack := lacking():
        return Engine("local", f"{size}, but {lack}")
    return Engine("spark", why)


def estimated_rows(truth: TableSize | None) -> int | None:
    """An estimate of a truth table's rows; None where no node reports a size.

    Nodes estimate partitions every five minutes; before that, the size on their disks (all copies) is used.
    """
    if truth is None:
        return None
    if truth.partitions or truth.disk_bytes is None:
        return truth.partitions
    return truth.disk_bytes // _DISK_BYTES_OF_A_ROW
