"""`mailmend jobs install`: what other schedulers need to run jobs.

These are systemd's units, a crontab, CronJobs of Kubernetes, DAGs of Airflow: a declaration in, the
texts of files out. All of them start `mailmend jobs run NAME --scheduled`, which knows the window,
the jitter and the limits; a scheduler only knows when, and ends a run that has not ended in time.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from textwrap import dedent
from typing import Any, Final

import click

from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.options import CONFIG, FILE, PROFILE, option
from mailmend.admin.frame.settings_file import PROFILE_NAME, settings_file_of
from mailmend.admin.frame.values import plain
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.jobs.cron import Cron
from mailmend.admin.jobs.declaration import Job, Missed
from mailmend.admin.jobs.jobs import NONE_DECLARED, declared_jobs, job_named
from mailmend.admin.jobs.schedule import LATE
from mailmend.model.errors import WrongUse

_STOP_SECONDS: Final = 300
"""How long a run may take to end in good order once it is asked to."""

_CATCH_UP_SECONDS: Final = 8 * 3600
"""How long after its time Kubernetes still starts a run that it has missed; far fewer than the 100 it gives up at."""

_ALL_DAYS: Final = 31
_WEEKDAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_MADE: Final = "Made by `mailmend jobs install`: make it anew after changing the declaration, [jobs.{job}]."


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlace:
    """Where jobs will run.

    Attributes:
        program: the words that start mailmend there.
        settings: the settings file there.
        user: whose process it is; it has to be there.
        image: with mailmend in it, for Kubernetes.
    """

    program: Sequence[str]
    settings: str
    profile: str | None = None
    user: str = "mailmend"
    image: str = "mailmend"

    def words(self, job: Job) -> list[str]:
        words = [*self.program, "jobs", "run", job.name, "--scheduled", "--config", self.settings]
        if self.profile:
            words += ("--profile", self.profile)
        return words


def limit_seconds(job: Job) -> int:
    """When a scheduler ends a run, counted from its start: later than the run's own end."""
    return int((job.jitter + job.longest).total_seconds()) + _STOP_SECONDS


