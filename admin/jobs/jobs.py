"""Declarations of `mailmend jobs`, and the jobs that the settings file declares."""

import sys
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.frame.caller import ignore
from mailmend.admin.frame.command import TYPED, Command, CommandGroup, Late, Shared
from mailmend.admin.frame.endings import TimeLimit
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.kinds import KEEP, duration_text
from mailmend.admin.frame.options import (
    CONFIG,
    CONNECTION,
    FILE,
    JOB,
    JOB_RUN,
    LOG,
    MAX_FIXES,
    METRICS_FILE,
    PROFILE,
    ROWS_PER_SECOND,
    flag,
    option,
    settings_table,
    typed,
)
from mailmend.admin.frame.output import run_name
from mailmend.admin.frame.settings_file import PROFILE_NAME, line_in_table, settings_file_of
from mailmend.admin.jobs.declaration import BadJob, Job, job_of, looks_like_a_job, name_of_a_command, refuse_unasked
from mailmend.admin.jobs.jobs_service import JobCommand, Worked
from mailmend.admin.jobs.units import RENDERED, UnitPlace
from mailmend.model.catalog.ledger import KEEP as KEEP_DEFAULT
from mailmend.model.errors import WrongUse
from mailmend.repair.log_fields import put_log_field

TABLE: Final = "jobs"
_LIMITS: Final = {"--max-fixes": "max_fixes", "--rows-per-second": "rows_per_second"}
_NONE_DECLARED: Final = "How to declare one: mailmend jobs --help"
_NAME: Final = click.Argument(["name"])


def declared_jobs(context: click.Context) -> dict[str, Job]:
    """Every job of the settings file, by name.

    Raises:
        BadSettings: one of them cannot be carried out; with file, line, and what to write instead.
    """
    commands = {name.replace("-", "_") for name in _GROUP_NAMES}
    jobs = {}
    declared = dict(settings_table(context, TABLE))
    for name in commands & declared.keys():
        if looks_like_a_job(declared.pop(name)):
            raise name_of_a_command(name).at(_place(context, name, ""), name)
    for spelled, table in declared.items():
        name = spelled.replace("_", "-")
        try:
            jobs[name] = job_of(name, table)
            parsed_command(jobs[name], context)
        except BadJob as error:
            raise error.at(_place(context, spelled, error.field), name) from error
    return jobs


def _place(context: click.Context, name: str, field: str) -> str:
    file, text = settings_file_of(context)
    return f"{file}, line {line_in_table(text, f'{TABLE}.{name}', field)}"


def parsed_command(job: Job, context: click.Context, *more: str) -> click.Context:
    """The job's command, with its options read as if they had been typed.

    Args:
        job: whose command.
        context: of the command that asks.
        more: further options, behind those of the job.

    Raises:
        BadJob: an option is not one of the command, or has a wrong value.
    """
    parent = context.find_root()
    command = parent.command
    words = [*job.arguments, *more]
    try:
        while isinstance(command, click.Group):
            name = words.pop(0)
            found = command.get_command(parent, name)
            assert found is not None, "the declaration is one of COMMANDS"
            if not isinstance(found, click.Group):
                ready = found.make_context(name, words, parent=parent)
                refuse_unasked(
                    ready.params, [param for param in ready.params if ready.get_parameter_source(param) is TYPED]
                )
                return ready
            parent = click.Context(found, info_name=name, parent=parent)
            command = found
    except click.UsageError as error:
        limit = _LIMITS.get(_option_of(error), "") if _option_of(error) not in job.words else ""
        raise BadJob(
            limit or "command",
            f"`mailmend {' '.join(job.words)}` cannot be run: {error.format_message()}",
            mend=f"Its options: {error.ctx.command_path} --help" if error.ctx else "",
        ) from error
    raise AssertionError("a group is no command")


def _option_of(error: click.UsageError) -> str:
    match error:
        case click.NoSuchOption():
            return error.option_name
        case click.BadParameter(param=click.Option(opts=[name, *_])):
            return str(name)
        case _:
            return ""


def _job_named(name: str, jobs: dict[str, Job]) -> Job:
    spelled = name.replace("_", "-")
    if spelled not in jobs:
        known = f"Declared are: {', '.join(jobs)}." if jobs else _NONE_DECLARED
        raise WrongUse(f"no job {spelled!r} is declared", mend=known)
    return jobs[spelled]


