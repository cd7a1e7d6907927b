"""The command line of one Cassandra node: pure, so that a test can read it."""

import os
from pathlib import Path
from typing import Final

from admin.local.java import Java
from admin.local.layout import NodeFolders
from admin.local.settings import Settings

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


def node_command(java: Java, jars: tuple[Path, ...], settings: Settings, folders: NodeFolders) -> list[str]:
    """The whole command line of one node."""
    return [
        str(java.executable),
        *_modules(),
        *_machine(java, settings),
        f"-javaagent:{_agent(jars)}",
        *settings.java_options,
        *(f"-D{name}={value}" for name, value in properties_of(settings, folders).items()),
        "-cp",
        os.pathsep.join([str(folders.conf), *map(str, jars)]),
        DAEMON,
    ]


def properties_of(settings: Settings, folders: NodeFolders) -> dict[str, str]:
    """The Java system properties of one node, the caller's overrides last."""
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
        # A handful of nodes that start one after the other: nothing to wait for.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.ring_delay_ms": "4000" if settings.nodes > 1 else "100",
        "cassandra.superuser_setup_delay_ms": "500" if settings.nodes > 1 else "50",
        "cassandra.shutdown_announce_in_ms": "1000" if settings.nodes > 1 else "100",
        # Spark divides its scans by these estimates; Cassandra renews them every five minutes only.
        "cassandra.size_recorder_interval": "10",
        **settings.properties,
    }


def _modules() -> list[str]:
    exports = [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS]
    return [*exports, *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS)]


def _machine(java: Java, settings: Settings) -> list[str]:
    collector = "-XX:+UseSerialGC" if settings.heap_mib <= SERIAL_GC_HEAP_MIB_MAX else "-XX:+UseG1GC"
    return [
        "-ea",
        "-da:net.openhft...",
        "-Xms256m",
        f"-Xmx{settings.heap_mib}m",
        f"-XX:MaxDirectMemorySize={settings.heap_mib // 2}m",
        "-Xss256k",
        collector,
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+PerfDisableSharedMem",
        *(["-Djava.security.manager=allow"] if java.major >= SECURITY_MANAGER_GONE else []),
    ]


def _agent(jars: tuple[Path, ...]) -> Path:
    """The jamm jar, which measures objects and has to be there before the first class of Cassandra is loaded."""
    return next(jar for jar in jars if jar.name.startswith("jamm-"))
