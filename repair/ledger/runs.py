"""Runs in the ledger, with their before-images and results.

Nothing is destroyed without a before-image (docs/design.md, "Ledger"), and a task that is retried must not replace it
by what its own earlier attempt wrote. Two things see to that, without a conditional write per row:

- A row that carries the run's own stamp is never recorded: it is not a before-image (`Ledger.record`).
- What is recorded is written at 2 T - now, a stamp that falls as time goes on, so of several attempts' images the
  earliest stays. It is one cell, so two attempts in the same microsecond leave one image whole, never a mixture; both
  were read before either had written. Expiry counts from the write, not from its stamp: each attempt renews it.

What became of a finding is written apart, under the session's own rising stamps: there the latest wins.

The limits that a person sets for a run while it is at work are here too: the newest counts, all stay.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Any, Final
from uuid import UUID

from mailmend.model.catalog.ledger import (
    FINDING_BUCKETS,
    KEEP,
    REPAIR_FINDING,
    REPAIR_RUN,
    RUN_LIMIT,
    bucket_of,
    day_of,
    days_back,
)
from mailmend.model.errors import MailmendError, SchemaMismatch, TableOpening, UnknownRun, WrongUse
from mailmend.model.ids import RunId, later_uuid, micros_of
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level, Put, Read, Scan, Seen
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row
from mailmend.model.texts import noted
from mailmend.repair.ledger.before_images import image_from, image_text, key_text
from mailmend.repair.log_fields import log_fields, put_log_field
from mailmend.repair.retries import Retries, RetryPolicy

_BUCKETS_AT_ONCE = 16
_WHILE_MADE = RetryPolicy(retries=8, wait_seconds_min=0.05)
_SUMS_LOGGED = ("suspects", "fixed", "left", "moved", "failed", "untried")
_LOG = logging.getLogger("mailmend.runs")
_SECRET = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)


class RunKind(StrEnum):
    """What a run does. The value is its name for people.

    The ledger keeps runs of lags and of plans of messages as MESSAGES: all three share one lease, one history of runs
    and one undo.
    """

    CHECK = "check"
    MESSAGES = "repair"
    LAGS = "repair lags"
    QUEUES = "repair queues"
    BLOBS = "repair blobs"
    APPLY = "apply"
    UNDO = "undo"


class RunState(Enum):
    """The state of a run."""

    RUNNING = "RUNNING"  # running; killed where no lease is held any more
    DONE = "DONE"
    INTERRUPTED = "INTERRUPTED"  # stopped by a person; what was fixed stays fixed
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Run:
    """One run in the ledger.

    Attributes:
        as_of: T of the run, in microseconds; its fixes carry this stamp.
        options: the options of the command line, without secrets, and the `job` that began it.
        summary: the final sums, with the names of `--json`.
        undoes: the run that this one undid, or None.
    """

    id: RunId
    keyspace: str
    command: str
    state: RunState
    as_of: int
    started_at: datetime
    ended_at: datetime | None = None
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    undoes: RunId | None = None


@dataclass(frozen=True, slots=True, order=True)
class FindingPosition:
    """The place of a finding among the findings of its run.

    Attributes:
        bucket: of `FINDING_BUCKETS`.
        key: the text of the suspect's key.
    """

    bucket: int
    projection: str
    key: str

    @classmethod
    def of(cls, suspect: Suspect) -> "FindingPosition":
        key = key_text(suspect.key)
        return cls(bucket_of(key, FINDING_BUCKETS), suspect.projection, key)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Runs and findings in the tables of the ledger keyspace.

    Args:
        tables: the ledger keyspace (`model.catalog.ledger`).
        keep: how long runs and findings stay.
        job: the job that starts runs; "" where a person does.
    """

    tables: Tables
    clock: Clock
    keep: timedelta = KEEP
    job: str = ""

    def start(
        self,
        keyspace: str,
        command: str,
        as_of: int,
        options: Mapping[str, Any],
        *,
        owner: str = "",
        undoes: RunId | None = None,
    ) -> Run:
        """Record a run, before anything is written elsewhere."""
        run_id = RunId(self.clock.new_uuid())
        kept_options = without_secrets(options)
        if self.job:
            kept_options["job"] = self.job
        run = Run(
            id=run_id,
            keyspace=keyspace,
            command=command,
            state=RunState.RUNNING,
            as_of=as_of,
            started_at=instant_of(self.clock.micros()),
            owner=owner,
            options=kept_options,
            undoes=undoes,
        )
        self._keep_run(run)
        put_log_field("run", str(run_id))
        fields = {"run": str(run_id), "keyspace": keyspace, "command": command, "as_of": as_of, "undoes": undoes}
        _LOG.info("run began", extra=fields)
        return run

    def finish(self, run: Run, summary: Mapping[str, Any], state: RunState = RunState.DONE) -> Run:
        closed = replace(run, state=state, ended_at=instant_of(self.clock.micros()), summary=summary)
        self._keep_run(closed)
        sums = {name: summary.get(name) for name in _SUMS_LOGGED}
        _LOG.info("run ended", extra={"run": str(run.id), "state": state.value, **sums})
        if log_fields().get("run") == str(run.id):
            put_log_field("run", "")
        return closed

    def interrupt(self, run: Run, summary: Mapping[str, Any]) -> Run:
        return self.finish(run, summary, RunState.INTERRUPTED)

    def record(self, run: RunId, as_of: int, findings: Sequence[Finding]) -> list[MailmendError | None]:
        """Record before-images; for each finding its error, or None once it is safe.

        Only what is safe may be overwritten. A row with the run's own stamp is left out: an earlier attempt of the same
        task recorded what was there before.
        """
        at = 2 * as_of - self.clock.micros()
        due = []
        puts = []
        for place, finding in enumerate(findings):
            if not _bears(finding.projected, as_of):
                due.append(place)
                puts.append(self._image(run, finding, at))
        errors: list[MailmendError | None] = [None] * len(findings)
        for place, error in zip(due, self.tables.write_all(puts), strict=True):
            errors[place] = error
        return errors

    def settle(self, run: RunId, findings: Sequence[Finding]) -> list[MailmendError | None]:
        """Record the findings' results; for each its error, or None."""
        return self.tables.write_all([self._result(run, finding) for finding in findings])

    def findings(self, run: RunId) -> Iterator[Finding]:
        """All findings of a run, streamed bucket by bucket."""
        for first in range(0, FINDING_BUCKETS, _BUCKETS_AT_ONCE):
            buckets = range(first, first + _BUCKETS_AT_ONCE)
            reads = [Read(REPAIR_FINDING, (day_of(run), run, bucket)) for bucket in buckets]
            for answer in self.tables.read_all(reads):
                yield from _findings(answer)

    def findings_after(
        self, run: RunId, after: FindingPosition | None = None
    ) -> Iterator[tuple[FindingPosition, Finding]]:
        """The findings of a run behind a position, with their positions and in their order.

        The first buckets are read one by one, later ones together: a page costs little wherever it
        begins, and so does a run with few findings.

        Args:
            run: the run.
            after: None: from the first finding on.
        """
        first = 0
        if after:
            first = after.bucket
        at_once = 1
        while first < FINDING_BUCKETS:
            buckets = range(first, min(first + at_once, FINDING_BUCKETS))
            reads = [Read(REPAIR_FINDING, (day_of(run), run, bucket)) for bucket in buckets]
            for answer in self.tables.read_all(reads):
                for finding in _findings(answer):
                    position = FindingPosition.of(finding.suspect)
                    if after is None or position > after:
                        yield position, finding
            first = buckets.stop
            at_once = min(2 * at_once, _BUCKETS_AT_ONCE)

    def finding(self, run: RunId, suspect: Suspect) -> Finding | None:
        """The run's finding of one suspect, or None."""
        return next(_findings(self.tables.read(Read(REPAIR_FINDING, _finding_key(run, suspect)))), None)

    def recalled(self, run: RunId, suspects: Sequence[Suspect]) -> list[Finding | None]:
        """The run's finding of each suspect; None where there is no finding, or no node answered."""
        reads = [Read(REPAIR_FINDING, _finding_key(run, suspect), joinable=True) for suspect in suspects]
        recalled = []
        for answer in self.tables.read_all(reads):
            finding = None
            if not isinstance(answer, MailmendError):
                finding = next(_findings(answer), None)
            recalled.append(finding)
        return recalled

    def get(self, run: UUID) -> Run:
        """The run.

        Raises:
            UnknownRun: the ledger has no run of that id (any more).
        """
        seen: Sequence[Seen] = ()
        if run.version == 1:  # the day of another UUID is not known
            seen = self.tables.read(Read(REPAIR_RUN, (day_of(run), run)))
        if not seen:
            raise UnknownRun(f"the ledger holds no run {run}", mend="List those that it holds with: mailmend runs list")
        return _run_of(seen[0].row)

    def id_of(self, run: UUID | str) -> UUID:
        """The id of a run that is named by its id, or by the beginning of its id.

        Raises:
            UnknownRun: no run that was kept lately has an id that begins like this.
            WrongUse: several runs have one.
        """
        if isinstance(run, UUID):
            return run
        found = []
        for known in self.runs():
            if str(known.id).startswith(run):
                found.append(known.id)
        if not found:
            days = self.keep.days
            raise UnknownRun(
                f"the ledger holds no run of the last {days} days whose id begins with {run}",
                mend="List them with: mailmend runs list --all. A whole id names an older run too.",
            )
        if len(found) > 1:
            ids = ", ".join(map(str, found))
            raise WrongUse(
                f"{len(found)} runs have an id that begins with {run}",
                mend=f"Name one: {ids}.",
            )
        return found[0]

    def runs(self, keyspace: str | None = None) -> list[Run]:
        """The recorded runs, newest first; of one mail keyspace, or of all."""
        runs = self._begun_on(days_back(self.clock.micros(), self.keep))
        return [run for run in runs if keyspace is None or run.keyspace == keyspace]

    def newest_runs(self, keyspace: str) -> Iterator[Run]:
        """The recorded runs of one mail keyspace, newest first; a day is read only when the iteration reaches it."""
        for day in days_back(self.clock.micros(), self.keep):
            for run in self._begun_on((day,)):
                if run.keyspace == keyspace:
                    yield run

    def _begun_on(self, days: Sequence[str]) -> list[Run]:
        """The runs of the days; a node that does not have the table yet is asked for some seconds."""
        reads = [Read(REPAIR_RUN, (day,)) for day in days]

        def read() -> list[Run]:
            runs = []
            for answer in self.tables.read_all(reads):
                for seen in _answered(answer):
                    runs.append(_run_of(seen.row))
            return runs

        return Retries(self.clock, _WHILE_MADE).call(read, kinds=(TableOpening, SchemaMismatch))

    def _keep_run(self, run: Run) -> None:
        self.tables.write(Put(REPAIR_RUN, _row_of(run), ttl_seconds=self._ttl))

    def _image(self, run: RunId, finding: Finding, at: int) -> Put:
        row = REPAIR_FINDING.key_row(_finding_key(run, finding.suspect)) | {"before": image_text(finding)}
        return Put(REPAIR_FINDING, row, at=at, ttl_seconds=self._ttl, joinable=True)

    def _result(self, run: RunId, finding: Finding) -> Put:
        result = ""
        if finding.result:
            result = finding.result.value
        cells = {"result": result, "error": noted(finding.error or "")}
        row = REPAIR_FINDING.key_row(_finding_key(run, finding.suspect)) | cells
        return Put(REPAIR_FINDING, row, ttl_seconds=self._ttl, joinable=True)

    @property
    def _ttl(self) -> int:
        return int(self.keep.total_seconds())


