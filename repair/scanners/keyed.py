"""Rows of declared tables that are named by their keys, and the suspects that they lead to."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mailmend.model.operations import Level, Scan
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.model.texts import printable
from mailmend.repair.store.plans import suspects_of

ScanRows = Callable[[Scan], Iterator[Row]]
"""Reads rows in pieces, and counts them."""

_OTHER_ROWS: Final = (
    "Exact in the rows that were named, and in what the named rows of truth demand. Not looked at: "
    "counters, and other rows that name the same truth. A run without --key finds them."
)


class NamedRows(NamedTuple):
    """Rows of a table under a key.

    Attributes:
        table: its name.
        key: the partition key, or any longer prefix of the primary key.
    """

    table: str
    key: Key


def key_named(table: Table, key: Key) -> str:
    """A key in the form of `--key`: `users_by_email:email=ann@example.org`."""
    cells = []
    for column, value in zip(table.key, key, strict=False):
        cells.append(f"{column.spelling}={printable(str(value))}")
    return f"{table.spelling}:{','.join(cells)}"


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows of truths and projections to be checked."""

    rows: tuple[NamedRows, ...]

    def unseen(self, gaps: int = 0) -> str | None:  # noqa: ARG002 - of mailboxes
        """A sentence on what this check cannot find."""
        return _OTHER_ROWS


def suspects_named(
    family: Family,
    named: Iterable[NamedRows],
    scan_rows: ScanRows,
    level: Level,
) -> Iterator[Suspect]:
    """Every place that the named rows lead to, without counters; a second look decides."""
    for rows in named:
        if rows.table == family.truth.name:
            for row in scan_rows(Scan(family.truth, family.truth_columns, level, under=rows.key)):
                yield from _demanded_by(family, row)
        for projection in family.projections:
            if projection.by_row and projection.table.name == rows.table:
                yield from _in_projection(projection, rows, scan_rows, level)


def _demanded_by(family: Family, truth: Row) -> Iterator[Suspect]:
    by_row = {projection.name for projection in family.projections if projection.by_row}
    for suspect in suspects_of(family, truth):
        if suspect.projection in by_row:
            yield suspect


def _in_projection(
    projection: Projection,
    rows: NamedRows,
    scan_rows: ScanRows,
    level: Level,
) -> Iterator[Suspect]:
    """The rows that stand there; a whole key is a place also without a row."""
    table = projection.table
    places: dict[Key, None] = {}
    if len(rows.key) == len(table.key):
        places[rows.key] = None
    for row in scan_rows(Scan(table, table.key_names, level, under=rows.key)):
        places[table.key_of(row)] = None
    for place in places:
        yield Suspect(projection.name, place, Verdict.WITHDRAW)
