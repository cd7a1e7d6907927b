"""Every metric that mailmend exposes, as data, and what a run tells as metrics.

`docs/metrics.md`, alerts and dashboard are held against the table of metrics. No label names a
message, a user or a mailbox, or what changes with each run: its values stay few.

A run tells its result by the names of `--json`, and how it ended. A run that came to no result says
how it ended, and leaves in its file what the run before it had found; when the last success was
stays there until the next one. So an alert does not end because a check cannot be carried out any
more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from json import dumps, loads
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mailmend.admin.frame.cluster import this_clock
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.delivery.metrics import DELIVERY_METRICS, LISTENER_METRICS
from mailmend.mailqueue.prometheus import QUEUE_METRICS, metrics_text, samples_in
from mailmend.model.errors import ExitCode, MailmendError, exit_code_of
from mailmend.model.instants import MICROS
from mailmend.model.metrics import Metric, MetricSample
from mailmend.repair.decisions.left_sample import FirstSeen, LeftKeys, first_seen, oldest

_RUN: Final = ("keyspace", "command", "job_name")
_JOB: Final = ("keyspace", "job_name")

RUN_EXIT_CODE: Final = Metric("mailmend_run_exit_code", "Exit code of the last run", _RUN)
RUN_END: Final = Metric(
    "mailmend_run_end_timestamp_seconds",
    "When the last run ended",
    _RUN,
    no_alert="MailmendJobHasNoSuccess covers jobs; a run by hand has no next run to wait for",
)
RUN_DURATION: Final = Metric(
    "mailmend_run_duration_seconds",
    "Duration of the last run",
    _RUN,
    no_alert="A run has a maximum duration; MailmendLeaseHeldTooLong covers a run that still goes on",
)
RUN_LAST_SUCCESS: Final = Metric(
    "mailmend_run_last_success_timestamp_seconds",
    "End of the last run that ended with 0 or 1",
    _RUN,
    no_alert="MailmendJobHasNoSuccess covers jobs; after a run by hand no next run is due",
)
RUN_FINDINGS: Final = Metric(
    "mailmend_run_findings",
    "What the last run with a result found, by projection (table) and verdict",
    (*_RUN, "projection", "verdict"),
    no_alert="A repair mends findings; MailmendDriftStays and MailmendRepairLeavesSome cover what remains",
)
RUN_FIXED: Final = Metric("mailmend_run_fixed", "Findings that the last run mended", (*_RUN, "verdict"))
RUN_LEFT: Final = Metric(
    "mailmend_run_left",
    "Findings that the last run left; for a check: all that a repair would look at",
    (*_RUN, "verdict"),
)
FINDING_OLDEST: Final = Metric(
    "mailmend_finding_oldest_timestamp_seconds",
    "Since when the oldest finding that is left has existed: the start of the first of the consecutive runs that saw"
    " it. At most 200 findings of each verdict are followed (the same ones in each run); for blobs, each verdict as a"
    " whole",
    (*_RUN, "verdict"),
)
RUN_MOVED: Final = Metric(
    "mailmend_run_moved",
    "Findings that changed meanwhile, and are left to the next run",
    _RUN,
    no_alert="The next run looks at them again",
)
RUN_FAILED: Final = Metric(
    "mailmend_run_failed",
    "Findings that could not be mended or looked at again",
    _RUN,
    no_alert="Such a run ends with 3: MailmendRunFailed or MailmendJobFailed",
)
RUN_ROWS_READ: Final = Metric(
    "mailmend_run_rows_read",
    "Rows that the last run read",
    (*_RUN, "table"),
    no_alert="Informational: a large table is not an error",
)
RUN_ROWS_PER_SECOND: Final = Metric(
    "mailmend_run_rows_per_second",
    "Rows per second that the scan of the last run read, of all tables together",
    _RUN,
    no_alert="The pace follows from its limit and the cluster's load; a run that takes too long has its own alerts",
)
RUN_STAGE: Final = Metric(
    "mailmend_run_stage_duration_seconds",
    "Duration of a stage of the last run",
    (*_RUN, "stage"),
    no_alert="Informational: where the time went",
)
RUN_QUEUE_MARKS: Final = Metric(
    "mailmend_run_queue_marks",
    "Marks of removed mails that the last run counted",
    (*_RUN, "queue"),
    no_alert="MailmendMarksGrow covers the marks of all queues together",
)

RUNS: Final = (
    RUN_EXIT_CODE,
    RUN_END,
    RUN_DURATION,
    RUN_LAST_SUCCESS,
    RUN_FINDINGS,
    RUN_FIXED,
    RUN_LEFT,
    FINDING_OLDEST,
    RUN_MOVED,
    RUN_FAILED,
    RUN_ROWS_READ,
    RUN_ROWS_PER_SECOND,
    RUN_STAGE,
    RUN_QUEUE_MARKS,
)
"""The metrics of one run: in the file of `--metrics-file`, and for repairs in the ledger too."""

JOB_NEXT: Final = Metric("mailmend_job_next_run_timestamp_seconds", "When the job is due next", _JOB)
JOB_PERIOD: Final = Metric("mailmend_job_period_seconds", "Longest time between two of the job's next runs", _JOB)
JOB_PAUSED: Final = Metric("mailmend_job_paused", "Whether the job is paused", _JOB)
JOB_RUNNING: Final = Metric(
    "mailmend_job_running",
    "Whether the job runs now",
    _JOB,
    no_alert="Running is normal; MailmendLeaseHeldTooLong covers a job that runs too long",
)
JOB_LAST_RUN: Final = Metric("mailmend_job_last_run_timestamp_seconds", "When the job's last run began", _JOB)
JOB_EXIT_CODE: Final = Metric("mailmend_job_last_run_exit_code", "Exit code of the job's last run that ended", _JOB)
JOB_DURATION: Final = Metric(
    "mailmend_job_last_run_duration_seconds",
    "Duration of the job's last run that ended",
    _JOB,
    no_alert="A job has a maximum duration, after which it is ended in good order",
)
JOB_LAST_SUCCESS: Final = Metric(
    "mailmend_job_last_success_timestamp_seconds", "End of the job's last run that ended with 0 or 1", _JOB
)
JOBS: Final = (
    JOB_NEXT,
    JOB_PERIOD,
    JOB_PAUSED,
    JOB_RUNNING,
    JOB_LAST_RUN,
    JOB_EXIT_CODE,
    JOB_DURATION,
    JOB_LAST_SUCCESS,
)
"""The metrics of each declared job."""

LEDGER_UP: Final = Metric(
    "mailmend_ledger_up", "Whether the cluster answered, and all metrics of the keyspace could be read", ("keyspace",)
)
LEDGER_READ: Final = Metric(
    "mailmend_ledger_read_timestamp_seconds", "When the metrics of the keyspace were read", ("keyspace",)
)
LAGS: Final = Metric(
    "mailmend_lags_waiting",
    "Journalled lags that wait for `repair lags`, 10,000 at most",
    ("keyspace",),
    no_alert="Many lags are mended as fast as they come; MailmendLagsWait covers a lag that waits too long",
)
LAG_OLDEST: Final = Metric(
    "mailmend_lag_oldest_timestamp_seconds", "When the oldest waiting lag was noticed", ("keyspace",)
)
LEASE: Final = Metric(
    "mailmend_lease_acquired_timestamp_seconds",
    "Since when a lease is held; its owner is user and host",
    ("keyspace", "lease", "owner"),
)
MARKS: Final = Metric(
    "mailmend_queue_marks_kept",
    "Marks of all queues, by the nodes' estimates, in tables whose marks never expire",
    ("keyspace",),
)
LEDGER: Final = (LEDGER_UP, LEDGER_READ, LAGS, LAG_OLDEST, LEASE, MARKS)
"""The metrics of a keyspace that its ledger and tables tell."""

METRICS: Final = (*RUNS, *JOBS, *LEDGER, *QUEUE_METRICS, *DELIVERY_METRICS, *LISTENER_METRICS)


NONE_LEFT: Final[LeftKeys] = MappingProxyType({})
_FIRST_SEEN: Final = "# First seen: "
"""The line, a comment to Prometheus, in which the file keeps what the next run is to know again."""

SCANS: Final = ("scan", "queues")
"""Stages in which tables are read from end to end."""


class RunName(NamedTuple):
    """The run that metrics are about; `job` is "" for a run by hand."""

    keyspace: str
    command: str
    job: str = ""


def result_samples(name: RunName, json: Mapping[str, Any]) -> Iterator[MetricSample]:
    """What a result says, by the names of `--json`; the ledger keeps the same ones."""
    for metric, by in ((RUN_FIXED, "fixed"), (RUN_LEFT, "left"), (RUN_ROWS_READ, "scanned"), (RUN_STAGE, "seconds")):
        found = json.get(by)
        if isinstance(found, Mapping):
            for label, value in found.items():
                yield MetricSample(metric, (*name, label), value)
    for projection, verdicts in _by_projection(json.get("findings") or {}):
        for verdict, number in verdicts.items():
            yield MetricSample(RUN_FINDINGS, (*name, projection, verdict), number)
    for metric, field_name in ((RUN_MOVED, "moved"), (RUN_FAILED, "failed")):
        value = json.get(field_name)
        if isinstance(value, list):
            value = len(value)
        if value is not None:
            yield MetricSample(metric, name, value)
    yield from _pace_samples(name, json)
    for queue in json.get("queues") or ():
        yield MetricSample(RUN_QUEUE_MARKS, (*name, queue["queue"]), queue["marks"])


def _pace_samples(name: RunName, json: Mapping[str, Any]) -> Iterator[MetricSample]:
    """Rows a second while they were read, not while a run waits or mends."""
    rows = json.get("scanned")
    stages = json.get("seconds")
    if isinstance(rows, Mapping) and isinstance(stages, Mapping):
        seconds = sum(stages.get(stage, 0) for stage in SCANS)
        if seconds:
            yield MetricSample(RUN_ROWS_PER_SECOND, name, sum(rows.values()) / seconds)


def _by_projection(findings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Findings of blobs have no projection."""
    counts = {name: number for name, number in findings.items() if not isinstance(number, Mapping)}
    yield "blobs", counts
    yield from ((name, verdicts) for name, verdicts in findings.items() if name not in counts)


