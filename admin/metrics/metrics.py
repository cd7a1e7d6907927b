"""`mailmend metrics`: figures of the ledger, of the queues' tables and of the declared jobs.

Nothing is scanned: a few rows of each job, of the newest runs, of the journal of lags and of each
queue's starts.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from mailmend.admin.frame.cluster import OpenCluster, lag_journal, open_cluster, this_clock
from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import CONNECTION, FILE, option
from mailmend.admin.frame.settings import QUEUE_DEFAULT, ConnectionSettings, QueueSettings
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import ALL_JOBS, job_lease
from mailmend.admin.jobs.schedule import longest_wait, next_turns
from mailmend.admin.metrics.alerts import RUNBOOKS_AT, RunbookLinks, rules_file
from mailmend.admin.metrics.dashboard import dashboard_json
from mailmend.admin.metrics.declared import (
    JOB_DURATION,
    JOB_EXIT_CODE,
    JOB_LAST_RUN,
    JOB_LAST_SUCCESS,
    JOB_NEXT,
    JOB_PAUSED,
    JOB_PERIOD,
    JOB_RUNNING,
    LAG_OLDEST,
    LAGS,
    LEASE,
    LEDGER_READ,
    LEDGER_UP,
    MARKS,
    RUN_END,
    RUNS,
    RunName,
    ending_samples,
    oldest_samples,
    result_samples,
    write_textfile,
)
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.mailqueue.metrics import FigureScope
from mailmend.mailqueue.prometheus import metrics_text, samples_in, start_samples
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import AccessDenied, CannotReach, ExitCode, MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.metrics import MetricSample
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE, FirstSeen, first_seen
from mailmend.repair.ledger.jobs import JobRun
from mailmend.repair.ledger.leases import Lease
from mailmend.repair.ledger.runs import Run, RunKind, RunState

_REPAIRS: Final[Mapping[str, str]] = {
    RunKind.MESSAGES: "repair messages",
    RunKind.LAGS: "repair lags",
    RunKind.QUEUES: "repair queues",
    RunKind.BLOBS: "repair blobs",
}
"""Commands that the ledger keeps the results of, as they are typed."""


def schedule_samples(keyspace: str, job: Job, now: datetime) -> Iterator[MetricSample]:
    labels = (keyspace, job.name)
    yield MetricSample(JOB_NEXT, labels, next_turns(job, now, 1)[0].start_at.timestamp())
    yield MetricSample(JOB_PERIOD, labels, _period_on(job, now.date()).total_seconds())


@lru_cache(maxsize=256)
def _period_on(job: Job, day: date) -> timedelta:
    """A job of every minute has ten thousand runs a week: they are gone through once a day."""
    return longest_wait(job, datetime.combine(day, time(), job.zone))


def job_samples(keyspace: str, job: Job, last: Sequence[JobRun], *, paused: bool) -> Iterator[MetricSample]:
    """How the job's last runs went, given the newest first; 0 where none of them was a success."""
    labels = (keyspace, job.name)
    ended = [run for run in last if run.ended_at]
    yield MetricSample(JOB_PAUSED, labels, paused)
    yield MetricSample(JOB_RUNNING, labels, bool(last) and last[0].state is RunState.RUNNING)
    if last:
        yield MetricSample(JOB_LAST_RUN, labels, last[0].started_at.timestamp())
        success: float = 0
        for run in ended:
            if run.state is RunState.DONE and run.ended_at:
                success = run.ended_at.timestamp()
                break
        yield MetricSample(JOB_LAST_SUCCESS, labels, success)
    for run in ended[:1]:
        assert run.ended_at is not None
        yield MetricSample(JOB_DURATION, labels, (run.ended_at - run.started_at).total_seconds())
        if run.exit_code is not None:
            yield MetricSample(JOB_EXIT_CODE, labels, run.exit_code)


def repair_samples(keyspace: str, runs: Iterable[Run]) -> Iterator[MetricSample]:
    """The newest result of each repair of the whole keyspace, and since when they have left what they left.

    Args:
        keyspace: with the mail.
        runs: the newest first.
    """
    of_each = defaultdict[RunName, list[Run]](list)
    for run in runs:
        if is_of_the_whole(run):
            of_each[RunName(keyspace, _REPAIRS[run.command], run.options.get("job", ""))].append(run)
    for name, found in of_each.items():
        yield from _result_samples(name, found[0])
        yield from oldest_samples(name, _first_seen(found))


