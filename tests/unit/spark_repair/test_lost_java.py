"""Spark's Java process ended: the error says how, what it wrote last and where, and another session may begin."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mailmend.cql.driver.contact import Contact
from mailmend.model.errors import ExitCode, SparkFailed
from mailmend.spark_repair import session as spark_session
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.jvm import forget_ended_session, has_ended, java_ended, note_log
from mailmend.spark_repair.session import SparkSettings, session_for_a_command

Started = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Starts a process in the place of Java."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(["/bin/sh", "-c", program], stdin=subprocess.PIPE)
        processes.append(process)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process, shutdown=lambda: None))
        return process

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_jvm", "another one")
    monkeypatch.setattr(SparkSession, "_instantiatedSession", "another one")
    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_error_names_the_signal_the_last_lines_and_the_log(started: Started, tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("a line of an earlier session\n")
    note_log(log)
    log.write_text(log.read_text() + "one\ntwo\n\nthree\njava.lang.OutOfMemoryError: Java heap space\n")
    started("kill -9 $$").wait()

    error = java_ended()

    assert error.what == (
        "Spark failed: its Java process ended (SIGKILL); "
        "its last lines: two | three | java.lang.OutOfMemoryError: Java heap space"
    )
    assert str(log) in error.mend
    assert "what is staged (--staging) is not read again" in error.mend
    assert error.exit_code is ExitCode.PARTLY_FAILED


def test_lines_of_an_earlier_session_are_not_taken_for_its_last_ones(started: Started, tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("a line of an earlier session\n")
    note_log(log)
    started("exit 3").wait()

    assert java_ended().what == "Spark failed: its Java process ended"


def test_a_session_whose_java_ended_is_forgotten(started: Started) -> None:
    process = started("exit 1")
    process.wait()

    forget_ended_session()

    assert process.stdin is not None
    assert process.stdin.closed
    assert (SparkContext._gateway, SparkContext._jvm, SparkSession._instantiatedSession) == (None, None, None)


def test_a_session_whose_java_lives_is_kept(started: Started) -> None:
    started("exec sleep 60")

    forget_ended_session()

    assert not has_ended()
    assert SparkContext._gateway is not None


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Works with a session, and fails as PySpark does outside of what `translated` surrounds."""

    @contextmanager
    def untouched(_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(spark_session, "forget_ended_session", lambda: None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: "one")
    monkeypatch.setattr(spark_session, "open_session", lambda _: "one")
    monkeypatch.setattr(spark_session, "ended_when_interrupted", untouched)

    def work() -> None:
        with session_for_a_command(SparkSettings()):
            raise ConnectionRefusedError(111, "Connection refused")

    return work


def test_a_command_whose_java_ended_says_so_wherever_it_notices(started: Started, command: Callable[[], None]) -> None:
    started("kill -9 $$").wait()

    with pytest.raises(SparkFailed, match=r"its Java process ended \(SIGKILL\)"):
        command()


def test_an_answer_without_words_of_a_java_that_is_ending_says_that_it_ended(started: Started) -> None:
    started("sleep 0.1; kill -9 $$")

    with pytest.raises(SparkFailed, match=r"its Java process ended \(SIGKILL\)"), translated(Contact(), "mail"):
        raise Py4JError("An error occurred while calling o50.sc")


def test_a_refused_connection_beside_a_living_java_is_another_failure(
    started: Started, command: Callable[[], None]
) -> None:
    started("exec sleep 60")

    with pytest.raises(ConnectionRefusedError):
        command()
