"""A job as the settings file declares it, in `[jobs.NAME]`; parsed by pure functions that refuse with what to write."""

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from mailmend.admin.frame.settings import has_password
from mailmend.admin.jobs.cron import Cron, parse_cron
from mailmend.model.durations import parse_duration
from mailmend.model.errors import BadSettings, WrongUse
from mailmend.model.grammar import can_be_looked_up
from mailmend.model.texts import similar_name

T = TypeVar("T")

COMMANDS: Final = (
    "check",
    "repair messages",
    "repair mailboxes",
    "repair tables",
    "repair lags",
    "repair queues",
    "repair blobs",
    "queue sweep",
)
LONGEST: Final = timedelta(hours=12)
LONGEST_MAX: Final = timedelta(days=7)
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,38}[a-z0-9]|[a-z]")
_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_NOT_IN_A_JOB: Final = ("--config", "--profile")


class BadJob(BadSettings):
    """A declaration that cannot be carried out; `field` is the one to change, or "" for the whole."""

    def __init__(self, field: str, what: str, *, mend: str = "") -> None:
        super().__init__(what, mend=mend)
        self.field = field

    def at(self, place: str, job: str) -> BadSettings:
        return BadSettings(f"{place}: job {job!r}: {self.what}", mend=self.mend)


class Missed(Enum):
    """What becomes of a run whose time passed while nothing could start it."""

    SKIP = "skip"  # the next one comes at its own time
    RUN = "run"  # it runs as soon as its scheduler is there again, if the window is open


class Telling(Enum):
    """After which runs a message is sent."""

    ATTENTION = "trouble"  # it failed, found drift or left some, or was interrupted; not where its time was over
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Tell:
    """Who hears of a run: a command, which gets it as JSON on stdin, and a web address, to which that is posted."""

    on: Telling = Telling.ATTENTION
    command: tuple[str, ...] = ()
    webhook: str = field(default="", repr=False)


class DailyWindow(NamedTuple):
    """The hours in which a job may run, by the wall clock of its zone; over midnight where `start` is the later one."""

    start: time
    end: time

    def holds(self, wall: time) -> bool:
        if self.start < self.end:
            return self.start <= wall < self.end
        return wall >= self.start or wall < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command that runs at times.

    Attributes:
        words: the command and its options, as they would be typed behind `mailmend`.
        zone: the time zone of schedule and window.
        jitter: a run begins up to this much later than its schedule says.
        longest: after this time a run is ended in good order.
        max_fixes, rows_per_second, metrics_file: as the command's options of these names.
    """

    name: str
    words: tuple[str, ...]
    schedule: Cron
    zone: ZoneInfo
    jitter: timedelta = timedelta()
    window: DailyWindow | None = None
    longest: timedelta = LONGEST
    missed: Missed = Missed.SKIP
    max_fixes: int | None = None
    rows_per_second: int | None = None
    tell: Tell = Tell()
    metrics_file: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words, followed by the job's limits and its metrics file as options."""
        more = {
            "--max-fixes": self.max_fixes,
            "--rows-per-second": self.rows_per_second,
            "--metrics-file": self.metrics_file,
        }
        arguments = [*self.words]
        for name, value in more.items():
            if value is not None:
                arguments += (name, str(value))
        return tuple(arguments)

    @property
    def command(self) -> str:
        return shlex.join(self.arguments)


def job_of(name: str, declared: object) -> Job:
    """The job that a table of the settings file declares.

    Raises:
        BadJob: it cannot be carried out.
    """
    if not _NAME.fullmatch(name):
        raise BadJob(
            "", "is no name of a job", mend="Names have up to 40 small letters, digits and hyphens: nightly-repair."
        )
    if not isinstance(declared, dict):
        raise BadJob("", "is a value, not a job", mend=f"Declare a job as a table: [jobs.{name}]")
    fields = dict(declared)
    for unknown in set(fields) - set(_READ):
        mend = f"A job has: {', '.join(_READ)}. Options of its command stand in `command`, as they are typed."
        near = similar_name(unknown, _READ)
        if near:
            mend = f"Did you mean {near!r}?"
        raise BadJob(unknown, f"{unknown!r} is not a field of a job", mend=mend)
    for needed, example in {"command": "repair messages", "schedule": "30 2 * * *"}.items():
        if needed not in fields:
            raise BadJob("", f"has no {needed}", mend=f'Write for example: {needed} = "{example}"')
    read = {field: _READ[field](value) for field, value in fields.items()}
    tell = Tell(read.pop("tell", Telling.ATTENTION), read.pop("tell_command", ()), read.pop("tell_webhook", ""))
    zone = read.pop("time_zone", ZoneInfo("UTC"))
    job = Job(name=name, words=read.pop("command"), zone=zone, tell=tell, **read)
    _refuse_never(job)
    return job


