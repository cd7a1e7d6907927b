"""One look at a group's counters and at each truth row that is counted there.

A truth is not keyed by its group, so its rows are found through the mirror's rows of the group, and through truths that
the scan saw without a mirror row. What a look keeps is small, however large the group: the counters, the sums, and a
digest that compares two looks. The mirror's rows of a large group are joined with its truths from
disk, part by part.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

from model.errors import MailmendError
from model.operations import Level, Read, Scan, Seen
from model.ports import Tables
from model.projections.family import Family
from model.projections.findings import RepairPolicy
from model.projections.groups import Counts
from model.schema.table import Key, Row
from repair.joins.records import Forms, Packed, Record, Spill, Workshop, packing, unpacked_key
from repair.ledger.before_images import key_text

ROWS_MAX = 50_000
"""Mirror rows of one group that are held in memory; those of a larger group go through files."""

_READS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Tally:
    """One look at one group.

    Attributes:
        row: the group's own row, or None.
        sure: what the truth demands of each counter.
        uncertain: what torn truths, or those without content, may add.
        settled: mirror and truth agree in each row of the group; else its counters are not touched.
        digest: equal for two looks with the same truth rows and write times, and no new change between them.
    """

    row: Seen | None
    sure: Mapping[str, int]
    uncertain: Mapping[str, int]
    settled: bool
    digest: bytes

    def same_as(self, other: "Tally") -> bool:
        """Whether nothing changed between two looks: truth rows, their versions, counters."""
        return self.digest == other.digest and self.counters == other.counters

    @property
    def counters(self) -> dict[str, int]:
        """The counters' values; a missing row or cell counts as 0."""
        row = self.row.row if self.row else {}
        return {name: row.get(name) or 0 for name in self.sure}

    @property
    def deltas(self) -> dict[str, int]:
        """The least change of each counter that the truth allows; empty where all are right."""
        within = {name: _nearest(value, self.sure[name], self.uncertain[name]) for name, value in self.counters.items()}
        return {name: within[name] - value for name, value in self.counters.items() if within[name] != value}


@dataclass(frozen=True, slots=True)
class Tallies:
    """Looks at groups of one family's counters."""

    mail: Tables
    family: Family
    counts: Counts
    policy: RepairPolicy
    beside: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)
    _forms: Forms = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_forms", Forms(self.family, accept_torn=self.policy.accept_torn))

    def look(self, group: Key, level: Level = Level.QUORUM) -> Tally:
        """Look at one group: counters, then mirror, then truth; its generators before and after.

        The truth is read at `level`: SERIAL finishes what a conditional write left open, by a request for each row.
        """
        before = self._generated(group)
        row = next(iter(self.mail.read(Read(self.counts.table, group))), None)
        tally = self._sum(group, row, self._parts(group), level)
        return replace(tally, digest=tally.digest + before + self._generated(group))

    def _generated(self, group: Key) -> bytes:
        """The state of the group's generators. Any change that begins between two looks moves them."""
        answers = self.mail.read_all([Read(table, group) for table in self.counts.generators])
        return repr([sorted(seen.row.items(), key=str) for answer in answers for seen in _known(answer)]).encode()

    def _sum(self, group: Key, row: Seen | None, parts: Iterable[Sequence[Record]], level: Level) -> Tally:
        names = [name for name, _ in self.counts.counters]
        sure, uncertain = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        digest, settled = blake2b(digest_size=16), True
        for part in parts:
            mirrored = {record[1]: record[2] for record in part if len(record) > 1}
            for truth, has_content in self._truths(group, self._leads(part), level):
                doubtful = not has_content or not (self.policy.accept_torn or self.family.mirror.whole(truth.row))
                settled = self._agrees(truth.row, mirrored, doubtful=doubtful) and settled
                for name, delta in self.counts.deltas_of(truth.row).items():
                    (uncertain if doubtful else sure)[name] += delta
                digest.update(_mark(self.family.truth.key_of(truth.row), truth, doubtful=doubtful))
            settled = settled and not mirrored
        return Tally(row, sure, uncertain, settled, digest.digest())

    def _agrees(self, truth: Row, mirrored: dict[Packed, bytes], *, doubtful: bool) -> bool:
        """Whether the mirror agrees, or lacks a doubtful truth; removes the compared row from `mirrored`."""
        record = self._forms.truth(truth)
        shown = mirrored.pop(record.place, None)
        return doubtful if shown is None else shown == record.fingerprint

    def _leads(self, part: Iterable[Record]) -> list[Key]:
        packed = dict.fromkeys(record[0] for record in part if None not in record[0])
        return [unpacked_key(self.family.truth.partition, lead) for lead in packed]

    def _parts(self, group: Key) -> Iterator[Sequence[Record]]:
        """The group's mirror rows and the truths that the scan saw elsewhere, grouped by truth partition."""
        records = chain(self._mirror_records(group), self._beside_records(group))
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

    def _mirror_records(self, group: Key) -> Iterator[Record]:
        """The mirror's rows of a group (its partition key): truth partition, place, fingerprint."""
        mirror = self.family.mirror
        own = mirror.own_names
        lead_of = packing(own.get(column.name, column.name) for column in self.family.truth.partition)
        for row in self.mail.scan(Scan(mirror.table, mirror.read_columns, Level.QUORUM, under=group)):
            yield (lead_of(row), *self._forms.mirror(row))

    def _beside_records(self, group: Key) -> Iterator[Record]:
        names = [column.name for column in self.family.truth.partition]
        pack = packing(names)
        return ((pack(dict(zip(names, lead, strict=True))),) for lead in self.beside.get(group, ()))

    def _truths(self, group: Key, leads: Iterable[Key], level: Level) -> Iterator[tuple[Seen, bool]]:
        """The group's truth rows, each with whether its content exists; partitions in a fixed order."""
        waiting = iter(sorted(leads, key=key_text))
        while some := list(islice(waiting, _READS_AT_ONCE)):
            contents = self._contents(some)
            reads = [Read(self.family.truth, lead, level, times=True, joinable=True) for lead in some]
            answers = self.mail.read_all(reads)
            for answer, has_content in zip(answers, contents, strict=True):
                yield from ((seen, has_content) for seen in _known(answer) if self.counts.key_of(seen.row) == group)

    def _contents(self, leads: Sequence[Key]) -> list[bool]:
        content = self.family.content
        if content is None:
            return [True] * len(leads)
        keys = [content.key_of(self.family.truth.key_row(lead)) for lead in leads]
        reads = [Read(content.table, key, joinable=True) for key in keys]
        return [bool(_known(answer)) for answer in self.mail.read_all(reads)]


def _known(answer: Sequence[Seen] | MailmendError) -> Sequence[Seen]:
    if isinstance(answer, MailmendError):
        raise answer
    return answer


def _mark(key: Key, truth: Seen, *, doubtful: bool) -> bytes:
    """A truth row's part of the digest: key, each cell's time (its version), and how it is counted."""
    times: list[tuple[str, Any]] = sorted(truth.written_at.items())
    return f"{key_text(key)} {times} {doubtful}\n".encode()


def _nearest(value: int, least: int, room: int) -> int:
    return min(max(value, least), least + room)
