"""The Java process of Spark: how an interruption or a command's end ends it, and what is said where it ended early.

On an interruption (Ctrl-C, SIGTERM) its jobs are ended first, and the process if we launched it. So
nothing writes any more when the run's sums are taken, and no call to Java waits for an answer that
never comes. Where the process ended in the middle of work, an error says so, and another session
can begin.
"""

import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from mailmend.model.errors import SparkFailed

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


_END_SECONDS_MAX: Final = 2.0
"""How much later than its sockets the process may end."""

_TAIL_BYTES: Final = 8192
_LINES_MAX: Final = 3
_LINE_LETTERS_MAX: Final = 200


@dataclass(slots=True)
class _Log:
    """Where the Java process that this process launched writes, and from which byte on."""

    file: Path | None = None
    begins_at: int = 0


_LOG: Final = _Log()


def note_log(file: Path) -> None:
    """Remember the log of the Java process that is about to be launched."""
    _LOG.file = file
    _LOG.begins_at = 0
    if file.exists():
        _LOG.begins_at = file.stat().st_size


def java_process() -> "Popen[bytes] | None":
    """The Java process that this process launched; None inside spark-submit, and without a Java process."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - no public name
    process: Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def has_ended(seconds_max: float = 0.0) -> bool:
    """Whether the Java process that we launched has ended, or does within that time."""
    process = java_process()
    if process is None:
        return False
    with suppress(TimeoutExpired):
        process.wait(seconds_max)
    return process.poll() is not None


def came_of_lost_java(error: Exception) -> bool:
    """Whether an error came of a Java process that ended, whose sockets close before the process has ended."""
    if isinstance(error, Py4JError | ConnectionError | EOFError) and not isinstance(error, Py4JJavaError):
        return has_ended(_END_SECONDS_MAX)
    return has_ended()


def java_ended() -> SparkFailed:
    """The error for a Java process that ended: by which signal, its last lines, its log, and what to do."""
    process = java_process()
    how = ""
    if process and has_ended(_END_SECONDS_MAX):
        code = process.poll()
        if code is not None and code < 0:
            how = f" ({_signal_name(-code)})"
    said = ""
    if lines := _last_lines():
        said = f"; its last lines: {' | '.join(lines)}"
    place = "the output of spark-submit"
    if _LOG.file:
        place = str(_LOG.file)
    return SparkFailed(
        f"Spark failed: its Java process ended{how}{said}",
        mend=f"Its log says more: {place}. The same command goes on: what is staged (--staging) is not read again.",
    )


def forget_ended_session() -> None:
    """Let another session begin in this process, where the Java process of the one before has ended."""
    if not has_ended():
        return
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - no public name
    gateway: Any = SparkContext._gateway  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's, about a JVM that is gone
        for _ in range(2):  # the first one fails for want of Java, the second one ends what is Python's
            with suppress(Py4JError, OSError, EOFError, AttributeError):
                if context is not None:
                    context.stop()
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        if gateway.proc.stdin:
            with suppress(OSError):
                gateway.proc.stdin.close()
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_lines() -> list[str]:
    """The last lines that this Java process wrote; none where it wrote none, or where they are not ours to read."""
    if _LOG.file is None:
        return []
    try:
        with _LOG.file.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(max(_LOG.begins_at, end - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    lines = [line.strip()[:_LINE_LETTERS_MAX] for line in text.splitlines() if line.strip()]
    return lines[-_LINES_MAX:]
