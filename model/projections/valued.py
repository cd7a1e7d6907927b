"""Groups whose row has values: the number of truth rows, their greatest or smallest cells.

A value is an ordinary cell, with a write time: it is looked at again and mended row by row. At the
second look the rows of a group are read again where they are kept together: in their own partition
of the truth, or in a partition of the mirror. A group that changed after T is left to the next run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple

from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Level, Put, Read, Scan, Seen, Write, cells_of
from mailmend.model.projections.conditions import RowCondition
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.group import Group, Shortfall
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row
from mailmend.model.values import in_utc, same_value

Rank = int
"""A number by which the values of a type are compared."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

RANKED: Final = frozenset({"bigint", "date", "int", "smallint", "timestamp", "tinyint"})
"""The types of which a greatest and a smallest value are taken."""


def rank_of(value: Any) -> Rank | None:
    """The rank of a value of a ranked type; None for null."""
    match value:
        case None | int():
            return value
        case datetime():
            since = in_utc(value) - _EPOCH
            return (since.days * 86_400 + since.seconds) * MICROS + since.microseconds
        case date():
            return value.toordinal()
        case _:
            return int(value.days_from_epoch) + _EPOCH.toordinal()


class GroupMembers(NamedTuple):
    """How the truth rows of a group are found: a scan, and its columns that are a key of the truth."""

    scan: Scan
    names: tuple[str, ...]

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.names)


@dataclass(frozen=True, slots=True)
class Valued(Group):
    """A group whose row has values that are compared and mended as cells."""

    needs_content: ClassVar[bool] = False
    gathers: ClassVar[bool] = True

    def near_reads(self, mirror: Mirror, key: Key) -> list[Read]:  # noqa: ARG002 - for filters
        return [Read(self.table, key, times=True)]

    def lead_row(self, look: Look) -> Row:  # noqa: ARG002 - a group's row leads to no truth row
        """Empty: the rows of the group are read apart."""
        return {}

    def looked_at(
        self,
        look: Look,
        rows: Sequence[Seen],  # noqa: ARG002 - the rows of the group are read apart
        *,
        accept_torn: bool,  # noqa: ARG002 - a torn row counts
    ) -> Look:
        return look

    def members(self, mirror: Mirror, key: Key) -> GroupMembers:
        """The rows of a group where they are kept together (`is_kept_together`)."""
        if self.truth.partition_names == self.key_sources:
            names = self.truth.key_names
            return GroupMembers(Scan(self.truth, names, Level.QUORUM, under=key), names)
        own = dict(mirror.back)
        names = tuple(own[name] or name for name in self.truth.partition_names)
        return GroupMembers(Scan(mirror.table, names, Level.QUORUM, under=key), names)

    def is_kept_together(self, mirror: Mirror) -> bool:
        """Whether the rows of a group are one partition of the truth or of the mirror."""
        width = len(mirror.table.partition)
        return self.key_sources in (self.truth.partition_names, mirror.key_sources[:width])

    def summed(self, look: Look, truths: Iterable[Seen]) -> Look:
        """The look with the values that the truth rows of the group demand, as one row."""
        values = dict(self.nothing)
        newest: int | None = None
        soonest: int | None = None
        for seen in truths:
            if self.key_of(seen.row) == look.key:
                self.add(values, seen.row)
                newest = max(_known(newest, seen.newest), default=None)
                soonest = min(_known(soonest, *seen.expires_at.values()), default=None)
        times = {}
        if newest is not None:
            times = dict.fromkeys(values, newest)
        ends = {}
        if soonest is not None:
            ends = dict.fromkeys(values, soonest)
        found = replace(look, truths=(Seen(values, times, expires_at=ends),))
        return replace(found, blind=self._is_blind(found))

    @property
    def nothing(self) -> Mapping[str, Any]:
        """The values of a group without truth rows."""
        raise NotImplementedError

    def add(self, values: dict[str, Any], truth: Row) -> None:
        """Add a truth row to the values of its group."""
        raise NotImplementedError

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        raise NotImplementedError

    def _is_blind(self, look: Look) -> bool:
        """Whether the scan saw other truth rows than are found, which may lack their mirror."""
        wanted = look.suspect.wanted
        return bool(wanted) and dict(wanted) != dict(look.truths[0].row) and not self.covered(look)

    def covered(self, look: Look) -> bool:
        return not self.differing(cells_of(_first(look.truths)), cells_of(look.projected))

    @property
    def own_columns(self) -> frozenset[str]:
        return frozenset(self.nothing)

    def truth_rows(self, finding: Finding) -> tuple[Seen, ...]:
        """The values that the truth demands, under the key of the group."""
        rows = []
        for seen in finding.truths:
            row = self.table.key_row(finding.suspect.key) | dict(seen.row)
            rows.append(Seen(row, seen.written_at))
        return tuple(rows)

    def fix(
        self,
        finding: Finding,
        look: Look,
        policy: RepairPolicy,  # noqa: ARG002 - a mirror asks for it
        at: int,
    ) -> Finding | None:
        """The values that differ are written; other columns of the row stay."""
        wanted = cells_of(_first(look.truths))
        wrong = self.differing(wanted, cells_of(look.projected))
        cells = {name: wanted[name] for name in wanted if name in wrong}
        write: Write = Change(self.table, look.key, cells, at=at)
        if look.projected is None:
            write = Put(self.table, {**self.table.key_row(look.key), **cells}, at=at)
        return replace(finding, writes=(write,))


