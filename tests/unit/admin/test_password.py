"""A role without a password: asked for on a terminal, unseen; elsewhere an error that names the two ways."""

import io
import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from mailmend.admin.frame.options import connection_of
from mailmend.admin.frame.terminal import hidden_password
from mailmend.model.errors import BadSettings, ExitCode
from tests.support.commands import CommandLine, command_line

UNREACHABLE = ("--host", "127.0.0.1", "--port", "1", "--engine", "local")
OPTIONS: Mapping[str, object] = {
    "host": ("far",),
    "port": 1,
    "local_dc": None,
    "keyspace": "mail",
    "ledger_keyspace": "mailmend",
    "password_file": None,
    "tls": None,
    "tls_ca": None,
    "password_command": None,
    "tls_cert": None,
    "tls_key": None,
    "tls_hostnames": False,
}


@pytest.fixture
def shell(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path)


@pytest.mark.parametrize("stdin", [io.StringIO("hunter2"), None])
def test_elsewhere_the_two_ways_are_named(
    shell: CommandLine, monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO | None
) -> None:
    """A schedule cannot type: wrong use, before anything is dialled."""
    monkeypatch.setattr("sys.stdin", stdin)

    ended = shell("check", *UNREACHABLE, "--username", "mender")

    assert (ended.code, "'mender'" in ended.err) == (ExitCode.WRONG_USE, True)
    assert "MAILMEND_PASSWORD" in ended.err
    assert "--password-file" in ended.err


@pytest.mark.parametrize("username", [None, ""])
def test_without_a_role_nobody_is_asked(username: str | None) -> None:
    assert connection_of({**OPTIONS, "username": username}, click.Context(click.Command("x"))).password is None


def test_a_terminal_that_would_show_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python falls back to an open prompt there, with a warning: better no password than one on the screen."""
    import getpass  # noqa: PLC0415 - its fallback is what is tried

    monkeypatch.setattr("click.termui.hidden_prompt_func", getpass.fallback_getpass)  # type: ignore[attr-defined]

    with pytest.raises(BadSettings, match="would show the password"):
        hidden_password("mender")


def test_on_a_terminal_it_is_typed_unseen(tmp_path: Path) -> None:
    """A real one: the question is there, what was typed is not; the command goes on (nobody answers: exit 4)."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
    command = [sys.executable, "-m", "mailmend", "check", *UNREACHABLE, "--username", "mender"]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**kept, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as shell:
        os.close(theirs)
        asked = _read_until(ours, b"Password of mender: ")
        os.write(ours, b"hunter2\n")
        answered = _read_until(ours, None)
        code = shell.wait()
    os.close(ours)

    assert asked.endswith(b"Password of mender: ")
    assert b"hunter2" not in asked + answered
    assert (code, b"127.0.0.1:1" in answered) == (ExitCode.CANNOT_REACH, True), answered


def _read_until(terminal: int, words: bytes | None) -> bytes:
    """What is written until the words stand there, or nobody writes any more."""
    seen = b""
    while words is None or words not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        try:
            part = os.read(terminal, 4096) if ready else b""
        except OSError:  # Linux says so when the other side is closed
            part = b""
        if not part:
            break
        seen += part
    return seen
