"""What helps and pages show can be typed: each command is there, each option of it, and each value is one."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest

from mailmend.admin.frame.command import DeclaredGroup
from mailmend.admin.main import mailmend as root
from tests.support.checkout import CHECKOUT

FOLDERS: Final = ("docs", "docs/tutorials", "docs/how-to", "docs/concepts", "runbooks")
PAGES: Final = [
    CHECKOUT / "README.md",
    *(page for folder in FOLDERS for page in sorted(CHECKOUT.glob(f"{folder}/*.md"))),
]
IDS: Final = ("RUN", "UNDO_RUN", "ID", "$RUN", "$MAIL", "$MAILBOX", "$MESSAGE", "$SUSPENSION", "$CONDITION")
STANDING_FOR: Final = {
    "$KEYSPACE": "apache_james",
    "$QUEUE": "spool",
    "$FILE": "archive.mbox",
    "$PULSAR_ADMIN": "http://pulsar.example.org:8080",
    **dict.fromkeys((*IDS, "6e0ab5e0-8d1c-..."), "6e0ab5e0-8d1c-11f0-9a5e-0242ac120002"),
}
"""What a reader puts in."""


class Reached(NamedTuple):
    """A command or a group, below the contexts of those that it is in."""

    context: click.Context
    command: click.Command
    rest: Sequence[str]


def reached(words: Sequence[str]) -> Reached:
    """Whom `mailmend WORDS` calls, and with what."""
    context, command, rest = click.Context(root, info_name="mailmend"), root, list(words)
    while isinstance(command, DeclaredGroup):
        rest = command.with_command(rest)
        if not rest or rest[0].startswith("-"):
            break
        name = rest.pop(0)
        below = command.get_command(context, name)
        assert below is not None, f"no command {name} in {context.command_path}"
        command, context = below, click.Context(below, parent=context, info_name=name)
    return Reached(context, command, rest)


def helps(command: click.Command = root, *names: str) -> Iterator[tuple[str, str]]:
    """The examples in the help of each group and command, by its name."""
    yield " ".join(names), command.epilog or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from helps(below, *names, name)


def typed(text: str) -> Iterator[list[str]]:
    """What a reader would type: each `mailmend ...`, up to a pipe, a redirection or the words about it."""
    for line in text.replace("\\\n", " ").splitlines():
        command = line.strip().removeprefix("$ ")
        if command.startswith("mailmend ") and (line.startswith("  ") or "$ " in line):
            own = re.split(r" (?:[|<>]|>>) | {2,}(?![ -])", command)[0]
            yield [STANDING_FOR.get(word, word) for word in shlex.split(own, comments=True)[1:]]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("letters", "~/Maildir"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "archive.mbox").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def wrong(text: str) -> Iterator[str]:
    """What of it cannot be typed, and why."""
    for words in typed(text):
        context, command, rest = reached(words)
        if isinstance(command, click.Group) and not rest:
            continue  # a page speaks of all of its commands
        try:
            command.make_context(context.info_name, list(rest), parent=context.parent)
        except click.ClickException as error:
            yield f"mailmend {shlex.join(words)}: {error.format_message()}"


def test_every_command_is_shown_in_an_example_and_each_can_be_typed() -> None:
    examples = dict(helps())
    shown = {reached(words).context.command_path for text in examples.values() for words in typed(text)}
    called = [reached(name.split()) for name in examples]

    commands = {one.context.command_path for one in called if not isinstance(one.command, click.Group)}
    assert commands - shown == set()
    assert [one for text in examples.values() for one in wrong(text)] == []


def test_every_command_on_a_page_can_be_typed() -> None:
    assert [f"{page.name}: {one}" for page in PAGES for one in wrong(page.read_text())] == []