def _first_seen(runs: Sequence[Run]) -> FirstSeen:
    """Since when what the newest of them has left was left by each; they come newest first."""
    seen: FirstSeen = {}
    for run in reversed(runs):
        left = run.summary.get("left") or {}
        keys = run.summary.get(LEFT_SAMPLE) or {}
        seen = first_seen(left, keys, seen, run.started_at.timestamp())
    return seen


def is_of_the_whole(run: Run) -> bool:
    looks_at_some = {"message", "mailbox"} & run.options.keys()
    return run.state is RunState.DONE and run.command in _REPAIRS and run.undoes is None and not looks_at_some


def _result_samples(name: RunName, run: Run) -> Iterator[MetricSample]:
    if run.ended_at:
        seconds = (run.ended_at - run.started_at).total_seconds()
        yield from ending_samples(name, int(run.summary.get("exit", 0)), run.ended_at.timestamp(), seconds)
    yield from result_samples(name, run.summary)


def newest_of_each_run(sources: Iterable[Iterable[MetricSample]]) -> Iterator[MetricSample]:
    """The metrics of each run, from the one source that saw its newest end."""
    by_run = defaultdict[tuple[str, ...], list[list[MetricSample]]](list)
    for source in sources:
        found = defaultdict[tuple[str, ...], list[MetricSample]](list)
        for sample in source:
            found[sample.labels[:3]].append(sample)
        for name, samples in found.items():
            by_run[name].append(samples)
    for said in by_run.values():
        yield from max(said, key=_end)


def _end(samples: Sequence[MetricSample]) -> float:
    return max((sample.value for sample in samples if sample.metric is RUN_END), default=0)


def lease_samples(keyspace: str, leases: Mapping[str, Lease]) -> Iterator[MetricSample]:
    """Who holds which lease, by what the lease is for; a process and its job are left out: their names never end."""
    for purpose, lease in leases.items():
        owner = lease.owner.split(" pid ")[0]
        yield MetricSample(LEASE, (keyspace, purpose, owner), lease.acquired_at.timestamp())


LAGS_MAX: Final = 10_000
"""At most this many lags are counted."""

RUNS_MAX: Final = 2_000
"""At most this many of the newest runs are searched for the last run of each repair."""

READ_MAX: Final = 10_000
"""At most this many of the newest runs are read, recorded checks among them."""

JOB_RUNS_MAX: Final = 50
"""At most this many of a job's runs are searched for its last success."""

QUEUES_MAX: Final = 100
FRESH_MICROS: Final = 30 * MICROS
"""For how many microseconds a text is served again before the metrics are read anew."""


@dataclass(frozen=True, slots=True)
class ExposedMetrics:
    """Metrics in Prometheus's text format; `unread` says why ledger and tables tell nothing, or is ""."""

    text: str
    output: Path | None = None
    unread: str = ""

    @property
    def exit(self) -> ExitCode:
        if self.unread:
            return ExitCode.CANNOT_REACH
        return ExitCode.FINE


def show_metrics(connection: ConnectionSettings, jobs: Sequence[Job], output: Path | None = None) -> ExposedMetrics:
    """What is known now, or of the declarations alone where the cluster cannot be reached.

    Raises:
        WrongUse: the file cannot be written; what lay there before is untouched.
    """
    if output:
        refuse_unwritable(output)
    try:
        with open_cluster(connection) as opened:
            samples, unread = measured(opened, jobs)
    except CannotReach as error:
        samples = _together(connection.keyspace, jobs, (), error.what)
        unread = error.what
    if output:
        write_textfile(output, samples)
    return ExposedMetrics(metrics_text(samples), output, unread)


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file that comes with mailmend; `output` is None where it is only shown."""

    text: str
    output: Path | None = None


def alerts(output: Path | None = None, runbook_url: RunbookLinks = RUNBOOKS_AT) -> ShippedFile:
    """The rules, with links to runbooks."""
    return _shipped(rules_file(runbooks=runbook_url), output)


def dashboard(output: Path | None = None, runbook_url: RunbookLinks = RUNBOOKS_AT) -> ShippedFile:
    """The dashboard, with links to runbooks."""
    return _shipped(dashboard_json(runbook_url), output)


def _shipped(text: str, output: Path | None) -> ShippedFile:
    if output:
        refuse_unwritable(output)
    return ShippedFile(text, output)


@dataclass(slots=True)
class Exposition:
    """What a server answers to `GET /metrics`; it blocks, and any thread may call it.

    Args:
        opened: the cluster.
        jobs: those that are declared now.
    """

    opened: OpenCluster
    jobs: Callable[[], Sequence[Job]]
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _text: bytes = b""
    _measured_at: int = -FRESH_MICROS

    def text(self) -> bytes:
        """In Prometheus's text format, as of at most half a minute ago."""
        with self._turn:
            now = self.opened.clock.micros()
            if not 0 <= now - self._measured_at < FRESH_MICROS:
                samples, _ = measured(self.opened, self.jobs())
                self._text = metrics_text(samples).encode()
                self._measured_at = now
            return self._text


