"""A check on record: its run in the ledger, its sums, and a bounded sample of its findings.

A check holds no lease of repairs: it may run next to a repair, and next to other checks. While it
runs, its process keeps a row of its own in the table of leases. A run that is RUNNING and has no
such row was killed; readers show it as INTERRUPTED (`at_present`).

A record that fails does not fail the check: its error is kept, and shown with the result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Self
from uuid import UUID

from mailmend.model.errors import MailmendError, came_of_interruption
from mailmend.model.ids import RunId
from mailmend.model.instants import instant_of
from mailmend.model.projections.findings import Finding
from mailmend.repair.decisions.finding_sample import FindingSample
from mailmend.repair.ledger.leases import TTL_SECONDS, Leases
from mailmend.repair.ledger.runs import Ledger, Run, RunKind, RunState, without_secrets
from mailmend.repair.mending.engine import RepairResult, Sink, is_counted

SAMPLE: Final = "sample"
"""Its name among the sums: how many findings the ledger has (`kept`), of how many (`found`)."""

_WRITTEN_TOGETHER: Final = 200


def check_lease(run: UUID) -> str:
    """The name of the row that says that a check is running."""
    return f"{RunKind.CHECK.value} {run}"


@dataclass(frozen=True, slots=True)
class RecordedCheck:
    """What the ledger has of a check.

    Attributes:
        run: the id of its run; None where none could be written.
        kept: how many findings are in the sample.
        found: how many findings the check had.
        error: the first failure of the record; None where it is complete.
    """

    run: RunId | None
    kept: int = 0
    found: int = 0
    error: MailmendError | None = None


@dataclass(slots=True)
class CheckRecord:
    """The record of one check, from its begin to its end.

    Attributes:
        opened: gives the ledger, which is created if missing, and the leases.
        keyspace: with the tables that are checked.
        options: the options of the command line; options that suggest a secret are left out.
        owner: this process, for people.
        sample: takes the findings.
        then: receives each finding too.
    """

    opened: Callable[[], tuple[Ledger, Leases]]
    keyspace: str
    options: dict[str, Any]
    owner: str = ""
    sample: FindingSample = field(default_factory=FindingSample)
    then: Sink | None = None
    ledger: Ledger | None = None
    run: Run | None = None
    error: MailmendError | None = None
    so_far: RepairResult = field(init=False)

    def __post_init__(self) -> None:
        self.so_far = RepairResult(self.keyspace, RunKind.CHECK)

    def take(self, finding: Finding) -> None:
        self.so_far.count(finding)
        if is_counted(finding):
            self.sample.add(finding)
        if self.then is not None:
            self.then(finding)

    def note(self, options: Mapping[str, Any]) -> None:
        """Add options that are known only now."""
        self.options.update(options)

    @contextmanager
    def at_work(self) -> Iterator[Self]:
        """The record while the body checks; a check that raises is closed with its sums so far."""
        with ExitStack() as held:
            try:
                self._begin(held)
            except MailmendError as error:
                self.error = error
            try:
                yield self
            except BaseException as error:
                sums = self.so_far.kept
                del sums["exit"]
                state = RunState.FAILED
                if came_of_interruption(error):
                    state = RunState.INTERRUPTED
                with suppress(KeyboardInterrupt):  # pressed again: the run is shown as killed
                    self.end(sums, state)
                raise

    def _begin(self, held: ExitStack) -> None:
        self.ledger, leases = self.opened()
        as_of = self.ledger.clock.micros()
        command = RunKind.CHECK.value
        self.run = self.ledger.start(self.keyspace, command, as_of, self.options, owner=self.owner)
        held.enter_context(leases.held(check_lease(self.run.id), command))

    def end(self, sums: Mapping[str, Any], state: RunState = RunState.DONE) -> RecordedCheck:
        """Write the sample, then the sums; call it once, within `at_work`."""
        found = self.sample.added
        if self.run is None or self.ledger is None:
            return RecordedCheck(None, found=found, error=self.error)
        kept = self._write_sample(self.ledger, self.run)
        summary = {**sums, SAMPLE: {"kept": kept, "found": found}}
        run = replace(self.run, options={**self.run.options, **without_secrets(self.options)})
        try:
            self.ledger.finish(run, summary, state)
        except MailmendError as error:
            self.error = self.error or error
        return RecordedCheck(run.id, kept, found, self.error)

    def _write_sample(self, ledger: Ledger, run: Run) -> int:
        """The number of findings that the ledger has; a batch that failed is the last one."""
        kept = 0
        pending = iter(self.sample.findings)
        while batch := list(islice(pending, _WRITTEN_TOGETHER)):
            failures = _written(ledger, run, batch)
            kept += failures.count(None)
            errors = [failure for failure in failures if failure is not None]
            if errors:
                self.error = self.error or errors[0]
                break
        return kept


def _written(ledger: Ledger, run: Run, findings: Sequence[Finding]) -> list[MailmendError | None]:
    """The error of each finding; None where the ledger has it."""
    try:
        errors = ledger.record(run.id, run.as_of, findings)
        with_result = [finding for finding in findings if finding.result or finding.error]
        if with_result:
            errors += [error for error in ledger.settle(run.id, with_result) if error]
    except MailmendError as error:
        return [error]
    return errors


def at_present(runs: Sequence[Run], ledger: Ledger, leases: Leases) -> list[Run]:
    """The runs, in which a check whose process was killed is INTERRUPTED; it has no end."""
    settled = instant_of(ledger.clock.micros()) - timedelta(seconds=TTL_SECONDS)
    shown = []
    for run in runs:
        is_open = run.command == RunKind.CHECK and run.state is RunState.RUNNING
        if is_open and run.started_at < settled:
            shown.append(_killed_or_ended(run, ledger, leases))
        else:
            shown.append(run)
    return shown


def _killed_or_ended(run: Run, ledger: Ledger, leases: Leases) -> Run:
    if leases.standing([check_lease(run.id)]):
        return run
    now = ledger.get(run.id)  # it may have ended since it was read
    if now.state is RunState.RUNNING:
        return replace(now, state=RunState.INTERRUPTED)
    return now
