"""Packages of a Debian release, unpacked into a folder: no root, nothing installed, nothing replaced.

apt-get gets sources, lists and a status file of its own, so it neither reads nor changes what the machine has, and it
verifies what it fetches with Debian's own keys. It runs no script of any package.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from model.errors import LocalServerError

URI_VARIABLE: Final = "MAILMEND_DEBIAN_URI"
SOURCES: Final = Path("/etc/apt")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_URI_DEFAULT: Final = "http://deb.debian.org/debian"
# Of either form of sources, the one-line and the one of fields; other archives of this machine are not Debian's.
_URI: Final = re.compile(r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s+)(https?://\S+/debian)/?(?:\s|$)", re.MULTILINE)
_PROGRAMS: Final = ("apt-get", "apt-cache", "dpkg-deb")


@dataclass(frozen=True, slots=True)
class Archive:
    """One release of Debian, as apt-get reaches it from a folder.

    Attributes:
        suite: such as `trixie`.
        uri: where its packages are.
        folder: apt's own files; it may be removed after use.
        environment: that of the programs: proxies, PATH.
        wanted_for: what the packages are for, in messages.
        otherwise: the alternative, for a person who cannot fetch them.
    """

    suite: str
    uri: str
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    wanted_for: str
    otherwise: str = ""

    def open(self) -> None:
        """Make apt's folders and fetch the lists of packages.

        Raises:
            LocalServerError: this machine has no apt-get, or the archive cannot be reached.
        """
        self._require()
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(source_line(self.uri, self.suite), encoding="utf-8")
        self._config.write_text(apt_conf(self.folder), encoding="utf-8")
        self.run("apt-get", "-q", "update")

    def closure(self, package: str, pattern: str) -> list[str]:
        """The direct and indirect dependencies whose names match a pattern."""
        options = [f"--no-{kind}" for kind in _WEAK_DEPENDENCIES]
        said = self.run("apt-cache", "depends", "--recurse", *options, package)
        return sorted({line for line in said.splitlines() if re.fullmatch(pattern, line)})

    def dependency(self, package: str, pattern: str) -> str:
        """The one dependency whose name matches a pattern.

        Raises:
            LocalServerError: none does.
        """
        words = self.run("apt-cache", "depends", package).split()
        for word in words:
            if re.fullmatch(pattern, word):
                return word
        raise self._failure(f"{package} of Debian {self.suite} depends on nothing like {pattern}")

    def download(self, packages: Sequence[str], folder: Path) -> list[Path]:
        """Fetch packages into a folder; returns their files."""
        folder.mkdir(parents=True, exist_ok=True)
        self.run("apt-get", "-q", "download", *packages, within=folder)
        return sorted(folder.glob("*.deb"))

    def unpack(self, files: Iterable[Path], root: Path) -> None:
        for file in files:
            self.run("dpkg-deb", "-x", str(file), str(root))

    def run(self, *command: str, within: Path | None = None) -> str:
        """Run a program with apt's own settings; returns its output.

        Raises:
            LocalServerError: it failed; the message holds the first line in which it says so.
        """
        environment = {
            **self.environment,
            "APT_CONFIG": str(self._config),
            "LC_ALL": "C",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        answer = subprocess.run(  # noqa: S603 (fixed words, and names out of Debian's own lists)
            command, cwd=within or self.folder, env=environment, capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise self._failure(first_error(answer.stderr) or f"{command[0]} failed: {answer.stderr.strip()[-300:]}")
        return answer.stdout

    @property
    def _config(self) -> Path:
        return self.folder / "apt.conf"

    def _require(self) -> None:
        missing = [name for name in _PROGRAMS if not shutil.which(name, path=self.environment.get("PATH"))]
        if missing:
            raise self._failure(f"{missing[0]} is not on this machine")
        if not KEYRING.exists():
            raise LocalServerError(
                f"{self.wanted_for} cannot be verified: Debian's keys ({KEYRING}) are not on this machine",
                mend="Install them: sudo apt-get install debian-archive-keyring",
            )

    def _failure(self, why: str) -> LocalServerError:
        return LocalServerError(
            f"{self.wanted_for} could not be fetched from Debian {self.suite} ({self.uri}): {why}",
            mend=f"It is needed once, then never again. {URI_VARIABLE} names another mirror. {self.otherwise}".strip(),
        )


_WEAK_DEPENDENCIES: Final = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


def debian_uri(environment: Mapping[str, str], sources: Path = SOURCES) -> str:
    """Where packages are fetched from: the environment's choice, this machine's sources, or Debian's usual address."""
    if stated := environment.get(URI_VARIABLE):
        return stated
    for file in (sources / "sources.list", *sorted(sources.glob("sources.list.d/*"))):
        if file.is_file() and (found := _URI.search(file.read_text(encoding="utf-8", errors="replace"))):
            return found[1]
    return _URI_DEFAULT


def source_line(uri: str, suite: str) -> str:
    """The one line of apt's sources; packages must be signed by Debian, whatever mirror serves them."""
    return f"deb [signed-by={KEYRING}] {uri} {suite} main\n"


def apt_conf(folder: Path) -> str:
    """Settings that keep apt inside the folder; they are read after the machine's own and override them."""
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",  # the folder need not be readable by apt's own user
        "APT::Update::Error-Mode": "any",  # an archive that does not answer is an error, not a warning
        "Acquire::Retries": "2",
        "Acquire::Languages": "none",
        "Acquire::http::Timeout": "30",
        "Acquire::https::Timeout": "30",
    }
    hooks = (
        "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n#clear APT::Update::Pre-Invoke;\n"
    )
    return "".join(f'{name} "{value}";\n' for name, value in settings.items()) + hooks


def first_error(printed: str) -> str:
    """The first error that apt names; "" when there is none."""
    errors = [line[2:].strip() for line in printed.splitlines() if line.startswith("E:")]
    return errors[0] if errors else ""
