"""What is well with an installation, what is to be changed, and how: judged from what was found. Pure.

Each part has one line. An error of ours is a finding too: what cannot be reached, or what its settings lack.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from mailmend.cql.render import parse_version
from mailmend.mailqueue.rules.health import HealthReason
from mailmend.model.errors import CannotReach, ExitCode, MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.texts import keyspace_option
from mailmend.repair.clock import SKEW_SECONDS, ClockReading


class PartState(Enum):
    """The state of one part of an installation."""

    OK = "OK"
    TO_CHANGE = "TO_CHANGE"
    NOT_CONFIGURED = "NOT_CONFIGURED"
    CANNOT_REACH = "CANNOT_REACH"


@dataclass(frozen=True, slots=True)
class PartFound:
    """One part: its state, what was seen of it, and the next command or page where there is something to do."""

    part: str
    state: PartState
    seen: str
    next: str = ""


@dataclass(frozen=True, slots=True)
class UnfitPackage:
    """A package whose version does not meet our requirement; without a version it is missing, and required."""

    name: str
    version: str | None
    wanted: str
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What this machine has.

    Attributes:
        packages: their versions by name; None where one is not installed.
        unfit: packages that do not meet our requirements.
        java: the major version of the Java that would run, and where it is; or why no Java is
            found.
        java_of_wheel: whether that Java comes with the extra `java`.
        scala: the version of Scala in PySpark's jars.
        connector: the Maven coordinates of the Cassandra connector; or why they are unknown.
        connector_here: whether its jars are on this machine.
        executors_python: the version of the Python that PYSPARK_PYTHON names, where it is on this machine.
    """

    python: str
    python_wanted: str
    python_serves: bool
    packages: Mapping[str, str | None]
    unfit: Sequence[UnfitPackage] = ()
    java: str | MailmendError = ""
    java_of_wheel: bool = False
    scala: str | None = None
    connector: str | MailmendError | None = None
    connector_here: bool = False
    executors_python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFound:
    """What the nodes of the cluster tell.

    Attributes:
        title: of the server, such as `Cassandra 5.0`.
        releases: of each node that is up, by its address; None where it does not answer.
        down: addresses of nodes that are not up.
        schemas: how many versions of the schema the nodes have.
        lacking: tables and columns that the mail keyspace lacks; None: there is no such keyspace.
        holds_blobs: whether it has the tables that James keeps blobs in.
    """

    place: str
    title: str
    releases: Mapping[str, str | None]
    clocks: ClockReading
    keyspace: str
    ledger: str
    ledger_there: bool
    lacking: Collection[str] | None = None
    holds_blobs: bool = False
    down: Sequence[str] = ()
    schemas: int = 1


@dataclass(frozen=True, slots=True)
class BrokerFound:
    """A broker that answered.

    Attributes:
        product: its name and version.
        alarms: what it is short of, such as memory or disk.
        has_api: whether its HTTP API was asked.
        policies: what is wrong with how it treats the topics of the queue, over Pulsar.
    """

    place: str
    product: str
    alarms: Sequence[str] = ()
    has_api: bool = True
    policies: Sequence[HealthReason] = ()


@dataclass(frozen=True, slots=True)
class SparkClusterFound:
    """What the page of a cluster's master tells; no version: it does not answer, or is another page."""

    page: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFound:
    """What answers; None: it is not configured. An error: what cannot be reached, or is badly set.

    Attributes:
        blobs: where they are, once they were asked for one.
        settings: the file that was read.
        open_files: files with secrets that others may read.
    """

    cluster: ClusterFound | MailmendError | None = None
    broker: BrokerFound | MailmendError | None = None
    blobs: str | MailmendError | None = None
    spark: SparkClusterFound | None = None
    settings: Path | None = None
    open_files: Sequence[Path] = field(default_factory=tuple)