def _one_job(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> Job:  # noqa: ARG001
    return _job_named(others.pop("name"), declared_jobs(context))


def _names(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> list[str]:  # noqa: ARG001
    named = others.pop("name")
    jobs = declared_jobs(context)
    return [str(named).replace("_", "-")] if named else list(jobs)


def _command(_: dict[str, Any], others: dict[str, Any], context: click.Context) -> JobCommand:
    """That of the job which is named, with what was typed for it; from here on it is this job's."""
    job = _job_named(others.pop("name"), declared_jobs(context))
    file = others.pop("metrics")
    context.meta[JOB] = job.name
    put_log_field("job", job.name)
    more = ("--metrics-file", str(file)) if file else ()
    command = parsed_command(job, context, *more, *typed(context, (*CONNECTION.groups["Connection"], *LOG)))

    def work(seconds: float, run: UUID, asked: Callable[[], bool]) -> Worked:
        context.meta[JOB_RUN] = run
        limit = TimeLimit(seconds, asked)
        with command:
            exit_code = limit.ending_of(lambda: command.command.invoke(command))
        return Worked(exit_code, limit.time_over)

    file = command.params["metrics_file"]
    return JobCommand(
        job, work, imported("mailmend.admin.metrics.of_runs:unbegun")(file, *run_name(command)) if file else ignore
    )


_ONE: Final = Shared("job", {}, _one_job)
ALL_JOBS: Final = Shared("jobs", {}, lambda _own, _others, context: list(declared_jobs(context).values()))
_OF_ONE: Final = Shared("jobs", {}, lambda own, others, context: [_one_job(own, others, context)])

_LIST: Final = Command(
    name="list",
    summary="List the declared jobs: their next runs, windows and states.",
    about="""A state is WAITING for the next run, RUNNING, PAUSED, MISSED (the last one did not begin), or UNKNOWN where
    the ledger cannot be read. Nothing is written.""",
    service="mailmend.admin.jobs.jobs_service:list_jobs",
    present="mailmend.admin.jobs.jobs_document:jobs_document",
    shared=(ALL_JOBS, CONNECTION),
    examples="""
        mailmend jobs list
        mailmend jobs list --json | jq -r '.jobs[] | select(.state == "MISSED").name'""",
    exits="0 they were listed, 2 a declaration is wrong (file, line and what to write instead are said), 4 the ledger "
    "could not be read: the list says so.",
)
_SHOW: Final = Command(
    name="show",
    summary="Show one job: what is declared, its next runs, how the last one ended.",
    service="mailmend.admin.jobs.jobs_service:list_jobs",
    present="mailmend.admin.jobs.jobs_document:job_document",
    options=(_NAME,),
    shared=(_OF_ONE, CONNECTION),
    examples="mailmend jobs show nightly-repair",
    exits="0 it was shown, 2 wrong use, 4 the ledger could not be read.",
)
_RUN: Final = Command(
    name="run",
    summary="Run a job now, in this process.",
    about="""The same command as by hand, with what is declared for it: its limits; and the time it has. At the end of
    its window, or of its longest duration, it is ended in good order, and the next run goes on. What a person types
    counts more: the options of the connection.

    Two repairs of a keyspace never run at once, nor does a job, whoever starts them: the second is refused (exit 3),
    and says who is at work.

    Schedulers give --scheduled; mailmend jobs install writes their units.""",
    service="mailmend.admin.jobs.jobs_service:run_job",
    present="mailmend.admin.jobs.jobs_document:ended_document",
    options=(
        _NAME,
        flag(
            "--scheduled",
            "Run it as schedulers do: it waits for its jitter, and where it is paused or its window closed nothing "
            "runs, and the exit is 0.",
        ),
        flag("--anyway", "Run it also where it is paused or its window closed."),
        option("--metrics-file", str(METRICS_FILE.help), "metrics", type=FILE, metavar="FILE"),
    ),
    shared=(Shared("command", {}, _command), CONNECTION),
    output=(),
    examples="""
        mailmend jobs run nightly-repair
        mailmend jobs run nightly-repair --anyway         by day, though it has a window""",
    exits="that of the command; 130 its time was over (the next run goes on), or it was interrupted; 2 also where it "
    "is paused or its window closed; 4 also where the ledger cannot be reached.",
)


_PAUSE: Final = Command(
    name="pause",
    summary="Have no scheduler run a job until it is resumed.",
    about="""A run that is at work goes on to its end. With --now it ends within seconds, whoever began it and wherever
    it runs, in good order as at the end of its window: --staging loses only the token ranges being read.""",
    service="mailmend.admin.jobs.jobs_service:pause_job",
    present="mailmend.admin.jobs.jobs_document:paused_document",
    options=(
        _NAME,
        option("--reason", "Why: shown to whoever finds it paused.", metavar="TEXT"),
        flag("--now", "End the run that is at work, too."),
    ),
    shared=(_ONE, CONNECTION),
    examples="""
        mailmend jobs pause nightly-repair --reason 'nodes are being replaced until Friday'
        mailmend jobs pause nightly-repair --now""",
    exits="0 it is paused, 2 wrong use, 4 the cluster cannot be reached.",
)
_RESUME: Final = Command(
    name="resume",
    summary="Let a paused job run again, at its next time.",
    service="mailmend.admin.jobs.jobs_service:resume_job",
    present="mailmend.admin.jobs.jobs_document:resumed_document",
    options=(_NAME,),
    shared=(_ONE, CONNECTION),
    examples="mailmend jobs resume nightly-repair",
    exits="0 it is not paused any more, 2 wrong use, 4 the cluster cannot be reached.",
)
_SET: Final = Command(
    name="set",
    summary="Change the limits of a run while it is at work.",
    about="""NAME is that of a job which runs, or the id of a run that was started by hand (mailmend runs list). It
    counts for this run alone: the next one has what is declared. The run hears of it within seconds wherever it reads
    or writes, whatever its engine; --max-fixes when its scan is over, before it mends anything. Everything that was set
    is on record: mailmend runs show.

    A check that was started by hand is on no record, so it cannot be named: end it (Ctrl-C, it writes nothing), and
    start it again with --rows-per-second.""",
    service="mailmend.admin.jobs.run_limits_service:set_limits",
    present="mailmend.admin.jobs.jobs_document:limit_document",
    options=(
        _NAME,
        ROWS_PER_SECOND,
        MAX_FIXES,
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend jobs set nightly-repair --rows-per-second 2000
        mailmend jobs set 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --rows-per-second 500""",
    exits="0 it is set, 2 wrong use, or nothing of that name runs, 4 the cluster cannot be reached.",
)
_HISTORY: Final = Command(
    name="history",
    summary="List the runs of jobs, newest first, with the repairs that they began.",
    service="mailmend.admin.jobs.jobs_service:history",
    present="mailmend.admin.jobs.jobs_document:history_document",
    options=(
        click.Argument(["name"], required=False),
        option("--since", "How far to look back.", type=KEEP, default=duration_text(KEEP_DEFAULT)),
    ),
    shared=(Shared("names", {}, _names), CONNECTION),
    examples="""
        mailmend jobs history
        mailmend jobs history nightly-repair --json | jq '.runs[0].exit_code'""",
    exits="0 they were listed, 2 wrong use, 4 the cluster cannot be reached.",
)


def _kind(name: str, text: str) -> click.Option:
    return click.Option([f"--{name}", "kind"], flag_value=name, help=text)


def _place_there(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> UnitPlace:  # noqa: ARG001
    if others["kind"] is None:
        raise WrongUse("no scheduler is named", mend=f"Name one: {', '.join(f'--{form}' for form in RENDERED)}.")
    there, _ = settings_file_of(context)
    settings = others.pop("settings") or there
    place = UnitPlace(
        program=(sys.executable, "-m", "mailmend"),
        settings=str(settings.expanduser().absolute()) if settings else "",
        profile=context.find_root().meta.get(PROFILE_NAME),
        user=others.pop("run_as"),
        image=others.pop("image"),
    )
    if not f"{place.settings}{place.user}{place.image}".isprintable():
        raise WrongUse("there is a line break in --settings, --run-as or --image", mend="Units are made of lines.")
    return place


def _some_jobs(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> list[Job]:  # noqa: ARG001
    names = others.pop("names")
    jobs = declared_jobs(context)
    if not (names or jobs):
        raise WrongUse("no job is declared", mend=_NONE_DECLARED)
    return [_job_named(name, jobs) for name in names] or list(jobs.values())


_INSTALL: Final = Command(
    name="install",
    summary="Write what systemd, cron, Kubernetes or Airflow need to run jobs.",
    about="""Of the same declarations. Without --dir the files are shown, and nothing is written. Each starts `mailmend
    jobs run NAME --scheduled`, ends what has not ended by itself, and never runs a job twice at once.""",
    service="mailmend.admin.jobs.jobs_service:install",
    present="mailmend.admin.jobs.jobs_document:units_document",
    options=(
        click.Argument(["names"], nargs=-1, metavar="[NAME]..."),
        _kind("systemd", "A service and a timer for each job."),
        _kind("cron", "A crontab with a line for each job."),
        _kind("kubernetes", "A CronJob for each job."),
        _kind("airflow", "A DAG for each job; Airflow 2.7 or later."),
        option(
            "--dir", "Folder for the files: those of an earlier time are replaced.", "folder", type=FILE, metavar="DIR"
        ),
        option(
            "--settings",
            "Where the settings file is on the machine that runs the jobs. [default: the one that is read here]",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--run-as",
            "User of the operating system that runs the jobs, for systemd.",
            default="mailmend",
            metavar="NAME",
        ),
        option("--image", "Container image with mailmend in it, for Kubernetes.", default="mailmend", metavar="NAME"),
    ),
    shared=(
        Shared("jobs", {}, _some_jobs),
        Shared("place", {"Settings": (CONFIG, PROFILE)}, _place_there),
    ),
    examples="""
        mailmend jobs install --systemd                                   shown
        mailmend jobs install --systemd --dir /etc/systemd/system
        mailmend jobs install --kubernetes nightly-repair --image registry.example.org/mailmend:1 --dir manifests""",
    exits="0 they were written, or shown, 2 a declaration is wrong, no scheduler is named, or the folder cannot be "
    "written to.",
)

JOBS: Final = CommandGroup(
    name="jobs",
    summary="Scheduled checks and repairs: when they run, and how they ended.",
    about="""A job is a table of the settings file: a command of check, repair or queue sweep with its options, and when
    it may run. Nothing runs where one of them is declared wrongly.""",
    commands=(
        _LIST,
        _SHOW,
        _RUN,
        Late("serve", "Run the jobs at their times, until it is stopped.", "mailmend.admin.jobs.serve:SERVE"),
        _SET,
        _PAUSE,
        _RESUME,
        _HISTORY,
        _INSTALL,
    ),
    examples="""
        mailmend jobs list                                what is declared, when it runs, how it stands
        mailmend jobs run nightly-repair                  now
        mailmend jobs set nightly-repair --rows-per-second 2000     slower, while it runs
        mailmend jobs history nightly-repair              how its runs ended
        mailmend jobs serve                               run them all at their times
        mailmend jobs install --systemd --dir /etc/systemd/system""",
    epilog="""\b
In the settings file (only command and schedule are needed):
  [jobs.nightly-repair]
  command = "repair messages --engine local"   # as it is typed behind `mailmend`
  schedule = "30 1 * * *"           # minute, hour, day of month, month, day of week
  time_zone = "Europe/Berlin"       # of schedule and window; UTC
  jitter = "10m"                    # begins up to so much later; 0
  window = "01:00-05:30"            # ended in good order at its end, goes on in the next one; always
  longest = "4h"                    # ended in good order after so long; 12h
  missed = "run"                    # what a missed run means: "run" as soon as it can, or "skip" it; "skip"
  max_fixes = 100000                # limits, as the command's options of these names
  rows_per_second = 20000
  tell = "trouble"                  # after failures, drift and interruptions, or "always"; "trouble"
  tell_command = "page-somebody"    # gets JSON on stdin
  tell_webhook = "https://hooks.example.org/T0/B0"   # JSON is posted there, up to six times
  metrics_file = "/var/lib/node_exporter/nightly-repair.prom"   # as the command's --metrics-file""",
    settings=None,
)
_GROUP_NAMES: Final = tuple(command.name for command in JOBS.commands)
