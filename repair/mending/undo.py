"""Taking a whole run back, and taking that back: the shell around `repair.decisions.undo_decision`.

A run wrote as of T; its undo writes as of T + 1 us, a redo (the undo of an undo) as of T + 2 us: what was written after
the scan began still wins, and what the run wrote always loses. An undo is a run of its own, with before-images.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from model.errors import CannotReach, ExitCode, MailmendError, WrongUse
from model.ids import RunId
from model.instants import MICROS
from model.ports import Clock, Progress, Tables
from model.projections.declarations import Counts, Family
from repair.clock import SKEW_SECONDS
from repair.decisions.findings import Errand, Outcome, Summary
from repair.decisions.fixes import Fix, Sight
from repair.decisions.undo_decision import known_again, take_back
from repair.decisions.verdicts import MENDABLE, Verdict
from repair.ledger.leases import Held, Leases
from repair.ledger.runs import Ledger, Run
from repair.mending.breaker import Breaker
from repair.mending.carry_out import Mending
from repair.mending.fixer import BATCH_SUSPECTS
from repair.mending.runner import lease_name, recorded
from repair.mending.second_look import SecondLook, places
from repair.mending.sums_of_run import count, exit_of


class CountersBack(Protocol):
    """What takes counters back. Adapter: `repair.mending.counters`."""

    def undo(self, images: Iterable[Outcome], errand: Errand, held: Held | None) -> Iterator[Outcome]:
        """One outcome for each image."""
        ...


@dataclass(frozen=True, slots=True)
class UndoOrder:
    """What an undo is asked for: the command's options, as one value."""

    run: RunId
    keyspace: str
    families: tuple[Family, ...]
    dry_run: bool = False
    serial: bool = True
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UndoMeans:
    """What an undo works with; without `counters`, counters stay as they are."""

    mail: Tables
    ledger: Ledger
    clock: Clock
    progress: Progress
    leases: Leases | None = None
    counters: CountersBack | None = None


def undo(order: UndoOrder, means: UndoMeans, sink: Callable[[Outcome], None]) -> Summary:
    """Put back every row of a run that nobody has used since; the rest is reported as MOVED.

    Raises:
        UnknownRun: the ledger holds no such run.
        WrongUse: it was a run of another keyspace.
        LeaseHeld: a repair of the keyspace is at work.
    """
    undone = means.ledger.get(order.run)
    if undone.keyspace != order.keyspace:
        raise WrongUse(
            f"run {undone.id} belongs to keyspace {undone.keyspace!r}, not to {order.keyspace!r}",
            mend=f"Give --keyspace {undone.keyspace}.",
        )
    if order.dry_run:
        return _Undoing(order, means, sink, undone, Summary(order.keyspace, "undo"), None).travel()
    lease = means.leases.held(lease_name(order.keyspace), "undo") if means.leases else nullcontext()
    with lease as held:
        run = means.ledger.start(
            order.keyspace, "undo", undone.as_of + 1, order.options, owner=order.owner, undoes=undone.id
        )
        summary = Summary(order.keyspace, "undo", run=run.id)
        with recorded(means.ledger, run, summary):
            return _Undoing(order, means, sink, undone, summary, held).travel()


@dataclass(slots=True)
class _Undoing:
    """One undo on its way through the findings of a run."""

    order: UndoOrder
    means: UndoMeans
    sink: Callable[[Outcome], None]
    undone: Run
    summary: Summary
    held: Held | None
    counted: list[Outcome] = field(default_factory=list)
    breaker: Breaker = field(default_factory=Breaker)

    def travel(self) -> Summary:
        """Every finding once, batch by batch; counters last."""
        started = self.means.clock.micros()
        self.means.progress.stage("undo")
        images = self._rows(self.means.ledger.findings(self.undone.id))
        while batch := list(islice(images, BATCH_SUSPECTS)):
            self._take(self._undone(batch))
            self.means.progress.advance(len(batch))
        if self.means.counters is not None and self.counted:
            self._take(self.means.counters.undo(self.counted, self._errand, self.held))
        self.summary.seconds["undo"] = (self.means.clock.micros() - started) / MICROS
        self.summary.exit = exit_of(self.summary) or (ExitCode.DRIFT if self.summary.moved else ExitCode.FINE)
        return self.summary

    @property
    def _errand(self) -> Errand:
        as_of = self.undone.as_of + 1
        return Errand(self.summary.run, as_of, SKEW_SECONDS, MENDABLE, serial=self.order.serial)

    def _rows(self, images: Iterable[Outcome]) -> Iterator[Outcome]:
        """The images of rows; those of counters are put aside."""
        known = places(self.order.families)
        for image in images:
            place = known.get(image.suspect.projection)
            if place is not None and isinstance(place.projection, Counts):
                self.counted.append(image)
            else:
                yield image

    def _undone(self, batch: Sequence[Outcome]) -> Iterator[Outcome]:
        if self.breaker.open:
            yield from (self.breaker.left(image.suspect) for image in batch)
            return
        known, looks = places(self.order.families), SecondLook(self.means.mail, self.order.families, self._errand)
        families = [known.get(image.suspect.projection) for image in batch]
        suspects = [
            known_again(image, place.family.mirror) if place else image.suspect
            for image, place in zip(batch, families, strict=True)
        ]
        due: list[Fix] = []
        for image, sight in zip(batch, looks.at(suspects), strict=True):
            ruled = self._ruled(image, sight)
            if isinstance(ruled, Fix):
                due.append(ruled)
            else:
                yield ruled
        yield from self._mended(due, looks)

    def _ruled(self, image: Outcome, sight: Sight | MailmendError) -> Fix | Outcome:
        if isinstance(sight, MailmendError):
            return Outcome(image.suspect, image.verdict, error=str(sight), unreached=isinstance(sight, CannotReach))
        origin = None
        if image.verdict is Verdict.LOST_CONTENT and self.undone.undoes is not None:
            origin = self.means.ledger.finding(self.undone.undoes, image.suspect)
        return take_back(image, sight, self.undone.as_of, origin)

    def _mended(self, due: Sequence[Fix], looks: SecondLook) -> Iterator[Outcome]:
        if self.summary.run is None:
            return (replace(fix.outcome, due=True) for fix in due)
        as_of = self.undone.as_of + 1

        def explain(hidden: Sequence[Fix]) -> list[Verdict]:
            sights = looks.at([fix.outcome.suspect for fix in hidden])
            return [_explanation(sight, as_of) for sight in sights]

        return Mending(self.means.mail, self.means.ledger, self.summary.run, as_of, explain).mend(due)

    def _take(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.summary.suspects += 1
            self.breaker.note([outcome])
            count(self.summary, outcome)
            self.sink(outcome)


def _explanation(sight: Sight | MailmendError, as_of: int) -> Verdict:
    """A row that does not show as it was put back: used just now, or hidden by something later."""
    projected = sight.look.projected if isinstance(sight, Sight) else None
    newest = projected.newest if projected else None
    return Verdict.MOVED if newest is not None and newest > as_of else Verdict.HIDDEN
