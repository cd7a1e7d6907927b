"""Names of options are a contract: one meaning each, in every command."""

import re
import shlex
from collections import defaultdict
from pathlib import Path

import click
import pytest

from mailmend.admin.main import mailmend
from mailmend.admin.reference import commands_of

COMMANDS = list(commands_of(mailmend, click.Context(mailmend, info_name="mailmend")))


def understood(line: str) -> dict[str, object]:
    """What a command takes from its words."""
    context, words, command = click.Context(mailmend, info_name="mailmend"), shlex.split(line), mailmend
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None
        if not isinstance(found, click.Group):
            return found.make_context(name, words, parent=context).params
        command, context = found, click.Context(found, info_name=name, parent=context)
    raise AssertionError(line)


def meaning(option: click.Option) -> tuple[str, bool]:
    """What its help begins with, and whether it takes a value."""
    return re.split(r"[.:;](?:\s|$)", option.help or "")[0].partition(" [")[0], option.is_flag


def test_an_option_means_the_same_in_every_command() -> None:
    """Its help begins alike; what it means in this command stands behind the first point or colon."""
    meanings = defaultdict[str, dict[tuple[str, bool], str]](dict)
    for command in COMMANDS:
        for one in command.command.params:
            if isinstance(one, click.Option) and not one.hidden:
                meanings[one.opts[0]].setdefault(meaning(one), command.path)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_findings_without_a_file_go_to_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    show = "runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --findings"
    assert understood(show) == understood(f"{show} -")
