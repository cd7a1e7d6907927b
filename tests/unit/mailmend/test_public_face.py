"""The public face: one name in site-packages, whatever packages a program has of its own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

import pytest

import mailmend
from mailmend.repair.clock import SystemClock
from tests.support.checkout import CHECKOUT

FOLDERS = ("admin", "cql", "delivery", "mailqueue", "model", "repair", "spark_repair")


def run(*arguments: str, path: str = "", cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with a folder before everything else on its path."""
    environment: Mapping[str, str] = {"PYTHONPATH": f"{path}:{CHECKOUT}", "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The folder of a program whose own packages have the names of our folders."""
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("MINE = True\n")
    return tmp_path


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_program_with_packages_of_our_folders_names_uses_the_library(program: Path, order: str) -> None:
    own = "\n".join(f"import {folder}; assert {folder}.MINE" for folder in FOLDERS)
    library = "from mailmend import Table, check, repair; import mailmend.cql.render"
    script = f"{own}\n{library}" if order == "before" else f"{library}\n{own}"

    ended = run("-W", "error", "-c", script, path=str(program), cwd=program)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_command_runs_in_a_folder_with_packages_of_our_folders_names(program: Path) -> None:
    ended = run("-m", "mailmend", "--version", path=str(program), cwd=program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_no_module_is_imported_under_two_names() -> None:
    """A checkout has our folders at its top too; a module imported from there would exist twice."""
    assert [name for name in sys.modules if name.split(".")[0] in FOLDERS] == []


def test_repair_is_a_function_and_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both names are public: `mailmend.repair(request, caller)` and `mailmend.repair.clock`."""
    asked = []
    monkeypatch.setattr("mailmend.admin.messages.repair.repair", lambda *given: asked.append(given))

    mailmend.repair("request", "caller")  # type: ignore[arg-type]

    assert asked == [("request", "caller")]
    assert sys.modules["mailmend.repair"].clock.SystemClock is SystemClock


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(mailmend, name) is not None for name in mailmend.__all__)
    assert dir(mailmend) == sorted(mailmend.__all__)


def test_what_a_message_store_takes_and_gives_has_public_names() -> None:
    methods = (mailmend.MessageStore.add, mailmend.MessageStore.copy, mailmend.MessageStore.set_flags)
    hints = {hint for method in methods for hint in get_type_hints(method).values() if isinstance(hint, type)}
    values = {hint.__name__ for hint in hints if hint.__module__ == "mailmend.repair.store.message"}
    assert values
    assert values <= set(mailmend.__all__)
