"""`mailmend jobs install`: what schedulers need to run jobs, and systemd to run servers.

These are systemd's units, a crontab, CronJobs of Kubernetes, DAGs of Airflow: a declaration in, the
texts of files out. All of them start `mailmend jobs run NAME --scheduled`, which knows the window,
the jitter and the limits; a scheduler only knows when, and ends a run that has not ended in time.
Servers are started as they are typed.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import click

from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.options import CONFIG, FILE, PROFILE, option
from mailmend.admin.frame.settings import reason_of
from mailmend.admin.frame.settings_file import PROFILE_NAME, settings_file_of
from mailmend.admin.frame.values import plain
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.jobs.declaration import Job, Missed
from mailmend.admin.jobs.jobs import NONE_DECLARED, declared_jobs, job_named
from mailmend.admin.jobs.schedule import LATE
from mailmend.admin.jobs.systemd import server_units, systemd_units
from mailmend.admin.jobs.units import (
    MADE,
    STOP_SECONDS,
    ServerCommand,
    UnitPlace,
    limit_seconds,
    server_command,
)
from mailmend.model.errors import WrongUse

IMAGE: Final = "ghcr.io/mailmend/mailmend"
SPARK_IMAGE: Final = "ghcr.io/mailmend/mailmend-spark"
"""The images that a release pushes, with its version as tag: the targets of `Dockerfile`."""

_SPARK: Final = re.compile(r" --(engine[ =]spark|master|spark-conf)[ =]")

_CATCH_UP_SECONDS: Final = 8 * 3600
"""How long after its time Kubernetes still starts a missed run; it gives up at 100 of them."""


def crontab(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """One crontab for all jobs, as a person's own; /etc/cron.d wants a user before each command."""
    lines = [
        "# Made by `mailmend jobs install`: make it anew after changing a declaration.",
        "# cronie knows CRON_TZ; where cron does not (Debian's), the host's zone must be the one that is set here.",
        "# cron starts nothing that it has missed: `mailmend jobs list` tells it.",
    ]
    for job in jobs:
        limit = str(limit_seconds(job))
        words = ["timeout", f"--kill-after={STOP_SECONDS}", limit, *place.words(job)]
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
          # A Service `mailmend` would set MAILMEND_PORT, which is the port of Cassandra.
          enableServiceLinks: false
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
                - name: XDG_CACHE_HOME
                  value: /var/lib/mailmend/.cache
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
    """A CronJob for each job; it wants two secrets and a volume claim, which it names.

    Where the place names no image, a job has one of this version, with Java if it names Spark.
    """
    return {f"mailmend-{job.name}.yaml": _cronjob(job, place) for job in jobs}


def _cronjob(job: Job, place: UnitPlace) -> str:
    there = replace(place, program=["mailmend"], settings="/etc/mailmend/config.toml")
    starting = int(LATE.total_seconds())
    if job.missed is Missed.RUN:
        starting = _CATCH_UP_SECONDS
    return _CRONJOB.format(
        made=MADE.format(job=job.name),
        name=json.dumps(f"mailmend-{job.name}"),
        schedule=json.dumps(job.schedule.plain),
        zone=json.dumps(job.zone.key),
        starting=starting,
        limit=limit_seconds(job),
        stop=STOP_SECONDS,
        image=json.dumps(place.image or _image_of(job)),
        words=json.dumps(there.words(job)),
    )


def _image_of(job: Job) -> str:
    image = IMAGE
    if _SPARK.search(f"{job.command} "):
        image = SPARK_IMAGE
    return f"{image}:{version('mailmend')}"


def airflow_dags(jobs: Sequence[Job], place: UnitPlace) -> dict[str, str]:
    """A DAG for each job, for Airflow 2.7 and later; its workers run mailmend.

    Of an hour that occurs twice, Airflow takes the second (seen: 2.7 to 3.3), where we take the first.
    """
    return {f"{_dag_id(job)}.py": _dag(job, place) for job in jobs}


def _dag_id(job: Job) -> str:
    return f"mailmend_{job.name.replace('-', '_')}"


