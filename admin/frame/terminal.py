"""What a person sees and is asked while a command works: progress and questions, always on stderr.

Progress is a bar on a terminal, plain lines elsewhere: adapters of `model.ports.Progress`.
Questions are asked on a terminal alone, while the bar pauses; Enter always means no.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from getpass import GetPassWarning
from typing import IO

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mailmend.admin.frame.caller import Question
from mailmend.admin.frame.document import Document, Grid, Part, Styled
from mailmend.admin.frame.examples import key_text
from mailmend.admin.frame.presenter import show
from mailmend.admin.frame.verdict_texts import MEANINGS
from mailmend.model.errors import BadSettings
from mailmend.model.instants import MICROS
from mailmend.model.ports import Clock
from mailmend.model.ports import Progress as ProgressPort
from mailmend.model.projections.findings import Excess
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.texts import printable

LINE_EVERY_SECONDS = 10
"""How often a plain line is written at most, stages apart: a log file is no terminal."""


@dataclass(slots=True)
class _Count:
    """Progress of one stage."""

    name: str = ""
    total: int | None = None
    steps: int = 0
    suspects: int = 0
    began: int = 0
    shown_at: int = 0


class PlainLines:
    """A line when a stage begins, and one every few seconds while it lasts."""

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._count = _Count()

    def stage(self, name: str, total: int | None = None) -> None:
        self.close()
        now = self._now()
        name = printable(name)
        self._count = _Count(name, total, began=now, shown_at=now)
        if total:
            self._write(f"{name} (of {total:,}) ...")
        else:
            self._write(f"{name} ...")

    def advance(self, steps: int, suspects: int = 0) -> None:
        count = self._count
        now = self._now()
        count.steps += steps
        count.suspects += suspects
        if now - count.shown_at >= LINE_EVERY_SECONDS * MICROS:
            count.shown_at = now
            self._write(progress_line(count.name, count.steps, count.total, count.suspects, now - count.began))

    def close(self) -> None:
        count = self._count
        if count.steps:
            self._write(
                progress_line(
                    count.name,
                    count.steps,
                    count.total,
                    count.suspects,
                    self._now() - count.began,
                )
            )
        self._count = _Count()

    def _now(self) -> int:
        """Microseconds by the monotonic clock."""
        return round(self._clock.monotonic() * MICROS)

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def progress_line(name: str, steps: int, total: int | None, suspects: int, micros: int) -> str:
    line = f"{name}: {steps:,}"
    if total:
        line += f" of {total:,}"
    if suspects:
        line += f", {suspects:,} suspects"
    if steps and micros > 0:
        rate = steps * MICROS / micros
        line += f", {rate:,.0f}/s"
        if total and total > steps:
            line += f", about {(total - steps) / rate:,.0f} s left"
    return line


class Terminal:
    """A bar per stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._suspects = 0

    def stage(self, name: str, total: int | None = None) -> None:
        if self._task is not None:
            self._progress.stop_task(self._task)
        self._suspects = 0
        self._progress.start()
        self._task = self._progress.add_task(printable(name), total=total, suspects="")

    def advance(self, steps: int, suspects: int = 0) -> None:
        if self._task is None:
            self.stage("")
        self._suspects += suspects
        found = ""
        if self._suspects:
            found = f"{self._suspects:,} suspects"
        if self._task is not None:
            self._progress.update(self._task, advance=steps, suspects=found)

    @contextmanager
    def paused(self) -> Iterator[None]:
        drawing = self._progress.live.is_started
        if drawing:
            self._progress.stop()
        try:
            yield
        finally:
            if drawing:
                self._progress.start()


@contextmanager
def progress_on(console: Console, clock: Clock) -> Iterator[ProgressPort]:
    """The adapter that fits the console's stream; closed at the end whatever happens."""
    if console.is_terminal:
        bars = _bars(console)
        try:
            yield Terminal(bars)  # which starts them with the first stage: a command without one draws nothing
        finally:
            if bars.live.is_started:
                bars.stop()
        return
    lines = PlainLines(console.file, clock)
    try:
        yield lines
    finally:
        lines.close()


def _bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),  # a folder may be called [Gmail]
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[suspects]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        redirect_stdout=False,  # a service may write lines of JSON there meanwhile
    )


def somebody_types() -> bool:
    """Whether stdin is a terminal; a service may have no stdin at all."""
    return sys.stdin is not None and sys.stdin.isatty()


def someone_is_there() -> bool:
    return somebody_types() and sys.stderr.isatty()


def asking_on(progress: ProgressPort, console: Console) -> Callable[[Question], bool] | None:
    """A function that asks a question while the progress pauses; None without a terminal."""
    if not someone_is_there():
        return None

    def ask(question: Question) -> bool:
        with _standing_still(progress):
            if isinstance(question, str):
                return click.confirm(printable(question), default=False, err=True)
            show(Document(body=tuple(excess_parts(question))), console)
            total = f"{question.total:,}"
            allowed = f"{question.allowed:,}"
            sentence = f"{total} would be mended, --max-fixes allows {allowed}. Mend them all?"
            return click.confirm(sentence, default=False, err=True)

    return ask


def number_on(progress: ProgressPort) -> Callable[[str, int], int] | None:
    """A function that asks for a number from 1 to a maximum; None without a terminal."""
    if not someone_is_there():
        return None

    def ask(question: str, maximum: int) -> int:
        with _standing_still(progress):
            number: int = click.prompt(printable(question), type=click.IntRange(1, maximum), err=True)
            return number

    return ask


def _standing_still(progress: ProgressPort) -> AbstractContextManager[None]:
    if isinstance(progress, Terminal):
        return progress.paused()
    return nullcontext()


def hidden_password(username: str) -> str:
    """Ask for the password of a role without showing it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            typed: str = click.prompt(printable(f"Password of {username}"), hide_input=True, err=True)
        except GetPassWarning as error:
            raise BadSettings(
                "this terminal would show the password", mend="Set MAILMEND_PASSWORD, or name a --password-file."
            ) from error
    return typed


def excess_parts(excess: Excess) -> Iterator[Part]:
    rows = []
    for name, counts in sorted(excess.counts.items()):
        for verdict in Verdict:
            if counts[verdict]:
                rows.append((name, verdict.value, f"{counts[verdict]:,}", MEANINGS[verdict]))
    yield Grid(f"Due in {excess.keyspace}", ("projection", "verdict", "count", "meaning"), rows)
    if excess.samples:
        yield Styled("For example:", "dim")
    for sample in excess.samples:
        yield Styled(f"    {sample.verdict.value} in {sample.projection}: {key_text(sample.key)}", "dim")