_DESTROYING: Final[Mapping[str, tuple[object, ...]]] = {
    "dangling": ("restore",),
    "orphans": ("quarantine",),
    "leaks": ("collect",),
    "marks": ("empty", "old"),
    "beat_ahead": (True,),
    "garbagecollect": (True,),
}
_ASKING: Final = ("dangling", "garbagecollect")


def refuse_unasked(given: Mapping[str, object], named: Collection[str]) -> None:
    """Refuse what destroys where the job's own command does not name it, or where it would ask and no person answers.

    Args:
        given: the options of the command, wherever they come from.
        named: those that stand in the command.

    Raises:
        BadJob: there is such an option.
    """
    if given.get("dry_run") or given.get("plan"):
        return
    for name, values in _DESTROYING.items():
        value = given.get(name)
        if value not in values:
            continue
        option = f"--{name.replace('_', '-')}"
        if value is not True:
            option += f" {value}"
        if name not in named:
            raise BadJob(
                "command",
                f"{option} is set in the settings or the environment, not in this command",
                mend=f"What destroys is asked for by name: write {option} into the command, or take it away there.",
            )
        if name in _ASKING and "yes" not in named:
            raise BadJob(
                "command",
                f"{option} asks before it does anything, and a job has no person to answer",
                mend="Write --yes into the command too; or --plan FILE, to be approved and applied: "
                "mailmend runbook show approve-a-plan",
            )


def looks_like_a_job(declared: object) -> bool:
    return isinstance(declared, dict) and bool({"command", "schedule"} & declared.keys())


def name_of_a_command(name: str) -> BadJob:
    return BadJob(
        "",
        f"[jobs.{name}] has the options of `mailmend jobs {name}`: no job can have this name",
        mend=f"Name the job otherwise: [jobs.my-{name}]",
    )


def _refuse_never(job: Job) -> None:
    window = job.window
    cron = job.schedule
    if window and not any(window.holds(time(hour, minute)) for hour in cron.hours for minute in cron.minutes):
        raise BadJob(
            "window",
            f"the schedule {cron.text!r} never falls into the window {window}: it would never run",
            mend="Begin the window at the time of the schedule, or before it.",
        )


def _text(field: str, value: object, example: str) -> str:
    if not isinstance(value, str):
        raise BadJob(field, f"{field} is not a text", mend=f'Write it in quotes: {field} = "{example}"')
    return value


def _command(value: object) -> tuple[str, ...]:
    text = _text("command", value, "repair messages")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise BadJob("command", f"command cannot be read: {error}", mend="Close each quote that is opened.") from error
    named = " ".join(words)
    if not any(f"{named} ".startswith(f"{command} ") for command in COMMANDS):
        raise BadJob(
            "command",
            f"{text!r} is not a command that a job can have",
            mend=f"It begins with one of: {', '.join(COMMANDS)}.",
        )
    if not all(word.isprintable() for word in words):
        raise BadJob("command", "command has a line break within quotes", mend="Leave it out: units are lines.")
    if any(has_password(word) for word in words):
        raise BadJob(
            "command",
            "there is a password in the command, which is shown and recorded",
            mend="Put a broker's URL with its password into the table [queue] of the settings, or into "
            "MAILMEND_BROKER.",
        )
    for option in _NOT_IN_A_JOB:
        if any(word == option or word.startswith(f"{option}=") for word in words):
            raise BadJob("command", f"{option} does not go into a job", mend="Give it to `mailmend jobs` instead.")
    return words


