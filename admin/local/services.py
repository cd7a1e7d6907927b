"""Servers beside Cassandra: what one kind of them has to say of itself, so that all are run by the same code.

A kind is a `Service`: how it is fetched, which processes it is, how it is asked whether it answers. What it has in
common with the others (ports that stay, processes written down beside the data, up, down, kill, clean) is in
`service_runs`. Which kinds there are is in `service_kinds`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from admin.local.layout import cache_home
from admin.local.progress import Progress, Silent
from admin.local.status import NodeState
from model.ports import Clock
from repair.clock import SystemClock

HOST: Final = "127.0.0.1"
"""The only address on which any of them listens."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What of this machine a service may use to get its parts.

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
        """This machine as the user's environment tells it; that of this process when not given."""
        environment = os.environ if environment is None else environment
        return cls(environment, cache_home(environment, Path.home()), progress or Silent())


@dataclass(frozen=True, slots=True)
class Site:
    """Where one server is: a folder of its own, which goes with `clean`, and its ports, which stay between starts."""

    folder: Path
    ports: Mapping[str, int]

    def console(self, launch: str) -> Path:
        """What the process of that name prints."""
        return self.folder / f"{launch}.console.log"


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a server, which has to stay the process that is started: a script must `exec`.

    Attributes:
        name: such as `server`; unique in its service. Its output goes to `Site.console(name)`.
        command: the words; nothing secret, as everybody may read them.
        mark: what stands in the command line of this process, from its start, and in that of no other server.
        environment: the whole environment of the process.
    """

    name: str
    command: tuple[str, ...]
    mark: str
    environment: Mapping[str, str] = field(repr=False)


class Service(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str:
        """What a person types after `--with`, and the name of its folder."""

    @property
    def title(self) -> str:
        """Its name and version in messages."""

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

    def answers(self, site: Site) -> bool:
        """Whether it serves, asked with its own protocol; quick, and False rather than an error."""

    def contacts(self, site: Site) -> Mapping[str, str]:
        """How it is reached, by name, for people and scripts: `{"amqp": "amqp://127.0.0.1:5672"}`; nothing secret."""

    def log(self, site: Site) -> Path:
        """Where to read why it did not start."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """How one server is; `state` as for a node of Cassandra."""

    name: str
    title: str
    state: NodeState
    pids: tuple[int, ...]
    contacts: Mapping[str, str]
    log: Path

    def as_json(self) -> dict[str, Any]:
        """The status as `--json` prints it; the names are a contract with scripts."""
        return {
            "name": self.name,
            "title": self.title,
            "state": self.state.value,
            "pids": list(self.pids),
            "contacts": dict(self.contacts),
            "log": str(self.log),
        }
