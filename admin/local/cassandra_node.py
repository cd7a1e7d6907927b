"""One node of Cassandra as a kind of local server.

SIGTERM is enough for a clean end: Cassandra's own shutdown hook stops taking clients, tells the other nodes and flushes
every table ("Reason: DRAIN" in its log), so that the next start has nothing to replay. After kill -9 the commit log is
replayed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from admin.local import native_protocol
from admin.local.cassandra_config import LOGBACK, asks_passwords, demands_tls, node_command, render, yaml_of
from admin.local.cassandra_settings import ClusterSettings
from admin.local.jars import JarStore
from admin.local.java import find_java
from admin.local.layout import NodeFolders
from admin.local.server_kind import Launch, Machine, Site

_FIRST_ROLE: Final = ("cassandra", "cassandra")


@dataclass(frozen=True, slots=True)
class CassandraNode:
    """Node 1, 2 or 3 of a local cluster."""

    settings: ClusterSettings
    number: int
    store: JarStore

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def title(self) -> str:
        return f"{self.settings.release.name}, node {self.number} on {self.host}:{self.settings.native_port}"

    @property
    def host(self) -> str:
        return self.settings.hosts[self.number - 1]

    @property
    def ports(self) -> Mapping[str, int]:
        return {"cql": self.settings.native_port, "storage": self.settings.storage_port}

    def fetch(self, machine: Machine) -> Path:
        """The folder of its jars.

        Raises:
            JavaMissing: there is no Java that runs it.
            LocalServerError: they cannot be fetched.
        """
        release = self.settings.release
        self.store.jars(release, find_java(release, machine.environment))
        return self.store.folder(release)

    def write_files(self, parts: Path, site: Site) -> None:  # noqa: ARG002 (another kind needs its parts)
        """Also renames the log of the start before: an error found in the log is this start's own."""
        folders = NodeFolders(site.folder)
        for folder in (folders.conf, folders.logs, folders.data / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        folders.yaml.write_text(render(yaml_of(self.settings, self.number, folders)), encoding="utf-8")
        folders.logback.write_text(LOGBACK, encoding="utf-8")
        if folders.system_log.exists():
            folders.system_log.replace(folders.log_before)

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        folders, jars = NodeFolders(site.folder), tuple(sorted(parts.glob("*.jar")))
        command = node_command(find_java(self.settings.release, environment), jars, self.settings, folders)
        return (Launch("server", command, folders.yaml.as_uri(), environment),)

    def is_ready(self, site: Site) -> bool:
        """Whether it answers and, where clients log in, has created its first role; older roles are unknown to us."""
        if not self.answers(site):
            return False
        if not asks_passwords(self.settings) or NodeFolders(site.folder).log_before.exists():
            return True
        tls = demands_tls(self.settings)
        return native_protocol.logs_in(self.host, self.settings.native_port, *_FIRST_ROLE, tls=tls)

    def answers(self, site: Site) -> bool:
        return native_protocol.answers(self.host, site.ports["cql"], tls=demands_tls(self.settings))

    def contacts(self, site: Site) -> Mapping[str, str]:
        return {"cql": f"{self.host}:{site.ports['cql']}"}

    def log(self, site: Site) -> Path:
        return NodeFolders(site.folder).system_log
