"""How a command ends: an exit code for scripts, and at most one message that says what failed, where, and the way out.

No traceback reaches the terminal; that of an unexpected error goes to a file, which the message names.
"""

import logging
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import click
from click.core import ParameterSource

from admin.cli.logs import CommandLog, command_log
from admin.cli.settings_file import place_of
from admin.extras import EXTRAS, library_of, missing_extra
from admin.whole_files import drop_stdout
from model.errors import INTERRUPTED, ExitCode, MailmendError, came_of_interruption

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
        code = _ending_of(lambda: log.noting(command), log)
        log.ended(code)
        return code


def _ending_of(command: Callable[[], object], log: CommandLog) -> int:  # noqa: PLR0911 - one return for each kind of ending
    try:
        code = command()
    except (BrokenPipeError, PipeClosed):
        return _pipe_closed()
    except MailmendError as error:
        if came_of_interruption(error):
            return _interrupted()
        say(f"mailmend: {error.message}")
        return int(error.exit_code)
    except click.ClickException as error:
        return _wrong_use(error)
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except Exception as error:  # noqa: BLE001 - every unexpected error ends here
        return _interrupted() if came_of_interruption(error) else _unforeseen(error, log)
    return code if isinstance(code, int) else int(ExitCode.FINE)


def say(message: str) -> None:
    """Print a message on stderr; a closed stderr is ignored."""
    try:
        click.echo(message, err=True)
    except OSError:
        return


def heed_termination() -> None:
    """Let SIGTERM end a command as Ctrl-C does: schedulers and service managers send it."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@contextmanager
def ended_after(seconds: float, asked: Callable[[], bool] = lambda: False) -> Iterator[threading.Event]:
    """End the block as SIGTERM would, after `seconds` or once `asked` returns True.

    The event is set where the time was over.
    """
    over, done = threading.Event(), threading.Event()
    main, before = threading.get_ident(), signal.getsignal(signal.SIGTERM)

    def terminate() -> None:
        over.set()
        signal.pthread_kill(main, signal.SIGTERM)  # to the thread that waits for the network: it wakes up

    def listen() -> None:
        while not done.wait(ASK_SECONDS):
            if asked() and not done.is_set():
                signal.pthread_kill(main, signal.SIGTERM)
                return

    timer, listener = threading.Timer(seconds, terminate), threading.Thread(target=listen, daemon=True)
    timer.daemon = True
    heed_termination()
    timer.start()
    listener.start()
    try:
        yield over
    finally:
        done.set()
        timer.cancel()
        listener.join()  # whatever it asks is open yet
        signal.signal(signal.SIGTERM, before)


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
    error.show()
    return int(ExitCode.WRONG_USE)


def _unforeseen(error: Exception, log: CommandLog) -> int:
    library = library_of(error) if isinstance(error, ModuleNotFoundError) else ""
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
