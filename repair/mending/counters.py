"""Mends counters, the only projection whose writes have no stamp and cannot be repeated (docs/design.md, "Counters").

The rule was checked with a model: once a group's rows agree, two looks that lie further apart than
A must see the same truth and the same counters; only then is nothing in flight between them, and
one delta is sent once, under a lease of the group. A doubtful answer is not sent again: the group
is journalled for a recount. Many groups share one wait. Truths without content or torn may be
counted or not: anything between is right.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from mailmend.model.errors import CannotReach, DoubtfulWrite, MailmendError, Unjournalled
from mailmend.model.operations import Count, Level, Read
from mailmend.model.ports import Clock, Lags, Progress, Silent, Tables
from mailmend.model.projections.family import Counts, Family
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row
from mailmend.model.waiting import wait_visibly
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.before_images import as_planned, key_text
from mailmend.repair.ledger.leases import Lease, Leases, TakenLease
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.counter_reads import Tallies, Tally
from mailmend.repair.mending.limits import (
    COUNTERS_UNREACHED_MAX,
    Breaker,
    batches_at_once,
    side_by_side,
)

GROUPS_AT_ONCE = 200
"""The largest number of groups that share one wait between two looks."""

LEASE_SECONDS = 600
"""The time to live of a group's lease, in seconds: two looks at all groups of a batch must take less."""

STATEMENT_SECONDS = 20.0
"""How long, in seconds, a lease must still last when a delta is sent: longer than any statement takes."""

_SILENT = Silent()

_UNRECORDED = "nothing was written, because its before-image could not be recorded: "
_DOUBTFUL = "the delta may or may not have been added; it is not sent again, "
_BY_LAGS = "`mailmend repair lags` recounts: "
_BY_CHECK = "the next check recounts: "

Suspects = Callable[[], Iterable[Suspect]]
"""Returns all suspects of a scan; may be called repeatedly."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision after two looks at a group: verdict, result if there is one, and deltas (empty: no write).

    Attributes:
        waits: whether the deltas must wait until the rows of the group agree.
    """

    verdict: Verdict
    result: Verdict | None = None
    deltas: Mapping[str, int] = field(default_factory=dict)
    waits: bool = False


CounterRule = Callable[[Suspect, Tally, Tally], Ruling]


def mending(_: Suspect, first: Tally, second: Tally) -> Ruling:
    """Decide a repair: only where nothing changed between the looks and all rows of the group agree."""
    if not second.deltas:
        return Ruling(Verdict.AGREE)
    verdict = Verdict.AMEND
    if second.row is None:
        verdict = Verdict.PROJECT
    if not first.same_as(second):
        return Ruling(verdict, Verdict.MOVED)
    return Ruling(verdict, None, second.deltas, waits=not second.settled)


def taking_back(suspect: Suspect, first: Tally, second: Tally) -> Ruling:
    """Decide an undo: only where the counters are, at both looks, as the run left them.

    `suspect.wanted` has (left, found) for each counter.
    """
    left = {}
    deltas = {}
    reversed_already = True
    for name, (now, found) in suspect.wanted.items():
        left[name] = now
        if found != now:
            deltas[name] = found - now
        if second.counters.get(name) != found:
            reversed_already = False
    if reversed_already:  # or the deltas never arrived
        return Ruling(Verdict.AGREE)
    if not first.same_as(second) or second.counters != left:
        return Ruling(Verdict.AMEND, Verdict.MOVED)
    return Ruling(Verdict.AMEND, None, deltas)


def truths_beside(
    family: Family, counts: Counts, groups: Iterable[Key], suspects: Iterable[Suspect]
) -> dict[Key, tuple[Key, ...]]:
    """Partition keys of truths that a scan saw in these groups and that the mirror may not lead to.

    The suspect of a plan's counters names them itself: it may be the only one of its group that is planned.
    """
    found: dict[Key, dict[Key, None]] = {group: {} for group in groups}
    mirror = family.mirror
    for suspect in suspects:
        if suspect.projection not in {mirror.name, counts.name} or not suspect.truth_keys:
            continue
        group = suspect.key
        if suspect.projection == mirror.name:
            group = counts.key_of(mirror.truth_part(suspect.key))
        if group in found:
            found[group] |= dict.fromkeys(suspect.truth_keys)
    beside = {}
    for group, leads in found.items():
        if leads:
            beside[group] = tuple(leads)
    return beside


