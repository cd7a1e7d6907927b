"""Interruptions (Ctrl-C, SIGTERM) while Spark works: first its jobs are ended, and the JVM if we launched it.

So nothing writes any more when the run's sums are taken, and no call to Java waits for an answer that never comes.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import Popen, TimeoutExpired
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

STOP_SECONDS_MAX: Final = 10.0
"""How long Spark may take to end its jobs and workers in order; then its JVM is ended all the same."""

END_SECONDS_MAX: Final = 10.0
"""How long the JVM may take to end before it is killed."""

_PY4J: Final = logging.getLogger("py4j")
"""It logs, with a traceback, whatever an interruption breaks off, and raises it as well."""


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the handler of SIGINT: PySpark's calls Java from within a call to Java, and so breaks both."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def ended_when_interrupted(session: SparkSession) -> Iterator[None]:
    """End the jobs, and the session where it is ours, when the block is interrupted."""
    _PY4J.setLevel(logging.CRITICAL)
    try:
        yield
    except KeyboardInterrupt:
        end_session(session)
        raise


def is_over(session: SparkSession) -> bool:
    """Whether the JVM that we launched has ended."""
    process = _jvm_process(session)
    return process is not None and process.poll() is not None


def release(session: SparkSession, *frames: DataFrame) -> None:
    """Free the frames that executors keep; nothing to do where the JVM has ended or is ending."""
    if not is_over(session):
        with suppress(Py4JError, ConnectionError):
            for frame in frames:
                frame.unpersist()


def stop(session: SparkSession) -> None:
    """Stop the session, unless its JVM has ended or is ending: its sockets close before its process has ended."""
    if not is_over(session):
        with suppress(Py4JError, ConnectionError), catch_warnings():
            simplefilter("ignore", RuntimeWarning)  # PySpark's, about a JVM that is gone: that has been said
            session.stop()


def end_session(session: SparkSession) -> None:
    """End the jobs, and the JVM if we launched it; from another thread, as this one may be in a call to Java."""
    if is_over(session):
        return
    process = _jvm_process(session)
    thread = threading.Thread(target=_stop, args=(session, process is not None), name="mailmend-stop", daemon=True)
    thread.start()
    thread.join(STOP_SECONDS_MAX)
    if process is not None:
        end_process(process)


def _stop(session: SparkSession, ours: bool) -> None:  # noqa: FBT001 - an argument of a thread
    with suppress(Exception):  # Spark may be ending already: the signal reaches a whole group of processes
        session.sparkContext.cancelAllJobs()
        if ours:
            session.sparkContext.stop()


def end_process(process: "Popen[bytes]", seconds_max: float = END_SECONDS_MAX) -> None:
    """Ask the process to end; kill it where it has not ended after `seconds_max`."""
    process.terminate()
    try:
        process.wait(seconds_max)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _jvm_process(session: SparkSession) -> "Popen[bytes] | None":
    """The JVM's process; None inside spark-submit, where it is not ours."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - no public name
    process: Popen[bytes] | None = getattr(gateway, "proc", None)
    return process
