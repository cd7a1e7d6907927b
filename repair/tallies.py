"""One look at the counters of a group and at every truth row that is counted there.

A truth is not keyed by its group, so its rows are found through the mirror's rows of the group, and through what the
scan saw besides (truths that are not projected). What a look keeps is small, however large the group: the counters, the
sums, and a digest by which two looks are compared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from typing import Any

from model.errors import MailmendError
from model.operations import Level, Read, Seen
from model.projections import Counts, Family
from model.table import Key, Row
from repair.findings import Errand
from repair.images import key_text
from repair.pace import Pace
from repair.ports import Tables

_READS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Tally:
    """One look at one group.

    Attributes:
        row: the group's own row, or None.
        sure: what the truth demands of each counter.
        uncertain: what truths without content or torn may add.
        settled: mirror and truth agree in every row of the group; before that its counters are not touched.
        digest: equal for two looks that saw the same truth, each row written at the same time, and no new change begun.
    """

    row: Seen | None
    sure: Mapping[str, int]
    uncertain: Mapping[str, int]
    settled: bool
    digest: bytes

    def same_as(self, other: "Tally") -> bool:
        """Whether nothing changed between two looks: the truth rows, their versions, and the counters."""
        return self.digest == other.digest and self.counters == other.counters

    @property
    def counters(self) -> dict[str, int]:
        """The counters as they stand; a missing row, or cell, counts as 0."""
        row = self.row.row if self.row else {}
        return {name: row.get(name) or 0 for name in self.sure}

    @property
    def deltas(self) -> dict[str, int]:
        """The least that must be added to each counter to bring it where the truth allows; none that is right."""
        within = {name: _nearest(value, self.sure[name], self.uncertain[name]) for name, value in self.counters.items()}
        return {name: within[name] - value for name, value in self.counters.items() if within[name] != value}


@dataclass(frozen=True, slots=True)
class Tallies:
    """Takes looks at the groups of one family's counters."""

    mail: Tables
    family: Family
    counts: Counts
    errand: Errand
    pace: Pace
    beside: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)

    def look(self, group: Key) -> Tally:
        """Look at one group: its counters first, then the mirror, the truth last; its generators before and after.

        Raises:
            CannotReach: some read did not answer.
        """
        before = self._generated(group)
        row = next(iter(self.mail.read(Read(self.counts.table, group))), None)
        mirrored = {self.family.mirror.table.key_of(seen.row): seen.row for seen in self._mirror_rows(group)}
        leads = [*map(self._lead_of, mirrored.values()), *self.beside.get(group, ())]
        tally = self._sum(group, row, mirrored, dict.fromkeys(lead for lead in leads if None not in lead))
        return replace(tally, digest=tally.digest + before + self._generated(group))

    def _generated(self, group: Key) -> bytes:
        """How far the group's generators are. A change that begins between two looks moves them, wherever it is."""
        answers = self.mail.read_all([Read(table, group) for table in self.counts.generators])
        return repr([sorted(seen.row.items(), key=str) for answer in answers for seen in _known(answer)]).encode()

    def _sum(self, group: Key, row: Seen | None, mirrored: dict[Key, Row], leads: Iterable[Key]) -> Tally:
        names = [name for name, _ in self.counts.counters]
        sure, uncertain = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        digest, agree = blake2b(digest_size=16), True
        for truth, has_content in self._truths(group, leads):
            doubtful = not has_content or not (self.errand.accept_torn or self.family.mirror.whole(truth.row))
            shown = mirrored.pop(self.family.mirror.key_of(truth.row), None)
            agree = agree and (doubtful if shown is None else self.family.mirror.agree(truth.row, shown))
            for name, delta in self.counts.deltas_of(truth.row).items():
                (uncertain if doubtful else sure)[name] += delta
            digest.update(_mark(self.family.truth.key_of(truth.row), truth, doubtful=doubtful))
        return Tally(row, sure, uncertain, agree and not mirrored, digest.digest())

    def _truths(self, group: Key, leads: Iterable[Key]) -> Iterator[tuple[Seen, bool]]:
        """The group's truth rows, each with whether its content stands; partition by partition in a fixed order."""
        waiting = iter(sorted(leads, key=key_text))
        while some := list(islice(waiting, _READS_AT_ONCE)):
            self.pace.take(len(some))
            contents = self._contents(some)
            level = Level.SERIAL if self.errand.serial else Level.QUORUM
            answers = self.mail.read_all([Read(self.family.truth, lead, level, times=True) for lead in some])
            for answer, has_content in zip(answers, contents, strict=True):
                yield from ((seen, has_content) for seen in _known(answer) if self.counts.key_of(seen.row) == group)

    def _contents(self, leads: Sequence[Key]) -> list[bool]:
        content = self.family.content
        if content is None:
            return [True] * len(leads)
        reads = [Read(content.table, content.key_of(self.family.truth.key_row(lead))) for lead in leads]
        return [bool(_known(answer)) for answer in self.mail.read_all(reads)]

    def _mirror_rows(self, group: Key) -> Sequence[Seen]:
        """The mirror's rows of a group: its key must be the mirror's partition."""
        return self.mail.read(Read(self.family.mirror.table, group))

    def _lead_of(self, mirrored: Row) -> Key:
        """The truth's partition, as the mirror's row names it."""
        theirs = {truth: own for own, truth in (*self.family.mirror.renamed, *self.family.mirror.key)}
        return tuple(mirrored.get(theirs.get(column.name, column.name)) for column in self.family.truth.partition)


def _known(answer: Sequence[Seen] | MailmendError) -> Sequence[Seen]:
    if isinstance(answer, MailmendError):
        raise answer
    return answer


def _mark(key: Key, truth: Seen, *, doubtful: bool) -> bytes:
    """A truth row in the digest: where it is, each cell's time (its version), and how it is counted."""
    times: list[tuple[str, Any]] = sorted(truth.written_at.items())
    return f"{key_text(key)} {times} {doubtful}\n".encode()


def _nearest(value: int, least: int, room: int) -> int:
    return min(max(value, least), least + room)
