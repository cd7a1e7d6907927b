"""One truth and all that follows from it: the kinds that filter or aggregate."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mailmend.model.operations import Change, Conditional, Level, Put, Read, Remove, Scan, Seen, Write, cells_of
from mailmend.model.projections.conditions import RowCondition
from mailmend.model.projections.content import Content
from mailmend.model.projections.findings import Finding, MovedVerdict, RepairPolicy
from mailmend.model.projections.group import Group, Shortfall
from mailmend.model.projections.look import Look
from mailmend.model.projections.numbering import Numbering
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.valued import Bounds, Numbers
from mailmend.model.projections.verdicts import (
    FILTER_VERDICTS,
    FilterSymptoms,
    Verdict,
)
from mailmend.model.table import Key, Row, Table


@dataclass(frozen=True, slots=True)
class Filter(Projection):
    """A row made of a key alone for each truth row that satisfies a condition."""

    when: RowCondition

    verdicts: ClassVar = FILTER_VERDICTS
    compared: ClassVar[None] = None
    """A row is its key: nothing in it is compared."""

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset((*self.when.columns, *self.key_sources))

    def near_reads(self, mirror: Mirror, key: Key) -> list[Read]:
        """Reads of the filter's row, and of the mirror's row at a place that its key names."""
        own = Read(self.table, key, times=True)
        known = self.truth_part(key)
        if not set(mirror.key_sources) <= known.keys():
            return [own]
        return [own, Read(mirror.table, mirror.key_of(known), times=True)]

    def lead_row(self, look: Look) -> Row:
        """Its own key where that names a partition of the truth, else the mirror's row."""
        own = self.truth_part(look.key)
        if own.keys() >= set(self.truth.partition_names):
            return own
        return Projection.lead_row(self, look)

    def looked_at(self, look: Look, rows: Sequence[Seen], *, accept_torn: bool) -> Look:
        """The look with its truth rows, and with the expiry of the filter's own row."""
        seen = Projection.looked_at(self, look, rows, accept_torn=accept_torn)
        if seen.projected is None:
            return seen
        beside = seen.mirrored
        if seen.truths:
            beside = seen.truths[0]
        return replace(seen, projected=self.lasting_with(seen.projected, beside))

    def lasting_with(self, seen: Seen, beside: Seen | None) -> Seen:
        """The filter's row, which shows no TTL itself, with the expiry of the truth's row or of the mirror's."""
        if beside is None:
            return seen
        ends_at = beside.ends_at
        if ends_at is None:
            return seen
        return replace(seen, expires_at=dict.fromkeys(self.table.key_names, ends_at))

    def verdict(self, look: Look) -> Verdict:
        symptoms = FilterSymptoms(
            in_truth=bool(look.truths),
            clash=len(look.truths) > 1,
            in_projection=look.projected is not None,
            wanted=bool(look.truths) and self.when.holds(look.truths[0].row),
            has_content=look.has_content,
            whole=look.whole,
        )
        return self.verdicts[symptoms]

    def writes_for(self, before: Row | None, after: Row | None, stamp: int) -> tuple[Write, ...]:
        old_key = self.key_demanded_by(before)
        new_key = self.key_demanded_by(after)
        if old_key == new_key:
            return ()
        writes: list[Write] = []
        if old_key is not None:
            writes.append(Remove(self.table, old_key, at=stamp))
        if new_key is not None:
            writes.append(Put(self.table, self.table.key_row(new_key), at=stamp))
        return tuple(writes)

    def key_demanded_by(self, truth: Row | None) -> Key | None:
        """The key of the row that follows; None where the condition does not hold."""
        if truth is None or not self.demands(truth):
            return None
        return self.key_of(truth)

    def demands(self, truth: Row) -> bool:
        """Whether the truth row satisfies the condition, and its key can be a row's."""
        return self.when.holds(truth) and self.is_demanded_by(truth)

    def truth_rows(self, finding: Finding) -> tuple[Seen, ...]:
        """The truth rows, reduced to the place and the column that decides whether a filter row must exist."""
        rows = []
        for seen in finding.truths:
            row = {own: seen.row.get(theirs) for own, theirs in self.key}
            written_at = {}
            for asked in self.when.columns:
                row[asked] = seen.row.get(asked)
                if asked in seen.written_at:
                    written_at[asked] = seen.written_at[asked]
            rows.append(Seen(row, written_at))
        return tuple(rows)

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        """The columns of the condition: a filter row claims that it holds."""
        asked = frozenset(self.when.columns)
        demanded = not asked.issubset(other) or self.when.holds(other)
        if self.when.holds(truth) is demanded:
            return frozenset()
        return asked

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:  # noqa: ARG002 - a mirror asks both
        ends_at = None
        if look.truths:
            ends_at = self._ends_at(look.truths[0])
        return self.key_row(finding, at, ends_at)

    def _ends_at(self, truth: Seen) -> int | None:
        """When the filter's row is no longer demanded, in seconds since 1970: with the truth, or with its condition."""
        ends = truth.expires_at
        expiring = {name: ends[name] for name in self.when.columns if name in ends}
        left = dict(truth.row)
        for name in sorted(expiring, key=expiring.__getitem__):
            left[name] = None
            if not self.when.holds(left):
                instant = expiring[name]
                return min(instant, truth.ends_at or instant)
        return truth.ends_at

    def truth_back(self, image: Finding, look: Look, origin: Finding | None) -> Conditional | MovedVerdict | None:
        """Restoring a row that was removed with a quarantined truth depends on that truth's own before-image."""
        if image.verdict is Verdict.LOST_CONTENT:
            return None
        return Projection.truth_back(self, image, look, origin)


