"""The examples in docstrings of public names run, and print what they show."""

import asyncio
import doctest
import os
import re
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from inspect import getdoc
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import mailmend
from tests.support.cluster_twin import cluster_in_memory
from tests.support.queue_commands import KEYSPACE, queue_shell

CONTENT = b"Subject: hello\r\n\r\nGood day.\r\n"
GIVEN: Mapping[str, Any] = {
    "UTC": UTC,
    "content": CONTENT,
    "datetime": datetime,
    "envelope": mailmend.Mail("greeting", ("bob@example.org",), "ann@example.org"),
    "mailmend": mailmend,
}
"""The names that an example does not make itself."""


def doctests() -> Iterator[doctest.DocTest]:
    """The examples after `>>>`, of public names and of their methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in mailmend.__all__:
        public = getattr(mailmend, name)
        if callable(public) and hasattr(public, "__module__"):
            yield from finder.find(public, name, module=False)


DOCTESTS = {found.name: found for found in doctests() if found.examples}


@pytest.mark.parametrize("name", DOCTESTS)
def test_an_example_prints_what_its_docstring_shows(name: str) -> None:
    flags = doctest.IGNORE_EXCEPTION_DETAIL
    example = DOCTESTS[name]
    example.globs = {public: getattr(mailmend, public) for public in mailmend.__all__}
    said: list[str] = []

    ended = doctest.DocTestRunner(optionflags=flags).run(example, out=said.append)

    assert (ended.failed, "".join(said)) == (0, "")


def test_examples_are_found() -> None:
    assert {"parse_flags", "split_mail", "queue_name", "DeliveryRate.parse"} <= set(DOCTESTS)


def blocks_in(name: str) -> list[str]:
    """The scripts in a docstring: what is indented below a sentence."""
    public = getattr(mailmend, name)
    members = [public, *(member for key, member in vars(public).items() if not key.startswith("_"))]
    found = []
    for text in filter(None, map(getdoc, members)):
        found += re.findall(r"(?:^    (?:async )?with mail.*\n(?:^     +.*\n?|^\n(?=     ))+)", text, re.MULTILINE)
    return [dedent(block) for block in found]


BLOCKING = [*blocks_in("open"), *blocks_in("Mailmend")]
IN_A_LOOP = [block for name in ("open_async", "Mailmend", "AsyncMailmend") for block in blocks_in(name)]


@pytest.fixture
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("MAILMEND_", "XDG_")) or name == "CQLSHRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("_own_home")
@pytest.mark.parametrize("block", [block for block in BLOCKING if not block.startswith("async")])
def test_a_script_of_a_docstring_runs_as_it_stands(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_in_memory(monkeypatch, "apache_james")
    exec(compile(block, "docstring", "exec"), dict(GIVEN))


@pytest.mark.parametrize("block", [block for block in IN_A_LOOP if block.startswith("async")])
def test_a_script_of_a_loop_runs_as_it_stands(block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a script has `mail`, it is open already."""
    queue_shell(monkeypatch, tmp_path)
    for name, value in {
        "MAILMEND_HOST": "127.0.0.1",
        "MAILMEND_KEYSPACE": KEYSPACE,
        "MAILMEND_BROKER": "amqp://127.0.0.1",
        "MAILMEND_BLOBS": f"file://{tmp_path}/blobs",
        "MAILMEND_CHECK_DELAY": "0s",
        "MAILMEND_CHECK_NO_WRITERS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    script = compile(block, "docstring", "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        async with mailmend.open_async() as mail:
            await eval(script, {**GIVEN, "mail": mail})

    asyncio.run(run())


def test_every_script_is_found() -> None:
    assert len([block for block in BLOCKING if not block.startswith("async")]) == 2
    assert len([block for block in IN_A_LOOP if block.startswith("async")]) == 3