def _zone(value: object) -> ZoneInfo:
    text = _text("time_zone", value, "Europe/Berlin")
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        mend = "Zones are named like Europe/Berlin, America/New_York or UTC."
        near = similar_name(text, available_timezones())
        if near:
            mend = f"Did you mean {near}?"
        raise BadJob("time_zone", f"{text!r} is not a time zone", mend=mend) from error


def _window(value: object) -> DailyWindow:
    text = _text("window", value, "22:00-06:00")
    found = _WINDOW.fullmatch(text.replace(" ", ""))
    if not found:
        raise BadJob("window", f"{text!r} is not a window", mend="Write begin and end by the clock: 22:00-06:00.")
    start, end = (time(int(found[group]), int(found[group + 1])) for group in (1, 3))
    if start == end:
        raise BadJob("window", f"the window {text} is empty", mend="Leave it out, and the job may run at any time.")
    return DailyWindow(start, end)


def _duration(field: str, maximum: timedelta, *, zero: bool) -> Callable[[object], timedelta]:
    def read(value: object) -> timedelta:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadJob(field, f"{field} is not a duration", mend=f'Write it like {field} = "90m".')
        return _said(field, lambda: parse_duration(str(value), maximum=maximum, zero=zero))

    return read


def _number(field: str, minimum: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise BadJob(
                field, f"{field} is not a number from {minimum} on", mend=f"Write for example: {field} = 10000"
            )
        return value

    return read


def _telling(value: object) -> Telling:
    text = _text("tell", value, Telling.ATTENTION.value)
    if text not in [telling.value for telling in Telling]:
        raise BadJob(
            "tell", f"{text!r} does not say after which runs", mend='Write tell = "trouble" or tell = "always".'
        )
    return Telling(text)


def _tell_command(value: object) -> tuple[str, ...]:
    text = _text("tell_command", value, "/usr/local/bin/page-on-call")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise BadJob("tell_command", f"tell_command cannot be read: {error}", mend="Close each quote.") from error
    if not words:
        raise BadJob("tell_command", "tell_command is empty", mend="Leave it out, and no command is run.")
    return words


def _webhook(value: object) -> str:
    text = _text("tell_webhook", value, "https://hooks.example.org/mailmend")
    parts = urlsplit(text)
    known = parts.scheme in ("http", "https") and parts.hostname and can_be_looked_up(parts.hostname)
    if not known or "@" in parts.netloc or not text.isprintable():
        raise BadJob(
            "tell_webhook",
            "tell_webhook is not an address that can be posted to",
            mend='Write it like tell_webhook = "https://hooks.example.org/mailmend", without user and password.',
        )
    return text


def _metrics_file(value: object) -> str:
    text = _text("metrics_file", value, "/var/lib/node_exporter/nightly-repair.prom")
    if not text.startswith("/") or not text.isprintable():
        raise BadJob("metrics_file", f"{text!r} is no whole path", mend="Begin it with a slash: jobs run anywhere.")
    return text


def _missed(value: object) -> Missed:
    text = _text("missed", value, Missed.SKIP.value)
    if text not in [missed.value for missed in Missed]:
        raise BadJob(
            "missed",
            f"{text!r} does not say what a missed run means",
            mend='Write missed = "skip" (the next comes at its time) or missed = "run" (as soon as it can).',
        )
    return Missed(text)


def _said(field: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except WrongUse as error:
        raise BadJob(field, f"{field}: {error.what}", mend=error.mend) from error


_READ: Final[Mapping[str, Callable[[object], Any]]] = {
    "command": _command,
    "schedule": lambda value: _said("schedule", lambda: parse_cron(_text("schedule", value, "30 2 * * *"))),
    "time_zone": _zone,
    "jitter": _duration("jitter", timedelta(days=1), zero=True),
    "window": _window,
    "longest": _duration("longest", LONGEST_MAX, zero=False),
    "missed": _missed,
    "max_fixes": _number("max_fixes", 0),
    "rows_per_second": _number("rows_per_second", 1),
    "tell": _telling,
    "tell_command": _tell_command,
    "tell_webhook": _webhook,
    "metrics_file": _metrics_file,
}
FIELDS: Final = tuple(_READ)
