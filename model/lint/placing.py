"""Where a hit stands in the texts that the schema was read from."""

from collections.abc import Iterator

from model.ddl import AddColumns, CreateTable, CreateView, SetOptions, Span
from model.lint.finding import Hit
from model.lint.subject import Placed, Subject
from model.names import name_of

Spot = tuple[int | None, Span | None]
"""The number of a statement, and a piece of its file."""


def spot_of(subject: Subject, hit: Hit) -> Spot:
    """Where to point; (None, None) where no text says it."""
    if hit.statement is not None:
        return hit.statement, _within(subject.statements[hit.statement], hit)
    defining = list(_defining(subject, hit.table))
    for wanted in hit.points:
        for number in reversed(defining):
            if (found := subject.statements[number].parsed.places.get(wanted)) is not None:
                return number, found
    if defining:
        return defining[0], _name_or_all(subject.statements[defining[0]])
    return None, None


def _within(placed: Placed, hit: Hit) -> Span:
    places = placed.parsed.places
    return next((places[wanted] for wanted in hit.points if wanted in places), _name_or_all(placed))


def _name_or_all(placed: Placed) -> Span:
    return placed.parsed.name_at or placed.parsed.span


def _defining(subject: Subject, table: str) -> Iterator[int]:
    """The statements that say what a table is, the one that creates it first."""
    for number, placed in enumerate(subject.statements):
        match placed.statement:
            case CreateTable(name) | CreateView(name) | SetOptions(name) | AddColumns(name):
                if name_of(name.spelling) == name_of(table):
                    yield number
            case _:
                pass