DRIVERS: Final = ("cassandra-driver", "scylla-driver")
OLDEST_SERVER: Final = (4, 0)
NEWEST_SERVER: Final = 5
OLDEST_SPARK: Final = (3, 5)
NEWEST_SPARK: Final = 4
OLDEST_BROKERS: Final = {"RabbitMQ": (3, 8), "Pulsar": (2, 10)}
"""The oldest releases that can be used: RabbitMQ's has quorum queues with a delivery limit, and alarms over the HTTP
API; Pulsar's is the one that James is tested with."""

_UPGRADE: Final = "pip install --upgrade 'mailmend{extra}'"
_NUMBERS: Final = re.compile(r"\d+")
_OK = PartState.OK
_CHANGE = PartState.TO_CHANGE
_NONE = PartState.NOT_CONFIGURED


def judged(installed: Installed, servers: ServersFound) -> list[PartFound]:
    """A line for each part, in the order in which they are to be mended."""
    return [
        _python(installed),
        _driver(installed),
        _libraries(installed),
        _java(installed),
        *_spark(installed),
        *_spark_cluster(servers.spark, installed.packages.get("pyspark")),
        _settings(servers),
        *_cluster(servers.cluster),
        _broker(servers.broker),
        _blobs(servers.blobs),
    ]


def exit_of(found: Sequence[PartFound]) -> ExitCode:
    states = {part.state for part in found}
    if PartState.CANNOT_REACH in states:
        return ExitCode.CANNOT_REACH
    if _CHANGE in states:
        return ExitCode.DRIFT
    return ExitCode.FINE


def of_error(part: str, error: MailmendError) -> PartFound:
    state = _CHANGE
    if isinstance(error, CannotReach):
        state = PartState.CANNOT_REACH
    return PartFound(part, state, error.what, error.mend)


def _python(found: Installed) -> PartFound:
    if not found.python_serves:
        seen = f"{found.python}; mailmend is made for {found.python_wanted}"
        return PartFound(
            "Python", _CHANGE, seen, "Install mailmend into a Python of that version: uv venv --python 3.11"
        )
    ours = found.python.split(".")[:2]
    if found.executors_python and found.executors_python.split(".")[:2] != ours:
        seen = f"{found.python}; PYSPARK_PYTHON names {found.executors_python}, and executors need the driver's"
        return PartFound("Python", _CHANGE, seen, f"Set PYSPARK_PYTHON to a Python {'.'.join(ours)}, or unset it.")
    return PartFound("Python", _OK, found.python)


def _driver(found: Installed) -> PartFound:
    there = [name for name in DRIVERS if found.packages.get(name)]
    if len(there) > 1:
        both = f"{there[0]} and {there[1]}: each takes the import name `cassandra`"
        return PartFound("driver", _CHANGE, both, f"pip uninstall {' '.join(there)}; pip install 'mailmend[cassandra]'")
    if not there:
        return PartFound("driver", _CHANGE, "none is installed", "pip install 'mailmend[cassandra]' (or [scylla])")
    return PartFound("driver", _OK, f"{there[0]} {found.packages[there[0]]}")


def _libraries(found: Installed) -> PartFound:
    if found.unfit:
        seen = []
        extras: dict[str, None] = {}
        for package in found.unfit:
            seen.append(f"{package.name} {package.version or 'is missing'} (wanted: {package.wanted})")
            if package.extra:
                extras[package.extra] = None
        extra = ""
        if extras:
            extra = f"[{','.join(extras)}]"
        return PartFound("libraries", _CHANGE, ", ".join(seen), _UPGRADE.format(extra=extra))
    count = sum(version is not None for version in found.packages.values())
    return PartFound("libraries", _OK, f"{count} are of the versions that mailmend is made for")


def _java(found: Installed) -> PartFound:
    if isinstance(found.java, MailmendError):
        state = _NONE
        if found.packages.get("pyspark"):
            state = _CHANGE
        return PartFound("Java", state, found.java.what, found.java.mend)
    if found.java_of_wheel and (found.packages.get("pyspark") or "").startswith("4."):
        seen = f"{found.java}: the Java of mailmend[java] lacks modules that Spark 4 needs"
        return PartFound(
            "Java", _CHANGE, seen, "Install a Java 17 (Debian: openjdk-17-jre-headless) and set JAVA_HOME."
        )
    return PartFound("Java", _OK, found.java)


