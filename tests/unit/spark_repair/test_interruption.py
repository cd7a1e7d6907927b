"""Ctrl-C while Spark works: its JVM ends before anything else is done, and PySpark's own handler is not used."""

import logging
import signal
import subprocess
import sys
from typing import Any
from warnings import warn

import pytest
from py4j.protocol import Py4JNetworkError

from mailmend.spark_repair.jvm import end_process, ended_when_interrupted, is_over, own_interrupts, release, stop

DEAF = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"


class _Context:
    """What is called of Spark's context."""

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._gateway = type("Gateway", (), {"proc": process})()
        self.calls: list[str] = []

    def cancelAllJobs(self) -> None:  # noqa: N802 - Spark's name
        self.calls.append("cancel")

    def stop(self) -> None:
        self.calls.append("stop")


class _Session:
    def __init__(self, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self.sparkContext = _Context(process)

    def stop(self) -> None:
        warn("Unable to cleanly shutdown Spark JVM process", RuntimeWarning, stacklevel=1)
        raise ConnectionRefusedError


class _Frame:
    def unpersist(self) -> None:
        raise Py4JNetworkError


def waiting(code: str = "import sys; print(flush=True); sys.stdin.read()") -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def interrupted(session: Any) -> None:
    with pytest.raises(KeyboardInterrupt), ended_when_interrupted(session):
        raise KeyboardInterrupt


def test_a_jvm_of_ours_is_stopped_and_ended() -> None:
    with waiting() as process:
        session: Any = _Session(process)
        assert not is_over(session)
        interrupted(session)
        assert (session.sparkContext.calls, is_over(session)) == (["cancel", "stop"], True)
        interrupted(session)
        assert session.sparkContext.calls == ["cancel", "stop"]


def test_within_spark_submit_only_the_jobs_are_ended() -> None:
    session: Any = _Session()
    interrupted(session)
    assert (session.sparkContext.calls, is_over(session)) == (["cancel"], False)


def test_a_jvm_that_does_not_end_is_killed() -> None:
    with waiting(DEAF) as process:
        end_process(process, 0.1)
        assert process.returncode == -signal.SIGKILL


def test_another_error_ends_nothing() -> None:
    session: Any = _Session()
    with pytest.raises(ValueError, match="no"), ended_when_interrupted(session):
        raise ValueError("no")
    assert session.sparkContext.calls == []


def test_the_handler_of_ctrl_c_stays_ours() -> None:
    before = signal.getsignal(signal.SIGINT)
    with own_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_py4j_logs_of_an_interruption_is_not_shown() -> None:
    interrupted(_Session())

    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.ERROR)


def test_a_jvm_that_was_killed_and_is_seen_to_be_there_yet_hides_nothing_of_what_failed() -> None:
    with waiting() as process:
        session: Any = _Session(process)
        frame: Any = _Frame()
        release(session, frame)
        stop(session)
        assert not is_over(session)
