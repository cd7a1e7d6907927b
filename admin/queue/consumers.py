"""Consumers of dequeued mails: files in a folder, or another command whose exit code decides."""

import asyncio
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final

from mailmend.admin.frame.environments import environment_of_others
from mailmend.mailqueue.codec import payload_of
from mailmend.mailqueue.queue import Dequeued
from mailmend.model.errors import StateUnwritable, WrongUse
from mailmend.model.ids import QueueName
from mailmend.repair.synced_files import OWNER_ALONE, create_folder, write_whole

EX_TEMPFAIL: Final = 75
"""By sysexits(3): try again later."""

RECIPIENTS_FILE: Final = "MAIL_RECIPIENTS_FILE"
VARIABLE_BYTES_MAX: Final = 64 * 1024
"""Half of the length at which Linux refuses to start a program with a variable (`MAX_ARG_STRLEN`)."""

_STDERR: Final = 2


class ConsumerOutcome(Enum):
    """What becomes of a dequeued mail."""

    ACKED = "acked"
    RETRIED = "retried"
    REJECTED = "rejected"

    async def settle(self, mail: Dequeued) -> None:
        match self:
            case ConsumerOutcome.ACKED:
                await mail.ack()
            case ConsumerOutcome.RETRIED:
                await mail.retry()
            case ConsumerOutcome.REJECTED:
                await mail.reject()


Consumer = Callable[[Dequeued], Awaitable[ConsumerOutcome]]


def consumer_in_folder(folder: Path) -> Consumer:
    """Write each mail into the folder: `ID.eml`, and its envelope as `ID.json`; on the disk before the ack.

    Raises:
        WrongUse: the folder cannot be made.
    """
    try:
        create_folder(folder)
    except OSError as error:
        raise WrongUse(f"{folder} cannot be made: {error.strerror or error}") from error

    async def consume(mail: Dequeued) -> ConsumerOutcome:
        await asyncio.to_thread(_write_both, folder, mail)
        return ConsumerOutcome.ACKED

    return consume


def consumer_in_command(text: str, queue: QueueName, *, to_stderr: bool = False) -> Consumer:
    """Pass each mail to a command, whose exit code decides.

    Args:
        text: the command's words.
        queue: what the command is given.
        to_stderr: whether what it prints goes to stderr, for stdout is not its own.

    Raises:
        WrongUse: there is no such command.
    """
    words = _words(text)
    stdout = _STDERR if to_stderr else None

    async def consume(mail: Dequeued) -> ConsumerOutcome:
        if any("\n" in recipient or "\r" in recipient for recipient in mail.mail.recipients):
            return ConsumerOutcome.REJECTED  # a command would read one such recipient as two
        with _recipients_file(mail.mail.recipients) as file:
            environment = environment_for(mail, queue, os.environ, file)
            return outcome_of(await _run(words, mail, environment, stdout))

    return consume


def outcome_of(exit_code: int) -> ConsumerOutcome:
    match exit_code:
        case 0:
            return ConsumerOutcome.ACKED
        case _ if exit_code == EX_TEMPFAIL:
            return ConsumerOutcome.RETRIED
        case _:
            return ConsumerOutcome.REJECTED


def environment_for(
    mail: Dequeued, queue: QueueName, environment: Mapping[str, str], recipients_file: Path
) -> dict[str, str]:
    """Return the whole environment of the command.

    Linux refuses a variable of 128 KiB. Recipients that are longer than `VARIABLE_BYTES_MAX` stand in the file only:
    then the variable holds a name that is no address, so that a command that ignores the file fails.
    """
    recipients = " ".join(mail.mail.recipients)
    if len(os.fsencode(recipients)) > VARIABLE_BYTES_MAX:
        recipients = RECIPIENTS_FILE
    envelope = {
        "MAIL_QUEUE": queue,
        "MAIL_ID": str(mail.enqueue_id),
        "MAIL_NAME": mail.mail.name,
        "MAIL_SENDER": mail.mail.sender or "",
        "MAIL_RECIPIENTS": recipients,
        RECIPIENTS_FILE: str(recipients_file),
        "MAIL_STATE": mail.mail.state,
        "MAIL_ATTEMPTS": str(mail.attempts),
    }
    return {**environment_of_others(environment), **{name: _as_variable(value) for name, value in envelope.items()}}


def _as_variable(text: str) -> str:
    """The text without what no variable can hold: a zero byte, half of a surrogate pair."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


@contextmanager
def _recipients_file(recipients: Iterable[str]) -> Iterator[Path]:
    """A temporary file with one recipient a line, which only its owner may read."""
    with tempfile.NamedTemporaryFile(prefix="mailmend-recipients-") as file:
        file.writelines(recipient.encode("utf-8", "replace") + b"\n" for recipient in recipients)
        file.flush()
        yield Path(file.name)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongUse(f"{text!r} is not a command: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise WrongUse(f"there is no command {(words or [''])[0]!r}", mend="Nothing was taken. Name it with its path.")
    return words


async def _run(words: list[str], mail: Dequeued, environment: Mapping[str, str], stdout: int | None) -> int:
    """Its exit code; on cancellation the command is ended first, so that no mail is worked on twice at once."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=stdout, env=environment, start_new_session=True
    )
    try:
        await process.communicate(mail.content)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode if process.returncode is not None else -1


def _write_both(folder: Path, mail: Dequeued) -> None:
    envelope: dict[str, Any] = json.loads(payload_of(mail.queued))
    envelope |= {"attempts": mail.attempts, "redelivered": mail.redelivered}
    try:
        _write(folder / f"{mail.enqueue_id}.json", json.dumps(envelope, ensure_ascii=False, indent=1).encode())
        _write(folder / f"{mail.enqueue_id}.eml", mail.content)
    except OSError as error:
        raise StateUnwritable(
            f"{folder} cannot be written to: {error.strerror or error}", mend="The mail stays in its queue. Make room."
        ) from error


def _write(file: Path, content: bytes) -> None:
    """Whole, on the disk, readable by its owner alone; or not at all."""
    part = file.with_name(f".{file.name}.part")
    write_whole(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ALONE), part, file, content)
