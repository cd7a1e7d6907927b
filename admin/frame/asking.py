"""Questions to a person: asked on a terminal, on stderr, and never without a terminal.

Enter always means no.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from getpass import GetPassWarning

import click
from rich.console import Console

from mailmend.admin.frame.caller import Question
from mailmend.admin.frame.document import Document, Grid, Part, Styled
from mailmend.admin.frame.examples import key_text
from mailmend.admin.frame.presenter import show
from mailmend.admin.frame.progress import Terminal
from mailmend.admin.frame.verdict_texts import MEANINGS
from mailmend.model.errors import BadSettings
from mailmend.model.ports import Progress
from mailmend.model.projections.findings import Excess
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.texts import printable


def somebody_types() -> bool:
    """Whether stdin is a terminal; a service may have no stdin at all."""
    return sys.stdin is not None and sys.stdin.isatty()


def someone_is_there() -> bool:
    return somebody_types() and sys.stderr.isatty()


def asking_on(progress: Progress, console: Console) -> Callable[[Question], bool] | None:
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


def number_on(progress: Progress) -> Callable[[str, int], int] | None:
    """A function that asks for a number from 1 to a maximum; None without a terminal."""
    if not someone_is_there():
        return None

    def ask(question: str, maximum: int) -> int:
        with _standing_still(progress):
            number: int = click.prompt(printable(question), type=click.IntRange(1, maximum), err=True)
            return number

    return ask


def _standing_still(progress: Progress) -> AbstractContextManager[None]:
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
