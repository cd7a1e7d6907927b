"""A mail keyspace as James 3.8.1 left it: its schema and its rows, healthy or with 200 recorded damages.

`load_james(cluster, "d_mine")` is all that most tests need; every cell is then older than any T of a run that begins
afterwards. The rows and damages are also there as values, for twins that live in memory.
"""

import gzip
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from mailmend.cql.introspect import SchemaServer
from mailmend.cql.render import Replication, keyspace_cql, parse_version, schema_cql
from mailmend.cql.rows import decode
from mailmend.cql.schema.generations import JAMES_3_8
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.catalog.mail import MAIL_TABLES
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Count, Put, Write
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family
from mailmend.model.table import Row, Table
from mailmend.repair.binding import bind
from tests.support.schemas import served_table

ROWS = Path(__file__).parents[1] / "data" / "james-keyspace"
SCHEMA_FILE = ROWS / "schema.cql"
_DAMAGED = frozenset({"imapuidtable", "messageidtable"})


@dataclass(frozen=True, slots=True)
class Damage:
    """One place that was broken: how, where, and both rows as they were left and as they should become.

    `message_id` is None for a half-written projection row without truth.
    """

    kind: str
    mailbox_id: UUID
    uid: int
    message_id: UUID | None
    damaged_truth: Row | None
    damaged_projection: Row | None
    expected_truth: Row | None
    expected_projection: Row | None


@cache
def james_schema() -> Schema:
    """The 3.8.1 tables that mailmend reads or writes, named as the server has them, without comments of ours."""
    names = {table.name for table in (*MAIL_TABLES, SCHEMA_VERSION)}
    tables = (table for table in JAMES_3_8.schema.tables if table.name in names)
    return Schema(JAMES_3_8.schema.types, tuple(served_table(table) for table in tables))


@cache
def james_families() -> tuple[Family, ...]:
    return bind("james", james_schema())


def create_james(cluster: SchemaServer, keyspace: str) -> None:
    cluster.execute_ddl(keyspace_cql(keyspace, Replication("SimpleStrategy", {"replication_factor": "1"})))
    for statement in schema_cql(keyspace, james_schema(), parse_version(cluster.release_version)):
        cluster.execute_ddl(statement)


def load_james(cluster: Any, keyspace: str, *, damaged: bool = False, age_seconds: float = 3600) -> Tables:
    """Create the keyspace and write every row as of so many seconds ago; counters carry no time."""
    create_james(cluster, keyspace)
    tables: Tables = cluster.keyspace(keyspace)
    put_james(tables, damaged=damaged, at=time.time_ns() // 1000 - int(age_seconds * 1_000_000))
    return tables


def put_james(tables: Tables, *, at: int, damaged: bool = False) -> None:
    """Write every row, stamped with `at` microseconds, into tables that exist."""
    for error in tables.write_all(james_writes(at=at, damaged=damaged)):
        if error is not None:
            raise error


def james_writes(*, at: int, damaged: bool = False) -> Sequence[Write]:
    return [
        _write(table, row, at) for table in james_schema().tables for row in james_rows(table.name, damaged=damaged)
    ]


def _write(table: Table, row: Row, at: int) -> Write:
    if not any(column.is_counter for column in table.columns):
        return Put(table, row, at=at)
    return Count(table, table.key_of(row), {column.name: row[column.name] for column in table.regular})


@cache
def james_rows(table: str, *, damaged: bool = False) -> tuple[Row, ...]:
    """The rows of a table by its name in lower case, null columns absent."""
    found = james_schema().table(table)
    if found is None:
        raise KeyError(f"no table {table} in the keyspace of James")
    folder = ROWS / "damaged" if damaged and table in _DAMAGED else ROWS
    with gzip.open(folder / f"{table}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(_row(found, json.loads(line)) for line in lines)


def _row(table: Table, cells: Mapping[str, Any]) -> Row:
    return {name: decode(table.column(name).type, cell) for name, cell in cells.items() if cell is not None}


@cache
def damages() -> tuple[Damage, ...]:
    with gzip.open(ROWS / "damaged" / "damage.json.gz", "rt", encoding="utf-8") as file:
        return tuple(_damages(json.load(file)["damages"]))


def _damages(records: Sequence[Mapping[str, Any]]) -> Iterator[Damage]:
    truth, projection = (james_schema().table(name) for name in ("imapuidtable", "messageidtable"))
    assert truth is not None
    assert projection is not None
    for record in records:
        yield Damage(
            kind=record["class"],
            mailbox_id=UUID(record["mailboxId"]),
            uid=record["uid"],
            message_id=UUID(record["messageId"]) if record["messageId"] else None,
            damaged_truth=_side(truth, record["damagedTruth"]),
            damaged_projection=_side(projection, record["damagedProjection"]),
            expected_truth=_side(truth, record["expectedTruth"]),
            expected_projection=_side(projection, record["expectedProjection"]),
        )


def _side(table: Table, cells: Mapping[str, Any] | None) -> Row | None:
    return None if cells is None else _row(table, cells)
