"""Names of options are a contract: one meaning each, in every command, and former ones are taken as ever."""

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


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("schema lint a.cql --level note", "schema lint a.cql --fail-on note"),
        ("schema lint a.cql --rows t=9 --rows u=8", "schema lint a.cql --partition-rows t=9 --partition-rows u=8"),
        ("schema lint a.cql --marks m=t", "schema lint a.cql --marks-table m=t"),
        ("schema advise --rows 100", "schema advise --sample 100"),
        ("demo --keep", "demo --leave-running"),
        ("queue enqueue a.eml --recipient b@x --delay 2h", "queue enqueue a.eml --recipient b@x --due-in 2h"),
        ("queue dequeue --to out", "queue dequeue --dir out"),
        ("queue configure --pace 9", "queue configure --browse-start-every 9"),
        ("queue tend --metrics a.prom", "queue tend --metrics-file a.prom"),
        ("jobs install --cron --user mail", "jobs install --cron --run-as mail"),
        ("local up --version 4.1", "local up --server-version 4.1"),
        ("runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --findings", "{before} -"),
    ],
)
def test_a_former_name_is_taken_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, now: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert understood(before) == understood(now.format(before=before))
