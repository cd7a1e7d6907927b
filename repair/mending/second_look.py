"""Looking at suspects again: both sides by every known key, the projections first and the truth last.

The order matters (model-checked): what is read last is never older than what is read first, so a row that was projected
in between cannot pass for one that lacks its truth. Reads are sent in waves, one wave per side.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from model.errors import MailmendError, WrongUse
from model.operations import Level, Read, Seen
from model.ports import Tables
from model.projections.declarations import Content, Counts, Family, Filter, Mirror, Projection, Union
from model.schema.table import Key, Row, Table
from repair.decisions.findings import Errand, Suspect
from repair.decisions.fixes import Sight, restored
from repair.decisions.recheck import Look, verdict_of
from repair.decisions.verdicts import Verdict

Answers = list[Sequence[Seen]]
One = TypeVar("One")
Next = TypeVar("Next")


@dataclass(frozen=True, slots=True)
class Place:
    """A projection and the family that it belongs to."""

    family: Family
    projection: Projection


def places(families: Iterable[Family]) -> Mapping[str, Place]:
    """Every projection by its name in findings."""
    return {one.name: Place(family, one) for family in families for one in family.projections}


@dataclass(frozen=True, slots=True)
class Approach:
    """One suspect on its way to a sight: what was read of it so far.

    Attributes:
        near: the projection's row; for a filter also the mirror's row at the same place.
        kept: the leads whose content stands.
    """

    suspect: Suspect
    place: Place
    near: tuple[Seen | None, ...] = ()
    kept: frozenset[Key] = frozenset()

    @property
    def named(self) -> tuple[Key, ...]:
        """Partition keys of the truth that the rows read just now name."""
        return _named_by_rows(self)

    @property
    def leads(self) -> tuple[Key, ...]:
        """Every known partition key of the truth: those that the scan saw, and those named since."""
        return tuple(dict.fromkeys((*((one,) for one in self.suspect.truth_ids), *self.named)))


class SecondLook:
    """Reads suspects again, a batch at a time."""

    def __init__(self, mail: Tables, families: Iterable[Family], errand: Errand) -> None:
        self._mail = mail
        self._places = places(families)
        self._errand = errand

    def visits(self, suspect: Suspect) -> bool:
        """Whether the suspect is looked at here: counters are not (`repair.mending.counters`)."""
        place = self._places.get(suspect.projection)
        return place is None or not isinstance(place.projection, Counts)

    def at(self, suspects: Sequence[Suspect]) -> list[Sight | MailmendError]:
        """Each suspect as it is now, or why it could not be read; in order."""
        started = [self._start(suspect) for suspect in suspects]
        near = self._wave(started, _near_reads, lambda one, answers: replace(one, near=_firsts(answers)))
        beside = self._wave(near, _content_reads, _with_content)
        return self._wave(beside, self._truth_reads, self._sight)

    def with_companions(self, sight: Sight) -> Sight | MailmendError:
        """The same sight with the filter rows at the same place."""
        truth, filters = sight.look.truths[0].row, sight.family.filters
        answers = self._mail.read_all([_read(one.table, one.key_of(truth), times=True) for one in filters])
        rows = [answer for answer in answers if not isinstance(answer, MailmendError)]
        if len(rows) < len(filters):
            return next(answer for answer in answers if isinstance(answer, MailmendError))
        return replace(sight, companions=tuple((one, seen[0]) for one, seen in zip(filters, rows, strict=True) if seen))

    def _start(self, suspect: Suspect) -> Approach | MailmendError:
        place = self._places.get(suspect.projection)
        return Approach(suspect, place) if place else WrongUse(f"no projection is called {suspect.projection!r}")

    def _wave(
        self,
        approaches: Sequence[One | MailmendError],
        wanted: Callable[[One], Sequence[Read]],
        advance: Callable[[One, Answers], Next],
    ) -> list[Next | MailmendError]:
        """Send the reads of all approaches at once and take each one further; an error stays in its place."""
        reads = [[] if isinstance(one, MailmendError) else wanted(one) for one in approaches]
        answers = iter(self._mail.read_all([read for some in reads for read in some]))
        own = [[next(answers) for _ in some] for some in reads]
        return [_advanced(one, some, advance) for one, some in zip(approaches, own, strict=True)]

    def _truth_reads(self, one: Approach) -> list[Read]:
        if isinstance(one.place.projection, Union) and one.suspect.wanted:
            return []
        level = Level.SERIAL if self._errand.serial else Level.QUORUM
        return [Read(one.place.family.truth, lead, level, times=True) for lead in one.leads]

    def _sight(self, one: Approach, answers: Answers) -> Sight:
        rows = tuple(seen for answer in answers for seen in answer)
        match one.place.projection:
            case Union() as union:
                return Sight(one.suspect, one.place.family, _union_look(union, one, rows))
            case projection:
                truths = tuple(seen for seen in rows if projection.key_of(seen.row) == one.suspect.key)
                look = Look(projection, one.suspect.key, truths, one.near[0], _has_content(one, truths))
                whole = self._errand.accept_torn or not truths or one.place.family.mirror.whole(truths[0].row)
                trace = isinstance(projection, Mirror) and bool(one.kept) and not rows
                look = replace(look, whole=whole)
                return Sight(one.suspect, one.place.family, look, last_trace=trace, blind=_is_blind(one, look))


def _advanced(
    one: One | MailmendError, answers: Sequence[Sequence[Seen] | MailmendError], advance: Callable[[One, Answers], Next]
) -> Next | MailmendError:
    good = [answer for answer in answers if not isinstance(answer, MailmendError)]
    if isinstance(one, MailmendError):
        return one
    if len(good) < len(answers):
        return next(answer for answer in answers if isinstance(answer, MailmendError))
    return advance(one, good)


def _read(table: Table, key: Key, *, times: bool) -> Read:
    return Read(table, key, Level.QUORUM, times=times)


def _firsts(answers: Answers) -> tuple[Seen | None, ...]:
    return tuple(answer[0] if answer else None for answer in answers)


def _near_reads(one: Approach) -> list[Read]:
    """The projection's row, without times for a union, whose other elements may be younger without any harm."""
    projection, key = one.place.projection, one.suspect.key
    reads = [_read(projection.table, key, times=not isinstance(projection, Union))]
    if isinstance(projection, Filter):
        mirror = one.place.family.mirror
        truth = {column: part for (_, column), part in zip(projection.key, key, strict=True)}
        reads.append(_read(mirror.table, mirror.key_of(truth), times=True))
    return reads


