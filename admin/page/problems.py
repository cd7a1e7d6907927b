"""What is wrong now, judged from the ledger: the worst first, with runbook and next command.

Pure: values come in, and problems go out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from mailmend.admin.frame.run_scopes import MAIL, RunScope
from mailmend.admin.frame.verdict_texts import STYLES, meaning_of, next_command, runbook_of
from mailmend.admin.jobs.jobs import PAGE as JOB_RUNBOOK
from mailmend.admin.jobs.jobs import JobState, JobStatus
from mailmend.admin.messages.bound_tables import scope_kept
from mailmend.admin.messages.trend import by_name
from mailmend.admin.metrics.metrics import is_of_the_whole
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.texts import keyspace_option
from mailmend.repair.ledger.jobs import JobRun
from mailmend.repair.ledger.runs import Run, RunKind, RunState


class Urgency(IntEnum):
    """How soon a person has to look; the smaller one is worse."""

    NOW = 1
    SOON = 2
    NOTE = 3


WORDS: Final[Mapping[Urgency, str]] = {
    Urgency.NOW: "now",
    Urgency.SOON: "soon",
    Urgency.NOTE: "to know",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong.

    Attributes:
        what: a sentence.
        since: when it began, or was noticed; None: not known.
        runbook: the name of a page; "" where there is no page.
        command: the next command; "" where there is no command.
        link: the page of this server that shows more; "" where there is no page.
        values: for placeholders of the runbook, by their names.
    """

    urgency: Urgency
    what: str
    since: datetime | None = None
    runbook: str = ""
    command: str = ""
    link: str = ""
    values: tuple[tuple[str, str], ...] = ()

    @property
    def word(self) -> str:
        return WORDS[self.urgency]


LAG_WAITS: Final = timedelta(hours=1)
"""A lag that waits longer is problem, as for the alert MailmendLagsWait."""

PAUSE_IS_LONG: Final = timedelta(days=7)
"""A job that is paused for longer is problem, as for the alert MailmendJobPausedLong."""

_EXIT_UNREACHED: Final = 4
_INTERRUPTED: Final = "repair-was-interrupted"
_UNKNOWN: Final = datetime.min.replace(tzinfo=UTC)


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """By urgency; of the same urgency the one that is known for the longest time comes first."""
    return sorted(problems, key=_order)


def _order(problem: Problem) -> tuple[Urgency, bool, datetime]:
    return problem.urgency, problem.since is None, problem.since or _UNKNOWN


def of_nodes(down: Sequence[str]) -> Iterator[Problem]:
    """Given the addresses of nodes that are down."""
    if down:
        named = ", ".join(down[:5])
        if len(down) > 5:  # noqa: PLR2004 - as many as are named
            named += f" and {len(down) - 5} more"
        yield Problem(
            Urgency.NOW,
            f"Nodes are down: {named}.",
            None,
            "servers-do-not-answer",
            "mailmend doctor",
        )


def of_lags(
    number: int,
    oldest: datetime | None,
    now: datetime,
    keyspace: str,
) -> Iterator[Problem]:
    """Given how many journalled lags wait, and when the oldest was noticed."""
    if not number or oldest is None:
        return
    urgency = Urgency.NOTE
    if now - oldest > LAG_WAITS:
        urgency = Urgency.SOON
    command = f"mailmend repair lags {keyspace_option(keyspace)} --dry-run"
    yield Problem(
        urgency,
        f"{number:,} journalled lags wait to be mended.",
        oldest,
        "projection-lags",
        command,
    )


def of_jobs(statuses: Iterable[JobStatus], now: datetime) -> Iterator[Problem]:
    for status in statuses:
        yield from _of_job(status, now)


