"""Questions that only a person can answer: asked on a terminal, on stderr, and never where nobody sits.

Enter always means no.
"""

import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from getpass import GetPassWarning

import click
from rich.console import Console
from rich.text import Text

from admin.output import MEANINGS, rows_grid, stderr_console
from admin.progress import Terminal
from admin.samples import key_text
from model.errors import BadSettings
from model.ports import Progress
from repair.decisions.verdicts import Verdict
from repair.mending.request import Excess, GoOn


def somebody_types() -> bool:
    """Whether a person can answer; a service may have no standard input at all."""
    return sys.stdin is not None and sys.stdin.isatty()


def someone_is_there() -> bool:
    """Whether a person can read a question and answer it."""
    return somebody_types() and sys.stderr.isatty()


def go_on_by(progress: Progress, console: Console | None = None) -> GoOn | None:
    """What asks whether to mend more than `--max-fixes` allows; None where nobody can be asked."""
    return _Question(progress, console or stderr_console()) if someone_is_there() else None


def hidden_password(username: str) -> str:
    """The password of a role, typed unseen.

    Raises:
        BadSettings: the terminal cannot hide it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            typed: str = click.prompt(f"Password of {username}", hide_input=True, err=True)
        except GetPassWarning as error:
            raise BadSettings(
                "this terminal would show the password", mend="Set MAILMEND_PASSWORD, or name a --password-file."
            ) from error
    return typed


class _Question:
    """Shows what is due and asks, while the progress stands still."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console

    def __call__(self, excess: Excess) -> bool:
        """Whether to go on."""
        still = self._progress.paused() if isinstance(self._progress, Terminal) else nullcontext()
        with still:
            self._console.print(rows_grid(f"Due in {excess.keyspace}", _COLUMNS, excess_rows(excess)))
            for line in sample_lines(excess):
                self._console.print(Text(line, style="dim"), soft_wrap=True)
            question = f"{excess.total:,} would be mended, --max-fixes allows {excess.allowed:,}. Mend them all?"
            return click.confirm(question, default=False, err=True)


_COLUMNS = ("projection", "verdict", "count", "meaning")


def excess_rows(excess: Excess) -> Sequence[Sequence[str]]:
    """Counts per projection and verdict, as a table has them."""
    return [
        (name, verdict.value, f"{counts[verdict]:,}", MEANINGS[verdict])
        for name, counts in sorted(excess.counts.items())
        for verdict in Verdict
        if counts[verdict]
    ]


def sample_lines(excess: Excess) -> list[str]:
    """A few of those that are due."""
    shown = [f"    {one.verdict.value} in {one.projection}: {key_text(one.key)}" for one in excess.samples]
    return ["For example:", *shown] if shown else []
