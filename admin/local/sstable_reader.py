"""How the process that reads SSTables is started: Cassandra's own classes, and one class of ours.

Our class is compiled once for each version of its source, by the compiler that is among Cassandra's
jars, so that a Java without development tools is enough (docs/adr/0091).
"""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.cassandra_node import NEWEST, java_modules
from mailmend.admin.local.folders import locked
from mailmend.admin.local.jars import JarStore, Java, find_java
from mailmend.admin.local.server import Machine
from mailmend.model.errors import LocalServerError
from mailmend.model.ports import Progress

SOURCE: Final = "SstableReader.java"
MAIN: Final = "SstableReader"
HEAP_MIB: Final = 512
COMPILE_SECONDS_MAX: Final = 300

_NEEDED: Final = ("cassandra-all-", "slf4j-api-", "logback-", "guava-")
"""The jars that the source names; the compiler refuses jars that have packages of Java itself."""

_COMPILER: Final = "org.eclipse.jdt.internal.compiler.batch.Main"


def reader_command(
    progress: Progress,
    environment: Mapping[str, str] = os.environ,
) -> Sequence[str]:
    """The command of the process; jars are fetched and the class is compiled where they lack.

    Raises:
        JavaMissing: no Java of a version that serves.
        LocalServerError: a jar could not be fetched, or the class could not be compiled.
    """
    machine = Machine.of_this_user(environment, progress=progress)
    java = find_java(NEWEST, machine.environment)
    jars = JarStore(machine.cache / "cassandra", machine.environment, machine.progress).jars(NEWEST)
    classes = _compiled(java, jars, machine.cache / "sstable-reader")
    paths = (str(classes), *map(str, jars))
    return (
        str(java.executable),
        *java_modules(),
        f"-Xmx{HEAP_MIB}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+DisplayVMOutputToStderr",  # stdout is for frames alone, stderr for why it ended
        "-Dlogback.statusListenerClass=ch.qos.logback.core.status.NopStatusListener",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-cp",
        os.pathsep.join(paths),
        MAIN,
    )


def _compiled(java: Java, jars: Sequence[Path], root: Path) -> Path:
    source = files("mailmend.repair.snapshots").joinpath(SOURCE).read_bytes()
    name = hashlib.sha256(source + NEWEST.version.encode()).hexdigest()[:16]
    folder = root / name
    if folder.is_dir():
        return folder
    with locked(root / f"{name}.lock", COMPILE_SECONDS_MAX):
        if not folder.is_dir():
            _compile(java, jars, source, folder)
    return folder


def _compile(java: Java, jars: Sequence[Path], source: bytes, folder: Path) -> None:
    staging = folder.with_suffix(".new")
    staging.mkdir(parents=True, exist_ok=True)
    file = staging / SOURCE
    file.write_bytes(source)
    needed = [str(jar) for jar in jars if jar.name.startswith(_NEEDED)]
    (compiler,) = (str(jar) for jar in jars if jar.name.startswith("ecj-"))
    options = ("-17", "-proc:none", "-nowarn", "-encoding", "UTF-8", "-d", str(staging))
    named = ("-cp", os.pathsep.join(needed))
    command = (str(java.executable), "-cp", compiler, _COMPILER, *options, *named, str(file))
    try:
        ended = subprocess.run(  # noqa: S603 - our own source, the person's own Java
            command,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS_MAX,
            check=False,
            env=environment_of_others(os.environ),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _not_compiled(java, str(error)) from error
    if ended.returncode:
        raise _not_compiled(java, (ended.stderr + ended.stdout).strip())
    staging.rename(folder)


def _not_compiled(java: Java, said: str) -> LocalServerError:
    first = "\n".join(said.splitlines()[:5])
    return LocalServerError(
        f"the reader of SSTables could not be compiled with {java.executable}: {first}",
        mend="Set JAVA_HOME to another Java 17 or 21; or leave --snapshot out to read the cluster.",
    )
