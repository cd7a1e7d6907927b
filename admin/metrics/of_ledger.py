"""What ledger and declarations tell as metrics: jobs, repairs, leases."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.schedule import longest_wait, next_turns
from mailmend.admin.metrics.declared import (
    JOB_DURATION,
    JOB_EXIT_CODE,
    JOB_LAST_RUN,
    JOB_LAST_SUCCESS,
    JOB_NEXT,
    JOB_PAUSED,
    JOB_PERIOD,
    JOB_RUNNING,
    LEASE,
    RUN_END,
)
from mailmend.admin.metrics.of_runs import RunName, ending_samples, oldest_samples, result_samples
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
        success = (run.ended_at.timestamp() for run in ended if run.state is RunState.DONE and run.ended_at)
        yield MetricSample(JOB_LAST_SUCCESS, labels, next(success, 0))
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
        if _of_the_whole(run):
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


def _of_the_whole(run: Run) -> bool:
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
