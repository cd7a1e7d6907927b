"""Pulsar on this machine: broker, bookkeeper and metadata in one process, 127.0.0.1 only, little memory.

It is Pulsar's own `standalone`, without functions and stream storage. Its list of jars (`pinned/`)
is what Maven resolves, with the versions that Pulsar's parent pom manages. Without `listeningInterface` the bookkeeper
would listen on every address. Its port is chosen automatically at each start; the data survive its
change. SIGTERM ends it in order; after kill -9 it recovers its ledgers.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final

from mailmend.admin.local.jars import JarProgram, JarStore, Java, find_java
from mailmend.admin.local.processes import http_answer
from mailmend.admin.local.server import HOST, Launch, Machine, Site

PULSAR: Final = JarProgram("Pulsar", "4.2.4", (17, 21), "pulsar-broker")
HEAP_MIB: Final = 512
_MAIN: Final = "org.apache.pulsar.PulsarStandaloneStarter"
_NAMESPACE: Final = "namespaces/public/default"
_PROBE_SECONDS_MAX: Final = 5.0
_METADATA: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"

# What Pulsar's own options for Java 17 open.
_OPENS: Final = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

LOG4J: Final = """<Configuration status="WARN">
  <Appenders>
    <RollingFile name="File" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{ISO8601}} [%t] %-5level %logger - %msg%n"/>
      <SizeBasedTriggeringPolicy size="20MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Logger name="org.eclipse.jetty.server.RequestLog" level="WARN"/>
    <Root level="INFO"><AppenderRef ref="File"/></Root>
  </Loggers>
</Configuration>
"""
"""What it logs, and where: the file `log`, which is not to grow for ever."""


@dataclass(frozen=True, slots=True)
class Pulsar:
    """One standalone Pulsar."""

    name: ClassVar = "pulsar"
    title: ClassVar = PULSAR.name
    host: ClassVar = HOST
    ports: ClassVar[Mapping[str, int]] = {"pulsar": 6650, "admin": 8080}

    def fetch(self, machine: Machine) -> Path:
        store = JarStore(machine.cache / PULSAR.module, machine.environment, machine.progress)
        find_java(PULSAR, machine.environment)  # without a Java nothing is fetched
        store.jars(PULSAR)
        return store.folder(PULSAR)

    def write_files(self, parts: Path, site: Site) -> None:  # noqa: ARG002 (a service of another kind needs its parts)
        _conf(site).write_text(conf_of(site), encoding="utf-8")
        _log4j(site).write_text(LOG4J.format(log=self.log(site)), encoding="utf-8")

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        command = command_of(find_java(PULSAR, environment), parts, site)
        path = environment.get("PATH", os.defpath)
        return (
            Launch("server", command, str(_conf(site)), {"HOME": str(site.folder), "PATH": path, "LANG": "C.UTF-8"}),
        )

    def is_ready(self, site: Site) -> bool:
        """Whether it answers, and has made the namespace of queues, which a new one makes after it first answers."""
        return self.answers(site) and self.asked(site, _NAMESPACE)[0] == HTTPStatus.OK

    def answers(self, site: Site) -> bool:
        """Whether it says that it is well: it has published to a topic of its own and read that again."""
        status, body = self.asked(site, "brokers/health")
        return status == HTTPStatus.OK and body == b"ok"

    def asked(self, site: Site, path: str) -> tuple[int, bytes]:
        """Status and body of the admin API; 0 and nothing where it does not answer."""
        return http_answer(HOST, site.ports["admin"], f"/admin/v2/{path}", {}, _PROBE_SECONDS_MAX)

    def contacts(self, site: Site) -> Mapping[str, str]:
        return {
            "pulsar": f"pulsar://{HOST}:{site.ports['pulsar']}",
            "admin": f"http://{HOST}:{site.ports['admin']}",
        }

    def log(self, site: Site) -> Path:
        return site.folder / "pulsar.log"


def conf_of(site: Site) -> str:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    settings: dict[str, object] = {
        "clusterName": "standalone",
        "brokerServicePort": site.ports["pulsar"],
        "webServicePort": site.ports["admin"],
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "listeningInterface": loopback,
        "allowLoopback": "true",
        "managedLedgerDefaultEnsembleSize": 1,
        "managedLedgerDefaultWriteQuorum": 1,
        "managedLedgerDefaultAckQuorum": 1,
        "managedLedgerCacheSizeMB": 64,
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": 16,
        "dbStorage_readAheadCacheMaxSizeMb": 16,
        "dbStorage_rocksDB_blockCacheSize": 16 << 20,
        "journalMaxSizeMB": 64,
        "loadBalancerEnabled": "false",
        "webSocketServiceEnabled": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "delayedDeliveryTickTimeMillis": 200,
        "numIOThreads": 2,
        "numHttpServerThreads": 8,
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.98",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def command_of(java: Java, parts: Path, site: Site) -> tuple[str, ...]:
    options: list[str] = []
    for name in _OPENS:
        options += ("--add-opens", f"{name}=ALL-UNNAMED")
    properties = {
        "io.netty.tryReflectionSetAccessible": "true",
        "java.net.preferIPv4Stack": "true",
        "bookkeeper.metadata.bookie.drivers": f"{_METADATA}BookieDriver",
        "bookkeeper.metadata.client.drivers": f"{_METADATA}ClientDriver",
        "log4j.configurationFile": str(_log4j(site)),
    }
    for name, value in properties.items():
        options.append(f"-D{name}={value}")
    return (
        str(java.executable),
        *options,
        "-Xms128m",
        f"-Xmx{HEAP_MIB}m",
        f"-XX:MaxDirectMemorySize={HEAP_MIB}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-cp",
        f"{parts}/*",
        _MAIN,
        *("--config", str(_conf(site))),
        *("--no-functions-worker", "--no-stream-storage"),
        *("--advertised-address", HOST),
        *("--bookkeeper-dir", str(site.folder / "bookkeeper")),
        *("--metadata-dir", str(site.folder / "metadata")),
    )


def _conf(site: Site) -> Path:
    return site.folder / "standalone.conf"


def _log4j(site: Site) -> Path:
    return site.folder / "log4j2.xml"
