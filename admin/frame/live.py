"""Documents that follow each other, and the keys that a person types meanwhile.

On a terminal each document takes the place of the one before.
"""

import io
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich.console import Console, ScreenContext
from rich.text import Text

from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.presenter import PAPER_COLUMNS, show, stdout_console
from mailmend.admin.frame.terminal import somebody_types
from mailmend.admin.frame.whole_files import to_stdout
from mailmend.model.ports import Clock

_CODES_OF_A_KEY: Final = 64
"""An arrow key is several bytes; the bytes of one key are read together."""


class DocumentSeries(Protocol):
    """Shows one document after the other."""

    @property
    def redraws(self) -> bool:
        """Whether each takes the place of the one before, and the last one is gone at the end."""
        ...

    def draw(self, document: Document) -> None:
        """Show the next one."""
        ...


@dataclass(frozen=True, slots=True)
class PlainSeries:
    """Lines without control codes, with an empty line behind each document."""

    redraws: bool = False

    def draw(self, document: Document) -> None:
        """Write it below the one before."""
        grids = [part for part in document.body if isinstance(part, Grid)]
        console = Console(
            file=sys.stdout,
            force_terminal=False,
            color_system=None,
            highlight=False,
            soft_wrap=True,
            width=max((grid.paper_columns for grid in grids), default=PAPER_COLUMNS),
        )
        with to_stdout():
            show(document, console)
            sys.stdout.write("\n")


@dataclass(frozen=True, slots=True)
class ScreenSeries:
    """The whole screen of a terminal; what does not fit below is cut."""

    terminal: Console
    screen: ScreenContext
    redraws: bool = True

    def draw(self, document: Document) -> None:
        """Replace the one before by it."""
        kept = io.StringIO()
        colours: Any = self.terminal.color_system  # rich gives its name, and takes literals of it
        console = Console(
            file=kept,
            force_terminal=True,
            width=self.terminal.width,
            color_system=colours,
            highlight=False,
        )
        show(document, console)
        text = Text.from_ansi(kept.getvalue(), no_wrap=True)
        with to_stdout():
            self.screen.update(text)


@contextmanager
def documents_shown(*, plain: bool) -> Iterator[DocumentSeries]:
    """Show documents one after the other; `plain`, or without a terminal, without control codes."""
    terminal = stdout_console()
    # Rich also calls a pipe a terminal where FORCE_COLOR is set.
    if plain or not sys.stdout.isatty() or terminal.is_dumb_terminal:
        yield PlainSeries()
        return
    with terminal.screen() as screen:
        yield ScreenSeries(terminal, screen)


@contextmanager
def keys_typed(clock: Clock) -> Iterator[Callable[[float], str]]:
    """A function that waits that many seconds for a key, and gives it; "" where none was typed.

    Where stdin or stdout is no terminal it waits for the whole time.
    """
    if not (somebody_types() and sys.stdout.isatty()):
        yield _Unattended(clock).key_within
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield _Keyboard(keyboard).key_within
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@dataclass(frozen=True, slots=True)
class _Unattended:
    clock: Clock

    def key_within(self, seconds: float) -> str:
        self.clock.sleep(seconds)
        return ""


@dataclass(frozen=True, slots=True)
class _Keyboard:
    file: int

    def key_within(self, seconds: float) -> str:
        readable, _, _ = select.select([self.file], [], [], seconds)
        if not readable:
            return ""
        return os.read(self.file, _CODES_OF_A_KEY).decode(errors="replace")
