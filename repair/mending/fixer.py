"""The only code that writes fixes of rows: look again, judge again, then record, write, read back and settle.

The same code runs in this process and on Spark's executors: it uses plain values and no globals, and works in bounded
batches. The order of reads matters (model-checked): first the projections, then the truth, which is so never older. A
row that is projected in between is then not mistaken for one without a truth. Each step is done for a whole batch
before the next step begins: no row is written before its before-image is safe.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import (
    Change,
    Conditional,
    Count,
    Level,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Scan,
    Seen,
    Write,
    lasting,
    run_out,
)
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.filters import Union
from mailmend.model.projections.findings import Finding, Look, RepairPolicy, Suspect, failed
from mailmend.model.projections.projection import older_than_a_day
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, rows_agree
from mailmend.repair.decisions.recheck import judge, rule
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.limits import Breaker, batches_at_once, side_by_side
from mailmend.repair.mending.planned import as_planned

Answers = list[Sequence[Seen]]

MEMBERS_MAX = 100
"""The number of truth rows that a look at a union reads in order to find the last one to expire."""


class SecondLook:
    """Reads suspects again, a batch at a time."""

    def __init__(self, mail: Tables, families: Iterable[Family], policy: RepairPolicy, clock: Clock) -> None:
        self._mail = mail
        self._clock = clock
        self._policy = policy
        self._known = {
            projection.name: (family, projection) for family in families for projection in family.projections
        }

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
        return looks

    def confirmed(self, looks: Sequence[Look | MailmendError]) -> list[Look | MailmendError]:
        """The looks with the truth read once more, at SERIAL, which completes unfinished conditional writes.

        Each of these reads is a separate request, so they are sent only for rows that are about to be written.
        """
        return self._wave(looks, _serial_truth_reads, self._with_truth) if self._policy.serial else list(looks)

    def with_companions(self, look: Look) -> Look | MailmendError:
        """The look with the filter rows at the same place."""
        truth = look.truths[0].row
        filters = look.family.filters
        asked_at = self._clock.micros()
        found = self._mail.read_all(
            [Read(projection.table, projection.key_of(truth), times=True) for projection in filters]
        )
        answers = [_dated(answer, asked_at) for answer in found]
        rows = [answer for answer in answers if not isinstance(answer, MailmendError)]
        if len(rows) < len(filters):
            return next(answer for answer in answers if isinstance(answer, MailmendError))
        return replace(
            look,
            companions=tuple((projection, seen[0]) for projection, seen in zip(filters, rows, strict=True) if seen),
        )

    def with_members(self, look: Look, union: Union) -> Look | MailmendError:
        """The look at a union with the other truth rows that hold what it lacks: the last one to expire decides.

        The mirror names them. Where there are more than `MEMBERS_MAX`, no element expires: one too many does no harm.
        """
        scan = union.members(look)
        try:
            leads = self._members(look, union, scan) if scan else None
        except MailmendError as error:
            return error
        if leads is None:
            return union.lasting(look, ())
        reads = [Read(look.family.truth, lead, times=True, joinable=True) for lead in leads]
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
        return Look(suspect, *self._known[suspect.projection])

    def _wave(
        self,
        looks: Sequence[Look | MailmendError],
        wanted: Callable[[Look], Sequence[Read]],
        advance: Callable[[Look, Answers], Look],
    ) -> list[Look | MailmendError]:
        reads = [[] if isinstance(look, MailmendError) else wanted(look) for look in looks]
        asked_at = self._clock.micros()
        found = self._mail.read_all([read for some in reads for read in some])
        answers = iter([_dated(answer, asked_at) for answer in found])
        own = [[next(answers) for _ in some] for some in reads]
        return [_advanced(look, some, advance) for look, some in zip(looks, own, strict=True)]

    def _with_truth(self, look: Look, answers: Answers) -> Look:
        rows = [seen for answer in answers for seen in answer]
        return look.projection.looked_at(look, rows, accept_torn=self._policy.accept_torn)


def _dated(answer: Sequence[Seen] | MailmendError, asked_at: int) -> Sequence[Seen] | MailmendError:
    return answer if isinstance(answer, MailmendError) else [seen.asked_at(asked_at) for seen in answer]


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
    return [replace(read, joinable=True) for read in look.projection.near_reads(look.family, look.key)]


def _with_near(look: Look, answers: Answers) -> Look:
    near = [answer[0] if answer else None for answer in answers]
    return replace(look, projected=near[0], mirrored=near[-1])


def _content_reads(look: Look) -> list[Read]:
    """Reads of the content of each known truth; sent before the truth's, which is written after it."""
    content = look.family.content
    if content is None or not look.projection.needs_content:
        return []
    truth = look.family.truth
    keys = [content.key_of(truth.key_row(lead)) for lead in look.leads]
    return [Read(content.table, key, joinable=True, columns=()) for key in keys]  # whether it is there