def _of_job(status: JobStatus, now: datetime) -> Iterator[Problem]:
    name = status.job.name
    history = f"mailmend jobs history {name}"
    link = f"/jobs/{name}"
    if status.state is JobState.MISSED and status.missed:
        what = f"Job {name} did not begin when it was due. Its scheduler may not run."
        show = f"mailmend jobs show {name}"
        yield Problem(Urgency.NOW, what, status.missed.due_at, JOB_RUNBOOK, show, link)
    if status.pause and now - status.pause.paused_at > PAUSE_IS_LONG:
        what = f"Job {name} has been paused for more than a week by {status.pause.owner}."
        resume = f"mailmend jobs resume {name}"
        yield Problem(Urgency.SOON, what, status.pause.paused_at, JOB_RUNBOOK, resume, link)
    last = status.last
    if last and _has_failed(last):
        what = f"The last run of job {name} failed with exit code {last.exit_code}."
        urgency = Urgency.SOON
        if last.exit_code == _EXIT_UNREACHED:
            urgency = Urgency.NOW
        yield Problem(urgency, what, last.ended_at or last.started_at, JOB_RUNBOOK, history, link)
    elif last and last.state is RunState.INTERRUPTED:
        what = f"The last run of job {name} was interrupted: {last.reason or 'no reason is known'}."
        ended_at = last.ended_at or last.started_at
        yield Problem(Urgency.SOON, what, ended_at, JOB_RUNBOOK, history, link)


def _has_failed(run: JobRun) -> bool:
    return run.state is RunState.FAILED


def of_runs(runs: Iterable[Run], leased: Collection[str]) -> Iterator[Problem]:
    """Kinds of runs whose newest run ended badly, and what the newest whole run of each kind left.

    A run of one mailbox or message tells nothing of the others, so it replaces no whole run.

    Args:
        runs: the newest first.
        leased: the commands whose lease is held.
    """
    seen = set[tuple[str, str]]()
    judged = set[tuple[str, str]]()
    for run in runs:
        if run.undoes is not None:
            continue
        kind = (run.command, str(run.options.get("projections", "")))
        if kind not in seen:
            seen.add(kind)
            yield from _of_ending(run, leased)
        if kind not in judged and is_of_the_whole(run):
            judged.add(kind)
            yield from _of_rest(run)


def _of_ending(run: Run, leased: Collection[str]) -> Iterator[Problem]:
    link = f"/runs/{run.id}"
    values = (("RUN", str(run.id)),)
    show = f"mailmend runs show {run.id}"
    if run.state is RunState.RUNNING and run.command not in leased:
        what = f"A run of `{run.command}` was killed: it is on record as running, without a lease."
        yield Problem(Urgency.SOON, what, run.started_at, _INTERRUPTED, show, link, values)
    elif run.state is RunState.INTERRUPTED:
        what = f"The newest run of `{run.command}` was interrupted, so some drift may be left."
        yield Problem(Urgency.SOON, what, run.ended_at, _INTERRUPTED, show, link, values)
    elif run.state is RunState.FAILED:
        what = f"The newest run of `{run.command}` failed."
        yield Problem(Urgency.NOW, what, run.ended_at, _INTERRUPTED, show, link, values)


def _of_rest(run: Run) -> Iterator[Problem]:
    """What a whole run left, by verdict."""
    link = f"/runs/{run.id}"
    values = (("RUN", str(run.id)),)
    show = f"mailmend runs show {run.id}"
    scope = scope_of_kind(run)
    mirror = ""
    if scope.is_mail:
        mirror = MESSAGES.mirror.name
    for verdict, count in left_of(run).items():
        runbook = runbook_of(mirror, verdict, scope)
        if not runbook:
            continue
        urgency = Urgency.SOON
        if STYLES.get(verdict) == "red":
            urgency = Urgency.NOW
        elif STYLES.get(verdict) == "dim":
            urgency = Urgency.NOTE
        meaning = meaning_of(verdict, scope)
        what = f"The newest whole run of `{run.command}` left {count:,} {verdict.value}: {meaning}."
        command = next_command(mirror, verdict, run.keyspace, scope=scope)
        since = run.ended_at or run.started_at
        yield Problem(
            urgency,
            what,
            since,
            runbook,
            command or show,
            f"{link}?verdict={verdict.value}",
            values,
        )


def scope_of_kind(run: Run) -> RunScope:
    """How a run is named, without a look at the cluster."""
    if run.command == RunKind.MESSAGES and "projections" in run.options:
        return scope_kept(run.options)
    return MAIL


def left_of(run: Run) -> dict[Verdict, int]:
    """What a run left, by verdicts that this version knows."""
    names = Verdict.__members__
    left = by_name(run, "left")
    return {names[name]: count for name, count in sorted(left.items()) if name in names and count}
