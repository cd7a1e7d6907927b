"""The second look: reads a suspect's rows again, with their times, in an order that matters.

First the projections, then the truth, which is so never older (model-checked). A row that is
projected in between is then not mistaken for one without a truth.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TypeVar

from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.operations import (
    Level,
    Read,
    Scan,
    Seen,
)
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.family import Family, Filter, Union
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.valued import Valued
from mailmend.model.projections.view_mirror import ViewMirror
from mailmend.model.table import Key, Row

Answers = list[Sequence[Seen]]
_T = TypeVar("_T")
_R = TypeVar("_R")

MEMBERS_MAX = 100
"""The number of truth rows that a look at a union reads in order to find the last one to expire."""

MEMBERS_AT_ONCE = 500
"""The number of rows of a group that are read at once, of a group with values."""


class SecondLook:
    """Reads suspects again, a batch at a time."""

    def __init__(self, mail: Tables, families: Iterable[Family], policy: RepairPolicy, clock: Clock) -> None:
        self._mail = mail
        self._clock = clock
        self._policy = policy
        self._known: dict[str, tuple[Family, Projection]] = {}
        for family in families:
            for projection in family.projections:
                self._known[projection.name] = (family, projection)

    def visits(self, suspect: Suspect) -> bool:
        """False for counters: `repair.mending.counters` looks at those."""
        known = self._known.get(suspect.projection)
        if known is None:
            return True
        _, projection = known
        return projection.by_row

    def at(self, suspects: Sequence[Suspect]) -> list[Look | MailmendError]:
        """Each suspect's current state, or why it could not be read; in order."""
        looks = [self._begin(suspect) for suspect in suspects]
        for reads, advance in (
            (_near_reads, _with_near),
            (_content_reads, _with_content),
            (_truth_reads, self._with_truth),
        ):
            looks = self._wave(looks, reads, advance)
        return [self._summed(look) for look in looks]

    def confirmed(self, looks: Sequence[Look | MailmendError]) -> list[Look | MailmendError]:
        """The looks with the truth read once more, at SERIAL, which completes unfinished conditional writes.

        Each of these reads is a separate request, so they are sent only for rows that are about to be written.
        """
        if not self._policy.serial:
            return list(looks)
        return self._wave(looks, _serial_truth_reads, self._with_truth)

    def _summed(self, look: Look | MailmendError) -> Look | MailmendError:
        """A look at the values of a group, with what its truth rows demand."""
        if not isinstance(look, Look) or not isinstance(look.projection, Valued):
            return look
        valued = look.projection
        try:
            return valued.summed(look, self._rows_of_group(look, valued))
        except MailmendError as error:
            return error

    def _rows_of_group(self, look: Look, valued: Valued) -> Iterator[Seen]:
        """The truth rows of a group, each once; others may be among them."""
        members = valued.members(look.mirror, look.key)
        rows = self._mail.scan(members.scan)
        known: set[Key] = set()
        while some := list(islice(rows, MEMBERS_AT_ONCE)):
            keys = dict.fromkeys(map(members.key_of, some))
            new = [key for key in keys if key not in known and None not in key]
            known.update(new)
            reads = [Read(valued.truth, key, times=True, joinable=True) for key in new]
            asked_at = self._clock.micros()
            for answer in self._mail.read_all(reads):
                if isinstance(answer, MailmendError):
                    raise answer
                yield from (seen.asked_at(asked_at) for seen in answer)

    def with_companions(self, look: Look) -> Look | MailmendError:
        """The look with the other rows that follow from its truth row alone, in every family."""
        truth = look.truths[0].row
        demanded = list(self._demanded_beside(look.projection, truth))
        reads = [Read(projection.table, key, times=True) for projection, key in demanded]
        asked_at = self._clock.micros()
        companions = []
        for (projection, _), answer in zip(demanded, self._mail.read_all(reads), strict=True):
            if isinstance(answer, MailmendError):
                return answer
            if answer and _leads_to(projection, answer[0].row, truth):
                companions.append((projection, answer[0].asked_at(asked_at)))
        return replace(look, companions=tuple(companions))

    def _demanded_beside(self, seen: Projection, truth: Row) -> Iterator[tuple[Projection, Key]]:
        """The rows of filters and other mirrors that a truth row demands; views are a server's."""
        for _, projection in self._known.values():
            if projection is seen or projection.truth.name != seen.truth.name:
                continue
            if isinstance(projection, Filter) and projection.is_demanded_by(truth):
                yield projection, projection.key_of(truth)
            elif isinstance(projection, Mirror) and not isinstance(projection, ViewMirror):
                for part in projection.unnested(truth):
                    if projection.is_demanded_by(part):
                        yield projection, projection.key_of(part)

    def with_members(self, look: Look, union: Union) -> Look | MailmendError:
        """The look at a union with the other truth rows that hold what it lacks: the last one to expire decides.

        The mirror names them. Where there are more than `MEMBERS_MAX`, no element expires: one too many does no harm.
        """
        leads = None
        if scan := union.members(look):
            try:
                leads = self._members(look, union, scan)
            except MailmendError as error:
                return error
        if leads is None:
            return union.lasting(look, ())
        reads = _reads_of_truths(look, leads)
        (whole,) = self._wave([look], lambda _: reads, lambda seen, answers: union.lasting(seen, list(chain(*answers))))
        return whole

    def _members(self, look: Look, union: Union, scan: Scan) -> list[Key] | None:
        """The partition keys of the truth rows that hold what the union's row lacks; None where they are too many."""
        lacking = union.gathered(look.truths) - union.elements(look.projected)
        leads = dict.fromkeys(look.leads)
        *names, column = scan.columns
        for row in self._mail.scan(scan):
            lead = tuple(row[name] for name in names)
            if None not in lead and lacking & frozenset(row[column] or ()):
                leads[lead] = None
            if len(leads) > MEMBERS_MAX:
                return None
        return list(leads)

    def _begin(self, suspect: Suspect) -> Look | MailmendError:
        if suspect.projection not in self._known:
            return WrongUse(f"no projection is called {suspect.projection!r}")
        family, projection = self._known[suspect.projection]
        return Look(suspect, family.mirror, family.content, projection)

    def _wave(
        self,
        looks: Sequence[Look | MailmendError],
        wanted: Callable[[Look], Sequence[Read]],
        advance: Callable[[Look, Answers], Look],
    ) -> list[Look | MailmendError]:
        reads: list[Sequence[Read]] = []
        for look in looks:
            needed: Sequence[Read] = ()
            if not isinstance(look, MailmendError):
                needed = wanted(look)
            reads.append(needed)
        asked_at = self._clock.micros()
        own = answered(self._mail.read_all, reads)
        return [_advanced(look, answers, asked_at, advance) for look, answers in zip(looks, own, strict=True)]

    def _with_truth(self, look: Look, answers: Answers) -> Look:
        rows = list(chain.from_iterable(answers))
        return look.projection.looked_at(look, rows, accept_torn=self._policy.accept_torn)


