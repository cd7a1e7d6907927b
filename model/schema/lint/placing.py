"""Where a hit stands in the texts that the schema was read from."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from model.schema.lint.finding import Hit
from model.schema.lint.subject import Placed, Subject
from model.schema.names import name_of
from model.schema.statements import Span

Spot = tuple[int | None, Span | None]
"""The number of a statement, and a piece of its file."""

Defining = Mapping[str, Sequence[int]]
"""By table: the numbers of the statements that say what it is, the one that creates it first."""


def defining(subject: Subject) -> Defining:
    """The statements that say what each table is."""
    found = defaultdict(list)
    for number, placed in enumerate(subject.statements):
        if placed.statement.defines_table:
            found[name_of(placed.statement.about)].append(number)
    return found


def spot_of(subject: Subject, hit: Hit, told: Defining) -> Spot:
    """Where to point; (None, None) where no text says it."""
    if hit.statement is not None:
        return hit.statement, _within(subject.statements[hit.statement], hit)
    numbers = told.get(name_of(hit.table), ())
    for wanted in hit.points:
        for number in reversed(numbers):
            if (found := subject.statements[number].parsed.places.get(wanted)) is not None:
                return number, found
    if numbers:
        return numbers[0], _name_or_all(subject.statements[numbers[0]])
    return None, None


def _within(placed: Placed, hit: Hit) -> Span:
    places = placed.parsed.places
    return next((places[wanted] for wanted in hit.points if wanted in places), _name_or_all(placed))


def _name_or_all(placed: Placed) -> Span:
    return placed.parsed.name_at or placed.parsed.span
