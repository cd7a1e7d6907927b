"""Telling a waiting person what goes on: a live line on a terminal, plain lines in a log, nothing in a test.

All of it goes to stderr, because stdout belongs to the result.
"""

from typing import Protocol, TextIO

from rich.console import Console
from rich.status import Status

_QUARTERS = 4


class Progress(Protocol):
    """What the work tells about itself."""

    def begin(self, what: str) -> None:
        """Something that takes a while has begun; whatever was going on before is over."""
        ...

    def advance(self, done: int, total: int) -> None:
        """So much of what was begun is done."""
        ...

    def end(self, result: str) -> None:
        """What was begun last is over, with this result."""
        ...


class Silent:
    """Tells nothing."""

    def begin(self, what: str) -> None:
        """Nothing is told."""

    def advance(self, done: int, total: int) -> None:
        """Nothing is told."""

    def end(self, result: str) -> None:
        """Nothing is told."""


class PlainLines:
    """One line per event and per quarter of long work: readable in the log of a build."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._what = ""
        self._quarter = 0

    def begin(self, what: str) -> None:
        """A line."""
        self._what, self._quarter = what, 0
        self._line(f"{what} ...")

    def advance(self, done: int, total: int) -> None:
        """A line when another quarter is done, but for the last: that is what `end` is for."""
        quarter = done * _QUARTERS // max(total, 1)
        if self._quarter < quarter < _QUARTERS:
            self._quarter = quarter
            self._line(f"{self._what}: {done} of {total}")

    def end(self, result: str) -> None:
        """A line."""
        self._line(result)

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class LiveLine:
    """A spinner with the newest news on a terminal; results stay above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._what = ""

    def begin(self, what: str) -> None:
        """Show it, turning."""
        self._what = what
        if self._status is None:
            self._status = self._console.status(what)
            self._status.start()
        self._status.update(what)

    def advance(self, done: int, total: int) -> None:
        """Change the turning line."""
        if self._status is not None:
            self._status.update(f"{self._what}: {done} of {total}")

    def end(self, result: str) -> None:
        """Stop turning and leave the result."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._console.print(result, highlight=False, soft_wrap=True)


def progress_for(stream: TextIO) -> Progress:
    """The progress that fits the stream: live on a terminal, plain lines elsewhere."""
    return LiveLine(Console(file=stream)) if stream.isatty() else PlainLines(stream)