def without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those whose name suggests a secret, whatever the value."""
    return {name: value for name, value in options.items() if not _SECRET.search(name)}


def _bears(projected: Seen | None, as_of: int) -> bool:
    return projected is not None and as_of in projected.written_at.values()


def _finding_key(run: RunId, suspect: Suspect) -> Key:
    key = key_text(suspect.key)
    return (day_of(run), run, bucket_of(key, FINDING_BUCKETS), suspect.projection, key)


def _answered(answer: Sequence[Seen] | MailmendError) -> Sequence[Seen]:
    if isinstance(answer, MailmendError):
        raise answer
    return answer


def _findings(answer: Sequence[Seen] | MailmendError) -> Iterator[Finding]:
    """The findings of one bucket; a result whose image has expired is skipped."""
    for seen in _answered(answer):
        row = seen.row
        if not row.get("before"):
            continue
        result = None
        if row.get("result"):
            result = Verdict(row["result"])
        yield image_from(row["before"], result=result, error=row.get("error") or None)


def _row_of(run: Run) -> dict[str, Any]:
    return {
        "day": day_of(run.id),
        "run": run.id,
        "keyspacename": run.keyspace,
        "command": run.command,
        "state": run.state.value,
        "asof": run.as_of,
        "startedat": run.started_at,
        "endedat": run.ended_at,
        "owner": run.owner,
        "options": json.dumps(dict(run.options), default=str),
        "summary": json.dumps(dict(run.summary), default=str),
        "undoes": run.undoes,
    }


def _run_of(row: Row) -> Run:
    return Run(
        id=RunId(row["run"]),
        keyspace=row["keyspacename"],
        command=row["command"],
        state=RunState(row["state"]),
        as_of=row["asof"],
        started_at=row["startedat"],
        ended_at=row.get("endedat"),
        owner=row.get("owner") or "",
        options=json.loads(row["options"]),
        summary=json.loads(row["summary"]),
        undoes=row.get("undoes"),
    )


TO_END: Final = 0
"""The rows per second that tell a job's run to end."""


