"""Cassandra's own nodetool for a node of the tests: its classes are among the jars that the node was started from."""

import os
import shlex

from mailmend.admin.local.cassandra_node import NEWEST, java_modules
from mailmend.admin.local.jars import JarStore, find_java
from mailmend.admin.local.server import Machine
from tests.support.servers import CassandraServer, unavailable

_OPTIONS = (
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dlogback.statusListenerClass=ch.qos.logback.core.status.NopStatusListener",
)


def nodetool_of(server: CassandraServer, home: os.PathLike[str]) -> str:
    """The command line, as --nodetool takes it."""
    if server.jmx_port is None:
        unavailable("nodetool reaches only a node that the tests have started")
    machine = Machine.of_this_user()
    store = JarStore(machine.cache / "cassandra", machine.environment)
    java = find_java(NEWEST, os.environ)
    store.jars(NEWEST)
    words = (
        str(java.executable),
        *java_modules(),
        *_OPTIONS,
        f"-Duser.home={home}",
        "-cp",
        f"{store.folder(NEWEST)}/*",
    )
    tool = ("org.apache.cassandra.tools.NodeTool", "-p", str(server.jmx_port), "-h")
    return f"{shlex.join((*words, *tool))} {{host}}"