def _dag(job: Job, place: UnitPlace) -> str:
    return dedent(f'''\
        """{MADE.format(job=job.name)}"""

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


def install(
    jobs: Sequence[Job],
    servers: Sequence[ServerCommand],
    kind: str,
    place: UnitPlace,
    folder: Path | None,
) -> InstalledUnits:
    """What the scheduler of that kind needs to run the jobs and the servers, in a folder that is made.

    Raises:
        WrongUse: the folder cannot be made or written to, or two units have one name.
    """
    files = RENDERED[kind](jobs, place)
    for server in servers:
        for name, text in server_units([server], place).items():
            if name in files:
                raise WrongUse(
                    f"two units would have the name {name}",
                    mend="Give delivery servers a --server NAME each; name a job otherwise.",
                )
            files[name] = text
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WrongUse(f"the folder {folder} cannot be made: {reason_of(error)}") from error
        for name in files:
            refuse_unwritable(folder / name)
    return InstalledUnits(kind, files, folder)


_THEN: Mapping[str, str] = {
    "systemd": "Then: systemctl daemon-reload; systemctl enable --now {units}",
    "cron": "Then: crontab {folder}/mailmend.crontab (it takes the place of the user's own)",
    "kubernetes": "Then: kubectl apply -f {folder}",
    "airflow": "Airflow finds them in its folder of DAGs.",
}


def units_document(result: InstalledUnits) -> Document:
    folder = result.folder
    json = {"kind": result.kind, "folder": plain(folder), "files": dict(result.files)}
    if folder is None:
        return Document(json, (Verbatim(_one_text(result)),), hints=("To write them as files: --dir DIR",))
    then = _THEN[result.kind].format(units=" ".join(_enabled(result.files)), folder=folder)
    lines = [f"Written: {folder / name}" for name in result.files]
    return Document(json, (*lines, then), files={folder / name: text for name, text in result.files.items()})


def _enabled(files: Mapping[str, str]) -> list[str]:
    """Timers, which start the services of their names, and the services without a timer."""
    return [name for name in files if f"{name.removesuffix('.service')}.timer" not in files]


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


def _servers(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> list[ServerCommand]:  # noqa: ARG001
    texts = others.pop("servers")
    if texts and others["kind"] not in {None, "systemd"}:
        raise WrongUse(
            f"--service is for --systemd, not for --{others['kind']}",
            mend="Where servers run in Kubernetes: deploy/kubernetes in the source.",
        )
    return [server_command(text, context) for text in texts]


def _some_jobs(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> list[Job]:  # noqa: ARG001
    names = others.pop("names")
    if others["servers"] and not names:
        return []
    jobs = declared_jobs(context)
    if not (names or jobs):
        raise WrongUse("no job is declared", mend=NONE_DECLARED)
    return [job_named(name, jobs) for name in names] or list(jobs.values())


INSTALL: Final = Command(
    name="install",
    summary="Write what systemd, cron, Kubernetes or Airflow need to run jobs and servers.",
    about="""The files are made from the same declarations. Without --dir they are shown, and
    nothing is written. Each starts `mailmend jobs run NAME --scheduled`, ends a run that has not
    ended in time, and never runs a job twice at once.

    With --service and without NAME, only servers are installed: `jobs serve`, `delivery serve` and
    `queue tend`, with their options. systemd starts such a service at boot, and again after a
    failure. `systemctl reload` has the first two read their settings again. Secrets do not go into
    the command: files or /etc/mailmend/environment hold them.""",
    service="mailmend.admin.jobs.install:install",
    present="mailmend.admin.jobs.install:units_document",
    options=(
        click.Argument(["names"], nargs=-1, metavar="[NAME]..."),
        _kind("systemd", "A service and a timer for each job, a service for each server."),
        _kind("cron", "A crontab with a line for each job."),
        _kind("kubernetes", "A CronJob for each job."),
        _kind("airflow", "A DAG for each job; Airflow 2.7 or later."),
        option(
            "--service",
            "A server's command as it is typed behind `mailmend`, in quotes; may be given again. For --systemd.",
            "servers",
            multiple=True,
            metavar="COMMAND",
        ),
        option(
            "--dir",
            "Folder for the files: it is made if it is missing, and earlier files are replaced.",
            "folder",
            type=FILE,
            metavar="DIR",
        ),
        option(
            "--settings",
            "Where the settings file is on the machine that runs jobs and servers. "
            "[default: the one that is read here]",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--run-as",
            "User of the operating system that runs jobs and servers, for systemd.",
            default="mailmend",
            metavar="NAME",
        ),
        option(
            "--image",
            f"Container image with mailmend in it, for Kubernetes. [default: {IMAGE} of this "
            f"version; {SPARK_IMAGE} where a job has --engine spark or --master]",
            metavar="NAME",
        ),
    ),
    shared=(
        Shared("jobs", {}, _some_jobs),
        Shared("servers", {}, _servers),
        Shared("place", {"Settings": (CONFIG, PROFILE)}, _place_there),
    ),
    examples="""
        mailmend jobs install --systemd                                   shown
        mailmend jobs install --systemd --dir /etc/systemd/system
        mailmend jobs install --systemd --service 'jobs serve' --service 'queue tend --all'
        mailmend jobs install --systemd --service 'delivery serve outgoing --listen 10.0.0.5:25'
        mailmend jobs install --kubernetes nightly-repair --dir manifests""",
    exits="0 they were written, or shown, 2 a declaration is wrong, no scheduler is named, or the folder cannot be "
    "written to.",
)
