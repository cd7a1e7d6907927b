"""`mailmend jobs install`: what a scheduler needs to run the jobs."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.options import CONFIG, FILE, PROFILE, option
from mailmend.admin.frame.settings_file import PROFILE_NAME, settings_file_of
from mailmend.admin.frame.values import plain
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import NONE_DECLARED, declared_jobs, job_named
from mailmend.admin.jobs.units import RENDERED, UnitPlace
from mailmend.model.errors import WrongUse


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