def ending_samples(name: RunName, exit_code: int, ended: float, seconds: float) -> Iterator[MetricSample]:
    """How a run ended, when (seconds since 1970), and how long it took."""
    yield MetricSample(RUN_EXIT_CODE, name, exit_code)
    yield MetricSample(RUN_END, name, ended)
    yield MetricSample(RUN_DURATION, name, seconds)
    if exit_code in (ExitCode.FINE, ExitCode.DRIFT):
        yield MetricSample(RUN_LAST_SUCCESS, name, ended)


def oldest_samples(name: RunName, seen: FirstSeen) -> Iterator[MetricSample]:
    return (MetricSample(FINDING_OLDEST, (*name, verdict), at) for verdict, at in oldest(seen).items())


@dataclass(slots=True)
class RunTextfile:
    """The file of one command; `json` is its result, once there is one.

    Attributes:
        began: in microseconds since 1970, as the ends of other runs are.
        began_monotonic: the same moment by the clock that is never set: the duration is measured by it.
    """

    file: Path
    name: RunName
    began: int = field(default_factory=lambda: this_clock().micros())
    began_monotonic: float = field(default_factory=lambda: this_clock().monotonic())

    def write(self, exit_code: int, json: Mapping[str, Any] | None = None, keys: LeftKeys = NONE_LEFT) -> None:
        """Say how the run ended, and what it found.

        Args:
            exit_code: of the command.
            json: its result; None where it came to none.
            keys: the sample of what it left.

        Raises:
            ResultUnwritten: the file cannot be written; what stood there stays.
        """
        ended = this_clock().micros() / MICROS
        seconds = this_clock().monotonic() - self.began_monotonic
        before, seen = self._before()
        ending = ending_samples(self.name, exit_code, ended, seconds)
        samples: Iterable[MetricSample] = before
        if json is not None:
            seen = first_seen(json.get("left") or (), keys, seen, self.began / MICROS)
            samples = [*oldest_samples(self.name, seen), *result_samples(self.name, json)]
        success = (sample for sample in before if sample.metric is RUN_LAST_SUCCESS)
        write_textfile(self.file, [*samples, *success, *ending], f"{_FIRST_SEEN}{dumps([*self.name, seen])}\n")

    def _before(self) -> tuple[list[MetricSample], FirstSeen]:
        """What the file says of earlier runs; nothing where it cannot be read."""
        with suppress(OSError, ValueError):
            if self.file.is_file():
                text = self.file.read_text(encoding="utf-8")
                found = [sample for sample in samples_in(text, RUNS) if sample.labels[:3] == self.name]
                for line in text.splitlines():
                    if line.startswith(_FIRST_SEEN):
                        *name, seen = loads(line.removeprefix(_FIRST_SEEN))
                        if tuple(name) == self.name:
                            return found, seen
                return found, {}
        return [], {}


def write_textfile(file: Path, samples: Iterable[MetricSample], comment: str = "") -> None:
    write_text(file, metrics_text(samples) + comment, masked=False)  # node_exporter is another user


@contextmanager
def textfile_of(file: Path, *name: str) -> Iterator[RunTextfile]:
    """The metrics file of a run; it is written here only where the block fails, else by the caller.

    Raises:
        WrongUse: the file cannot be written; the block was not entered.
    """
    refuse_unwritable(file)
    textfile = RunTextfile(file, RunName(*name))
    try:
        yield textfile
    except BaseException as error:
        with suppress(MailmendError):
            textfile.write(exit_code_of(error))
        raise


def unbegun(file: Path, *name: str) -> Callable[[int], None]:
    """A function that writes into the file, with an exit code, that a run could not begin."""
    textfile = RunTextfile(file, RunName(*name))

    def tell(exit_code: int) -> None:
        with suppress(MailmendError):
            textfile.write(exit_code)

    return tell
