"""Looking at suspects again: both sides by each known key, the projections first and the truth last.

The order matters (model-checked): what is read last is never older than what is read first, so a row that was projected
in between is not mistaken for one without a truth. Reads are sent in waves, one wave per side.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from model.errors import MailmendError, WrongUse
from model.operations import Level, Read, Seen
from model.ports import Tables
from model.projections.family import Family
from model.projections.findings import Look, RepairPolicy, Suspect

Answers = list[Sequence[Seen]]


class SecondLook:
    """Reads suspects again, a batch at a time."""

    def __init__(self, mail: Tables, families: Iterable[Family], policy: RepairPolicy) -> None:
        self._mail = mail
        self._policy = policy
        self._known = {one.name: (family, one) for family in families for one in family.projections}

    def visits(self, suspect: Suspect) -> bool:
        """False for counters: `repair.mending.counters` looks at those."""
        return suspect.projection not in self._known or self._known[suspect.projection][1].by_row

    def at(self, suspects: Sequence[Suspect]) -> list[Look | MailmendError]:
        """Each suspect's current state, or why it could not be read; in order."""
        looks = [self._begin(suspect) for suspect in suspects]
        for reads, advance in (
            (_near_reads, _with_near),
            (_content_reads, _with_content),
            (self._truth_reads, self._with_truth),
        ):
            looks = self._wave(looks, reads, advance)
        return looks

    def with_companions(self, look: Look) -> Look | MailmendError:
        """The look with the filter rows at the same place."""
        truth, filters = look.truths[0].row, look.family.filters
        answers = self._mail.read_all([Read(one.table, one.key_of(truth), times=True) for one in filters])
        rows = [answer for answer in answers if not isinstance(answer, MailmendError)]
        if len(rows) < len(filters):
            return next(answer for answer in answers if isinstance(answer, MailmendError))
        return replace(look, companions=tuple((one, seen[0]) for one, seen in zip(filters, rows, strict=True) if seen))

    def _begin(self, suspect: Suspect) -> Look | MailmendError:
        if suspect.projection not in self._known:
            return WrongUse(f"no projection is called {suspect.projection!r}")
        return Look(suspect, *self._known[suspect.projection])

    def _wave(
        self,
        looks: Sequence[Look | MailmendError],
        wanted: Callable[[Look], Sequence[Read]],
        advance: Callable[[Look, Answers], Look],
    ) -> list[Look | MailmendError]:
        """Send the reads of all looks at once and advance each look; an error stays in its place."""
        reads = [[] if isinstance(one, MailmendError) else wanted(one) for one in looks]
        answers = iter(self._mail.read_all([read for some in reads for read in some]))
        own = [[next(answers) for _ in some] for some in reads]
        return [_advanced(one, some, advance) for one, some in zip(looks, own, strict=True)]

    def _truth_reads(self, look: Look) -> list[Read]:
        if not look.projection.reads_truth(look.suspect):
            return []
        level = Level.SERIAL if self._policy.serial else Level.QUORUM
        return [Read(look.family.truth, lead, level, times=True) for lead in look.leads]

    def _with_truth(self, look: Look, answers: Answers) -> Look:
        rows = [seen for answer in answers for seen in answer]
        return look.projection.looked_at(look, rows, accept_torn=self._policy.accept_torn)


def _advanced(
    look: Look | MailmendError,
    answers: Sequence[Sequence[Seen] | MailmendError],
    advance: Callable[[Look, Answers], Look],
) -> Look | MailmendError:
    good = [answer for answer in answers if not isinstance(answer, MailmendError)]
    if isinstance(look, MailmendError):
        return look
    if len(good) < len(answers):
        return next(answer for answer in answers if isinstance(answer, MailmendError))
    return advance(look, good)


def _near_reads(look: Look) -> list[Read]:
    return look.projection.near_reads(look.family, look.key)


def _with_near(look: Look, answers: Answers) -> Look:
    near = [answer[0] if answer else None for answer in answers]
    return replace(look, projected=near[0], mirrored=near[-1])


def _content_reads(look: Look) -> list[Read]:
    """Reads of the content of each known truth; sent before the truth's, which is written after it."""
    content = look.family.content
    if content is None or not look.projection.needs_content:
        return []
    truth = look.family.truth
    return [Read(content.table, content.key_of(truth.key_row(lead))) for lead in look.leads]


def _with_content(look: Look, answers: Answers) -> Look:
    return replace(look, kept=frozenset(lead for lead, answer in zip(look.leads, answers, strict=False) if answer))