@dataclass(frozen=True, slots=True)
class Union(Group):
    """A set column gathered over all truth rows of a group; a superset is fine, so it only ever grows."""

    column: str

    needs_content: ClassVar[bool] = False
    counters: ClassVar[tuple[()]] = ()

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset((self.column, *self.key_sources))

    @property
    def own_columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def held(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(self.column) or ())

    def together(self, one: Any, other: Any) -> Any:
        """Keep one of the truth rows that demand the element: the smallest, so that the order does not matter."""
        return min(one, other)

    def demand_of(self, element: Any, truth: Any) -> tuple[Any, Any]:
        return element, truth

    def lacking(self, demands: Mapping[str, Any], held: tuple[Any, ...]) -> Shortfall | None:
        missing = frozenset(demands.keys() - set(held))
        if not missing:
            return None
        truths = tuple(demands[element] for element in missing)
        return Shortfall({self.column: missing}, truths)

    def elements(self, seen: Seen | None) -> frozenset[Any]:
        return frozenset(cells_of(seen).get(self.column) or ())

    def near_reads(self, mirror: Mirror, key: Key) -> list[Read]:  # noqa: ARG002 - filters ask the mirror too
        """A read of the union's own row, without write times: newer elements in it do no harm."""
        return [Read(self.table, key)]

    def looked_at(self, look: Look, rows: Sequence[Seen], *, accept_torn: bool) -> Look:  # noqa: ARG002 - a torn row owes its elements too
        """The look with the elements that the scan found missing, or that the group's truth rows demand."""
        holders = self.at_key(rows, look.key)
        wanted = frozenset(look.suspect.wanted.get(self.column) or ())
        return replace(look, truths=self._by_expiry(wanted | self.gathered(holders), holders))

    def _by_expiry(self, elements: frozenset[Any], holders: Sequence[Seen]) -> tuple[Seen, ...]:
        """The elements in one `Seen` for each instant at which some of them expire; first those that stay."""
        staying: set[Any] = set()
        by_instant: dict[int, set[Any]] = {}
        for element in elements:
            ends_at = self._ends_at(element, holders)
            if ends_at is None:
                staying.add(element)
            else:
                by_instant.setdefault(ends_at, set()).add(element)
        groups = []
        if staying or not by_instant:
            groups.append(Seen({self.column: frozenset(staying)}))
        for instant in sorted(by_instant):
            expiring = frozenset(by_instant[instant])
            groups.append(Seen({self.column: expiring}, expires_at={self.column: instant}))
        return tuple(groups)

    def _ends_at(self, element: Any, holders: Sequence[Seen]) -> int | None:
        """When the last truth row that holds the element loses it; None: never, or no row that holds it is known."""
        lives = []
        for seen in holders:
            if element in self.elements(seen):
                life = self._life(seen)
                if life is None:
                    return None
                lives.append(life)
        return max(lives, default=None)

    def _life(self, truth: Seen) -> int | None:
        """When a truth row loses its elements; before Cassandra 5, which shows no TTL of sets, when the row ends."""
        if self.column in truth.written_at:
            return truth.expires_at.get(self.column)
        return truth.ends_at

    def gathered(self, truths: Sequence[Seen]) -> frozenset[Any]:
        """The elements of several rows."""
        elements: set[Any] = set()
        for seen in truths:
            elements.update(self.elements(seen))
        return frozenset(elements)

    def lasting(self, look: Look, holders: Sequence[Seen]) -> Look:
        """The look with the expiry of its elements by these truth rows; without rows no element expires."""
        own = self.at_key(holders, look.key)
        return replace(look, truths=self._by_expiry(self.gathered(look.truths), own))

    def members(self, look: Look) -> Scan | None:
        """A scan of the mirror's rows of the group; None where the mirror does not keep a group together."""
        mirror = look.mirror
        group = self.truth_part(look.key)
        under = []
        for name in mirror.table.partition_names:
            place = mirror.truth_names[name]
            if place not in group:
                return None
            under.append(group[place])
        own = dict(mirror.back)
        columns = []
        for name in (*self.truth.partition_names, self.column):
            mine = own.get(name)
            if mine is None or mine not in mirror.table:
                return None
            columns.append(mine)
        return Scan(mirror.table, tuple(columns), Level.QUORUM, under=tuple(under))

    def covered(self, look: Look) -> bool:
        return self.gathered(look.truths) <= self.elements(look.projected)

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        """The set column, where the row lacks an element of the truth; surplus elements are no difference."""
        missing = set(truth.get(self.column) or ()) - set(other.get(self.column) or ())
        if not missing:
            return frozenset()
        return frozenset({self.column})

    def wanted(self, look: Look) -> dict[str, Any]:
        return {self.column: self.gathered(look.truths)}

    def owed(self, elements: Mapping[str, Any]) -> Mapping[str, Any]:
        return elements

    def writes_for(self, before: Row | None, after: Row | None, stamp: int) -> tuple[Write, ...]:
        """A row that leaves a group leaves its elements there: more elements do no harm."""
        key = self.key_demanded_by(after)
        if key is None or after is None:
            return ()
        new = frozenset(after.get(self.column) or ())
        if before is not None and self.key_demanded_by(before) == key:
            new -= frozenset(before.get(self.column) or ())
        if not new:
            return ()
        return (Change(self.table, key, add={self.column: new}, at=stamp),)

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:  # noqa: ARG002 - a mirror asks for it
        missing = self.gathered(look.truths) - self.elements(look.projected)
        return replace(finding, writes=self._additions(look.key, look.truths, missing, at))

    def _additions(self, key: Key, truths: Sequence[Seen], wanted: frozenset[Any], at: int) -> tuple[Change, ...]:
        """One write for each instant at which some of the wanted elements expire."""
        additions = []
        for seen in truths:
            elements = self.elements(seen) & wanted
            if elements:
                ends_at = seen.expires_at.get(self.column)
                additions.append(Change(self.table, key, add={self.column: elements}, at=at, expires_at=ends_at))
        return tuple(additions)

    def take_back(self, image: Finding, look: Look, at: int, origin: Finding | None) -> Finding:  # noqa: ARG002 - a mirror asks for it
        """Remove the elements that the run added, and add those that it removed (as an undo). Other additions stay.

        The image has the elements of the run, less those that have expired since.
        """
        own = self.gathered(image.truths)
        before = self.elements(image.projected)
        standing = self.elements(look.projected)
        added = own & (standing - before)
        taken = own & (before - standing)
        now = replace(image, projected=look.projected, result=None, error=None)
        if not added and not taken:
            return replace(now, truths=look.truths, verdict=Verdict.AGREE)
        writes: list[Change] = []
        if added:
            writes.append(Change(self.table, image.suspect.key, take={self.column: added}, at=at + 1))
        writes.extend(self._additions(image.suspect.key, image.truths, taken, at + 1))
        return replace(now, writes=tuple(writes))