def _leads_to(projection: Projection, row: Row, truth: Row) -> bool:
    """Whether a row of a mirror names the truth row; a filter's row does by its key."""
    if not isinstance(projection, Mirror):
        return True
    named = projection.restored(row)
    return projection.truth.key_of(named) == projection.truth.key_of(truth)


def answered(ask: Callable[[list[_T]], Iterable[_R]], groups: Sequence[Sequence[_T]]) -> list[list[_R]]:
    """Ask for all groups in one request; returns the answers of each group, in order."""
    answers = iter(ask(list(chain.from_iterable(groups))))
    own = []
    for group in groups:
        answered = [next(answers) for _ in group]
        own.append(answered)
    return own


def _advanced(
    look: Look | MailmendError,
    answers: Sequence[Sequence[Seen] | MailmendError],
    asked_at: int,
    advance: Callable[[Look, Answers], Look],
) -> Look | MailmendError:
    if isinstance(look, MailmendError):
        return look
    good: Answers = []
    for answer in answers:
        if isinstance(answer, MailmendError):
            return answer
        good.append([seen.asked_at(asked_at) for seen in answer])
    return advance(look, good)


def _near_reads(look: Look) -> list[Read]:
    return [replace(read, joinable=True) for read in look.projection.near_reads(look.mirror, look.key)]


def _with_near(look: Look, answers: Answers) -> Look:
    near = [next(iter(answer), None) for answer in answers]
    return replace(look, projected=near[0], mirrored=near[-1])


def _content_reads(look: Look) -> list[Read]:
    """Reads of the content of each known truth; sent before the truth's, which is written after it."""
    content = look.content
    if content is None or not look.projection.needs_content:
        return []
    columns = look.projection.content_columns(look.suspect)
    reads = []
    for lead in look.leads:
        key = content.key_of(look.mirror.truth.key_row(lead))
        reads.append(Read(content.table, key, joinable=True, columns=columns))
    return reads


def _with_content(look: Look, answers: Answers) -> Look:
    answered = zip(look.leads, answers, strict=False)
    contents = {lead: answer[0].row for lead, answer in answered if answer}
    return replace(look, contents=contents)


def _reads_of_truths(look: Look, leads: Iterable[Key]) -> list[Read]:
    return [Read(look.mirror.truth, lead, times=True, joinable=True) for lead in leads]


def _truth_reads(look: Look) -> list[Read]:
    return _reads_of_truths(look, look.leads)


def _serial_truth_reads(look: Look) -> list[Read]:
    return [replace(read, level=Level.SERIAL) for read in _truth_reads(look)]
