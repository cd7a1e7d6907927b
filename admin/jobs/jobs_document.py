"""Jobs as documents."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.values import instant_text, shown
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs_service import (
    PAGE,
    InstalledUnits,
    JobEnded,
    JobHistory,
    JobPaused,
    JobsResult,
    JobState,
    JobStatus,
)
from mailmend.admin.jobs.run_limits_service import LimitsSet
from mailmend.admin.jobs.schedule import Turn
from mailmend.admin.jobs.serve_service import ServingEnded
from mailmend.model.durations import format_duration
from mailmend.repair.ledger.jobs import JobPause, JobRun
from mailmend.repair.ledger.runs import Run

HISTORY_SHOWN = 50
"""How many runs `jobs history` lists; its JSON has all."""


def jobs_document(result: JobsResult) -> Document:
    json = {"jobs": [_status_json(job) for job in result.jobs], "unread": result.unread or None}
    if not result.jobs:
        return Document(json, ("No job is declared. How to declare one: mailmend jobs --help",))
    columns = ("job", "command", "next run", "window", "state", "last run")
    rows = [
        (
            job.job.name,
            job.job.command,
            _local(job.turns[0].start_at, job.job) if job.turns else "never",
            _window(job),
            job.state.value,
            _last(job.last),
        )
        for job in result.jobs
    ]
    body: list[Part] = [Grid("Jobs", columns, rows, frozenset({"command", "window", "last run"}))]
    body += [_missed_line(job) for job in result.jobs if job.state is JobState.MISSED and job.missed]
    return Document(json, body, result.exit, remarks=_unread(result))


def job_document(result: JobsResult) -> Document:
    one = result.jobs[0]
    json = {**_status_json(one), "unread": result.unread or None}
    job = one.job
    fields = {
        "command": f"mailmend {job.command}",
        "schedule": f"{job.schedule.text} ({job.zone.key})",
        "begins up to": f"{format_duration(job.jitter)} later" if job.jitter else "",
        "window": _window(one),
        "longest": format_duration(job.longest),
        "a missed run": {"skip": "is skipped", "run": "runs as soon as it can, within the window"}[job.missed.value],
        "state": one.state.value,
        "paused": _pause_text(one.pause),
        "missed": _local(one.missed.due_at, job) if one.missed else "",
        "last run": _last(one.last),
        "next runs": ", ".join(_local(turn.start_at, job) for turn in one.turns),
    }
    rows = [(name, text) for name, text in fields.items() if text]
    grid = Grid(f"Job {job.name}", ("field", "value"), rows, frozenset({"value"}))
    return Document(json, (grid, f"Next: mailmend jobs history {job.name}"), result.exit, remarks=_unread(result))


def ended_document(result: JobEnded) -> Document:
    name = result.job.name
    run = result.run
    if result.skipped:
        return Document(exit=result.exit, remarks=(f"Nothing ran: job {name!r} {result.skipped}.",))
    if run and run.reason:
        return Document(
            exit=result.exit,
            remarks=(f"Job {name!r} was ended: {run.reason}. Its next run goes on with what is left.",),
        )
    return Document(exit=result.exit)


def served_document(_: ServingEnded) -> Document:
    return Document(remarks=("Stopped on request; what ran has ended.",))


def paused_document(result: JobPaused) -> Document:
    name = result.job.name
    run = result.ended
    said = " Its run ends within seconds." if run else ""
    return Document(
        {"job": name, "paused": _pause_json(result.pause), "ended": str(run) if run else None},
        (f"Job {name} is paused.{said} To let it run again: mailmend jobs resume {name}",),
    )


def resumed_document(result: JobPaused) -> Document:
    said = "runs again at its next time" if result.pause else "was not paused"
    return Document(
        {"job": result.job.name, "was_paused": _pause_json(result.pause)}, (f"Job {result.job.name} {said}.",)
    )


def limit_document(result: LimitsSet) -> Document:
    names = ("rows_per_second", "max_fixes")
    json = {
        "name": result.name,
        "run": str(result.run),
        "command": result.command,
        "before": {name: getattr(result.before, name) for name in names},
        "now": {name: getattr(result.now, name) for name in names},
        "heard_within_seconds": result.heard_within_seconds,
    }
    rows = [
        (f"--{name.replace('_', '-')}", *(_limit_text(getattr(limit, name)) for limit in (result.before, result.now)))
        for name in names
        if getattr(result.now, name) is not None
    ]
    heard = f"The run hears of it within {result.heard_within_seconds:g} s, as soon as it reads or writes"
    fixes = (
        "; of --max-fixes when its scan is over, before it mends anything" if result.now.max_fixes is not None else ""
    )
    grid = Grid(f"Limits of {result.name}", ("limit", "before", "now"), rows)
    return Document(json, (grid, f"{heard}{fixes}. The next run has what is declared."))


def _limit_text(limit: int | None) -> str:
    return "none that is known" if limit is None else f"{limit:,}"


def history_document(result: JobHistory) -> Document:
    json = {
        "runs": [
            {**_run_json(run), "repairs": [str(mending_run.id) for mending_run in repairs]}
            for run, repairs in result.runs
        ]
    }
    if not result.runs:
        return Document(json, ("No run of a job is kept: none ran yet, or they have expired.",))
    columns = ("job", "started", "ended", "state", "exit", "repair")
    rows = [_history_row(run, repairs) for run, repairs in result.runs[:HISTORY_SHOWN]]
    grid = Grid("Runs of jobs", columns, rows, frozenset({"state"}))
    repair = next((run for _, repairs in result.runs for run in repairs), None)
    return Document(json, (grid, *([f"Next: mailmend runs show {repair.id}"] if repair else ())))


def _history_row(run: JobRun, repairs: Sequence[Run]) -> tuple[str, ...]:
    return (
        run.job,
        shown(run.started_at),
        shown(run.ended_at) if run.ended_at else "",
        f"{run.state.value}: {run.reason}" if run.reason else run.state.value,
        "" if run.exit_code is None else str(run.exit_code),
        ", ".join(str(repair.id) for repair in repairs),
    )


def _unread(result: JobsResult) -> Sequence[str]:
    return (f"How their runs ended is not known: {result.unread}.",) if result.unread else ()


def _local(at: datetime, job: Job) -> str:
    return f"{at.astimezone(job.zone):%Y-%m-%d %H:%M %Z}"


def _window(one: JobStatus) -> str:
    if one.job.window is None or one.window_changes_at is None:
        return "always"
    verb = "closes" if one.open_now else "opens"
    return f"{one.job.window}, {verb} {_local(one.window_changes_at, one.job)}"


def _last(run: JobRun | None) -> str:
    if run is None:
        return ""
    code = "" if run.exit_code is None else f", exit {run.exit_code}"
    return f"{shown(run.started_at)} {run.state.value}{code}"


def _missed_line(one: JobStatus) -> str:
    at = _local(one.missed.due_at, one.job) if one.missed else ""
    return f"{one.job.name} did not run at {at}: does its scheduler run? See: mailmend runbook show {PAGE}"


def _pause_text(pause: JobPause | None) -> str:
    return f"by {pause.owner} since {shown(pause.paused_at)}: {pause.reason}".rstrip(": ") if pause else ""


def _pause_json(pause: JobPause | None) -> dict[str, Any] | None:
    if pause is None:
        return None
    return {"at": instant_text(pause.paused_at), "owner": pause.owner, "reason": pause.reason}


def _turn_json(turn: Turn) -> dict[str, Any]:
    return {"due_at": instant_text(turn.due_at), "start_at": instant_text(turn.start_at)}


def _run_json(run: JobRun) -> dict[str, Any]:
    return {
        "run": str(run.id),
        "job": run.job,
        "command": run.command,
        "state": run.state.value,
        "started_at": instant_text(run.started_at),
        "ends_by": instant_text(run.ends_by),
        "ended_at": instant_text(run.ended_at) if run.ended_at else None,
        "exit_code": run.exit_code,
        "owner": run.owner,
        "reason": run.reason,
    }


def _status_json(one: JobStatus) -> dict[str, Any]:
    job = one.job
    return {
        "name": job.name,
        "command": list(job.arguments),
        "schedule": job.schedule.text,
        "time_zone": job.zone.key,
        "jitter_seconds": job.jitter.total_seconds(),
        "window": str(job.window) if job.window else None,
        "window_open": one.open_now,
        "window_changes_at": instant_text(one.window_changes_at) if one.window_changes_at else None,
        "longest_seconds": job.longest.total_seconds(),
        "missed": job.missed.value,
        "state": one.state.value,
        "next": [_turn_json(turn) for turn in one.turns],
        "missed_at": instant_text(one.missed.due_at) if one.missed else None,
        "paused": _pause_json(one.pause),
        "last": _run_json(one.last) if one.last else None,
    }


_THEN: Mapping[str, str] = {
    "systemd": "Then: systemctl daemon-reload; systemctl enable --now {timers}",
    "cron": "Then: crontab {folder}/mailmend.crontab (it takes the place of the user's own)",
    "kubernetes": "Then: kubectl apply -f {folder}",
    "airflow": "Airflow finds them in its folder of DAGs.",
}


def units_document(result: InstalledUnits) -> Document:
    folder = result.folder
    json = {"kind": result.kind, "folder": str(folder) if folder else None, "files": dict(result.files)}
    if folder is None:
        apart = "---\n" if result.kind == "kubernetes" else ""
        several = len(result.files) > 1
        texts = [f"{apart}# {name}\n{text}" if several else text for name, text in result.files.items()]
        return Document(json, (Verbatim("\n".join(texts)),), hints=("To write them as files: --dir DIR",))
    timers = " ".join(name for name in result.files if name.endswith(".timer"))
    then = _THEN[result.kind].format(timers=timers, folder=folder)
    lines = [f"Written: {folder / name}" for name in result.files]
    return Document(json, (*lines, then), files={folder / name: text for name, text in result.files.items()})
