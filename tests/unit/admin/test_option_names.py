"""Names of options are a contract: former ones are taken as ever."""

import shlex
from pathlib import Path

import click
import pytest

from admin.cli import mailmend


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
        ("runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --findings", "{before} -"),
    ],
)
def test_a_former_name_is_taken_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, now: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert understood(before) == understood(now.format(before=before))
