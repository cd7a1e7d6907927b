"""What the commands of the queue have in common besides their settings: `--json`, questions, the frame of an answer."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from admin.asking import somebody_types
from admin.cli.queue_options import QueueSettings
from admin.output import stdout_console, write_json
from model.errors import ExitCode, UnsafeRequest

C = TypeVar("C", bound=Callable[..., Any])

json_option: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Say what would be done, write nothing.")
yes_option: Final = click.option("--yes", is_flag=True, help="Do what would be asked about.")


def answer_json(settings: QueueSettings, found: Mapping[str, Any], code: ExitCode = ExitCode.FINE) -> None:
    """One object on stdout: which queue, what was found, the exit code."""
    write_json({"keyspace": settings.connection.keyspace, "queue": settings.name, **found, "exit": int(code)})


def say(*lines: str) -> None:
    """Sentences on stdout, as they are."""
    console = stdout_console()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def remark(line: str) -> None:
    """A sentence on stderr, beside the result."""
    click.echo(line, err=True)


def ask(question: str, *, yes: bool) -> None:
    """Have a person agree.

    Raises:
        UnsafeRequest: nobody can be asked, or the answer was no.
    """
    if yes:
        return
    if not somebody_types():
        raise UnsafeRequest(f"nobody is there to answer: {question}", mend="Look first with --dry-run; then say --yes.")
    if not click.confirm(question, default=False, err=True):
        raise UnsafeRequest("nothing was done", mend="Say --yes, or answer with y.")


def print_raw(content: bytes) -> None:
    """Bytes on stdout as they are, for a file or a pipe."""
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(content.decode("utf-8", "replace"))
        return
    stream.write(content)
    stream.flush()
