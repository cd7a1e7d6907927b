"""The interface of one kind of local server; `admin.local.server` runs all kinds through it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from mailmend.admin.local.folders import cache_home, home_of
from mailmend.model.ports import Clock, Progress, Silent
from mailmend.repair.clock import SystemClock

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a server may use of this machine to get its parts.

    Attributes:
        environment: where programs and proxies are looked up.
        cache: the user's cache folder of mailmend: what is fetched once belongs in a folder of it.
    """

    environment: Mapping[str, str] = field(repr=False)
    cache: Path
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def of_this_user(
        cls, environment: Mapping[str, str] | None = None, *, progress: Progress | None = None
    ) -> "Machine":
        """The user's environment; this process's environment when None."""
        if environment is None:
            environment = os.environ
        return cls(environment, cache_home(environment, home_of(environment)), progress or Silent())


@dataclass(frozen=True, slots=True)
class Site:
    """One server's folder, which `clean` removes, and its ports, which stay between starts."""

    folder: Path
    ports: Mapping[str, int]

    def console(self, name: str) -> Path:
        """The file with the output of that process."""
        return self.folder / f"{name}.console.log"


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a server, which has to stay the process that is started: a script must `exec`.

    Attributes:
        name: such as `server`; unique in its server. Its output goes to `Site.console(name)`.
        command: the words; nothing secret, because every user may read them.
        mark: text in the command line of this process, from its start, and of no other process.
        environment: the whole environment of the process.
    """

    name: str
    command: Sequence[str]
    mark: str
    environment: Mapping[str, str] = field(repr=False)


class ServerKind(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str:
        """What a person types after `--with`, and the name of its folder."""

    @property
    def title(self) -> str:
        """Its name and version in messages."""

    @property
    def host(self) -> str:
        """The loopback address on which it listens."""

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that it needs, by name: each with its usual number, taken at the first start if it is free."""

    def fetch(self, machine: Machine) -> Path:
        """Make sure that its parts are on this machine; the folder or file that `launches` needs.

        Fetched once under a lock, moved into place as a whole, used offline afterwards.

        Raises:
            LocalServerError: they cannot be fetched; the message says what to do.
        """

    def write_files(self, parts: Path, site: Site) -> None:
        """Write its configuration into the site's folder, which exists; called before every start."""

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        """Its processes in the order of their start; they are ended in reverse. Pure."""

    def is_ready(self, site: Site) -> bool:
        """Whether it serves after a start; quick, and False rather than an error."""

    def answers(self, site: Site) -> bool:
        """Whether it answers in its own protocol; quick, and False rather than an error."""

    def contacts(self, site: Site) -> Mapping[str, str]:
        """How it is reached, by name, for people and scripts: `{"amqp": "amqp://127.0.0.1:5672"}`; nothing secret."""

    def log(self, site: Site) -> Path:
        """Where to read why it did not start."""


class ServerState(Enum):
    """The state of one server."""

    UP = "up"  # it answers
    SILENT = "silent"  # its processes run and it does not answer: it is starting, or stuck
    DEAD = "dead"  # it was started and a process is gone: killed, or it fell over
    STOPPED = "stopped"  # it was stopped, or never started


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of one server now."""

    name: str
    title: str
    state: ServerState
    pids: tuple[int, ...]
    contacts: Mapping[str, str]
    log: Path