def _first(truths: Sequence[Seen]) -> Seen | None:
    return next(iter(truths), None)


def _known(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class Numbers(Valued):
    """Ordinary columns with the number of truth rows of a group; null is 0.

    Attributes:
        counters: (column, condition, or None to count every row).
    """

    counters: tuple[tuple[str, RowCondition | None], ...]

    @property
    def truth_columns(self) -> frozenset[str]:
        columns = set(self.key_sources)
        for _, when in self.counters:
            if when:
                columns.update(when.columns)
        return frozenset(columns)

    @property
    def nothing(self) -> Mapping[str, Any]:
        return dict.fromkeys((name for name, _ in self.counters), 0)

    def add(self, values: dict[str, Any], truth: Row) -> None:
        for name, when in self.counters:
            values[name] += int(when is None or when.holds(truth))

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        names = set()
        for name in self.nothing:
            if (truth.get(name) or 0) != (other.get(name) or 0):
                names.add(name)
        return frozenset(names)

    def held(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) or 0 for name, _ in self.counters)

    def together(self, one: Any, other: Any) -> Any:
        """Add up what truth rows count, whether or not they have content."""
        return tuple(map(sum, zip(one, other, strict=True)))

    def lacking(self, demands: Mapping[str, Any], held: tuple[Any, ...]) -> Shortfall | None:
        totals = {name: sum(demands.get(name, (0, 0))) for name, _ in self.counters}
        if tuple(totals.values()) == (held or (0,) * len(totals)):
            return None
        return Shortfall(totals)


class Bound(Enum):
    """Which value of a group is kept; its number is a sign: the greatest signed rank decides."""

    MAX = 1
    MIN = -1


@dataclass(frozen=True, slots=True)
class Bounds(Valued):
    """Columns that are at least (or at most) as far as each truth row of a group; farther is fine.

    Attributes:
        bounds: (column, the truth's column).
    """

    bounds: tuple[tuple[str, str], ...]
    bound: Bound

    counters: ClassVar[tuple[()]] = ()

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset((*self.key_sources, *(source for _, source in self.bounds)))

    @property
    def nothing(self) -> Mapping[str, Any]:
        return dict.fromkeys(name for name, _ in self.bounds)

    def add(self, values: dict[str, Any], truth: Row) -> None:
        for name, source in self.bounds:
            if self._is_behind(values[name], truth.get(source)):
                values[name] = truth[source]

    def _is_behind(self, value: Any, other: Any) -> bool:
        """Whether a value has to give way to another one."""
        asked = self._signed(other)
        if asked is None:
            return False
        known = self._signed(value)
        return known is None or known < asked

    def _signed(self, value: Any) -> Rank | None:
        rank = rank_of(value)
        if rank is None:
            return None
        return rank * self.bound.value

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        """The columns that are behind the truth."""
        names = set()
        for name in self.nothing:
            if self._is_behind(other.get(name), truth.get(name)):
                names.add(name)
        return frozenset(names)

    def wanted_by(self, truth: Row) -> dict[str, Any]:
        """The values of a group that had this truth row alone."""
        return {name: truth.get(source) for name, source in self.bounds}

    def demands_of(self, truth: Row) -> Iterator[tuple[str, Rank]]:
        """What one truth row demands of each column."""
        for name, source in self.bounds:
            signed = self._signed(truth.get(source))
            if signed is not None:
                yield name, signed

    def held(self, row: Row) -> tuple[Any, ...]:
        return tuple(self._signed(row.get(name)) for name, _ in self.bounds)

    def demand_of(self, element: Any, truth: Any) -> tuple[Any, Any]:  # noqa: ARG002 - for unions
        name, rank = element
        return name, rank

    def together(self, one: Any, other: Any) -> Any:
        return max(one, other)

    def take_back(self, image: Finding, look: Look, at: int, origin: Finding | None) -> Finding:
        """The finding that undoes a fix while the row has what the fix wrote.

        A value that is farther than the truth demands is right, so no other row of the truth keeps
        an undo from it.
        """
        recorded = replace(look, truths=image.truths)
        finding = Valued.take_back(self, image, recorded, at, origin)
        if finding.writes and not self._shows(image, look.projected):
            return replace(finding, result=Verdict.MOVED, writes=())
        return finding

    def _shows(self, image: Finding, seen: Seen | None) -> bool:
        """Whether a row has each value that a fix of this before-image wrote."""
        wanted = cells_of(_first(image.truths))
        written = self.differing(wanted, cells_of(image.projected))
        there = cells_of(seen)
        return all(same_value(there.get(name), wanted[name]) for name in written)

    def lacking(self, demands: Mapping[str, Any], held: tuple[Any, ...]) -> Shortfall | None:
        known = held or (None,) * len(self.bounds)
        for (name, _), value in zip(self.bounds, known, strict=True):
            if name in demands and (value is None or value < demands[name]):
                return Shortfall({})
        return None
