"""Output that has no reader, or no place: it does not look like drift, and ends in a code of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from mailmend.admin.frame.endings import PIPE_CLOSED
from mailmend.admin.frame.presenter import stderr_console
from mailmend.admin.frame.whole_files import ClosedStdout
from mailmend.admin.main import run
from mailmend.model.errors import ResultUnwritten
from tests.support.checkout import CHECKOUT


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A pipe whose reader went away."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    yield stream
    try:
        stream.close()
    except BrokenPipeError:
        return


@pytest.mark.parametrize(
    "words", [["version"], ["version", "--json"], ["--help"], ["--version"], ["check", "--help"], ["runbook", "list"]]
)
def test_a_reader_that_went_away_ends_each_command_with_the_code_of_a_closed_pipe(
    words: list[str], unread: TextIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", unread)

    assert run(words) == PIPE_CLOSED

    assert capsys.readouterr().err == ""


def test_messages_without_a_reader_are_left_out(unread: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", unread)
    console = stderr_console()

    console.print("a message")
    console.print("another one")

    assert console.quiet


def test_a_closed_stdout_refuses_text_in_words() -> None:
    stdout = ClosedStdout()

    with pytest.raises(ResultUnwritten, match="stdout is closed"):
        stdout.write("x")

    assert stdout.write("") == 0


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        (">&-", 3, "stdout is closed, and the result cannot be written there"),
        ("2>&- <&-", 0, ""),
        pytest.param("2>&-", 0, "", marks=pytest.mark.thorough),
        pytest.param("<&-", 0, "", marks=pytest.mark.thorough),
        pytest.param(">&- 2>&- <&-", 3, "", marks=pytest.mark.thorough),
    ],
)
def test_a_stream_that_the_shell_closed_is_named_or_not_missed(
    closed: str, code: int, said: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m mailmend version --json {closed}"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, said in ended.stderr, "should not happen" in ended.stderr) == (code, True, False)
