"""One node of Cassandra as a kind of local server, and the settings of its cluster.

They are written next to the data at the first start, so that a later start of the same data, or of
one of its nodes, needs no settings.

SIGTERM is enough for a clean end: Cassandra's own shutdown hook stops taking clients, tells the
other nodes and flushes every table ("Reason: DRAIN" in its log), so that the next start has nothing
to replay. After kill -9 the commit log is replayed.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mailmend.admin.local import processes
from mailmend.admin.local.folders import NodeFolder
from mailmend.admin.local.jars import JarProgram, JarStore, Java, find_java
from mailmend.admin.local.server import Launch, Machine, Site
from mailmend.model.errors import WrongUse

NODES_MAX: Final = 3
LOCAL_DC: Final = "datacenter1"
NATIVE_PORT_DEFAULT: Final = 9042
HEAP_MIB_DEFAULT: Final = 768
HEAP_MIB_MIN: Final = 256
_MIB_PER_UNIT: Final = {"m": 1, "g": 1024}


RELEASES: Final[Mapping[str, JarProgram]] = {
    "5.0": JarProgram("Cassandra", "5.0.9", (17, 21), "cassandra-all"),
    "4.1": JarProgram("Cassandra", "4.1.10", (17,), "cassandra-all"),
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
    storage_port: int | None = None


def hosts_of(nodes: int) -> tuple[str, ...]:
    if not 1 <= nodes <= NODES_MAX:
        raise WrongUse(f"{nodes} nodes cannot be started", mend=f"Between 1 and {NODES_MAX} nodes fit one machine.")
    return tuple(f"127.0.0.{number}" for number in range(1, nodes + 1))


def heap_mib(text: str) -> int:
    size = 0
    match = re.fullmatch(r"(\d+)([mg])", text.strip().lower())
    if match:
        size = int(match[1]) * _MIB_PER_UNIT[match[2]]
    if size < HEAP_MIB_MIN:
        raise WrongUse(f"{text!r} is not a heap size", mend=f"Write it like 768m or 2g, at least {HEAP_MIB_MIN}m.")
    return size


def first_settings(request: ClusterRequest, storage_port: int) -> ClusterSettings:
    release = NEWEST
    if request.version:
        release = release_named(request.version)
    nodes = 1
    if request.nodes is not None:
        nodes = request.nodes
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
    changes = {}
    ports = ("native_port", "storage_port")
    for name in (*ports, "heap_mib", "authenticator", "yaml", "properties", "java_options"):
        value = getattr(request, name)
        if value is not None:
            changes[name] = value
    return changes


def _fixed_by_data(why: str) -> WrongUse:
    return WrongUse(f"the data there belong to {why}", mend="Remove them with: mailmend local clean, or use --dir.")


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
        release = self.settings.release
        find_java(release, machine.environment)  # without a Java nothing is fetched
        self.store.jars(release)
        return self.store.folder(release)

    def write_files(self, parts: Path, site: Site) -> None:  # noqa: ARG002 (another kind needs its parts)
        folders = NodeFolder(site.folder)
        for folder in (folders.conf, folders.logs, folders.data / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        folders.yaml.write_text(render(yaml_of(self.settings, self.number, folders)), encoding="utf-8")
        folders.logback.write_text(LOGBACK, encoding="utf-8")
        if folders.system_log.exists():
            folders.system_log.replace(folders.log_before)

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        folders = NodeFolder(site.folder)
        jars = tuple(sorted(parts.glob("*.jar")))
        command = node_command(find_java(self.settings.release, environment), jars, self.settings, folders)
        return (Launch("server", command, folders.yaml.as_uri(), environment),)

    def is_ready(self, site: Site) -> bool:
        """Whether it answers and, where clients log in, has created its first role; older roles are unknown to us."""
        if not self.answers(site):
            return False
        if not asks_passwords(self.settings) or NodeFolder(site.folder).log_before.exists():
            return True
        tls = demands_tls(self.settings)
        return processes.logs_in(self.host, self.settings.native_port, *_FIRST_ROLE, tls=tls)

    def answers(self, site: Site) -> bool:
        return processes.speaks_cql(self.host, site.ports["cql"], tls=demands_tls(self.settings))

    def contacts(self, site: Site) -> Mapping[str, str]:
        return {"cql": f"{self.host}:{site.ports['cql']}"}

    def log(self, site: Site) -> Path:
        return NodeFolder(site.folder).system_log


LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>${cassandra.logdir}/system.log</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>${cassandra.logdir}/system.log.%i</fileNamePattern>
      <minIndex>1</minIndex>
      <maxIndex>2</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>20MB</maxFileSize>
    </triggeringPolicy>
    <encoder>
      <pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern>
    </encoder>
  </appender>
  <root level="INFO">
    <appender-ref ref="FILE"/>
  </root>
</configuration>
"""


def yaml_of(settings: ClusterSettings, number: int, folders: NodeFolder) -> dict[str, Any]:
    """Settings of one node that differ from Cassandra's defaults; the caller's overrides come last."""
    host = settings.hosts[number - 1]
    authorizer = "CassandraAuthorizer" if asks_passwords(settings) else "AllowAllAuthorizer"
    return {
        "cluster_name": "mailmend local",
        "num_tokens": 16,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "authenticator": settings.authenticator,
        "authorizer": authorizer,
        **_addresses(settings, host),
        **_folders(folders),
        **_memory(settings),
        **_patience(),
        **settings.yaml,
    }


