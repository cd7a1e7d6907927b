"""The Ivy that PySpark ships: how it is called, and what its lines say.

Ivy's own default resolver is used, which asks the public repository. Somebody whose machine may not names an Ivy
settings file in `MAILMEND_IVY_SETTINGS`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from admin.local.jar_program import JarProgram
from admin.local.java import Java
from model.errors import LocalServerError

SETTINGS_VARIABLE: Final = "MAILMEND_IVY_SETTINGS"
_LINES: Final[tuple[tuple[Literal["found", "fetched"], re.Pattern[str]], ...]] = (
    ("found", re.compile(r"^\s+found (\S+) in ")),
    ("fetched", re.compile(r"^\s+\[SUCCESSFUL \] (\S+)")),
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event in Ivy's output: a module was found, or a jar was fetched."""

    kind: Literal["found", "fetched"]
    name: str


def event_in(line: str) -> Event | None:
    """The event that a line of Ivy's output reports, if any."""
    for kind, pattern in _LINES:
        if match := pattern.match(line):
            return Event(kind, match[1])
    return None


def problem_in(output: str) -> str:
    """The first error that Ivy names; "" when there is none."""
    for line in output.splitlines():
        if "Server access error" in line or "not found" in line or "FAILED" in line:
            return line.strip().lstrip(": ")
    return ""


def ivy_jar(wanted_for: str = "Cassandra") -> Path:
    """The Ivy jar inside the installed PySpark.

    Raises:
        LocalServerError: there is no PySpark, or it holds no Ivy.
    """
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    found = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not found:
        raise LocalServerError(
            f"the jars of {wanted_for} cannot be fetched: that is done with the Ivy inside PySpark, which is missing",
            mend="Install it: pip install 'mailmend[spark]'",
        )
    return found[-1]


def module_text(program: JarProgram) -> str:
    """An Ivy module that depends on the program's modules; "" where Ivy's command line can express them.

    It has no word for a classifier, whose one jar needs nothing that its pom names, nor for a second module.
    """
    if not (program.classifier or program.beside):
        return ""
    needed = "".join(_needed_text(one, program.classifier) for one in (program.coordinate, *program.beside))
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="mailmend" module="{program.coordinate[1]}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{needed}  </dependencies>
</ivy-module>
"""


def _needed_text(coordinate: tuple[str, str, str], classifier: str) -> str:
    organisation, module, version = coordinate
    named = f'org="{organisation}" name="{module}" rev="{version}" conf="default"'
    if not classifier:
        return f"    <dependency {named}/>\n"
    return f"""    <dependency {named} transitive="false">
      <artifact name="{module}" type="jar" m:classifier="{classifier}"/>
    </dependency>
"""


def resolve_command(
    java: Java,
    ivy: Path,
    program: JarProgram,
    *,
    module: Path,
    lib: Path,
    cache: Path,
    environment: Mapping[str, str],
) -> list[str]:
    """The command line that fetches every jar of a program into the folder `lib`; `module` holds its `module_text`."""
    settings = environment.get(SETTINGS_VARIABLE)
    return [
        str(java.executable),
        *_proxy_properties(environment),
        "-Divy.maven.lookup.sources=false",
        "-Divy.maven.lookup.javadoc=false",
        "-jar",
        str(ivy),
        *(["-settings", settings] if settings else []),
        *(["-ivy", str(module)] if module_text(program) else ["-dependency", *program.coordinate]),
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
    proxy = urlsplit(stated if "//" in stated else f"//{stated}")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 3128}"]
