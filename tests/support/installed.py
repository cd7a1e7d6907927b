"""The wheel as a person gets it: built from the checkout, and installed into an environment of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkout import CHECKOUT

WHEEL_ONLY: Final = "MAILMEND_TEST_WHEEL_ONLY"
"""Where this variable is set, tests that import mailmend from anywhere but the environment are refused."""

_UV = CHECKOUT / ".uv" / "bin" / "uv"
HAS_UV = bool(_UV.exists() or shutil.which("uv"))


def uv() -> str:
    """The command `uv`, as `make` installs it, else the one of the machine."""
    if _UV.exists():
        return str(_UV)
    return "uv"


def wheel_in(folder: Path) -> Path:
    """Build the wheel of the checkout in a folder; also where the tests run beside links to the checkout's files."""
    checkout = (CHECKOUT / "pyproject.toml").resolve().parent
    subprocess.run([uv(), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(checkout)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel, and nothing of the checkout.

    Attributes:
        folder: of the environment.
    """

    folder: Path

    @classmethod
    def of(cls, wheel: Path, folder: Path, *extras: str, packages: tuple[str, ...] = ()) -> "Installed":
        """Make the environment with the wheel, its extras, and other packages."""
        environment = {**without_ours(), "VIRTUAL_ENV": str(folder)}
        subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, folder], check=True)
        installing = [uv(), "pip", "install", "--quiet", f"{wheel}[{','.join(extras)}]", *packages]
        subprocess.run(installing, env=environment, cwd=folder, check=True)
        return cls(folder)

    def command(self, name: str) -> str:
        """The path of an installed command."""
        return str(self.folder / "bin" / name)

    def run(self, *words: str, cwd: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        """Run the environment's Python with a program's own settings."""
        return subprocess.run(
            [self.command("python"), *words],
            cwd=cwd,
            env={**without_ours(), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


def without_ours() -> dict[str, str]:
    """The environment of this process without settings of Python or of mailmend."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAILMEND_"))}


def all_but_the_package(folder: Path) -> Path:
    """Make a folder that links to all that the working directory has, but the package `mailmend`.

    Tests that run in it import mailmend from their environment. A folder that is there already is left as it is.
    """
    if not folder.exists():
        folder.mkdir()
        for entry in Path.cwd().iterdir():
            if entry.name != "mailmend":
                (folder / entry.name).symlink_to(entry)
    return folder


def refuse_other_than_the_wheel(package: Path) -> None:
    """Raise unless the package comes from the environment, where only that is to be tested.

    Raises:
        pytest.UsageError: the package is another one.
    """
    if os.environ.get(WHEEL_ONLY) and not package.is_relative_to(sys.prefix):
        raise pytest.UsageError(
            f"{WHEEL_ONLY} is set, and mailmend is imported from {package}: install the wheel into {sys.prefix}"
        )
