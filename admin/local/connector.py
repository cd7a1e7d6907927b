"""The jars of the Cassandra connector that Spark is started with: pinned, and fetched as the jars of local servers are.

Spark's own resolver takes `~/.m2` for a source, and fails where that folder holds the description of a module without
its jar, as it does wherever Maven builds something.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mailmend.admin.local.jars import JarProgram, JarStore
from mailmend.admin.local.java import SPARK, find_java
from mailmend.admin.local.server_kind import Machine
from mailmend.model.ports import Progress

TITLE: Final = "Spark's Cassandra connector"


def connector_program(coordinates: str) -> JarProgram:
    """The connector as a program of jars, from its Maven coordinates."""
    organisation, module, version = coordinates.split(":")
    return JarProgram(TITLE, version, SPARK.java_majors, organisation, module, listed=True)


def connector_jars(
    coordinates: str, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> Sequence[Path]:
    """Every jar of the connector, verified; fetched first where one is missing or damaged.

    Raises:
        JavaMissing: no Java of a version that serves Spark was found.
        LocalServerError: a jar could not be fetched, or is another one than was tested; the message names it.
    """
    program = connector_program(coordinates)
    store = _store(program, Machine.of_this_user(environment, progress=progress))
    return store.jars(program, lambda: find_java(SPARK, environment))


def connector_is_here(coordinates: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether all jars are on disk, so that a session starts without downloads."""
    program = connector_program(coordinates)
    return _store(program, Machine.of_this_user(environment)).holds(program)


def _store(program: JarProgram, machine: Machine) -> JarStore:
    return JarStore(machine.cache / program.module, machine.environment, machine.progress)
