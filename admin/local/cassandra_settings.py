"""Settings of one local cluster of Cassandra: how many nodes, which release, which ports, how much heap.

They are written next to the data at the first start, so that a later start of the same data, or of
one of its nodes, needs no settings.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from mailmend.admin.local.jars import JarProgram
from mailmend.model.errors import WrongUse

NODES_MAX: Final = 3
LOCAL_DC: Final = "datacenter1"
NATIVE_PORT_DEFAULT: Final = 9042
HEAP_MIB_DEFAULT: Final = 768
HEAP_MIB_MIN: Final = 256
_MIB_PER_UNIT: Final = {"m": 1, "g": 1024}


_MAVEN: Final = ("org.apache.cassandra", "cassandra-all")

RELEASES: Final[Mapping[str, JarProgram]] = {
    "5.0": JarProgram("Cassandra", "5.0.9", (17, 21), *_MAVEN),
    "4.1": JarProgram("Cassandra", "4.1.10", (17,), *_MAVEN),
}
"""The releases that `mailmend local` knows, by what a person types; the newest first."""

NEWEST: Final = RELEASES["5.0"]


def release_named(name: str) -> JarProgram:
    """The release for a line (`5.0`) or a full version (`5.0.9`)."""
    for line, release in RELEASES.items():
        if name in {line, release.version}:
            return release
    known = ", ".join(RELEASES)
    raise WrongUse(f"Cassandra {name!r} is not known to mailmend local", mend=f"Known are: {known}.")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """One local cluster, complete: everything on disk and every command line follows from these values.

    Attributes:
        nodes: 1 to 3, on 127.0.0.1 and the two addresses after it.
        native_port: where clients connect, the same on every address.
        storage_port: where the nodes talk to each other, the same on every address.
        authenticator: `AllowAllAuthenticator`, or `PasswordAuthenticator` for cassandra/cassandra.
        yaml: settings of cassandra.yaml that override ours.
        properties: Java system properties that override ours.
        java_options: more words for the java command, after ours.
    """

    release: JarProgram
    nodes: int
    native_port: int
    storage_port: int
    heap_mib: int
    authenticator: str = "AllowAllAuthenticator"
    yaml: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return hosts_of(self.nodes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"release": self.release.version}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ClusterSettings":
        known = {"release": release_named(document["release"]), "java_options": tuple(document["java_options"])}
        return cls(**{**document, **known})


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """What the caller asked for; None means: unchanged, or the default."""

    version: str | None = None
    nodes: int | None = None
    native_port: int | None = None
    heap_mib: int | None = None
    authenticator: str | None = None
    yaml: Mapping[str, Any] | None = None
    properties: Mapping[str, str] | None = None
    java_options: tuple[str, ...] | None = None


def hosts_of(nodes: int) -> tuple[str, ...]:
    if not 1 <= nodes <= NODES_MAX:
        raise WrongUse(f"{nodes} nodes cannot be started", mend=f"Between 1 and {NODES_MAX} nodes fit one machine.")
    return tuple(f"127.0.0.{number}" for number in range(1, nodes + 1))


def heap_mib(text: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])", text.strip().lower())
    size = int(match[1]) * _MIB_PER_UNIT[match[2]] if match else 0
    if size < HEAP_MIB_MIN:
        raise WrongUse(f"{text!r} is not a heap size", mend=f"Write it like 768m or 2g, at least {HEAP_MIB_MIN}m.")
    return size


def first_settings(request: ClusterRequest, storage_port: int) -> ClusterSettings:
    release = release_named(request.version) if request.version else NEWEST
    nodes = 1 if request.nodes is None else request.nodes
    usual = ClusterSettings(release, nodes, NATIVE_PORT_DEFAULT, storage_port, HEAP_MIB_DEFAULT)
    return replace(usual, **_changes(request))


def later_settings(known: ClusterSettings, request: ClusterRequest) -> ClusterSettings:
    """The settings for starting a stopped cluster again, perhaps with another port or heap."""
    if request.nodes not in {None, known.nodes}:
        raise _fixed_by_data(f"{known.nodes} node(s), not {request.nodes}")
    if request.version is not None and release_named(request.version) != known.release:
        raise _fixed_by_data(f"Cassandra {known.release.version}, not {request.version}")
    return replace(known, **_changes(request))


def _changes(request: ClusterRequest) -> dict[str, Any]:
    """What was asked for, of what a stopped cluster may change."""
    names = ("native_port", "heap_mib", "authenticator", "yaml", "properties", "java_options")
    return {name: value for name in names if (value := getattr(request, name)) is not None}


def _fixed_by_data(why: str) -> WrongUse:
    return WrongUse(f"the data there belong to {why}", mend="Remove them with: mailmend local clean, or use --dir.")
