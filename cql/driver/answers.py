"""What the driver's answer to an operation becomes: rows with their times, a verdict on a condition, or nothing."""

from collections.abc import Callable
from typing import Any

from cql.rows import normalised, row_reader, seen_reader
from cql.statements import Operation, selection_of
from model.operations import Applied, ChangeIf, PutIfAbsent, Read, RemoveIf, Scan


def answer_of(operation: Operation, *, collection_times: bool) -> Callable[[Any], Any]:
    """What makes our own answer of the driver's: rows with times, a scan's row, whether it applied, nothing."""
    match operation:
        case Read():
            selection = selection_of(operation, collection_times=collection_times)
            see = seen_reader(selection.columns, selection.timed)
            return lambda rows: [see(values) for values in rows]
        case Scan():
            return row_reader(selection_of(operation, collection_times=False).columns)
        case PutIfAbsent() | ChangeIf() | RemoveIf():
            return applied_of
        case _:
            return lambda _: None


def applied_of(answer: Any) -> Applied:
    """The server adds what stood there when it refused, and nothing where there was no row."""
    (applied, *found), names = answer.one(), answer.column_names[1:]
    if applied or not names:
        return Applied(bool(applied))
    return Applied(applied=False, current=dict(zip(names, map(normalised, found), strict=True)))
