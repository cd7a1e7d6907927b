"""What an adopted keyspace was when it was adopted: its generation and a fingerprint, so that later changes show.

The fingerprint covers what CQL cannot change back (keys, columns, types, indexes, views), object by object; options
are left out, for tuning them is the operator's own business.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from hashlib import sha256

from model.schema.cql_types import normal_type
from model.schema.difference import index_text, view_text
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.table import Column, Table

_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Baseline:
    """One adoption.

    Attributes:
        generation: what the keyspace was recognised as.
        objects: the digest of each table, type, index and view, by kind and name.
        migrations: the files that count as done.
        version: of mailmend.
    """

    generation: str
    objects: Mapping[str, str]
    migrations: tuple[str, ...]
    adopted_at: datetime
    owner: str
    version: str

    @property
    def fingerprint(self) -> str:
        """One value for the whole keyspace."""
        return fingerprint_of(self.objects)


class Since(Enum):
    """What became of an object since the adoption; the value is its name in reports."""

    NEW = "new since adoption"
    CHANGED = "changed since adoption"
    GONE = "gone since adoption"


def changes_since(baseline: Baseline, live: Schema) -> tuple[tuple[Since, str], ...]:
    """What is otherwise than it was when the keyspace was adopted, by kind and name."""
    before, now = baseline.objects, digests(live)
    found = [(_since(before.get(name), now.get(name)), name) for name in sorted({*before, *now})]
    return tuple((since, name) for since, name in found if since)


def _since(before: str | None, now: str | None) -> Since | None:
    if before == now:
        return None
    if before is None:
        return Since.NEW
    return Since.GONE if now is None else Since.CHANGED


def fingerprint_of(objects: Mapping[str, str]) -> str:
    """One value for all objects together."""
    return _digest("\n".join(f"{name} {objects[name]}" for name in sorted(objects)))


def digests(schema: Schema) -> dict[str, str]:
    """A digest of each object of a keyspace, by kind and name."""
    return {name: _digest(text) for name, text in _texts(schema)}


def _texts(schema: Schema) -> Iterator[tuple[str, str]]:
    for user_type in schema.types:
        fields = ", ".join(f"{name_of(name)} {normal_type(text)}" for name, text in user_type.fields)
        yield f"type {user_type.name}", fields
    for table in schema.tables:
        yield f"table {table.name}", _table_text(table)
    for index in schema.indexes:
        yield f"index {name_of(index.spelling)}", index_text(index)
    for view in schema.views:
        yield f"view {view.table.name}", view_text(view)


def _table_text(table: Table) -> str:
    """Key columns in their order, the others by name: a server tells them in an order of its own."""
    rest = sorted(table.regular, key=lambda column: column.name)
    return "\n".join(_column_text(column) for column in (*table.key, *rest))


def _column_text(column: Column) -> str:
    order = " desc" if column.descending else ""
    return f"{column.name} {normal_type(column.type)} {column.kind.value}{order}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_DIGITS]
