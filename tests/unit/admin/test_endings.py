"""Endings: each kind of error has its exit code and its one message; no traceback reaches the terminal."""

import asyncio
import errno
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

import click
import pytest

from admin.cli.command import CommandGroup, Late, made
from admin.cli.endings import GO_ON, PIPE_CLOSED, PipeClosed, ended_after, ending_of, heed_termination, quiet_libraries
from admin.event_loop import run_async
from admin.extras import import_or_name_extra
from model.errors import INTERRUPTED, AccessDenied, CannotReach, FixLimit, LeaseHeld, UnknownKeyspace, WrongUse


def _raises(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WrongUse("x", mend="y"), 2),
        (UnknownKeyspace("x"), 2),
        (CannotReach("x"), 4),
        (AccessDenied("x"), 4),
        (LeaseHeld("x"), 3),
        (FixLimit("x"), 1),
        (click.UsageError("x"), 2),
        (click.FileError("x"), 2),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts tell what happened by the code; people by the message, on stderr."""
    assert ending_of(_raises(error)) == code

    said = capsys.readouterr()
    assert said.out == ""
    assert "x" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_says_how_to_go_on(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending_of(_raises(error)) == INTERRUPTED
    assert GO_ON in capsys.readouterr().err


@pytest.mark.parametrize("later", [RuntimeError("the JVM is gone"), CannotReach("gone")])
def test_what_fails_while_letting_go_after_an_interruption_is_the_interruption(
    later: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C reaches Spark's own processes too; that is no crash of ours."""

    def command() -> object:
        try:
            raise KeyboardInterrupt
        finally:
            raise later

    assert ending_of(command) == INTERRUPTED
    assert GO_ON in capsys.readouterr().err


def test_what_nobody_foresaw_is_one_line_and_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert ending_of(_raises(ZeroDivisionError("by zero\nmore"))) == 3

    said = capsys.readouterr().err
    (log,) = tmp_path.iterdir()
    assert said.count("\n") == 1
    assert str(log) in said
    assert "Traceback" in log.read_text()


def test_a_crash_without_room_for_a_log_is_still_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no"))

    assert ending_of(_raises(ZeroDivisionError("x"))) == 3
    assert "none could be written" in capsys.readouterr().err


@pytest.mark.parametrize("error", [BrokenPipeError(), PipeClosed()])
def test_a_reader_who_went_away_gets_nothing(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending_of(_raises(error)) == PIPE_CLOSED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (1, 1), (3, 3), ("text", 0)])
def test_a_command_returns_its_exit_code(returned: object, code: int) -> None:
    assert ending_of(lambda: returned) == code


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever installed the small package learns what is missing, not where an import stands."""
    code = ending_of(_raises(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")))

    assert code == 2
    assert "mailmend[spark]" in capsys.readouterr().err


def test_another_missing_module_is_a_crash() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_or_name_extra("admin.there_is_none")


def test_a_group_lists_its_commands_without_importing_them() -> None:
    group = cast(
        "click.Group",
        made(CommandGroup(name="g", summary="", about="", commands=(Late("one", "The first.", "no.such.module:one"),))),
    )

    with click.Context(group) as context:
        assert "The first." in group.get_help(context)
        assert group.get_command(context, "two") is None


def test_a_scheduler_that_ends_a_command_is_heard_as_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM leaves the same consistent ledger as a person's Ctrl-C."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        heed_termination()
        assert ending_of(lambda: signal.raise_signal(signal.SIGTERM)) == INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    assert GO_ON in capsys.readouterr().err


def test_a_closed_stderr_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(click, "echo", closed)

    assert ending_of(_raises(CannotReach("x"))) == 4


def test_libraries_do_not_speak_beside_us(capsys: pytest.CaptureFixture[str]) -> None:
    quiet_libraries()

    logging.getLogger("py4j").error("a long trace")

    assert "a long trace" not in capsys.readouterr().err


@pytest.mark.parametrize("within_a_loop", [False, True])
def test_a_command_is_ended_once_its_time_is_over(*, within_a_loop: bool) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def command() -> object:
        return run_async(asyncio.sleep(10)) if within_a_loop else signal.sigtimedwait([], 10)

    with ended_after(0.02) as over:
        assert ending_of(command) == INTERRUPTED

    assert over.is_set()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_command_that_ends_in_its_time_is_left_alone() -> None:
    with ended_after(60) as over:
        assert ending_of(lambda: 1) == 1

    assert not over.is_set()
