"""The public face: one name in site-packages, whatever packages a program has of its own."""

import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

import mailmend
from mailmend.repair.clock import SystemClock
from tests.support.checkout import CHECKOUT

DEFAULT_MAX = 150
"""Characters."""

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


def test_the_import_alone_loads_nothing_of_ours_and_no_library() -> None:
    ours = "[name for name in sys.modules if name.split('.')[0] in ('mailmend', 'click', 'cassandra')]"
    ended = run("-c", f"import sys, mailmend; print({ours})")
    assert (ended.stdout, ended.stderr) == ("['mailmend']\n", "")


def test_no_default_fills_a_signature() -> None:
    """`help` shows each default whole: a family's would fill pages."""
    callables: list[Any] = []
    for name in mailmend.__all__:
        public = getattr(mailmend, name)
        callables.append(public)
        if inspect.isclass(public):
            callables += [method for _, method in inspect.getmembers(public, inspect.isfunction)]
    defaults = set[str]()
    for function in callables:
        with suppress(TypeError, ValueError):  # a union or a new name of a type has no signature
            defaults |= {repr(given.default) for given in inspect.signature(function).parameters.values()}
    assert "None" in defaults
    assert max(map(len, defaults)) <= DEFAULT_MAX
    assert len(str(inspect.signature(mailmend.MessageStore))) < 300


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


def test_what_hooks_take_and_give_has_public_names() -> None:
    """A hook is written against the public face alone."""
    waiting = [mailmend.HookedRecipient, mailmend.HookedAttempt]
    for union in (mailmend.PreDecision, mailmend.PostDecision, mailmend.HookOrder):
        waiting += [kind for kind in get_args(union) if kind is not NoneType]
    seen = set[str]()
    while waiting:
        kind = waiting.pop()
        if kind.__name__ in seen:
            continue
        seen.add(kind.__name__)
        if is_dataclass(kind):
            waiting += _ours_in(tuple(get_type_hints(kind).values()))
    assert {"PickupField", "Threshold", "SourceAddress", "EntryEnd"} <= seen
    assert seen <= set(mailmend.__all__)


def _ours_in(hints: tuple[Any, ...]) -> list[Any]:
    """The classes of ours among type hints, and within them."""
    found: list[Any] = []
    for hint in hints:
        if isinstance(hint, type) and hint.__module__.startswith("mailmend."):
            found.append(hint)
        found += _ours_in(get_args(hint))
    return found


def test_what_a_message_store_takes_and_gives_has_public_names() -> None:
    methods = (mailmend.MessageStore.add, mailmend.MessageStore.copy, mailmend.MessageStore.set_flags)
    hints = {hint for method in methods for hint in get_type_hints(method).values() if isinstance(hint, type)}
    values = {hint.__name__ for hint in hints if hint.__module__ == "mailmend.repair.store.message"}
    assert values
    assert values <= set(mailmend.__all__)