@dataclass(frozen=True, slots=True)
class Counts(Group):
    """Counters over all truth rows of a group; mended and taken back by `repair.mending.counters`, not row by row.

    Attributes:
        counters: (counter column, condition, or None to count every row).
        generators: tables with the counters' key, whose row changes before a row of the group is added or changed:
            while they do not change, no change has begun that a look at the mirror might miss.
        numbered_by: (the truth's column, the name of the generator that gave its numbers).
        used_with: tables that have rows where generators are used.
    """

    counters: tuple[tuple[str, RowCondition | None], ...]
    generators: tuple[Table, ...] = ()
    numbered_by: tuple[tuple[str, str], ...] = ()
    used_with: tuple[Table, ...] = ()

    by_row: ClassVar[bool] = False

    @property
    def truth_columns(self) -> frozenset[str]:
        columns = set(self.key_sources)
        for _, when in self.counters:
            if when:
                columns.update(when.columns)
        return frozenset(columns)

    @property
    def own_columns(self) -> frozenset[str]:
        return frozenset(self.counter_names)

    @property
    def numbering(self) -> Numbering | None:
        """The numbers that its generators gave; None where they number no column."""
        columns = {generator: column for column, generator in self.numbered_by}
        given = []
        for generator in self.generators:
            if generator.name in columns:
                given.append((generator, columns[generator.name]))
        if not given:
            return None
        used_with = (*self.generators, *self.used_with)
        return Numbering(self.key_sources, tuple(given), used_with)

    @property
    def counter_names(self) -> tuple[str, ...]:
        """The names of the counters, in their declared order."""
        return tuple(name for name, _ in self.counters)

    def held(self, row: Row) -> tuple[Any, ...]:
        """The counters in their declared order."""
        return tuple(row.get(name) or 0 for name in self.counter_names)

    def together(self, one: Any, other: Any) -> Any:
        """Add up what certain truth rows count, and what uncertain ones may add."""
        (sure, perhaps), (also_sure, also_perhaps) = one, other
        return sure + also_sure, perhaps + also_perhaps

    def lacking(self, demands: Mapping[str, Any], held: tuple[Any, ...]) -> Shortfall | None:
        sure: dict[str, int] = {}
        uncertain: dict[str, int] = {}
        for name, _ in self.counters:
            sure[name], uncertain[name] = demands.get(name, (0, 0))
        row = dict(zip(sure, held, strict=False))
        if within(sure, uncertain, row):
            return None
        return Shortfall(sure)

    def deltas_of(self, truth: Row) -> dict[str, int]:
        """What one truth row adds to each counter."""
        return {name: int(when is None or when.holds(truth)) for name, when in self.counters}

    def covered(self, look: Look) -> bool:
        sure = self._totals(look.truths)
        open_ = self._totals(look.uncertain)
        return within(sure, open_, cells_of(look.projected))

    def truth_rows(self, finding: Finding) -> tuple[Seen, ...]:
        """The counters that the truth demands; empty while the group's rows differ, as they are not counted then."""
        wanted = finding.suspect.wanted
        now = cells_of(finding.projected)
        counted = {name: wanted[name] for name in self.counter_names if name in wanted}
        if all((now.get(name) or 0) == number for name, number in counted.items()):
            return ()
        return (Seen(self.table.key_row(finding.suspect.key) | counted),)

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        return frozenset(name for name in self.counter_names if (truth.get(name) or 0) != (other.get(name) or 0))

    def _totals(self, truths: Sequence[Seen]) -> dict[str, int]:
        totals = dict.fromkeys(self.counter_names, 0)
        for seen in truths:
            for name, delta in self.deltas_of(seen.row).items():
                totals[name] += delta
        return totals

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:  # noqa: ARG002 - not by row
        """Always None: counters carry no timestamp."""
        return None


