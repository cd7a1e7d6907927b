"""How a command ends: an exit code for scripts, and at most one message that says what failed, where, and the way out.

No traceback reaches the terminal; the traceback of an unexpected error goes to a file, which the
message names.
"""

import io
import logging
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.extras import EXTRAS, library_of, missing_extra
from mailmend.admin.frame.logs import CommandLog, command_log, echo
from mailmend.admin.frame.settings_file import place_of
from mailmend.admin.frame.whole_files import drop_stdout
from mailmend.model.errors import INTERRUPTED, ExitCode, MailmendError, came_of_interruption

PIPE_CLOSED: Final = 141

ASK_SECONDS: Final = 2.0
"""How soon a command hears that it is to end."""

GO_ON: Final = (
    "Interrupted. To go on, type the same command again: it looks anew and does what is left.\n"
    "A repair leaves every row as it was or mended, its before-image kept first: mailmend runs list"
)


class PipeClosed(Exception):
    """The reader of our output went away; not an OSError, or click would end with 1, which means drift."""


def ending_of(command: Callable[[], object]) -> int:
    """Run the command; its exit code, which its log ends with."""
    with command_log() as log:
        try:
            result = command()
        except BaseException as error:  # noqa: BLE001 - `_code_after` raises what is no ending again
            log.error = type(error).__name__
            code = _code_after(error, log)
        else:
            code = int(ExitCode.FINE)
            if isinstance(result, int):
                code = result
        log.ended(code)
        return code


def _code_after(error: BaseException, log: CommandLog) -> int:
    """The exit code after an error, whose message goes to stderr."""
    match error:
        case BrokenPipeError() | PipeClosed():
            return _pipe_closed()
        case MailmendError() if not came_of_interruption(error):
            say(f"mailmend: {error.message}")
            return int(error.exit_code)
        case click.ClickException():
            return _wrong_use(error)
        case Exception() if not isinstance(error, click.Abort) and not came_of_interruption(error):
            return _unforeseen(error, log)
        case Exception() | KeyboardInterrupt():
            return _interrupted()
        case _:
            raise error


def say(message: str) -> None:
    """Print a message on stderr; a closed stderr is ignored."""
    try:
        echo(message)
    except OSError:
        return


def heed_termination() -> None:
    """Let SIGTERM end a command as Ctrl-C does: schedulers and service managers send it."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@dataclass(slots=True)
class TimeLimit:
    """Interrupts one command of the main thread, as SIGTERM would, once its time is over or its end is requested.

    The signal is sent at most once, and only while the command runs. A time that is over before the command begins
    waits for its begin; a time that is over when the command has ended changes nothing.

    Attributes:
        seconds: after which the command is interrupted.
        asked: called every `ASK_SECONDS`; True interrupts the command.
        time_over: whether the signal was sent because the time was over.
    """

    seconds: float
    asked: Callable[[], bool] = lambda: False
    time_over: bool = False
    _main: int = field(default_factory=threading.get_ident)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    def ending_of(self, command: Callable[[], object]) -> int:
        """Run the command within the limit; its exit code."""
        before = signal.getsignal(signal.SIGTERM)
        timer = threading.Timer(self.seconds, self._end_time)
        listener = threading.Thread(target=self._listen, daemon=True)
        timer.daemon = True
        heed_termination()
        timer.start()
        listener.start()
        try:
            return ending_of(lambda: self._run(command))
        finally:
            self._close()
            timer.cancel()
            listener.join()  # the connection that it asks over stays open until then
            signal.signal(signal.SIGTERM, before)

    def _run(self, command: Callable[[], object]) -> object:
        results: list[object] = []
        try:
            self._begun.set()
            results.append(command())
            self._close()
        except KeyboardInterrupt:
            if not results:
                raise
        finally:
            self._close()
        return results[0]

    def _close(self) -> None:
        """Nothing is sent from here on; what was sent before is heard by the end of this method."""
        with self._lock:
            self._over.set()
        self._begun.set()  # a timer that still waits for the begin ends

    def _end_time(self) -> None:
        self._interrupt(time_over=True)

    def _interrupt(self, *, time_over: bool) -> None:
        self._begun.wait()
        with self._lock:
            if self._over.is_set():
                return
            self._over.set()
            self.time_over = time_over
            # The signal goes to the thread that waits for the network: it wakes up.
            signal.pthread_kill(self._main, signal.SIGTERM)

    def _listen(self) -> None:
        while not self._over.wait(ASK_SECONDS):
            if self.asked():
                self._interrupt(time_over=False)


def _interrupted() -> int:
    say(GO_ON)
    return INTERRUPTED


def quiet_libraries() -> None:
    """Silence what libraries log about failures: they raise them too, and our own message says it."""
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    logging.getLogger().addFilter(lambda _: False)  # py4j logs to the root itself; loggers with a name pass it by


def _wrong_use(error: click.ClickException) -> int:
    if isinstance(error, click.BadParameter) and error.ctx and error.param and error.param.name:
        source = error.ctx.get_parameter_source(error.param.name)
        place = place_of(error.ctx, error.param.name)
        if source is ParameterSource.DEFAULT_MAP and place:
            say(f"mailmend: {place}: {error.message}")
            return int(ExitCode.WRONG_USE)
    shown = io.StringIO()
    error.show(shown)
    say(shown.getvalue().removesuffix("\n"))
    return int(ExitCode.WRONG_USE)


def _unforeseen(error: Exception, log: CommandLog) -> int:
    if isinstance(error, ModuleNotFoundError):
        library = library_of(error)
        if library in EXTRAS:
            say(f"mailmend: {missing_extra(library)}")
            return int(ExitCode.WRONG_USE)
    log.crash_log = _crash_log(error)
    first_line = (str(error).splitlines() or [""])[0][:200]
    say(
        f"mailmend: {type(error).__name__}: {first_line} - this should not happen. "
        f"Details for a bug report are in {log.crash_log}"
    )
    return int(ExitCode.PARTLY_FAILED)


def _crash_log(error: Exception) -> str:
    text = "".join(traceback.format_exception(error))
    try:
        handle, name = tempfile.mkstemp(prefix="mailmend-crash-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as log:
            log.write(text)
    except OSError:
        return "no file: none could be written"
    return str(Path(name))


def _pipe_closed() -> int:
    """The reader of our output went away (`| head`): keep Python from writing to the pipe at exit."""
    drop_stdout()
    return PIPE_CLOSED
