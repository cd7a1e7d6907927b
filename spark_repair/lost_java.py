"""A Java process of Spark that ended in the middle of work: the error that says so, and the way to another one."""

import signal
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mailmend.model.errors import SparkFailed

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
