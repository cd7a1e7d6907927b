"""A real Pulsar for tests: found or started, ended; every test takes queues with names of its own.

`MAILMEND_TEST_PULSAR=host:port:admin_port` names one that runs already; else one is started from the same code as
`mailmend local up --with pulsar`, with free ports and a folder of its own.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from admin.local.pulsar import Pulsar
from admin.local.server import LocalServer
from admin.local.server_kind import HOST, Site
from mailqueue.pulsar.settings import PulsarSettings
from tests.support.servers import throwaway_server

GIVEN = "MAILMEND_TEST_PULSAR"


@dataclass(frozen=True, slots=True)
class RealPulsar:
    """A Pulsar that a test may use together with others."""

    host: str
    port: int
    admin_port: int

    @property
    def settings(self) -> PulsarSettings:
        return PulsarSettings(f"pulsar://{self.host}:{self.port}", f"http://{self.host}:{self.admin_port}")


@dataclass(frozen=True, slots=True)
class OwnPulsar(RealPulsar):
    """A Pulsar that a test has for itself: it may be killed and started, and keeps its ports over all of it."""

    run: LocalServer


@dataclass(frozen=True, slots=True)
class SetPulsar(Pulsar):
    """A Pulsar whose configuration says more, or something else."""

    settings: Mapping[str, object] = field(default_factory=dict)

    def write_files(self, parts: Path, site: Site) -> None:
        super(SetPulsar, self).write_files(parts, site)
        with (site.folder / "standalone.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in self.settings.items())


@contextmanager
def one_pulsar() -> Iterator[RealPulsar]:
    if given := os.environ.get(GIVEN):
        host, port, admin_port = given.rsplit(":", 2)
        yield RealPulsar(host, int(port), int(admin_port))
        return
    with throwaway_pulsar() as own:
        yield own


@contextmanager
def throwaway_pulsar(kind: Pulsar | None = None) -> Iterator[OwnPulsar]:
    with throwaway_server(kind or Pulsar()) as run:
        ports = run.site.ports
        yield OwnPulsar(HOST, ports["pulsar"], ports["admin"], run)
