"""What the units of every scheduler have in common: where they run and what they start."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from mailmend.admin.frame.settings import has_password
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import command_context
from mailmend.model.errors import WrongUse

STOP_SECONDS: Final = 300
"""How long a run may take to end in good order once it is asked to."""

MADE: Final = "Made by `mailmend jobs install`: make it anew after changing the declaration, [jobs.{job}]."

PRIVILEGED_PORTS: Final = range(1, 1024)
"""The ports at which only a process with a capability of its own may listen."""

SERVERS: Final = ("jobs serve", "delivery serve", "queue tend")
"""The commands that run until they are stopped."""

_READING_AGAIN: Final = ("jobs serve", "delivery serve")
"""The servers that read their settings again after SIGHUP; it would end the others."""

_ENDING: Final = ("once", "dry_run")
_NOT_IN_A_SERVER: Final = ("--config", "--profile")
_EXAMPLE: Final = "Write it as it is typed behind `mailmend`: --service 'delivery serve outgoing'"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlace:
    """Where jobs and servers will run.

    Attributes:
        program: the words that start mailmend there.
        settings: the settings file there; "": none is named.
        user: whose process it is; it has to be there.
        image: with mailmend in it, for Kubernetes; None: the one of this version.
    """

    program: Sequence[str]
    settings: str
    profile: str | None = None
    user: str = "mailmend"
    image: str | None = None

    def words(self, job: Job) -> list[str]:
        return self.words_of(["jobs", "run", job.name, "--scheduled"])

    def words_of(self, command: Sequence[str]) -> list[str]:
        words = [*self.program, *command]
        if self.settings:
            words += ("--config", self.settings)
        if self.profile:
            words += ("--profile", self.profile)
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A command that runs until it is stopped.

    Attributes:
        words: the command and its options, as they would be typed behind `mailmend`.
        name: of its unit.
        reads_again: whether SIGHUP has it read its settings again.
        has_low_port: whether it listens at a port below 1024.
        metrics_file: that it writes; None: it writes none.
    """

    words: tuple[str, ...]
    name: str
    reads_again: bool = False
    has_low_port: bool = False
    metrics_file: Path | None = None

    @property
    def command(self) -> str:
        return shlex.join(self.words)


def limit_seconds(job: Job) -> int:
    """When a scheduler ends a run, counted from its start: later than the run's own end."""
    return int((job.jitter + job.longest).total_seconds()) + STOP_SECONDS


def server_command(text: str, context: click.Context) -> ServerCommand:
    """Parse a server's command, with its options read as if they had been typed.

    Raises:
        WrongUse: the text is not such a command, or its options are wrong.
    """
    words = _words(text)
    kind = " ".join(words[:2])
    if kind not in SERVERS:
        raise WrongUse(
            f"{text!r} is not a command that runs until it is stopped",
            mend=f"These are: {', '.join(SERVERS)}.",
        )
    try:
        given = command_context(words, context).params
    except click.UsageError as error:
        raise WrongUse(
            f"`mailmend {text}` cannot be run: {error.format_message()}",
            mend=f"Its options: mailmend {kind} --help",
        ) from error
    if any(given.get(name) for name in _ENDING):
        what = f"`mailmend {text}` ends, and is not a server"
        raise WrongUse(what, mend="Leave --once and --dry-run out.")
    return ServerCommand(
        words=words,
        name=_unit_name(words, given),
        reads_again=kind in _READING_AGAIN,
        has_low_port=any(port in PRIVILEGED_PORTS for port in _ports(given)),
        metrics_file=given.get("metrics"),
    )


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise WrongUse(f"--service {text!r} cannot be read: {error}", mend=_EXAMPLE) from error
    if not all(word.isprintable() for word in words):
        raise WrongUse("there is a line break in --service", mend="Units are made of lines.")
    if any(has_password(word) for word in words):
        raise WrongUse(
            "there is a password in --service: every user of the machine could read it",
            mend="Put the broker's URL with its password into /etc/mailmend/environment: MAILMEND_BROKER.",
        )
    for name in _NOT_IN_A_SERVER:
        if any(word == name or word.startswith(f"{name}=") for word in words):
            what = f"{name} does not go into --service"
            raise WrongUse(what, mend="Give it to `mailmend jobs install` instead.")
    return words


def _unit_name(words: Sequence[str], given: Mapping[str, Any]) -> str:
    """Of the command, its queue, and the name of a delivery server."""
    parts = ["mailmend", *words[:2]]
    for field in ("queue_named", "server_name"):
        if given.get(field):
            parts.append(str(given[field]))
    return re.sub(r"[^A-Za-z0-9_.-]", "-", "-".join(parts))


def _ports(given: Mapping[str, Any]) -> Iterator[int]:
    """Where the server listens, by HTTP (a text like 127.0.0.1:8000) and by SMTP."""
    for field in ("http", "listen"):
        places = given.get(field) or ()
        if isinstance(places, str):
            places = (places,)
        for place in places:
            if isinstance(place, str):
                yield urlsplit(f"//{place}").port or 0
            else:
                yield place.port
