"""One look at a group's counters and at each truth row that is counted there.

A truth is not keyed by its group, so its rows are found through the mirror's rows of the group, and
through truths that the scan saw without a mirror row. What a look keeps is small, however large the
group: the counters, the sums, and a digest that compares two looks. The mirror's rows of a large
group are joined with its truths from disk, part by part.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Level, Read, Scan, Seen
from mailmend.model.ports import Tables
from mailmend.model.projections.claims import Claims
from mailmend.model.projections.family import Counts, Family
from mailmend.model.projections.findings import RepairPolicy
from mailmend.model.table import Key, Row
from mailmend.repair.joins.fingerprints import fingerprint
from mailmend.repair.joins.records import (
    Forms,
    Packed,
    Record,
    Spill,
    Workshop,
    packing,
    packing_key,
    unpacked_key,
)

ROWS_MAX = 50_000
"""The largest number of a group's mirror rows that are held in memory; larger groups go through files."""

_READS_AT_ONCE = 500
_DIGEST_BYTES = 24  # of a sum of fingerprints


@dataclass(frozen=True, slots=True)
class Tally:
    """What one look at one group of counters found.

    Attributes:
        row: the group's own row, or None.
        sure: for each counter the number of truth rows that certainly count.
        uncertain: for each counter what torn truth rows, or those without content, may add.
        contents: whether contents were read; if not, a truth row without content counts as any other.
        settled: whether mirror and truth were compared and agree in each row of the group; if not, nothing is mended.
        digest: equal for two looks with the same truth rows and write times, and no new change between them.
    """

    row: Seen | None
    sure: Mapping[str, int]
    uncertain: Mapping[str, int]
    settled: bool
    digest: bytes
    contents: bool = True

    def same_as(self, other: "Tally") -> bool:
        """Whether nothing changed between two looks: truth rows, their versions, counters."""
        return self.digest == other.digest and self.counters == other.counters

    @property
    def counters(self) -> dict[str, int]:
        """The counters' values; a missing row or cell counts as 0."""
        row: Row = {}
        if self.row:
            row = self.row.row
        return {name: row.get(name) or 0 for name in self.sure}

    @property
    def asks_for_contents(self) -> bool:
        """Whether reading contents could change the deltas, as truth rows without content demand less."""
        return not self.contents and any(value < self.sure[name] for name, value in self.counters.items())

    @property
    def deltas(self) -> dict[str, int]:
        """The least change of each counter that the truth allows; empty where all are right."""
        deltas = {}
        for name, value in self.counters.items():
            nearest = _nearest(value, self.sure[name], self.uncertain[name])
            if nearest != value:
                deltas[name] = nearest - value
        return deltas


@dataclass(frozen=True, slots=True)
class _Accounted:
    """Which rows of the mirror the truth rows of a group account for.

    Attributes:
        demanded: places of rows that are demanded.
        silent: places of truth rows that cannot say what their row is; a part of one may be null.
    """

    claims: Claims
    demanded: set[Packed] = field(default_factory=set)
    silent: list[Packed] = field(default_factory=list)

    def has_all(self, places: Iterable[Packed]) -> bool:
        return all(place in self.demanded or self._may_claim(place) for place in places)

    def _may_claim(self, place: Packed) -> bool:
        return any(self.claims.may_claim(own, place) for own in self.silent)


