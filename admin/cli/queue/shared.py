"""What the commands of the queue have in common besides their settings: `--json`, questions, the frame of an answer."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from admin.cli.asking import somebody_types
from admin.cli.queue_options import QueueSettings
from admin.present.presenter import stdout_console, write_json
from admin.wiring_queue import Sides
from model.errors import ExitCode, UnsafeRequest
from model.ids import QueueName

json_option: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Say what would be done, write nothing.")
all_option: Final = click.option("--all", "everything", is_flag=True, help="Every queue of the keyspace.")
no_broker_option: Final = click.option("--no-broker", is_flag=True, help="Do without the broker's side.")
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


async def named_queues(sides: Sides, *, everything: bool) -> list[QueueName]:
    """The queue that was named; every queue that anything is known of, where all were asked for."""
    return await sides.view.queues() if everything else [sides.settings.name]


@contextmanager
def logging_on_stderr() -> Iterator[None]:
    """What the queue logs, with its time, on stderr: for commands that run for long."""
    log, stream = logging.getLogger("mailmend.queue"), logging.StreamHandler(sys.stderr)
    stream.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = log.level
    log.addHandler(stream)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(stream)
        log.setLevel(level)
