"""The only code that writes fixes of rows: look again, judge again, then record, write, read back and settle.

The same code runs in this process and on Spark's executors: it uses plain values and no globals,
and works in bounded batches. The order of reads matters (model-checked): first the projections,
then the truth, which is so never older. A row that is projected in between is then not mistaken for
one without a truth. Each step is done for a whole batch before the next step begins: no row is
written before its before-image is safe.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import (
    Conditional,
    Level,
    Read,
    Scan,
    Seen,
    Write,
    lasting,
    run_out,
)
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.family import Family, Union
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect, failed
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.valued import Valued
from mailmend.model.projections.verdicts import Verdict, older_than_a_day
from mailmend.model.table import Key
from mailmend.repair.decisions.recheck import judge, rule
from mailmend.repair.ledger.before_images import as_planned
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.limits import Breaker, batches_at_once, side_by_side
from mailmend.repair.mending.reading_back import joinable, shows, written_key

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
        """The look with the filter rows at the same place."""
        truth = look.truths[0].row
        family, _ = self._known[look.suspect.projection]
        filters = [filtered for filtered in family.filters if filtered.is_demanded_by(truth)]
        reads = [Read(projection.table, projection.key_of(truth), times=True) for projection in filters]
        asked_at = self._clock.micros()
        companions = []
        for projection, answer in zip(filters, self._mail.read_all(reads), strict=True):
            if isinstance(answer, MailmendError):
                return answer
            if answer:
                companions.append((projection, answer[0].asked_at(asked_at)))
        return replace(look, companions=tuple(companions))

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
        own = _answered(self._mail.read_all, reads)
        return [_advanced(look, answers, asked_at, advance) for look, answers in zip(looks, own, strict=True)]

    def _with_truth(self, look: Look, answers: Answers) -> Look:
        rows = list(chain.from_iterable(answers))
        return look.projection.looked_at(look, rows, accept_torn=self._policy.accept_torn)


def _answered(ask: Callable[[list[_T]], Iterable[_R]], groups: Sequence[Sequence[_T]]) -> list[list[_R]]:
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
        if not batch:
            return
        for step in (self._record, self._condition, self._write, self._read_back):
            batch = step(batch)
        yield from self._settled([finding.ended(Verdict.FIXED) for finding in batch])

    def _record(self, batch: list[Finding]) -> list[Finding]:
        images = [[finding, *finding.beside] for finding in batch]
        try:
            own = _answered(partial(self.ledger.record, self.run, self.as_of), images)
        except MailmendError as error:
            return [finding.failed(error, _UNRECORDED) for finding in batch]
        return [_checked(finding, answers, _UNRECORDED) for finding, answers in zip(batch, own, strict=True)]

    def _condition(self, batch: list[Finding]) -> list[Finding]:
        return [self._attempted(finding) for finding in batch]

    def _attempted(self, finding: Finding) -> Finding:
        condition = finding.condition
        if condition is None or not finding.is_pending:
            return finding
        now = self.clock.micros()
        if run_out(condition, now):
            return replace(finding, result=Verdict.MOVED)
        try:
            applied = self.mail.attempt(lasting(condition, now)).applied
        except MailmendError as error:
            return finding.failed(error)
        if not applied:
            return replace(finding, result=Verdict.MOVED)
        return finding

    def _write(self, batch: list[Finding]) -> list[Finding]:
        now = self.clock.micros()
        batch = [_in_time(finding, now) for finding in batch]
        due: list[list[Write]] = []
        for finding in batch:
            writes: list[Write] = []
            if finding.is_pending:
                writes = [joinable(lasting(write, now)) for write in finding.writes]
            due.append(writes)
        own = _answered(self.mail.write_all, due)
        return [_checked(finding, answers) for finding, answers in zip(batch, own, strict=True)]

    def _read_back(self, batch: list[Finding]) -> list[Finding]:
        """Read the changed rows: HIDDEN where a change does not show."""
        reads: list[list[Read]] = []
        for finding in batch:
            changes = _made_changes(finding)
            reads.append([Read(change.table, written_key(change), joinable=True) for change in changes])
        own = _answered(self.mail.read_all, reads)
        return self._explained([_shown(finding, answers) for finding, answers in zip(batch, own, strict=True)])

    def _explained(self, batch: list[Finding]) -> list[Finding]:
        hidden = [finding for finding in batch if finding.result is Verdict.HIDDEN]
        if not hidden:
            return batch
        verdicts = iter(self.explain(hidden))
        explained = []
        for finding in batch:
            if finding.result is Verdict.HIDDEN:
                explained.append(replace(finding, result=next(verdicts)))
            else:
                explained.append(finding)
        return explained

    def _settled(self, batch: Sequence[Finding]) -> Iterator[Finding]:
        """Record each result; a fix whose result could not be recorded is still a fix, and says so."""
        answers: Sequence[MailmendError | None]
        try:
            answers = self.ledger.settle(self.run, batch)
        except MailmendError as error:
            answers = [error] * len(batch)
        for finding, answer in zip(batch, answers, strict=True):
            if answer is None or finding.error is not None:
                yield finding
            else:
                yield replace(finding, error=f"the ledger could not note the result: {answer}")


def _in_time(finding: Finding, now: int) -> Finding:
    """MOVED where the truth has expired since it was read: what is written then would outlive it."""
    if finding.is_pending and any(run_out(change, now) for change in finding.changes):
        return replace(finding, result=Verdict.MOVED)
    return finding


def _made_changes(finding: Finding) -> tuple[Write | Conditional, ...]:
    """The changes that were made, and are read back; none where something spoke against them."""
    if not finding.is_pending:
        return ()
    return finding.changes


def _checked(finding: Finding, answers: Sequence[MailmendError | None], prefix: str = "") -> Finding:
    if not finding.is_pending:
        return finding
    for answer in answers:
        if answer is not None:
            return finding.failed(answer, prefix)
    return finding


def _shown(finding: Finding, answers: Sequence[Sequence[Seen] | MailmendError]) -> Finding:
    for change, answer in zip(_made_changes(finding), answers, strict=True):
        if isinstance(answer, MailmendError):
            return finding.failed(answer, "written, but not read back: ")
        if not shows(change, next(iter(answer), None)):
            return replace(finding, result=Verdict.HIDDEN)
    return finding


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
        visited = filter(self._looks.visits, suspects)
        batches = batches_at_once(self._policy.rows_per_second)
        for findings in side_by_side(self._visited, self._batches(visited), batches):
            yield from findings
        yield from map(self._breaker.left, visited)

    def _batches(self, visited: Iterator[Suspect]) -> Iterator[list[Suspect]]:
        while not self._breaker.open and (batch := list(islice(visited, self._at_once))):
            yield batch

    def _visited(self, batch: Sequence[Suspect]) -> list[Finding]:
        now = self._clock.micros()
        reported = []
        doubtful = []
        for suspect in batch:
            if self._is_only_reported(suspect, now):
                reported.append(Finding(suspect, suspect.verdict))
            else:
                doubtful.append(suspect)
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
        agreed = []
        others = []
        for finding in ruled:
            if finding.verdict is Verdict.AGREE and not finding.error:
                agreed.append(finding)
            else:
                others.append(finding)
        images = self._ledger.recalled(self._policy.run, [finding.suspect for finding in agreed])
        recalled = []
        for finding, image in zip(agreed, images, strict=True):
            if image:
                recalled.append(replace(image, result=Verdict.FIXED, error=None))
            else:
                recalled.append(finding)
        return [*recalled, *others]

    def _explain(self, hidden: Sequence[Finding]) -> list[Verdict]:
        """Look again: MOVED where the pair now agrees or changed (another's write), else HIDDEN."""
        looks = self._looks.at([finding.suspect for finding in hidden])
        skew = round(self._policy.skew_seconds * MICROS)
        explained = []
        for look in looks:
            verdict = Verdict.HIDDEN
            if isinstance(look, Look):
                judged = judge(look, self._policy.as_of, self._clock.micros(), skew)
                if judged in (Verdict.MOVED, Verdict.AGREE):
                    verdict = Verdict.MOVED
            explained.append(verdict)
        return explained


def _by_partition(suspect: Suspect) -> tuple[str, str]:
    """Sort key that puts one partition's suspects together, so that its reads find it in the cache."""
    return suspect.projection, str(suspect.key[0])
