"""Endings: each kind of error has its exit code and its one message; no traceback reaches the terminal."""

import asyncio
import errno
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest

from mailmend.admin.frame import endings
from mailmend.admin.frame.command import CommandGroup, Late, made
from mailmend.admin.frame.endings import (
    GO_ON,
    PIPE_CLOSED,
    PipeClosed,
    TimeLimit,
    ending_of,
    heed_termination,
    quiet_libraries,
)
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.model.errors import INTERRUPTED, AccessDenied, CannotReach, FixLimit, LeaseHeld, UnknownKeyspace, WrongUse


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
        import_or_name_extra("mailmend.there_is_none")


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


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """The SIGTERMs that reach the handler that was there before: without it, each would end the test run."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("within_a_loop", [False, True])
def test_a_command_is_interrupted_once_its_time_is_over(strays: list[int], *, within_a_loop: bool) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    limit = TimeLimit(0.02)

    def command() -> object:
        return run_async(asyncio.sleep(10)) if within_a_loop else signal.sigtimedwait([], 10)

    assert limit.ending_of(command) == INTERRUPTED

    assert limit.time_over
    assert signal.getsignal(signal.SIGTERM) is handler
    assert strays == []


def test_a_command_that_ends_in_its_time_is_left_alone(strays: list[int]) -> None:
    limit = TimeLimit(60)

    assert limit.ending_of(lambda: 1) == 1

    assert not limit.time_over
    assert strays == []


def test_a_time_that_is_over_before_the_command_begins_interrupts_the_command(
    strays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []

    class Hasty(threading.Timer):
        """The time is over before `start` returns."""

        def start(self) -> None:
            super().start()
            self.join(0.05)

    def command() -> object:
        begun.append(True)
        return signal.sigtimedwait([], 10)

    monkeypatch.setattr(threading, "Timer", Hasty)
    limit = TimeLimit(0)

    assert limit.ending_of(command) == INTERRUPTED

    assert limit.time_over
    assert len(begun) <= 1
    assert strays == []


def test_a_time_that_is_over_while_the_command_ends_changes_nothing(
    strays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is about to be sent when the command returns; the handler from before is put back after it was."""
    sending, put_back = threading.Event(), threading.Event()
    send = signal.pthread_kill

    def late(thread: int, number: int) -> None:
        sending.set()
        put_back.wait(0.05)
        send(thread, number)

    def command() -> object:
        assert sending.wait(10)
        return 1

    monkeypatch.setattr(signal, "pthread_kill", late)
    limit = TimeLimit(0)

    assert limit.ending_of(command) == 1
    put_back.set()

    assert strays == []


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_near_its_limit_has_its_own_exit_code_or_says_that_it_was_interrupted(
    code: int, strays: list[int]
) -> None:
    """Times from too short to long enough: a command either has its own code or says that it was interrupted."""
    for micros in range(0, 2000, 100):
        limit = TimeLimit(micros / 1_000_000)

        ended = limit.ending_of(lambda: code)

        assert ended == code or (ended == INTERRUPTED and limit.time_over)
    assert strays == []


def test_somebody_who_asks_for_the_end_is_heard_once(strays: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "ASK_SECONDS", 0.01)
    limit = TimeLimit(60, lambda: True)

    assert limit.ending_of(lambda: signal.sigtimedwait([], 10)) == INTERRUPTED

    assert not limit.time_over
    assert strays == []


def test_a_signal_while_a_loop_is_left_never_ends_the_process(
    strays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the loop's reaction and the handler from before, the signal's default must not be in force."""
    seen: list[object] = []
    put = signal.signal

    def put_and_noted(number: int, handler: Any) -> Any:
        seen.append(handler)
        return put(number, handler)

    monkeypatch.setattr(signal, "signal", put_and_noted)
    run_async(asyncio.sleep(0))

    assert seen
    assert signal.SIG_DFL not in seen
    assert strays == []
