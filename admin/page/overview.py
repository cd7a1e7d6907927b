"""The first page: what is wrong now, the worst first; drift of 30 days; jobs, leases and lags."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, Final

from mailmend.admin.frame.cluster import lag_journal
from mailmend.admin.frame.document import Bar, Chart
from mailmend.admin.jobs.jobs import JobStatus, job_lease, statuses_of
from mailmend.admin.messages.trend import by_name
from mailmend.admin.metrics.metrics import LAGS_MAX, RUNS_MAX, is_of_the_whole
from mailmend.admin.page import problems
from mailmend.admin.page.table import PageData, PageRequest, WebPage
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import AccessDenied, CannotReach, MailmendError
from mailmend.model.instants import instant_of
from mailmend.repair.ledger.leases import Lease
from mailmend.repair.ledger.runs import Run, RunKind

DAYS: Final = 30
_LEASES: Final[Mapping[str, str]] = {
    RunKind.MESSAGES: KeyspaceLease.REPAIR.value,
    RunKind.LAGS: KeyspaceLease.REPAIR.value,
    RunKind.UNDO: KeyspaceLease.REPAIR.value,
    RunKind.QUEUES: KeyspaceLease.QUEUES.value,
    RunKind.BLOBS: KeyspaceLease.BLOBS.value,
}
"""The lease that a run of each kind holds."""

_RECENT: Final = 8


def look(data: PageData, _: PageRequest) -> Mapping[str, Any]:
    opened = data.opened
    now = data.now()
    found = list[problems.Problem]()
    runs: Sequence[Run] = ()
    lags: tuple[int, datetime | None] = (0, None)
    leases: Mapping[str, Lease] = {}
    statuses: Sequence[JobStatus] = ()
    try:
        ledger = opened.existing_ledger()
        statuses = statuses_of(opened, data.jobs())
        if ledger:
            runs = tuple(islice(ledger.newest_runs(data.keyspace), RUNS_MAX))
            number, oldest = lag_journal(opened, ledger).waiting(LAGS_MAX)
            lags = (number, None)
            if oldest is not None:
                lags = (number, instant_of(oldest))
            leases = _held(data)
    except CannotReach as error:
        if isinstance(error, AccessDenied):
            raise
        found.append(_unreached(error))
    found += problems.of_nodes(opened.nodes()[1])
    commands = [command for command, lease in _LEASES.items() if lease in leases]
    found += problems.of_jobs(statuses, now)
    found += problems.of_runs(runs, commands)
    found += problems.of_lags(*lags, now, data.keyspace)
    return {
        "problems": problems.worst_first(found),
        "chart": drift_by_day(runs, now.date()),
        "recent": runs[:_RECENT],
        "by_name": by_name,
        "jobs": statuses,
        "leases": sorted(leases.items()),
        "lags": lags,
        "has_runs": bool(runs),
    }


def _unreached(error: MailmendError) -> problems.Problem:
    what = f"The ledger cannot be read: {error.what}. What it would say is not on this page."
    runbook = "servers-do-not-answer"
    return problems.Problem(problems.Urgency.NOW, what, None, runbook, "mailmend doctor")


def _held(data: PageData) -> dict[str, Lease]:
    """The leases that are held now, by what they are for."""
    names = {lease.value: lease.of(data.keyspace) for lease in KeyspaceLease}
    names |= {f"job {job.name}": job_lease(data.keyspace, job.name) for job in data.jobs()}
    held = data.opened.leases().standing(list(names.values()))
    return {purpose: held[name] for purpose, name in names.items() if name in held}


def drift_by_day(runs: Iterable[Run], today: date) -> Chart:
    """What the last run of the whole keyspace found on each day; days without one are empty.

    Args:
        runs: the newest first.
        today: in UTC.
    """
    days = [today - timedelta(days=ago) for ago in reversed(range(DAYS))]
    by_day = dict[tuple[date, str], Counter[str]]()
    for run in runs:
        if is_of_the_whole(run):
            by_day.setdefault((run.started_at.date(), run.command), by_name(run, "findings"))
    bars = []
    for day in days:
        counts = Counter[str]()
        for (of_day, _), found in by_day.items():
            if of_day == day:
                counts.update(found)
        bars.append(Bar(f"{day:%Y-%m-%d}", counts))
    title = "Drift found by the last whole run of each day"
    return Chart(title, bars, "a bar is a day", upright=True)


PAGE: Final = WebPage(
    path="/",
    title="Overview",
    menu="Overview",
    template="overview.html",
    look=look,
)