def _with_content(look: Look, answers: Answers) -> Look:
    return replace(look, kept=frozenset(lead for lead, answer in zip(look.leads, answers, strict=False) if answer))


def _truth_reads(look: Look) -> list[Read]:
    return [Read(look.family.truth, lead, times=True, joinable=True) for lead in look.leads]


def _serial_truth_reads(look: Look) -> list[Read]:
    return [replace(read, level=Level.SERIAL) for read in _truth_reads(look)]


_UNRECORDED = "nothing was written, because its before-image could not be recorded: "

Explain = Callable[[Sequence[Finding]], Sequence[Verdict]]
"""The verdict on each written fix that a later read does not show: MOVED after a newer change, else HIDDEN."""


@dataclass(frozen=True, slots=True)
class Mending:
    """Carries out changes under one run, as of one moment."""

    mail: Tables
    ledger: Ledger
    run: RunId
    as_of: int
    explain: Explain
    clock: Clock

    def mend(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        batch = list(findings)
        for step in (self._record, self._condition, self._write, self._read_back):
            batch = step(batch) if batch else []
        yield from self._settled([finding.ended(Verdict.FIXED) for finding in batch])

    def _record(self, batch: list[Finding]) -> list[Finding]:
        images = [[finding, *finding.beside] for finding in batch]
        try:
            answers = iter(self.ledger.record(self.run, self.as_of, [image for some in images for image in some]))
        except MailmendError as error:
            return [finding.failed(error, _UNRECORDED) for finding in batch]
        own = [[next(answers) for _ in some] for some in images]
        return [_checked(finding, some, _UNRECORDED) for finding, some in zip(batch, own, strict=True)]

    def _condition(self, batch: list[Finding]) -> list[Finding]:
        return [
            self._attempted(finding, finding.condition) if finding.is_pending and finding.condition else finding
            for finding in batch
        ]

    def _attempted(self, one: Finding, condition: Conditional) -> Finding:
        now = self.clock.micros()
        if run_out(condition, now):
            return replace(one, result=Verdict.MOVED)
        try:
            applied = self.mail.attempt(lasting(condition, now)).applied
        except MailmendError as error:
            return one.failed(error)
        return one if applied else replace(one, result=Verdict.MOVED)

    def _write(self, batch: list[Finding]) -> list[Finding]:
        now = self.clock.micros()
        batch = [_in_time(finding, now) for finding in batch]
        due: list[Sequence[Write]] = [
            [_joinable(lasting(write, now)) for write in finding.writes] if finding.is_pending else ()
            for finding in batch
        ]
        answers = iter(self.mail.write_all([write for writes in due for write in writes]))
        return [_checked(finding, [next(answers) for _ in writes]) for finding, writes in zip(batch, due, strict=True)]

    def _read_back(self, batch: list[Finding]) -> list[Finding]:
        """Read the changed rows: HIDDEN where a change does not show."""
        due = [finding.changes if finding.is_pending else () for finding in batch]
        reads = [Read(change.table, written_key(change), joinable=True) for changes in due for change in changes]
        answers = iter(self.mail.read_all(reads))
        own = [[(change, next(answers)) for change in changes] for changes in due]
        return self._explained([_shown(finding, seen) for finding, seen in zip(batch, own, strict=True)])

    def _explained(self, batch: list[Finding]) -> list[Finding]:
        hidden = [finding for finding in batch if finding.result is Verdict.HIDDEN]
        verdicts = iter(self.explain(hidden) if hidden else ())
        return [
            replace(finding, result=next(verdicts)) if finding.result is Verdict.HIDDEN else finding
            for finding in batch
        ]

    def _settled(self, batch: Sequence[Finding]) -> Iterator[Finding]:
        """Record each result; a fix whose result could not be recorded is still a fix, and says so."""
        try:
            answers: Sequence[MailmendError | None] = self.ledger.settle(self.run, batch) if batch else ()
        except MailmendError as error:
            answers = [error] * len(batch)
        for finding, answer in zip(batch, answers, strict=True):
            noted = answer is None or finding.error is not None
            yield finding if noted else replace(finding, error=f"the ledger could not note the result: {answer}")


def _in_time(one: Finding, now: int) -> Finding:
    """MOVED where the truth has expired since it was read: what is written then would outlive it."""
    late = one.is_pending and any(run_out(change, now) for change in one.changes)
    return replace(one, result=Verdict.MOVED) if late else one


def shows(change: Write | Conditional, seen: Seen | None) -> bool:
    """Whether the row that was read back has the effect of the change."""
    match change:
        case Remove() | RemoveIf():
            return seen is None
        case Put(table=table, row=row) | PutIfAbsent(table=table, row=row):
            return seen is not None and rows_agree((table.column(name) for name in row), row, seen.row)
        case Change(table=table, assign=assign, add=add, take=take):
            row = seen.row if seen else {}
            if not rows_agree((table.column(name) for name in assign), assign, row):
                return False
            added = all(wanted <= _elements(row, name) for name, wanted in add.items())
            return added and not any(gone & _elements(row, name) for name, gone in take.items())
        case _:
            return True


def written_key(change: Write | Conditional) -> Key:
    return change.table.key_of(change.row) if isinstance(change, Put | PutIfAbsent) else change.key


def _joinable(write: Write) -> Write:
    return write if isinstance(write, Count) else replace(write, joinable=True)


def _elements(row: Row, column: str) -> frozenset[Any]:
    return frozenset(row.get(column) or ())


def _checked(one: Finding, answers: Sequence[MailmendError | None], prefix: str = "") -> Finding:
    errors = [answer for answer in answers if answer is not None]
    return one.failed(errors[0], prefix) if errors and one.is_pending else one


def _shown(one: Finding, answers: Sequence[tuple[Write | Conditional, Sequence[Seen] | MailmendError]]) -> Finding:
    for change, answer in answers:
        if isinstance(answer, MailmendError):
            return one.failed(answer, "written, but not read back: ")
        if not shows(change, answer[0] if answer else None):
            return replace(one, result=Verdict.HIDDEN)
    return one


BATCH_SUSPECTS = 1_000
"""The number of suspects in a batch; under a pace no more than the rows of a second.

The number is large enough that each of the ledger's buckets gets several before-images, which then
share a request.
"""


class Fixer:
    """Looks at suspects again and mends what the policy allows.

    Args:
        mail: the mail keyspace.
        ledger: where before-images go; never touched when the policy has no run.
        breaker: ends the work when the cluster is gone; shared by a process for one run.
    """

    def __init__(  # noqa: PLR0917 - in the order in which they are needed
        self,
        mail: Tables,
        ledger: Ledger,
        clock: Clock,
        families: Iterable[Family],
        policy: RepairPolicy,
        breaker: Breaker | None = None,
    ) -> None:
        self._mail = mail
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._breaker = breaker or Breaker()
        self._at_once = min(BATCH_SUSPECTS, policy.rows_per_second or BATCH_SUSPECTS)
        self._looks = SecondLook(mail, families, policy, clock)

    def revisit(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """One finding for each suspect, in no particular order; counters are skipped (`repair.mending.counters`)."""
        visited = (suspect for suspect in suspects if self._looks.visits(suspect))
        batches = batches_at_once(self._policy.rows_per_second)
        for findings in side_by_side(self._visited, self._batches(visited), batches):
            yield from findings
        yield from map(self._breaker.left, visited)

    def _batches(self, visited: Iterator[Suspect]) -> Iterator[list[Suspect]]:
        while not self._breaker.open and (batch := list(islice(visited, self._at_once))):
            yield batch

    def _visited(self, batch: Sequence[Suspect]) -> list[Finding]:
        now = self._clock.micros()
        reported = [Finding(suspect, suspect.verdict) for suspect in batch if self._is_only_reported(suspect, now)]
        doubtful = [suspect for suspect in batch if not self._is_only_reported(suspect, now)]
        findings = list(self._revisit(sorted(doubtful, key=_by_partition)))
        self._breaker.note(findings)
        return reported + findings

    def _is_only_reported(self, suspect: Suspect, now: int) -> bool:
        """A leak that nothing is done about, and that no truth on its way can explain: content is written first."""
        reported = suspect.verdict is Verdict.LEAK and self._policy.leaks != "collect"
        return reported and older_than_a_day(suspect.key, now)

    def _revisit(self, batch: Sequence[Suspect]) -> Iterator[Finding]:
        ruled = self._ruled(batch)
        yield from self._recalled([finding for finding in ruled if not finding.is_pending])
        if due := [finding for finding in ruled if finding.is_pending]:
            assert self._policy.run is not None, "a fix without a run was decided"
            mending = Mending(
                self._mail, self._ledger, self._policy.run, self._policy.as_of, self._explain, self._clock
            )
            yield from mending.mend(due)

    def _ruled(self, batch: Sequence[Suspect]) -> list[Finding]:
        """Each suspect's decision; one to write is decided again by a truth read at SERIAL."""
        looks = self._looks.at(batch)
        ruled = [self._rule(suspect, look) for suspect, look in zip(batch, looks, strict=True)]
        due = [place for place, finding in enumerate(ruled) if finding.is_pending]
        for place, look in zip(due, self._looks.confirmed([looks[place] for place in due]), strict=True):
            ruled[place] = self._rule(batch[place], look)
        return ruled

    def _rule(self, suspect: Suspect, look: Look | MailmendError) -> Finding:
        if isinstance(look, MailmendError):
            return failed(suspect, look)
        ruled = as_planned(rule(look, self._policy, self._clock.micros()))
        if not ruled.is_pending:
            return ruled
        whole: Look | MailmendError
        if ruled.verdict is Verdict.LOST_CONTENT:
            whole = self._looks.with_companions(look)
        elif isinstance(look.projection, Union) and look.soonest is not None:
            whole = self._looks.with_members(look, look.projection)
        else:
            return ruled
        if isinstance(whole, MailmendError):
            return failed(suspect, whole)
        return as_planned(rule(whole, self._policy, self._clock.micros()))

    def _recalled(self, ruled: Sequence[Finding]) -> list[Finding]:
        """Findings of agreement are FIXED, where an earlier attempt of this task made the fix."""
        if self._policy.run is None:
            return list(ruled)
        agreed = [finding for finding in ruled if finding.verdict is Verdict.AGREE and not finding.error]
        images = self._ledger.recalled(self._policy.run, [finding.suspect for finding in agreed])
        own = [
            replace(image, result=Verdict.FIXED, error=None) if image else finding
            for finding, image in zip(agreed, images, strict=True)
        ]
        return [*own, *(finding for finding in ruled if finding.verdict is not Verdict.AGREE or finding.error)]

    def _explain(self, hidden: Sequence[Finding]) -> list[Verdict]:
        """Look again: MOVED where the pair now agrees or changed (another's write), else HIDDEN."""
        looks = self._looks.at([finding.suspect for finding in hidden])
        skew = round(self._policy.skew_seconds * MICROS)
        judged = [
            judge(look, self._policy.as_of, self._clock.micros(), skew) if isinstance(look, Look) else None
            for look in looks
        ]
        return [Verdict.MOVED if verdict in (Verdict.MOVED, Verdict.AGREE) else Verdict.HIDDEN for verdict in judged]


def _by_partition(suspect: Suspect) -> tuple[str, str]:
    """Sort key that puts one partition's suspects together, so that its reads find it in the cache."""
    return suspect.projection, str(suspect.key[0])