def _spark(found: Installed) -> Iterator[PartFound]:
    version = found.packages.get("pyspark")
    if not version:
        alone = "PySpark is not installed: scans run in one process (--engine local)"
        yield PartFound("Spark", _NONE, alone, "For clusters and large keyspaces: pip install 'mailmend[spark]'")
        return
    yield PartFound("Spark", _OK, f"PySpark {version}")
    if isinstance(found.connector, MailmendError):
        yield of_error("connector", found.connector)
        return
    connector = found.connector or ""
    wanted = connector.rpartition("_")[2].partition(":")[0]
    if found.scala and not found.scala.startswith(f"{wanted}."):
        seen = f"PySpark's own is {found.scala}, and {connector} is made for {wanted}"
        yield PartFound("Scala", _CHANGE, seen, _UPGRADE.format(extra="[spark]"))
    else:
        yield PartFound("Scala", _OK, found.scala or f"{wanted}, the connector's version")
    here = "its jars are here" if found.connector_here else "the first scan fetches its jars from Maven Central"
    yield PartFound("connector", _OK, f"{connector}; {here}")


def _spark_cluster(found: SparkClusterFound | None, pyspark: str | None) -> Iterator[PartFound]:
    """An application runs on a cluster of its own Spark's version only, but for the last number."""
    if found is None:
        return
    cluster = _first_numbers(found.version)
    here = _first_numbers(pyspark)
    if not cluster:
        silent = f"{found.page} tells no version of Spark"
        look = "Name the page of its master: --master http://HOST:PORT"
        yield PartFound("Spark cluster", PartState.CANNOT_REACH, silent, look)
    elif cluster[0] != NEWEST_SPARK and cluster != OLDEST_SPARK:
        seen = f"{found.version} at {found.page}"
        yield PartFound("Spark cluster", _CHANGE, seen, "mailmend is made for clusters of Spark 3.5 and 4")
    elif here and cluster != here:
        seen = f"{found.version} at {found.page}, and PySpark here is {pyspark}"
        yield PartFound("Spark cluster", _CHANGE, seen, f"pip install pyspark=={found.version}")
    else:
        yield PartFound("Spark cluster", _OK, f"{found.version} at {found.page}")


def _first_numbers(version: str | None) -> tuple[int, ...]:
    """The first two numbers of a version; () for None."""
    return tuple(map(int, _NUMBERS.findall(version or "")[:2]))


def _settings(found: ServersFound) -> PartFound:
    if found.open_files:
        files = " ".join(map(str, found.open_files))
        return PartFound("settings", _CHANGE, f"every user of this machine can read {files}", f"chmod o-rwx {files}")
    return PartFound("settings", _OK, str(found.settings or "no file; environment and options alone"))


def _cluster(found: ClusterFound | MailmendError | None) -> Iterator[PartFound]:
    if found is None:
        yield PartFound("cluster", _NONE, "no host is named", "Set MAILMEND_HOST, or start one here: mailmend local up")
    elif isinstance(found, MailmendError):
        yield of_error("cluster", found)
    else:
        yield _nodes(found)
        yield _clocks(found.clocks)
        yield from _keyspaces(found)


def _nodes(found: ClusterFound) -> PartFound:
    releases = sorted({release for release in found.releases.values() if release})
    silent = set(found.down)
    for node, release in found.releases.items():
        if release is None:
            silent.add(node)
    up = len(found.releases)
    seen = f"{found.title} at {found.place}: {up} of {up + len(found.down)} nodes up, release {', '.join(releases)}"
    if silent:
        seen += f"; no answer from {', '.join(sorted(silent))}"
        return PartFound("cluster", _CHANGE, seen, "See why: nodetool status")
    if len(releases) > 1:
        return PartFound("cluster", _CHANGE, seen, "Finish the upgrade before the schema changes: nodetool version")
    if not all(map(_is_served, releases)) and "Scylla" not in found.title:
        return PartFound("cluster", _CHANGE, seen, "mailmend is made for Cassandra 4.0 to 5.0; README, Limits")
    if found.schemas > 1:
        return PartFound(
            "cluster", _CHANGE, f"{seen}; {found.schemas} schemas", "mailmend runbook show schema-disagreement"
        )
    return PartFound("cluster", _OK, seen)


