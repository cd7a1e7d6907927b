"""Tables with a bit of everything that the mail tables have, for tests of the adapters of `Tables`."""

import time

from model.schema.table import Column, Kind, Table

CELLS = Table(
    "cells",
    (
        Column("k", "text", Kind.PARTITION),
        Column("c", "int", Kind.CLUSTERING),
        Column("d", "timeuuid", Kind.CLUSTERING),
        Column("v", "text"),
        Column("n", "bigint"),
        Column("b", "boolean"),
        Column("day", "timestamp"),
        Column("tags", "set<text>"),
    ),
)
"""A table with a bit of everything that the mail tables have."""

MARKS = Table("marks", (Column("k", "text", Kind.PARTITION), Column("c", "int", Kind.CLUSTERING, descending=True)))
"""A table of key columns alone, like firstUnseen; newest first."""

COUNTERS = Table(
    "counters", (Column("k", "text", Kind.PARTITION), Column("count", "counter"), Column("unseen", "counter"))
)

ALL = (CELLS, MARKS, COUNTERS)


def micros() -> int:
    return time.time_ns() // 1000