def measured(opened: OpenCluster, jobs: Sequence[Job]) -> tuple[Sequence[MetricSample], str]:
    """Every metric that can be known now; and why some cannot, or ""."""
    found = list[MetricSample]()
    unread = ""
    for part in (_of_jobs, _of_ledger, _of_queues):
        try:
            found += part(opened, jobs)
        except MailmendError as error:
            unread = unread or error.what
            if isinstance(error, CannotReach) and not isinstance(error, AccessDenied):
                break
    return _together(opened.connection.keyspace, jobs, found, unread), unread


def _together(keyspace: str, jobs: Sequence[Job], found: Sequence[MetricSample], unread: str) -> Sequence[MetricSample]:
    """What was read, what the declarations tell, and what the jobs' runs have written on this machine."""
    now = instant_of(this_clock().micros())
    of_runs = [sample for sample in found if sample.metric in RUNS]
    samples: list[MetricSample] = []
    for job in jobs:
        samples += schedule_samples(keyspace, job, now)
    samples += [sample for sample in found if sample.metric not in RUNS]
    samples += newest_of_each_run([of_runs, *map(_samples_of_file, jobs)])
    samples.append(MetricSample(LEDGER_UP, (keyspace,), not unread))
    if not unread:
        samples.append(MetricSample(LEDGER_READ, (keyspace,), now.timestamp()))
    return samples


def _of_jobs(opened: OpenCluster, jobs: Sequence[Job]) -> Iterator[MetricSample]:
    runs = opened.existing_job_runs()
    for job in jobs:
        if runs is None:
            return
        last = list(runs.last(job.name, JOB_RUNS_MAX))
        paused = runs.pause_of(job.name) is not None
        yield from job_samples(opened.connection.keyspace, job, last, paused=paused)


def _of_ledger(opened: OpenCluster, jobs: Sequence[Job]) -> Iterator[MetricSample]:
    ledger = opened.existing_ledger()
    keyspace = opened.connection.keyspace
    if ledger is None:
        return
    newest = islice(ledger.newest_runs(keyspace), READ_MAX)
    changed = (run for run in newest if run.command != RunKind.CHECK)
    yield from repair_samples(keyspace, islice(changed, RUNS_MAX))
    number, oldest = lag_journal(opened, ledger).waiting(LAGS_MAX)
    yield MetricSample(LAGS, (keyspace,), number)
    if oldest is not None:
        yield MetricSample(LAG_OLDEST, (keyspace,), oldest / MICROS)
    names = {lease.value: lease.of(keyspace) for lease in KeyspaceLease}
    names |= {f"job {job.name}": job_lease(keyspace, job.name) for job in jobs}
    held = opened.leases().standing(list(names.values()))
    yield from lease_samples(keyspace, {purpose: held[name] for purpose, name in names.items() if name in held})


def _samples_of_file(job: Job) -> Sequence[MetricSample]:
    """What the runs of a job have written on this machine: a check leaves no run in the ledger."""
    with suppress(OSError, ValueError):
        if job.metrics_file:
            return list(samples_in(Path(job.metrics_file).read_text(encoding="utf-8"), RUNS))
    return ()