def _content_reads(one: Approach) -> list[Read]:
    """Whether the content stands beside each known truth; asked before the truth, which is written after it."""
    content = one.place.family.content
    if content is None or isinstance(one.place.projection, Union | Content):
        return []
    keys = [content.key_of(_partition_row(one.place.family, lead)) for lead in one.leads]
    return [_read(content.table, key, times=False) for key in keys]


def _with_content(one: Approach, answers: Answers) -> Approach:
    kept = frozenset(lead for lead, answer in zip(one.leads, answers, strict=False) if answer)
    return replace(one, kept=kept)


def _has_content(one: Approach, truths: tuple[Seen, ...]) -> bool:
    """Beside the truth; without one, beside what the projection names."""
    family = one.place.family
    if family.content is None:
        return True
    beside = (tuple(truths[0].row[column.name] for column in family.truth.partition),) if truths else one.named
    return any(lead in one.kept for lead in beside)


def _partition_row(family: Family, lead: Key) -> Row:
    return {column.name: part for column, part in zip(family.truth.partition, lead, strict=True)}


def _named_by_rows(one: Approach) -> tuple[Key, ...]:
    """Where the rows read just now say that their truth is; a half-written row says nothing."""
    family, projection = one.place.family, one.place.projection
    if isinstance(projection, Content):
        row: Row = {column: part for (_, column), part in zip(projection.key, one.suspect.key, strict=True)}
    else:
        mirrored = one.near[-1] if one.near else None
        row = restored(family.mirror, mirrored.row) if mirrored else {}
    lead = tuple(row.get(column.name) for column in family.truth.partition)
    return () if None in lead else (lead,)


def _union_look(union: Union, one: Approach, rows: Sequence[Seen]) -> Look:
    """What the scan found wanting, or what the truth rows of the group say, whatever their times.

    A union only grows, so what it wanted once it may always be given.
    """
    found = [seen.row.get(union.column) for seen in rows if union.key_of(seen.row) == one.suspect.key]
    wanted = one.suspect.wanted.get(union.column)
    elements = frozenset[str]().union(*(some or () for some in (*found, wanted)))
    return Look(union, one.suspect.key, (Seen({union.column: elements}),), one.near[0])


def _is_blind(one: Approach, look: Look) -> bool:
    """Whether the scan saw truths that no known key leads to, and the rows that were found do not settle it."""
    unseen = isinstance(one.place.projection, Mirror) and not one.suspect.truth_ids
    if not unseen or one.suspect.verdict is Verdict.WITHDRAW:
        return False
    return one.suspect.verdict is Verdict.CLASH or not look.truths or verdict_of(look) is not Verdict.AGREE
