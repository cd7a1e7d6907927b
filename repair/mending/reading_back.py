"""What is known of a change once its row was read back: pure."""

from dataclasses import replace
from typing import Any

from mailmend.model.operations import (
    Change,
    ChangeIf,
    Conditional,
    Count,
    Put,
    PutIfAbsent,
    Remove,
    RemoveIf,
    Seen,
    Write,
    cells_of,
)
from mailmend.model.table import Key, Row, rows_agree


def shows(change: Write | Conditional, seen: Seen | None) -> bool:
    """Whether the row that was read back has the effect of the change."""
    match change:
        case Remove() | RemoveIf():
            return seen is None
        case Put(table=table, row=row) | PutIfAbsent(table=table, row=row):
            return seen is not None and rows_agree(map(table.column, row), row, seen.row)
        case Change(table=table, assign=assign) | ChangeIf(table=table, assign=assign):
            there = cells_of(seen)
            agree = rows_agree(map(table.column, assign), assign, there)
            added = all(wanted <= _elements(there, name) for name, wanted in change.add.items())
            left = any(gone & _elements(there, name) for name, gone in change.take.items())
            return agree and added and not left
        case _:
            return True


def written_key(change: Write | Conditional) -> Key:
    """The key of the row that a change writes."""
    if isinstance(change, Put | PutIfAbsent):
        return change.table.key_of(change.row)
    return change.key


def joinable(write: Write) -> Write:
    """The write, which may share a request with others."""
    if isinstance(write, Count):
        return write
    return replace(write, joinable=True)


def _elements(row: Row, column: str) -> frozenset[Any]:
    return frozenset(row.get(column) or ())