@dataclass(frozen=True, slots=True)
class RunLimit:
    """Limits that a person set for a run; None: the limit with which it was started. `set_at` is the row's time."""

    rows_per_second: int | None = None
    max_fixes: int | None = None
    set_at: datetime | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits in the ledger keyspace, by the id of a job's run, or of a repair that no job began.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the ledger keyspace, for executors on other hosts.
    """

    tables: Tables
    clock: Clock
    keyspace: str = ""

    def put(self, run: UUID, limit: RunLimit) -> RunLimit:
        cells = {"rowspersecond": limit.rows_per_second, "maxfixes": limit.max_fixes, "owner": noted(limit.owner)}
        at = self.clock.new_uuid()
        before = self._newest_row(run)
        if before is not None:
            at = later_uuid(at, before["at"])  # the clock of another host may be ahead
        row = RUN_LIMIT.key_row((run, at)) | cells
        self.tables.write(Put(RUN_LIMIT, row))
        return _limit_of(row)

    def newest(self, run: UUID) -> RunLimit | None:
        row = self._newest_row(run)
        if row is None:
            return None
        return _limit_of(row)

    def _newest_row(self, run: UUID) -> Row | None:
        rows = self.tables.scan(Scan(RUN_LIMIT, RUN_LIMIT.names, Level.QUORUM, under=(run,), limit=1))
        return next(iter(rows), None)


def _limit_of(row: Row) -> RunLimit:
    return RunLimit(row["rowspersecond"], row["maxfixes"], instant_of(micros_of(row["at"])), row["owner"] or "")