def render(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def asks_passwords(settings: ClusterSettings) -> bool:
    return settings.authenticator.endswith("PasswordAuthenticator")


def demands_tls(settings: ClusterSettings) -> bool:
    encryption = settings.yaml.get("client_encryption_options", {})
    return bool(encryption.get("enabled")) and not encryption.get("optional")


def _addresses(settings: ClusterSettings, host: str) -> dict[str, Any]:
    seed = f"{settings.hosts[0]}:{settings.storage_port}"
    return {
        "listen_address": host,
        "rpc_address": host,
        "storage_port": settings.storage_port,
        "ssl_storage_port": settings.storage_port,  # encryption between nodes is off: it is never opened
        "start_native_transport": True,
        "native_transport_port": settings.native_port,
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": seed}]}
        ],
    }


def _folders(folders: NodeFolder) -> dict[str, Any]:
    return {
        "data_file_directories": [str(folders.data / "sstables")],
        "commitlog_directory": str(folders.data / "commitlog"),
        "hints_directory": str(folders.data / "hints"),
        "saved_caches_directory": str(folders.data / "saved_caches"),
        "cdc_raw_directory": str(folders.data / "cdc_raw"),
        "cdc_enabled": False,
        "auto_snapshot": False,  # a dropped keyspace gives its space back
        # Written through a memory map, so an acknowledged write outlives kill -9 but for the last tenth of a second.
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "1s",
        "commitlog_segment_size": "16MiB",
        "commitlog_total_space": "256MiB",
    }


def _memory(settings: ClusterSettings) -> dict[str, Any]:
    memtables = f"{settings.heap_mib // 5}MiB"
    return {
        "memtable_heap_space": memtables,
        "memtable_offheap_space": memtables,
        "memtable_flush_writers": 1,
        "key_cache_size": "16MiB",
        "counter_cache_size": "4MiB",
        "file_cache_size": "32MiB",
        "networking_cache_size": "16MiB",
        "concurrent_reads": 16,
        "concurrent_writes": 16,
        "concurrent_counter_writes": 8,
        "concurrent_compactors": 1,
    }


def _patience() -> dict[str, Any]:
    return {
        "read_request_timeout": "10s",
        "range_request_timeout": "30s",
        "write_request_timeout": "10s",
        "counter_write_request_timeout": "10s",
        "cas_contention_timeout": "5s",
        "truncate_request_timeout": "60s",
        "request_timeout": "15s",
        "slow_query_log_timeout": "0ms",
    }


DAEMON: Final = "org.apache.cassandra.service.CassandraDaemon"
SECURITY_MANAGER_GONE: Final = 18
SERIAL_GC_HEAP_MIB_MAX: Final = 1024

# What Cassandra's own options for Java 17 open and export.
_EXPORTS: Final = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
)
_OPENS: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
)


def node_command(java: Java, jars: tuple[Path, ...], settings: ClusterSettings, folders: NodeFolder) -> list[str]:
    properties = [f"-D{name}={value}" for name, value in properties_of(settings, folders).items()]
    return [
        str(java.executable),
        *java_modules(),
        *_machine(java, settings),
        f"-javaagent:{_agent(jars)}",
        *settings.java_options,
        *properties,
        "-cp",
        os.pathsep.join([str(folders.conf), *map(str, jars)]),
        DAEMON,
    ]


def properties_of(settings: ClusterSettings, folders: NodeFolder) -> dict[str, str]:
    # A handful of nodes that start one after the other: nothing to wait for.
    waits = {
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.ring_delay_ms": "100",
        "cassandra.superuser_setup_delay_ms": "50",
        "cassandra.shutdown_announce_in_ms": "100",
    }
    if settings.nodes > 1:
        waits["cassandra.ring_delay_ms"] = "4000"
        waits["cassandra.superuser_setup_delay_ms"] = "500"
        waits["cassandra.shutdown_announce_in_ms"] = "1000"
    return {
        "cassandra.config": folders.yaml.as_uri(),
        "cassandra.storagedir": str(folders.data),
        "cassandra.logdir": str(folders.logs),
        "logback.configurationFile": str(folders.logback),
        "cassandra-foreground": "yes",
        "java.awt.headless": "true",
        "java.net.preferIPv4Stack": "true",
        "java.io.tmpdir": str(folders.data / "tmp"),
        "jna.tmpdir": str(folders.data / "tmp"),
        "jdk.attach.allowAttachSelf": "true",
        "io.netty.tryReflectionSetAccessible": "true",
        "io.netty.allocator.useCacheForAllThreads": "true",
        "io.netty.allocator.maxOrder": "11",
        **waits,
        # Spark divides its scans by these estimates; Cassandra renews them every five minutes only.
        "cassandra.size_recorder_interval": "10",
        **settings.properties,
    }


def java_modules() -> list[str]:
    """Options of the java command that open modules of the JDK as Cassandra and its tools need them."""
    exports = [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS]
    opens = [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS]
    return exports + opens


def _machine(java: Java, settings: ClusterSettings) -> list[str]:
    collector = "-XX:+UseSerialGC" if settings.heap_mib <= SERIAL_GC_HEAP_MIB_MAX else "-XX:+UseG1GC"
    options = [
        "-ea",
        "-da:net.openhft...",
        "-Xms256m",
        f"-Xmx{settings.heap_mib}m",
        f"-XX:MaxDirectMemorySize={settings.heap_mib // 2}m",
        "-Xss256k",
        collector,
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+PerfDisableSharedMem",
    ]
    if java.major >= SECURITY_MANAGER_GONE:
        options.append("-Djava.security.manager=allow")
    return options


def _agent(jars: tuple[Path, ...]) -> Path:
    """The jamm jar, which measures objects and must be loaded before the first class of Cassandra."""
    return next(jar for jar in jars if jar.name.startswith("jamm-"))
