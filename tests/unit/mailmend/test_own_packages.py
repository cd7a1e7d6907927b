"""The public face finds our packages, whatever else has their names."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

import pytest

import mailmend
from mailmend.own_packages import NAMES
from tests.support.thorough import first_of

CHECKOUT = Path(__file__).parents[3]


def run(*arguments: str, path: str = "", cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with folders before everything else on its path."""
    environment: Mapping[str, str] = {"PYTHONPATH": f"{path}:{CHECKOUT}", "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(params=first_of(NAMES))
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    package = tmp_path / str(request.param)
    package.mkdir()
    (package / "__init__.py").write_text("MINE = False\n")
    return str(request.param), tmp_path


def test_the_command_runs_with_a_foreign_package_on_the_python_path(foreign: tuple[str, Path]) -> None:
    """A PYTHONPATH, or a folder of DAGs, that holds a package of our name is passed over."""
    _, folder = foreign
    ended = run("-m", "mailmend", "--version", path=str(folder))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_command_runs_in_a_folder_with_a_foreign_package(foreign: tuple[str, Path]) -> None:
    _, folder = foreign
    ended = run("-m", "mailmend", "--version", cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_program_is_warned_that_its_own_package_is_hidden(foreign: tuple[str, Path]) -> None:
    name, folder = foreign
    ended = run("-W", "always", "-c", "from mailmend import Table; print(Table)", path=str(folder))
    assert ended.returncode == 0
    assert str(folder / name) in ended.stderr
    assert "python -m mailmend" in ended.stderr


def test_a_foreign_package_that_is_loaded_already_is_an_error_with_a_way_out(foreign: tuple[str, Path]) -> None:
    name, folder = foreign
    ended = run("-c", f"import {name}; from mailmend import Table", cwd=folder)
    assert ended.returncode == 1
    assert str(folder / name) in ended.stderr
    assert "To get out" in ended.stderr


def test_the_command_tells_of_a_loaded_foreign_package_without_a_traceback(foreign: tuple[str, Path]) -> None:
    name, folder = foreign
    (folder / "sitecustomize.py").write_text(f"import {name}\n")
    ended = run("-m", "mailmend", "--version", path=str(folder))
    assert ended.returncode == 2
    assert ended.stderr.startswith("mailmend: ")
    assert "Traceback" not in ended.stderr


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(mailmend, name) is not None for name in mailmend.__all__)
    assert dir(mailmend) == sorted(mailmend.__all__)


def test_what_a_message_store_takes_and_gives_has_public_names() -> None:
    methods = (mailmend.MessageStore.add, mailmend.MessageStore.copy, mailmend.MessageStore.set_flags)
    used = {hint for method in methods for hint in get_type_hints(method).values() if isinstance(hint, type)}
    assert {one.__name__ for one in used if one.__module__.startswith("model.messages")} <= set(mailmend.__all__)