def _of_queues(opened: OpenCluster, _: Sequence[Job]) -> Sequence[MetricSample]:
    """Nothing where the keyspace has none, or the role was not meant to look at them, as a repairer's."""
    if not opened.has_queues:
        return ()

    async def looked(connections: QueueConnections) -> Sequence[MetricSample]:
        found = list[MetricSample]()
        for name in (await connections.names(everything=True))[:QUEUES_MAX]:
            async with connections.open(name, dry_run=True) as queue:
                found += start_samples(await queue.figures(FigureScope.STARTS))
        if not connections.own.marks_expire:
            about = connections.marks_about  # asks the nodes
            if about is not None:
                found.append(MetricSample(MARKS, (opened.connection.keyspace,), about))
        return found

    with suppress(AccessDenied):
        return with_queues(QueueSettings(opened.connection, QueueName(QUEUE_DEFAULT)), looked, opened)
    return ()


def exposed_document(result: ExposedMetrics) -> Document:
    body = []
    if not result.output:
        body.append(Verbatim(result.text))
    remarks = []
    if result.unread:
        remarks.append(f"Not all could be read: {result.unread}.")
    return Document(None, body, result.exit, remarks)


def shipped_document(result: ShippedFile) -> Document:
    if result.output:
        return Document(files={result.output: result.text})
    return Document(body=(Verbatim(result.text),))


_OUTPUT: Final = option("--output", "Write to this file, whole or not at all.", type=FILE, metavar="FILE")
_RUNBOOK_URL: Final = option(
    "--runbook-url",
    "Where links to runbooks lead; {name} in it is the name of a page. Without {name} the name follows it.",
    type=ParsedValue("url", RunbookLinks.parse),
    default=RUNBOOKS_AT.url,
    metavar="URL",
)
_SHOW: Final = Command(
    name="show",
    summary="What is known of jobs, repairs, lags, leases and queues, in Prometheus's text format.",
    about="""The figures come from the ledger, from the settings file's jobs, and from the starts of all queues where
    the role may read them; nothing is scanned and nothing written. A check leaves nothing in the ledger: its job's
    `metrics_file`, or its own --metrics-file, has what it found. `mailmend queue metrics` gives the same metrics for
    queues, and --metrics-file for repairs: node_exporter takes each metric from one file only. docs/metrics.md lists
    them all.""",
    service="mailmend.admin.metrics.metrics:show_metrics",
    present="mailmend.admin.metrics.metrics:exposed_document",
    paged=True,
    options=(_OUTPUT,),
    shared=(ALL_JOBS, CONNECTION),
    output=(),
    examples="""
        mailmend metrics show
        mailmend metrics show --output /var/lib/node_exporter/mailmend.prom      from cron, every five minutes""",
    exits="0 all of it was read, 2 a declaration is wrong, or the file cannot be written, 4 some could not be read: "
    "the rest is shown, and `mailmend_ledger_up` is 0.",
)

_ALERTS: Final = Command(
    name="alerts",
    summary="Alert rules for Prometheus, each with its runbook.",
    about="""The annotation `runbook` of an alert names a page: `mailmend runbook show NAME`; that
    page names the alert. The annotation `runbook_url` is a link to the page: --runbook-url says
    where it leads, such as to your own wiki.""",
    service="mailmend.admin.metrics.metrics:alerts",
    present="mailmend.admin.metrics.metrics:shipped_document",
    paged=True,
    options=(_OUTPUT, _RUNBOOK_URL),
    output=(),
    examples="""
        mailmend metrics alerts --output /etc/prometheus/rules/mailmend.yml
        mailmend metrics alerts --runbook-url https://wiki.example.org/{name}      your own pages""",
)
_DASHBOARD: Final = Command(
    name="dashboard",
    summary="A dashboard for Grafana.",
    about="""Import the file into Grafana, which asks for its data source. Panels about deliveries
    need the metrics of `delivery serve`; panels with a runbook link it.""",
    service="mailmend.admin.metrics.metrics:dashboard",
    present="mailmend.admin.metrics.metrics:shipped_document",
    paged=True,
    options=(_OUTPUT, _RUNBOOK_URL),
    output=(),
    examples="mailmend metrics dashboard --output /var/lib/grafana/dashboards/mailmend.json",
)

METRICS: Final = CommandGroup(
    name="metrics",
    summary="What monitoring sees: metrics, alerts, a dashboard.",
    commands=(_SHOW, _ALERTS, _DASHBOARD),
)
