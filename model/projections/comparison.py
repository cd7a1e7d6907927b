"""The rows of a finding side by side, for people, and the mailbox that it is in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.projection import Projection

TRUTHS_SHOWN: Final = 3
"""The largest number of clashing truth rows that are shown."""

_MAILBOX: Final = "mailboxid"
_NOTHING: Final[tuple[Any, ...]] = (None, frozenset(), "")


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """One column over all rows that are compared.

    Attributes:
        values: in each row, the truth's first; None where it is null, "" where there is no row or no such column.
        written_at: microseconds; None where that cannot be read.
    """

    name: str
    values: tuple[Any, ...]
    written_at: tuple[int | None, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of a finding side by side.

    Attributes:
        sides: the table that each row is of, the truth's first.
        present: whether the row is there.
        columns: those with a value in any row, in the projection's order.
    """

    sides: tuple[str, ...]
    present: tuple[bool, ...]
    columns: tuple[ComparedColumn, ...]


def compared(finding: Finding, projection: Projection) -> Comparison:
    """Compare the truth's rows (one, or a few that clash) with the projection's row."""
    truths: Sequence[Seen | None] = projection.truth_rows(finding)[:TRUTHS_SHOWN] or (None,)
    rows = (*truths, finding.projected)
    there = [seen.row for seen in rows if seen]
    differing = frozenset[str]().union(*(projection.differing(there[0], other) for other in there[1:]))
    names = dict.fromkeys((*projection.table.names, *(name for row in there for name in row)))
    lines = (_column(name, rows, projection, differs=name in differing) for name in names)
    return Comparison(
        (*(projection.truth.spelling for _ in truths), projection.name),
        tuple(seen is not None for seen in rows),
        tuple(line for line in lines if line.differs or any(value not in _NOTHING for value in line.values)),
    )


def _column(name: str, rows: Sequence[Seen | None], projection: Projection, *, differs: bool) -> ComparedColumn:
    spelling = next(
        (table.column(name).spelling for table in (projection.table, projection.truth) if name in table), name
    )
    values = tuple(seen.row.get(name, "") if seen else "" for seen in rows)
    times = tuple(seen.written_at.get(name) if seen else None for seen in rows)
    return ComparedColumn(spelling, values, times, differs)


def mailbox_in(finding: Finding, projection: Projection | None) -> UUID | None:
    """The mailbox that the finding's place is in; None where it is in none, as content and mails in queues are."""
    parts = zip(projection.key, finding.suspect.key, strict=False) if projection else ()
    return next((value for (_, truth), value in parts if truth == _MAILBOX), None)
