"""The classes of James's mail queue and repair, from the public Maven repository: pinned and fetched as Cassandra's."""

import os
from pathlib import Path
from typing import Final

from mailmend.admin.local.jars import JarProgram, JarStore, find_java
from mailmend.admin.local.server import Machine

PINNED: Final = Path(__file__).parents[1] / "james"


PROGRAM: Final = JarProgram(
    "the mail queue of James",
    "3.8.1",
    (17, 21),
    "james-server-queue-rabbitmq",
)
"""The queue, the blobs in Cassandra, and what puts James's classes together and prints what they log."""


REPAIR: Final = JarProgram(
    "the mailbox of James",
    "3.8.1",
    (17, 21),
    "apache-james-mailbox-cassandra",
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
    return java.executable, os.pathsep.join(map(str, store.jars(program)))