def systemd_units(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """A service and a timer for each job."""
    files = {}
    for job in jobs:
        name = f"mailmend-{job.name}"
        files[f"{name}.service"] = _service(job, place)
        files[f"{name}.timer"] = _timer(job)
    return files


def on_calendar(cron: Cron, zone: str) -> Iterator[str]:
    """The schedule as systemd reads it; two lines where a day of either kind counts."""
    clock = f"{_numbers(cron.hours, 24)}:{_numbers(cron.minutes, 60)}:00 {zone}"
    months = _numbers(cron.months, 12)
    weekdays = ",".join(_WEEKDAYS[weekday] for weekday in cron.weekdays)
    if len(cron.weekdays) == len(_WEEKDAYS) or len(cron.days) < _ALL_DAYS:
        yield f"*-{months}-{_numbers(cron.days, _ALL_DAYS)} {clock}"
    if len(cron.weekdays) < len(_WEEKDAYS):
        yield f"{weekdays} *-{months}-* {clock}"


def _numbers(values: Sequence[int], span: int) -> str:
    if len(values) == span:
        return "*"
    return ",".join(f"{value:02}" for value in values)


def _timer(job: Job) -> str:
    times = "\n".join(f"OnCalendar={line}" for line in on_calendar(job.schedule, job.zone.key))
    persistent = "true" if job.missed is Missed.RUN else "false"
    return f"""\
# {_MADE.format(job=job.name)}
[Unit]
Description=When mailmend's job {job.name} runs

[Timer]
{times}
Persistent={persistent}
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def _service(job: Job, place: UnitPlace) -> str:
    return f"""\
# {_MADE.format(job=job.name)}
# The user has to be there, and to read the settings: useradd --system --shell /usr/sbin/nologin {place.user}
# Passwords, if the settings name no file with them, stand in /etc/mailmend/environment: MAILMEND_PASSWORD=...
[Unit]
Description=mailmend {_escaped(job.command)}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={" ".join(map(_systemd_word, place.words(job)))}
User={place.user}
EnvironmentFile=-/etc/mailmend/environment
Environment=HOME=%S/mailmend XDG_DATA_HOME=%S
StateDirectory=mailmend
WorkingDirectory=%S/mailmend
TimeoutStartSec={limit_seconds(job)}
TimeoutStopSec={_STOP_SECONDS}
KillMode=mixed
SuccessExitStatus=130
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
{_writable(job)}ProtectHome=read-only
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""


def _writable(job: Job) -> str:
    """Where the job may write in addition to its own folder."""
    if not job.metrics_file:
        return ""
    folder = PurePath(job.metrics_file).parent
    return f"ReadWritePaths={_systemd_word(f'-{folder}')}\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    plain = _escaped(word).replace("$", "$$")
    if re.fullmatch(r"[\w./:=@%$+,-]+", plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def crontab(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """One crontab for all jobs, as a person's own or for /etc/cron.d after a user was put before each command."""
    lines = [
        "# Made by `mailmend jobs install`: make it anew after changing a declaration.",
        "# cronie knows CRON_TZ; where cron does not (Debian's), the host's zone must be the one that is set here.",
        "# cron starts nothing that it has missed: `mailmend jobs list` tells it.",
    ]
    for job in jobs:
        words = ["timeout", f"--kill-after={_STOP_SECONDS}", str(limit_seconds(job)), *place.words(job)]
        command = shlex.join(words).replace("%", "\\%")
        lines += [
            "",
            f"# {job.name}: mailmend {job.command}",
            f"CRON_TZ={job.zone.key}",
            f"{job.schedule.plain} {command}",
        ]
    return {"mailmend.crontab": "\n".join(lines) + "\n"}


_CRONJOB: Final = """\
# {made}
# It wants, in its namespace:
#   kubectl create secret generic mailmend-settings --from-file=config.toml
#   kubectl create secret generic mailmend-environment --from-literal=MAILMEND_PASSWORD=...   (where it needs one)
#   a PersistentVolumeClaim mailmend-state: what was removed is kept there
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: mailmend
spec:
  schedule: {schedule}
  timeZone: {zone}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: {starting}
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: {limit}
      template:
        metadata:
          labels:
            app.kubernetes.io/name: mailmend
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: {stop}
          automountServiceAccountToken: false
          securityContext:
            runAsNonRoot: true
            runAsUser: 10001
            fsGroup: 10001
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: mailmend
              image: {image}
              command: {words}
              env:
                - name: HOME
                  value: /var/lib/mailmend
                - name: XDG_DATA_HOME
                  value: /var/lib
              envFrom:
                - secretRef:
                    name: mailmend-environment
                    optional: true
              resources:
                requests:
                  cpu: 500m
                  memory: 1Gi
              securityContext:
                allowPrivilegeEscalation: false
                readOnlyRootFilesystem: true
                capabilities:
                  drop: ["ALL"]
              volumeMounts:
                - name: settings
                  mountPath: /etc/mailmend
                  readOnly: true
                - name: state
                  mountPath: /var/lib/mailmend
                - name: tmp
                  mountPath: /tmp
          volumes:
            - name: settings
              secret:
                secretName: mailmend-settings
            - name: state
              persistentVolumeClaim:
                claimName: mailmend-state
            - name: tmp
              emptyDir: {{}}
"""


def kubernetes_cronjobs(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """A CronJob for each job; it wants two secrets and a volume claim, which it names."""
    return {f"mailmend-{job.name}.yaml": _cronjob(job, place) for job in jobs}


def _cronjob(job: Job, place: UnitPlace) -> str:
    words = UnitPlace(program=["mailmend"], settings="/etc/mailmend/config.toml", profile=place.profile).words(job)
    starting = int(LATE.total_seconds())
    if job.missed is Missed.RUN:
        starting = _CATCH_UP_SECONDS
    return _CRONJOB.format(
        made=_MADE.format(job=job.name),
        name=json.dumps(f"mailmend-{job.name}"),
        schedule=json.dumps(job.schedule.plain),
        zone=json.dumps(job.zone.key),
        starting=starting,
        limit=limit_seconds(job),
        stop=_STOP_SECONDS,
        image=json.dumps(place.image),
        words=json.dumps(words),
    )


def airflow_dags(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """A DAG for each job, for Airflow 2.7 and later; its workers run mailmend.

    Of an hour that occurs twice, Airflow takes the second (seen: 2.7 to 3.3), where we take the first.
    """
    return {f"{_dag_id(job)}.py": _dag(job, place) for job in jobs}


def _dag_id(job: Job) -> str:
    return f"mailmend_{job.name.replace('-', '_')}"


def _dag(job: Job, place: UnitPlace) -> str:
    return dedent(f'''\
        """{_MADE.format(job=job.name)}"""

        from datetime import timedelta

        import pendulum
        from airflow import DAG
        from airflow.timetables.trigger import CronTriggerTimetable

        try:
            from airflow.providers.standard.operators.bash import BashOperator  # Airflow 3
        except ImportError:
            from airflow.operators.bash import BashOperator

        with DAG(
            dag_id={json.dumps(_dag_id(job))},
            description={json.dumps(f"mailmend {job.command}")},
            schedule=CronTriggerTimetable({json.dumps(job.schedule.plain)}, timezone={json.dumps(job.zone.key)}),
            start_date=pendulum.datetime(2026, 1, 1, tz={json.dumps(job.zone.key)}),
            catchup=False,
            max_active_runs=1,
            tags=["mailmend"],
        ):
            BashOperator(
                task_id="run",
                bash_command={json.dumps("exec " + shlex.join(place.words(job)) + " ")},
                execution_timeout=timedelta(seconds={limit_seconds(job)}),
                retries=0,
            )
        ''')


RENDERED: Final[Mapping[str, Callable[[Sequence[Job], UnitPlace], dict[str, str]]]] = {
    "systemd": systemd_units,
    "cron": crontab,
    "kubernetes": kubernetes_cronjobs,
    "airflow": airflow_dags,
}


@dataclass(frozen=True, slots=True)
class InstalledUnits:
    """The files of a scheduler's units, with their texts.

    Attributes:
        folder: where they are to be; None: they are only shown.
    """

    kind: str
    files: Mapping[str, str]
    folder: Path | None = None


def install(jobs: Sequence[Job], kind: str, place: UnitPlace, folder: Path | None) -> InstalledUnits:
    """What the scheduler of that kind needs to run the jobs.

    Raises:
        WrongUse: the folder cannot be written to.
    """
    files = RENDERED[kind](jobs, place)
    if folder:
        for name in files:
            refuse_unwritable(folder / name)
    return InstalledUnits(kind, files, folder)


_THEN: Mapping[str, str] = {
    "systemd": "Then: systemctl daemon-reload; systemctl enable --now {timers}",
    "cron": "Then: crontab {folder}/mailmend.crontab (it takes the place of the user's own)",
    "kubernetes": "Then: kubectl apply -f {folder}",
    "airflow": "Airflow finds them in its folder of DAGs.",
}


def units_document(result: InstalledUnits) -> Document:
    folder = result.folder
    json = {"kind": result.kind, "folder": plain(folder), "files": dict(result.files)}
    if folder is None:
        return Document(json, (Verbatim(_one_text(result)),), hints=("To write them as files: --dir DIR",))
    timers = " ".join(name for name in result.files if name.endswith(".timer"))
    then = _THEN[result.kind].format(timers=timers, folder=folder)
    lines = [f"Written: {folder / name}" for name in result.files]
    return Document(json, (*lines, then), files={folder / name: text for name, text in result.files.items()})


def _kind(name: str, text: str) -> click.Option:
    return click.Option([f"--{name}", "kind"], flag_value=name, help=text)


def _one_text(result: InstalledUnits) -> str:
    """All files below each other; several ones with their names as comments."""
    if len(result.files) == 1:
        return "".join(result.files.values())
    apart = "---\n" if result.kind == "kubernetes" else ""
    return "\n".join(f"{apart}# {name}\n{text}" for name, text in result.files.items())


def _place_there(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> UnitPlace:  # noqa: ARG001
    if others["kind"] is None:
        raise WrongUse("no scheduler is named", mend=f"Name one: {', '.join(f'--{form}' for form in RENDERED)}.")
    there, _ = settings_file_of(context)
    file = others.pop("settings") or there
    settings = ""
    if file:
        settings = str(file.expanduser().absolute())
    place = UnitPlace(
        program=(sys.executable, "-m", "mailmend"),
        settings=settings,
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
        raise WrongUse("no job is declared", mend=NONE_DECLARED)
    return [job_named(name, jobs) for name in names] or list(jobs.values())


INSTALL: Final = Command(
    name="install",
    summary="Write what systemd, cron, Kubernetes or Airflow need to run jobs.",
    about="""The files are made from the same declarations. Without --dir they are shown, and nothing is written. Each
    starts `mailmend jobs run NAME --scheduled`, ends a run that has not ended in time, and never runs a job twice at
    once.""",
    service="mailmend.admin.jobs.install:install",
    present="mailmend.admin.jobs.install:units_document",
    options=(
        click.Argument(["names"], nargs=-1, metavar="[NAME]..."),
        _kind("systemd", "A service and a timer for each job."),
        _kind("cron", "A crontab with a line for each job."),
        _kind("kubernetes", "A CronJob for each job."),
        _kind("airflow", "A DAG for each job; Airflow 2.7 or later."),
        option("--dir", "Folder for the files: earlier files are replaced.", "folder", type=FILE, metavar="DIR"),
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