@dataclass(frozen=True, slots=True)
class CounterMender:
    """Looks twice at suspect counters and mends what the policy allows.

    Args:
        mail: the mail keyspace, called `keyspace` in the names of leases.
        journal, leases: where before-images go, and one lease for each group; not needed by a policy without a run.
        lags: the journal for groups to be recounted; None: the next check finds them.
    """

    mail: Tables
    keyspace: str
    families: tuple[Family, ...]
    clock: Clock
    timing: Timing
    journal: Ledger | None = None
    leases: Leases | None = None
    lags: Lags | None = None

    def revisit(
        self,
        suspects: Suspects,
        policy: RepairPolicy,
        held: TakenLease | None = None,
        progress: Progress = _SILENT,
    ) -> Iterator[Finding]:
        """One finding for each suspect of counters; the others only name truths that are not projected."""
        for family in self.families:
            for counts in family.counts:
                due = [suspect for suspect in suspects() if suspect.projection == counts.name]
                if not due:
                    continue
                groups = [suspect.key for suspect in due]
                beside = truths_beside(family, counts, groups, suspects())
                tallies = Tallies(self.mail, family, counts, policy, beside)
                yield from _Round(self, policy, held, counts, tallies, mending, progress).all(due)

    def undo(
        self,
        images: Iterable[Finding],
        policy: RepairPolicy,
        held: TakenLease | None = None,
        progress: Progress = _SILENT,
    ) -> Iterator[Finding]:
        """Reverse a run's deltas, from its before-images, where the counters are as that run left them."""
        recorded = list(images)
        for family in self.families:
            for counts in family.counts:
                due = []
                for image in recorded:
                    if image.suspect.projection == counts.name:
                        due.append(_taken_back(image, counts))
                tallies = Tallies(self.mail, family, counts, policy, {})
                looks = _Round(self, policy, held, counts, tallies, taking_back, progress)
                yield from looks.all(due)


