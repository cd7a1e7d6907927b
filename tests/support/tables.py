"""Tables with a bit of everything that the mail tables have, for tests of the adapters of `Tables`."""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from mailmend.model.operations import Read, Seen
from mailmend.model.ports import Tables
from mailmend.model.table import Column, Key, Kind, Row, Table

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

D, E = UUID("71158c60-e509-11f1-b512-b9fb9d6f173b"), UUID("7133c2c0-e509-11f1-b512-b9fb9d6f173b")

DAY = datetime(2026, 11, 20, 17, 40, 18, 255000, tzinfo=UTC)


def micros() -> int:
    return time.time_ns() // 1000


def cell(k: str, c: int = 1, d: UUID = D, **columns: Any) -> Row:
    return {"k": k, "c": c, "d": d, **columns}


def see(tables: Tables, key: Key, table: Table = CELLS) -> list[Seen]:
    return list(tables.read(Read(table, key, times=True)))


def one(tables: Tables, k: str) -> Row | None:
    rows = see(tables, (k,))
    assert len(rows) <= 1
    return rows[0].row if rows else None


def value(tables: Tables, k: str, column: str = "v") -> Any:
    row = one(tables, k)
    return row[column] if row else None