@dataclass(frozen=True, slots=True)
class Tallies:
    """Looks at groups of one family's counters."""

    mail: Tables
    family: Family
    counts: Counts
    policy: RepairPolicy
    beside: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)
    _forms: Forms = field(init=False)
    _counted: tuple[str, ...] = field(init=False)
    _key_of: Callable[[Row], Packed] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_forms", Forms(self.family, accept_torn=self.policy.accept_torn))
        wanted = self.counts.truth_columns.union(self.family.mirror.required)
        truth = self.family.truth
        counted = truth.ordered(wanted.difference(truth.key_names))
        object.__setattr__(self, "_counted", counted)
        object.__setattr__(self, "_key_of", packing_key(self.family.truth))

    def first(self, group: Key, wanted: Mapping[str, int] | None = None, *, compare: bool = False) -> Tally:
        """Look at one group, and read contents only where they could change the deltas.

        Where `wanted`, the counters by a scan, is given, a second look for the contents is mostly not needed.
        """
        row: Row = {}
        if seen := self._row(group):
            row = seen.row
        below = any((row.get(name) or 0) < least for name, least in (wanted or {}).items())
        alone = self.look(group, compare=compare, contents=below or self.family.content is None)
        if not alone.asks_for_contents:
            return alone
        return self.look(group, compare=compare)

    def look(self, group: Key, level: Level = Level.QUORUM, *, compare: bool = True, contents: bool = True) -> Tally:
        """Look at one group: counters, then mirror, then contents, then truth; its generators before and after.

        Args:
            group: key of the counters.
            level: of the truth; SERIAL finishes what a conditional write left open, by a request for each row.
            compare: whether mirror and truth are compared; if not, only keys of the mirror are read, and of the truth
                the counted columns and all write times.
            contents: whether all contents are read; if not, only the contents of truth rows that
                the mirror may not lead to.
        """
        before = self._generated(group)
        tally = self._sum(group, level, compare=compare, contents=contents)
        return replace(tally, digest=tally.digest + before + self._generated(group), contents=contents)

    def _row(self, group: Key) -> Seen | None:
        return next(iter(self.mail.read(Read(self.counts.table, group))), None)

    def _generated(self, group: Key) -> bytes:
        """The state of the group's generators. Any change that begins between two looks moves them."""
        rows = []
        reads = [Read(table, group) for table in self.counts.generators]
        for answer in self.mail.read_all(reads):
            for seen in _known(answer):
                rows.append(sorted(seen.row.items(), key=str))
        return repr(rows).encode()

    def _sum(self, group: Key, level: Level, *, compare: bool, contents: bool) -> Tally:
        row = self._row(group)
        names = self.counts.counter_names
        sure = dict.fromkeys(names, 0)
        uncertain = dict.fromkeys(names, 0)
        digest = 0
        settled = compare
        for part in self._parts(group, compare=compare):
            mirrored = _mirrored(part)
            accounted = _Accounted(self.family.mirror.claims)
            truths = self._truths(group, self._leads(part), level, whole=compare, contents=contents)
            for truth, has_content in truths:
                doubtful = not has_content or not (self.policy.accept_torn or self.family.mirror.whole(truth.row))
                if compare:
                    agrees = self._agrees(truth.row, mirrored, accounted, doubtful=doubtful)
                    settled = agrees and settled
                counted = sure
                if doubtful:
                    counted = uncertain
                for name, delta in self.counts.deltas_of(truth.row).items():
                    counted[name] += delta
                digest += self._mark(truth, doubtful=doubtful)
            settled = settled and accounted.has_all(mirrored)
        return Tally(row, sure, uncertain, settled, digest.to_bytes(_DIGEST_BYTES))

    def _agrees(
        self,
        truth: Row,
        mirrored: Mapping[Packed, bytes],
        accounted: _Accounted,
        *,
        doubtful: bool,
    ) -> bool:
        """Whether the mirror agrees, or lacks a doubtful truth; adds its place to `accounted`."""
        mirror = self.family.mirror
        place, fingerprint = self._forms.compared(truth)
        if not accounted.claims.says(truth):
            accounted.silent.append(place)
            return True
        if not mirror.is_demanded_by(truth):
            return True
        accounted.demanded.add(place)
        shown = mirrored.get(place)
        if shown is None:
            return doubtful
        return shown == fingerprint

    def _mark(self, truth: Seen, *, doubtful: bool) -> int:
        """A truth row's part of the digest: key, each cell's time (its version), and how it is counted.

        The parts are added up, so the order in which rows are read does not matter.
        """
        times = map(truth.written_at.get, self.family.truth.names)
        return int.from_bytes(fingerprint((self._key_of(truth.row), *times, doubtful)))

    def _leads(self, part: Iterable[Record]) -> list[Key]:
        packed: dict[Packed, None] = {}
        for lead, *_ in part:
            if None not in lead:
                packed[lead] = None
        return [unpacked_key(lead) for lead in packed]

    def _parts(self, group: Key, *, compare: bool) -> Iterator[Sequence[Record]]:
        """The group's mirror rows and the truths that the scan saw elsewhere, grouped by truth partition."""
        records = chain(self._mirror_records(group, compare=compare), self._beside_records(group))
        first = list(islice(records, ROWS_MAX + 1))
        if len(first) <= ROWS_MAX:
            yield first
            return
        with Workshop() as workshop:
            spill = Spill(workshop, "group")
            for record in chain(first, records):
                spill.add(record)
            first.clear()
            yield from spill.parts()

    def _mirror_records(self, group: Key, *, compare: bool) -> Iterator[Record]:
        """The mirror's rows of a group (its partition key): truth partition and, to compare, place and fingerprint."""
        mirror = self.family.mirror
        own = mirror.own_names
        leads = [own.get(name, name) for name in self.family.truth.partition_names]
        lead_of = packing(leads)
        if not compare:
            for row in self.mail.scan(Scan(mirror.table, tuple(leads), Level.QUORUM, under=group)):
                yield (lead_of(row),)
            return
        for row in self.mail.scan(Scan(mirror.table, mirror.read_columns, Level.QUORUM, under=group)):
            yield (lead_of(row), *self._forms.mirror(row))

    def _beside_records(self, group: Key) -> Iterator[Record]:
        names = self.family.truth.partition_names
        pack = packing(names)
        for lead in self.beside.get(group, ()):
            yield (pack(dict(zip(names, lead, strict=True))),)

    def _truths(
        self, group: Key, leads: Iterable[Key], level: Level, *, whole: bool, contents: bool
    ) -> Iterator[tuple[Seen, bool]]:
        """The group's truth rows, with all columns where `whole`; each with whether its content exists, where asked."""
        truth = self.family.truth
        waiting = iter(leads)
        beside = set(self.beside.get(group, ()))
        columns: tuple[str, ...] | None = None
        if not whole:
            columns = self._counted
        while some := list(islice(waiting, _READS_AT_ONCE)):
            lost = self._lost([lead for lead in some if contents or lead in beside])
            reads = [Read(truth, lead, level, times=True, joinable=True, columns=columns) for lead in some]
            for lead, answer in zip(some, self.mail.read_all(reads), strict=True):
                for seen in _known(answer):
                    if self.counts.key_of(seen.row) == group:
                        yield seen, lead not in lost

    def _lost(self, leads: Sequence[Key]) -> set[Key]:
        """Those whose content is missing."""
        content = self.family.content
        if content is None:
            return set()
        reads = []
        for lead in leads:
            key = content.key_of(self.family.truth.key_row(lead))
            reads.append(Read(content.table, key, joinable=True, columns=()))
        answers = zip(leads, self.mail.read_all(reads), strict=True)
        lost = set()
        for lead, answer in answers:
            if not _known(answer):
                lost.add(lead)
        return lost


def _mirrored(part: Iterable[Record]) -> dict[Packed, bytes]:
    """The fingerprint of each compared row of the mirror, by its place."""
    mirrored = {}
    for _, *compared in part:
        if compared:  # a record of the truth partition alone has no place
            place, shown = compared
            mirrored[place] = shown
    return mirrored


def _known(answer: Sequence[Seen] | MailmendError) -> Sequence[Seen]:
    if isinstance(answer, MailmendError):
        raise answer
    return answer


def _nearest(value: int, least: int, room: int) -> int:
    return min(max(value, least), least + room)
