"""The classes of James's mail queue and repair, from the public Maven repository: pinned and fetched as Cassandra's."""

import os
from pathlib import Path
from typing import Final

from mailmend.admin.local.jars import JarProgram, JarStore, find_java
from mailmend.admin.local.server import Machine

_JAMES: Final = "org.apache.james"
PINNED: Final = Path(__file__).parents[1] / "james"


PROGRAM: Final = JarProgram(
    "the mail queue of James",
    "3.8.1",
    (17, 21),
    _JAMES,
    "james-server-queue-rabbitmq",
    beside=(
        (_JAMES, "blob-cassandra", "3.8.1"),
        (_JAMES, "blob-storage-strategy", "3.8.1"),
        (_JAMES, "metrics-logger", "3.8.1"),
        ("com.google.inject", "guice", "5.1.0"),
        ("org.slf4j", "slf4j-simple", "2.0.6"),
    ),
)
"""The queue, the blobs in Cassandra, and what puts James's classes together and prints what they log."""


REPAIR: Final = JarProgram(
    "the mailbox of James",
    "3.8.1",
    (17, 21),
    _JAMES,
    "apache-james-mailbox-cassandra",
    beside=(("org.slf4j", "slf4j-simple", "2.0.6"),),
)
"""What repairs James's message tables."""


def james_command(program: JarProgram = PROGRAM) -> tuple[Path, str]:
    """The Java, and the class path.

    Raises:
        JavaMissing: there is none of 17 or 21.
        LocalServerError: the jars cannot be fetched, or are not the ones that were tested.
    """
    machine = Machine.of_this_user()
    java = find_java(program, os.environ)
    store = JarStore(machine.cache / program.module, machine.environment, machine.progress, PINNED)
    return java.executable, os.pathsep.join(map(str, store.jars(program, java)))