@dataclass(frozen=True, slots=True)
class _Visit:
    suspect: Suspect
    lease: Lease | None = None
    first: Tally | None = None
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class _Round:
    mender: CounterMender
    policy: RepairPolicy
    held: TakenLease | None
    counts: Counts
    tallies: Tallies
    rule: CounterRule
    progress: Progress
    breaker: Breaker = field(default_factory=lambda: Breaker(COUNTERS_UNREACHED_MAX))

    def all(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """One finding for each suspect, in order; after the cluster is lost the rest is skipped."""
        waiting = iter(suspects)
        while batch := list(islice(waiting, GROUPS_AT_ONCE)):
            yield from self._batch(batch)

    def _batch(self, suspects: Sequence[Suspect]) -> list[Finding]:
        """Take all leases and look; wait once for all; look again, and mend."""
        leased = [self._leased(suspect) for suspect in suspects]
        try:
            at_once = batches_at_once(self.policy.rows_per_second)
            visits = list(side_by_side(self._looked, iter(leased), at_once))
            if any(visit.finding is None for visit in visits):
                self._wait()
            if self.policy.run is not None:  # deltas are sent one by one
                at_once = 1
            return list(side_by_side(self._ruled, iter(visits), at_once))
        finally:
            self._release(leased)

    def _wait(self) -> None:
        seconds = self.mender.timing.look_gap_seconds
        what = "waiting for writes under way before the second look at counters"
        wait_visibly(self.mender.clock, self.progress, what, seconds)
        if seconds:
            self.progress.stage("second look at counters")

    def _leased(self, suspect: Suspect) -> _Visit:
        leases = self._leases
        if self.breaker.open:
            return _Visit(suspect, finding=self.breaker.left(suspect))
        if leases is None:
            return _Visit(suspect)
        name = f"counters {self.mender.keyspace} {self.counts.name} {key_text(suspect.key)}"
        try:
            return _Visit(suspect, lease=leases.acquire(name, "mending counters"))
        except MailmendError as error:
            return _Visit(suspect, finding=self._failed(suspect, error))

    def _looked(self, visit: _Visit) -> _Visit:
        if visit.finding is not None:
            return visit
        if self.breaker.open:
            return replace(visit, finding=self.breaker.left(visit.suspect))
        try:
            if self.rule is not mending:
                return replace(visit, first=self.tallies.first(visit.suspect.key))
            first = self.tallies.first(visit.suspect.key, visit.suspect.wanted, compare=self._looks_once)
            if first.deltas:
                return replace(visit, first=first)
            finding = self._carried_out(visit, first, Ruling(Verdict.AGREE))
            return replace(visit, first=first, finding=finding)
        except MailmendError as error:
            return replace(visit, finding=self._failed(visit.suspect, error))

    def _ruled(self, visit: _Visit) -> Finding:
        if visit.finding is not None:
            return visit.finding
        assert visit.first is not None, "a visit without a finding was looked at"
        if self.breaker.open:
            return self.breaker.left(visit.suspect)
        try:
            second = visit.first
            if not self._looks_once:
                second = self._second(visit.suspect.key, visit.first)
            ruling = self.rule(visit.suspect, visit.first, second)
            finding = self._carried_out(visit, second, ruling)
        except MailmendError as error:
            return self._failed(visit.suspect, error)
        self.breaker.note([finding])
        return finding

    def _second(self, group: Key, first: Tally) -> Tally:
        level = Level.QUORUM
        if self.policy.serial and self.policy.run is not None:
            level = Level.SERIAL  # finishes what conditional writes left open, before a delta is decided
        return self.tallies.look(group, level, compare=self.rule is mending, contents=first.contents)

    def _carried_out(self, visit: _Visit, second: Tally, ruling: Ruling) -> Finding:
        target = {name: value + ruling.deltas.get(name, 0) for name, value in second.counters.items()}
        beside = self.tallies.beside.get(visit.suspect.key, ())
        suspect = replace(visit.suspect, wanted=target, truth_keys=beside)
        image = as_planned(Finding(suspect, ruling.verdict, ruling.result, projected=second.row))
        allowed = self.policy.all_truths and ruling.verdict in self.policy.only
        sent = bool(ruling.deltas) and not ruling.waits and image.result is None
        asked = sent and (allowed or self.rule is taking_back)
        if not asked or self.policy.run is None:
            return replace(image, due=asked)
        return self._sent(visit, image, ruling.deltas)

    def _sent(self, visit: _Visit, image: Finding, deltas: Mapping[str, int]) -> Finding:
        """Record the before-image, check the leases, send once, read back, record the result."""
        journal = self.mender.journal
        run = self.policy.run
        assert journal is not None, "a policy with a run has a journal"
        assert run is not None
        (unrecorded,) = journal.record(run, self.policy.as_of, [image])
        if unrecorded is not None:
            return replace(image, error=f"{_UNRECORDED}{unrecorded}")
        self._make_sure(visit)
        finding = self._counted(image, deltas)
        (unnoted,) = journal.settle(run, [finding])
        if unnoted is None or finding.error:
            return finding
        return replace(finding, error=f"not noted: {unnoted}")

    def _make_sure(self, visit: _Visit) -> None:
        if self.held is not None:
            self.held.check(STATEMENT_SECONDS)
        if self._leases is not None and visit.lease is not None:
            self._leases.renew(visit.lease)

    def _counted(self, image: Finding, deltas: Mapping[str, int]) -> Finding:
        key = image.suspect.key
        try:
            self.mender.mail.write(Count(self.counts.table, key, deltas))
        except DoubtfulWrite as error:
            return replace(image, error=f"{_DOUBTFUL}{self._recounted_by(image.suspect, error)}{error}")
        try:
            seen = self.mender.mail.read(Read(self.counts.table, key))
        except MailmendError as error:
            return replace(image, result=Verdict.FIXED, error=f"written, but not read back: {error}")
        wanted = image.suspect.wanted
        if seen and all((seen[0].row.get(name) or 0) == now for name, now in wanted.items()):
            return replace(image, result=Verdict.FIXED)
        return replace(image, result=Verdict.HIDDEN)

    def _recounted_by(self, suspect: Suspect, error: DoubtfulWrite) -> str:
        """What will recount. An undo in doubt is not recounted: that would mend what it takes back."""
        if self.mender.lags is None or self.rule is taking_back:
            return _BY_CHECK
        try:
            self.mender.lags.journal([replace(suspect, wanted={})], error.what)
        except Unjournalled:
            return _BY_CHECK
        return _BY_LAGS

    def _failed(self, suspect: Suspect, error: MailmendError) -> Finding:
        finding = Finding(suspect, suspect.verdict, error=str(error), unreached=isinstance(error, CannotReach))
        self.breaker.note([finding])
        return finding

    def _release(self, visits: Iterable[_Visit]) -> None:
        for visit in visits:
            if self._leases is not None and visit.lease is not None and not self.breaker.open:
                self._leases.release(visit.lease)

    @property
    def _looks_once(self) -> bool:
        """Without writes, by other programs and by this run, a second look would follow at once and see the same."""
        return self.policy.run is None and not self.mender.timing.look_gap_seconds

    @property
    def _leases(self) -> Leases | None:
        if self.policy.run is None or self.mender.leases is None:
            return None
        return replace(self.mender.leases, ttl_seconds=LEASE_SECONDS)


def _taken_back(image: Finding, counts: Counts) -> Suspect:
    """The suspect of an undo: for each counter what the run left and what it had found."""
    found: Row = {}
    if image.projected:
        found = image.projected.row
    pairs = {}
    for name, _ in counts.counters:
        pairs[name] = (image.suspect.wanted[name], found.get(name) or 0)
    return replace(image.suspect, verdict=Verdict.AMEND, wanted=pairs)