def _is_served(release: str) -> bool:
    version = parse_version(release)
    return (version.major, version.minor) >= OLDEST_SERVER and version.major <= NEWEST_SERVER


def _clocks(reading: ClockReading) -> PartFound:
    apart = reading.spread / MICROS
    seen = f"this machine and {len(reading.nodes)} nodes differ by {apart:.3f} s"
    if apart > SKEW_SECONDS:
        more = f"{seen}: more than the {SKEW_SECONDS:g} s that writes and repairs allow for"
        mend = "Mend them on every node: chronyc tracking. More: mailmend runbook show clocks-differ"
        return PartFound("clocks", _CHANGE, more, mend)
    return PartFound("clocks", _OK, seen)


def _keyspaces(found: ClusterFound) -> Iterator[PartFound]:
    if found.lacking is None:
        absent = f"{found.keyspace} does not exist"
        yield PartFound("keyspace", _CHANGE, absent, "Name yours with --keyspace, or make one: mailmend schema apply")
    elif found.lacking:
        seen = f"{found.keyspace} lacks {', '.join(found.lacking)}"
        yield PartFound("keyspace", _CHANGE, seen, f"mailmend schema verify {keyspace_option(found.keyspace)}")
    else:
        yield PartFound("keyspace", _OK, found.keyspace)
    if found.ledger_there:
        yield PartFound("ledger", _OK, found.ledger)
    else:
        yield PartFound("ledger", _NONE, f"{found.ledger} does not exist", "The first repair or apply makes it.")


def _broker(found: BrokerFound | MailmendError | None) -> PartFound:
    if found is None:
        return PartFound(
            "broker", _NONE, "none is named", "For the mail queue: --broker amqp://host, or MAILMEND_BROKER"
        )
    if isinstance(found, MailmendError):
        return of_error("broker", found)
    seen = f"{found.product} at {found.place}"
    name, _, version = found.product.partition(" ")
    oldest = OLDEST_BROKERS.get(name)
    if oldest is None or not tuple(map(int, _NUMBERS.findall(version)[:2])) >= oldest:
        made_for = "mailmend is made for RabbitMQ 3.8 or later, and Pulsar 2.10 or later; tested with 4.0 and 4.2"
        return PartFound("broker", _CHANGE, seen, made_for)
    if found.policies or found.alarms:
        return _broker_unwell(seen, found)
    if not found.has_api:
        without = f"{seen} answers; without its HTTP API the number of unacked messages is unknown"
        return PartFound("broker", _OK, without, "Name it with --broker-management http://host:15672")
    return PartFound("broker", _OK, f"{seen} answers, and so does its HTTP API")


def _broker_unwell(seen: str, found: BrokerFound) -> PartFound:
    if found.alarms:
        short = f"{seen} is short of {', '.join(found.alarms)}"
        return PartFound("broker", _CHANGE, short, "mailmend runbook show queue-does-not-drain")
    first = found.policies[0]
    more = len(found.policies) - 1
    said = f"{seen}: {first.what}"
    if more:
        said += f"; and {more} more: mailmend queue health"
    return PartFound("broker", _CHANGE, said, first.mend)


def _blobs(found: str | MailmendError | None) -> PartFound:
    if found is None:
        return PartFound("blobs", _NONE, "no store is named", "For the mail queue: --blobs URL, or MAILMEND_BLOBS")
    if isinstance(found, MailmendError):
        return of_error("blobs", found)
    return PartFound("blobs", _OK, found)
