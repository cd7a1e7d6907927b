"""The public face: one name in site-packages, whatever packages a program has of its own."""

import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import mailmend
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
    library = "from mailmend import Table, open, repair; import mailmend.cql.render"
    library += "\nassert open(host='10.0.0.1').connection.hosts == ('10.0.0.1',)"
    script = f"{own}\n{library}" if order == "before" else f"{library}\n{own}"

    ended = run("-W", "error", "-c", script, path=str(program), cwd=program)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_command_runs_in_a_folder_with_packages_of_our_folders_names(program: Path) -> None:
    ended = run("-m", "mailmend", "--version", path=str(program), cwd=program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_no_module_is_imported_under_two_names() -> None:
    """A checkout has our folders at its top too; a module imported from there would exist twice."""
    assert [name for name in sys.modules if name.split(".")[0] in FOLDERS] == []


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(mailmend, name) is not None for name in mailmend.__all__)
    assert dir(mailmend) == sorted(mailmend.__all__)


def test_every_public_name_can_be_imported_without_any_extra() -> None:
    """An extra that is missing is an error of the call that needs it."""
    packages = ("cassandra", "aio_pika", "pulsar", "obstore", "botocore", "yaml", "re2", "aiosmtplib", "pyspark")
    lacking = f"import sys; sys.modules.update(dict.fromkeys({packages}))"

    ended = run("-c", f"{lacking}; from mailmend import *; print(MailQueue.__name__)")

    assert (ended.stdout, ended.stderr) == ("MailQueue\n", "")


def test_the_import_alone_loads_nothing_of_ours_and_no_library() -> None:
    ours = "[name for name in sys.modules if name.split('.')[0] in ('mailmend', 'click', 'cassandra')]"
    ended = run("-c", f"import sys, mailmend; print({ours})")
    assert (ended.stdout, ended.stderr) == ("['mailmend']\n", "")


@pytest.mark.parametrize("name", ["Mailmend", "AsyncMailmend", "MessageStore", "Mailboxes", "MailQueue", "Dequeued"])
def test_the_errors_that_a_docstring_names_are_public(name: str) -> None:
    methods = [method for _, method in inspect.getmembers(getattr(mailmend, name), _is_documented)]
    raised = set[str]()
    for method in methods:
        _, _, errors = (inspect.getdoc(method) or "").partition("Raises:\n")
        for names in re.findall(r"^    ([A-Z]\w+(?:, [A-Z]\w+)*):", errors, re.MULTILINE):
            raised.update(names.split(", "))
    assert raised <= {*mailmend.__all__, "ValueError"}
    assert raised or name == "AsyncMailmend"


def _is_documented(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)
