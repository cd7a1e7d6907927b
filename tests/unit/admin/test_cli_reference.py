"""The reference of the command line says what the commands declare."""

from pathlib import Path

import click
import pytest

from mailmend.admin import reference
from mailmend.admin.main import mailmend
from mailmend.model.errors import ExitCode, MailmendError

COMMANDS = list(reference.commands_of(mailmend, click.Context(mailmend, info_name="mailmend")))
PAGE = reference.page_text()


def test_the_page_is_up_to_date() -> None:
    assert reference.main(["--check"]) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_every_command_has_a_section_with_every_option(command: reference.ListedCommand) -> None:
    """An option that many share is named there, and described once for all."""
    section = PAGE.split(f"\n## {command.path}\n")[1].split("\n## ")[0]
    for option in command.command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert f"`{option.opts[0]}" in section


def test_every_exit_code_and_every_kind_of_error_is_on_it() -> None:
    assert all(f"\n{code.value}    " in PAGE for code in ExitCode)
    kinds = [kind for kind in MailmendError.__subclasses__() if kind.__module__ == "mailmend.model.errors"]
    assert all(f"| {int(kind.exit_code)} | `{kind.__name__}` |" in PAGE for kind in kinds)


def test_the_page_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert reference.page_text() == PAGE


def test_a_page_that_is_not_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "PAGE", tmp_path / "cli.md")
    assert reference.main(["--check"]) == 1
    assert "python -m mailmend.admin.reference" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
