"""Undo of a whole run, and undo of that undo.

A run wrote as of T; its undo writes as of T + 1 us, a redo (the undo of an undo) as of T + 2 us:
what was written after the scan began still wins, and what the run wrote always loses. A row returns
to its before-image only where each visible cell is the run's own (or was there before), and the
truth is as the run recorded it: then the row is unchanged since. Everything else has MOVED and
stays. A max or min is taken back whatever became of the truth, also where the undo of a later run
has put it back. An undo is a run of its own, with before-images.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from uuid import UUID

from mailmend.model.errors import ExitCode, MailmendError, WrongUse
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Seen
from mailmend.model.ports import Clock, Progress, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect, failed
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.valued import Bounds
from mailmend.model.projections.verdicts import Reason, Verdict, Why
from mailmend.model.table import Table
from mailmend.model.texts import keyspace_option
from mailmend.repair.clock import SKEW_SECONDS
from mailmend.repair.decisions.recheck import fixed_at
from mailmend.repair.ledger.leases import Leases, TakenLease
from mailmend.repair.ledger.runs import Ledger, Run, RunKind
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairResult, Sink
from mailmend.repair.mending.fixer import BATCH_SUSPECTS, Mending
from mailmend.repair.mending.generators import raised_by
from mailmend.repair.mending.limits import Breaker, batches_at_once, side_by_side
from mailmend.repair.mending.restored import LaterUndos
from mailmend.repair.mending.runner import lease_of_repair, recorded
from mailmend.repair.mending.second_look import SecondLook

NOT_UNDONE = frozenset({RunKind.CHECK, RunKind.QUEUES, RunKind.BLOBS})
USED_SINCE = Reason(Why.USED_SINCE)


@dataclass(frozen=True, slots=True)
class UndoSettings:
    """The settings of an undo."""

    run: RunId
    keyspace: str
    families: tuple[Family, ...]
    dry_run: bool = False
    serial: bool = True
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UndoTools:
    """The parts of an undo; without `counters`, counters stay as they are."""

    mail: Tables
    ledger: Ledger
    clock: Clock
    progress: Progress
    leases: Leases | None = None
    counters: CounterMender | None = None


def undo(settings: UndoSettings, tools: UndoTools, sink: Sink) -> RepairResult:
    """Restore each row of a run that is unchanged since; the rest is reported as MOVED.

    Raises:
        UnknownRun: the ledger has no such run.
        WrongUse: it was a run of another keyspace, or one that kept no before-images.
        LeaseHeld: a repair of the keyspace is running.
    """
    undone = undoable(tools.ledger, settings.run, settings.keyspace)
    result = RepairResult(settings.keyspace, RunKind.UNDO)
    if settings.dry_run:
        return _Undoing(settings, tools, sink, undone, result, None).all()
    command = RunKind.UNDO.value
    with lease_of_repair(tools.leases, settings.keyspace, command) as held:
        run = tools.ledger.start(
            settings.keyspace,
            command,
            undone.as_of + 1,
            settings.options,
            owner=settings.owner,
            undoes=undone.id,
        )
        result.run = run.id
        with recorded(tools.ledger, run, result, tools.mail, settings.families):
            return _Undoing(settings, tools, sink, undone, result, held).all()


def undoable(ledger: Ledger, run: UUID, keyspace: str) -> Run:
    """The run, where it may be undone; docs/adr/0025 says why a cleanup of queues is not.

    Raises:
        UnknownRun, WrongUse: as `undo` does.
    """
    undone = ledger.get(run)
    if undone.keyspace != keyspace:
        raise WrongUse(
            f"run {undone.id} belongs to keyspace {undone.keyspace!r}, not to {keyspace!r}",
            mend=f"Give {keyspace_option(undone.keyspace)}.",
        )
    if undone.command == RunKind.CHECK:
        raise WrongUse(
            f"run {undone.id} was a check: it changed nothing, so there is nothing to put back",
            mend=f"See what it found with: mailmend runs show {undone.id}",
        )
    if undone.command in NOT_UNDONE:
        raise WrongUse(
            f"run {undone.id} was `mailmend {undone.command}`, which removes what is finished: its mails are gone, "
            "their blobs went with the rows, and starts never go back",
            mend=f"What it removed is listed by: mailmend runs show {undone.id} --findings -. A mail that an operator "
            "removed comes back with: mailmend queue restore FILE",
        )
    return undone


def known_again(image: Finding, mirror: Mirror) -> Suspect:
    """The suspect with each truth partition that the image names: its rows may be gone by now."""
    rows = [seen.row for seen in image.truths]
    if image.suspect.projection == mirror.name and image.projected is not None:
        rows.append(mirror.restored(image.projected.row))
    known = dict.fromkeys(image.suspect.truth_keys)
    for row in rows:
        truth_key = mirror.truth.partition_named_by(row)
        if truth_key is not None:
            known[truth_key] = None
    return replace(image.suspect, truth_keys=tuple(known))


def as_read_now(image: Finding, look: Look) -> Finding:
    """The image restricted to the columns that the tables have now, as columns may have been dropped or added since."""
    truths = tuple(_in_columns_of(look.mirror.truth, seen) for seen in image.truths)
    projected = image.projected
    if projected:
        projected = _in_columns_of(look.projection.table, projected)
    return replace(image, projected=projected, truths=truths)


def still_alive(image: Finding, now: int) -> Finding:
    """The image without what has expired since it was recorded; `now` in seconds since 1970."""
    truths = (seen.without_expired(now) for seen in image.truths)
    projected = image.projected
    if projected:
        projected = projected.without_expired(now)
    return replace(image, projected=projected, truths=tuple(filter(None, truths)))


def _in_columns_of(table: Table, seen: Seen) -> Seen:
    if not seen.row.keys() >= set(table.key_names):
        return seen  # what a union gathers is no row
    row = {name: seen.row.get(name) for name in table.names}
    return Seen(row, _of_columns(table, seen.written_at), expires_at=_of_columns(table, seen.expires_at))


def _of_columns(table: Table, times: Mapping[str, int]) -> dict[str, int]:
    return {name: at for name, at in times.items() if name in table}


@dataclass(slots=True)
class _Undoing:
    settings: UndoSettings
    tools: UndoTools
    sink: Sink
    undone: Run
    result: RepairResult
    held: TakenLease | None
    counted: list[Finding] = field(default_factory=list)
    breaker: Breaker = field(default_factory=Breaker)
    policy: RepairPolicy = field(init=False)
    looks: SecondLook = field(init=False)
    later: LaterUndos = field(init=False)

    def __post_init__(self) -> None:
        self.policy = RepairPolicy(self.result.run, self.undone.as_of + 1, SKEW_SECONDS, serial=self.settings.serial)
        self.looks = SecondLook(self.tools.mail, self.settings.families, self.policy, self.tools.clock)
        self.later = LaterUndos(self.tools.ledger, ())
        if any(family.bounds for family in self.settings.families):
            self.later = LaterUndos.after(self.tools.ledger, self.undone)

    def all(self) -> RepairResult:
        started = self.tools.clock.monotonic()
        self.tools.progress.stage("undo")
        images = self._rows(self.tools.ledger.findings(self.undone.id))
        batches = iter(lambda: list(islice(images, BATCH_SUSPECTS)), [])
        for findings in side_by_side(self._undone, batches, batches_at_once(None)):
            self._take(findings)
            self.tools.progress.advance(len(findings))
        if self.tools.counters is not None and self.counted:
            counters = self.tools.counters
            self._take(counters.undo(self.counted, self.policy, self.held, self.tools.progress))
        if self.undone.undoes is None:
            self.result.generators = raised_by(self.undone.summary)
        self.result.seconds["undo"] = self.tools.clock.monotonic() - started
        self.result.exit = self.result.exit_code
        if self.result.moved and not self.result.exit:
            self.result.exit = ExitCode.DRIFT
        return self.result

    def _rows(self, images: Iterable[Finding]) -> Iterator[Finding]:
        for image in images:
            if self.looks.visits(image.suspect):
                yield image
            else:
                self.counted.append(image)

    def _undone(self, batch: Sequence[Finding]) -> list[Finding]:
        if self.breaker.open:
            return [self.breaker.left(image.suspect) for image in batch]
        looks = self.looks.confirmed(self.looks.at([self._known_again(image) for image in batch]))
        kept = []
        due = []
        for image, look in zip(batch, looks, strict=True):
            finding = self._rule(image, look)
            if finding.is_pending:
                due.append(finding)
            else:
                kept.append(finding)
        if self.result.run is None:
            for finding in due:
                kept.append(replace(finding.ended(), due=True))
            return kept
        tools = self.tools
        mending = Mending(tools.mail, tools.ledger, self.result.run, self.policy.as_of, self._explain, tools.clock)
        return [*kept, *mending.mend(due)]

    def _known_again(self, image: Finding) -> Suspect:
        for family in self.settings.families:
            if any(projection.name == image.suspect.projection for projection in family.projections):
                return known_again(image, family.mirror)
        return image.suspect

    def _rule(self, image: Finding, look: Look | MailmendError) -> Finding:
        if isinstance(look, MailmendError):
            return replace(failed(image.suspect, look), verdict=image.verdict)
        origin = None
        if image.verdict is Verdict.LOST_CONTENT and self.undone.undoes is not None:
            origin = self.tools.ledger.finding(self.undone.undoes, image.suspect)
        left = still_alive(as_read_now(image, look), self.tools.clock.micros() // MICROS)
        at = fixed_at(image, self.undone.as_of)
        finding = look.projection.take_back(left, look, at, origin)
        if finding.result is Verdict.MOVED and isinstance(look.projection, Bounds):
            return self.later.taken_back(left, look, at)
        return finding

    def _explain(self, hidden: Sequence[Finding]) -> list[Verdict]:
        """Why a restored row does not show: MOVED where something newer was written, else HIDDEN."""
        verdicts = []
        for look in self.looks.at([finding.suspect for finding in hidden]):
            newest = None
            if isinstance(look, Look) and look.projected:
                newest = look.projected.newest
            verdict = Verdict.HIDDEN
            if newest and newest > self.policy.as_of:
                verdict = Verdict.MOVED
            verdicts.append(verdict)
        return verdicts

    def _take(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.result.suspects += 1
            self.breaker.note([finding])
            explained = finding
            if finding.result is Verdict.MOVED:
                explained = replace(finding, reason=USED_SINCE)
            self.result.count(explained)
            self.sink(explained)