def within(sure: Mapping[str, int], open_: Mapping[str, int], row: Row) -> bool:
    """Whether counters are in the allowed range: from the certain sum up to the sum with all uncertain truth rows."""
    return all(low <= (row.get(name) or 0) <= low + open_[name] for name, low in sure.items())


@dataclass(frozen=True, slots=True)
class Family:
    """One truth and all that follows from it: what one scan of the truth checks (docs/design.md, "Ideas").

    Attributes:
        mirror: decides about each row; the filters' suspects find their truth through it.
        content: the table of contents that truth rows refer to; None for a family without contents.
        numbers, bounds: groups whose values are compared as cells.
    """

    mirror: Mirror
    filters: tuple[Filter, ...] = ()
    unions: tuple[Union, ...] = ()
    counts: tuple[Counts, ...] = ()
    content: Content | None = None
    numbers: tuple[Numbers, ...] = ()
    bounds: tuple[Bounds, ...] = ()

    @property
    def truth(self) -> Table:
        return self.mirror.truth

    @property
    def copies(self) -> tuple[Mirror, ...]:
        """The mirror, where it is a table of its own."""
        if self.mirror.is_copy:
            return (self.mirror,)
        return ()

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every projection, the mirror first."""
        every: list[Projection] = [*self.copies, *self.filters, *self.unions, *self.counts]
        every += [*self.numbers, *self.bounds]
        if self.content:
            every.append(self.content)
        return tuple(every)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that a check reads, the truth first."""
        return (self.truth, *(projection.table for projection in self.projections))

    @property
    def columns_read(self) -> Mapping[str, tuple[Table, tuple[str, ...]]]:
        """The tables that a check reads, by spelling, each with its columns in declared order."""
        read = {self.truth.spelling: (self.truth, self.truth_columns)}
        for projection in self.projections:
            read[projection.name] = (projection.table, projection.read_columns)
        return read

    @property
    def conditions(self) -> tuple[RowCondition, ...]:
        """Every condition that some projection puts on a truth row, without duplicates."""
        asked = [projection.when for projection in self.filters]
        counted: tuple[Counts | Numbers, ...] = (*self.counts, *self.numbers)
        for counts in counted:
            asked += [when for _, when in counts.counters if when is not None]
        return tuple(dict.fromkeys(asked))

    @property
    def numberings(self) -> tuple[Numbering, ...]:
        """The numbers of its rows that generators gave."""
        found = []
        for counts in self.counts:
            if counts.numbering is not None:
                found.append(counts.numbering)
        return tuple(found)

    @property
    def truth_columns(self) -> tuple[str, ...]:
        """Truth columns that a check reads: keys, numbers, of conditions, compared, required."""
        theirs = self.mirror.truth_names
        wanted = {*self.truth.key_names, *self.mirror.required, *self.mirror.needs}
        for column in self.mirror.compared:
            wanted.add(theirs.get(column.name, column.name))
        for projection in self.projections:
            wanted.update(projection.truth_columns)
        for numbering in self.numberings:
            wanted.update(numbering.columns)
        return self.truth.ordered(wanted)


def projections_of(families: Iterable[Family]) -> dict[str, Projection]:
    """Every projection of the families, by its name in findings."""
    projections = {}
    for family in families:
        for projection in family.projections:
            projections[projection.name] = projection
    return projections
