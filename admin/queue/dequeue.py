"""`mailmend queue dequeue`: take mails out, each given to a folder or a command that decides."""

import asyncio
import json
import os
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.frame.event_loop import stop_signal
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT, queue_settings, unless
from mailmend.admin.queue.request import PREFETCH_DEFAULT, DryRunRequest, mail_json, mails_table, queue_document
from mailmend.mailqueue.codec import payload_of
from mailmend.mailqueue.concurrency import next_until
from mailmend.mailqueue.queue import WAITING, Dequeued
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.errors import ExitCode, MailmendError, StateUnwritable, WrongUse
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
    if process.returncode is None:
        return -1
    return process.returncode


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DequeueRequest(DryRunRequest):
    """Take mails into a folder, or pass each to a command.

    Attributes:
        limit: how many mails at most; None: all that come.
        wait: end when no mail came for this long, unless `forever`.
        prefetch: how many mails are unacked, and worked on, at once.
        dry_run: only list the mails that wait, at most `limit`, or `prefetch` without a limit.
    """

    folder: Path | None = None
    command: str | None = None
    limit: int | None = None
    wait: timedelta = timedelta(seconds=5)
    forever: bool = False
    prefetch: int = PREFETCH_DEFAULT

    def consumer(self, *, to_stderr: bool = False) -> Consumer | None:
        """The consumer of the mails; None in a dry run, which only checks the options.

        Args:
            to_stderr: whether what a command prints goes to stderr.

        Raises:
            WrongUse: neither a folder nor a command, or both; or there is no such command.
        """
        both = self.folder is not None and self.command is not None
        neither = self.folder is None and self.command is None
        if both or (neither and not self.dry_run):
            raise WrongUse(
                "it is not said what becomes of the mails",
                mend="Give --dir DIR, or --exec COMMAND. To see them without taking them: mailmend queue browse",
            )
        consumer = None
        if self.command is not None:
            consumer = consumer_in_command(self.command, self.queue, to_stderr=to_stderr)
        if self.dry_run:
            return None
        if self.folder:
            consumer = consumer_in_folder(self.folder)
        return consumer


@dataclass(frozen=True, slots=True)
class DequeueResult:
    """What happened to the mails.

    Attributes:
        settled: how many were acked, retried, rejected.
        unsettled: ids of mails that could not be settled; they will be delivered again.
        listed: in a dry run, the first mails that wait.
        more: in a dry run, whether there are more.
        at: in a dry run, the time of the listing.
    """

    request: DequeueRequest
    settled: Mapping[ConsumerOutcome, int] = field(default_factory=dict)
    unsettled: tuple[str, ...] = ()
    listed: tuple[Listed, ...] = ()
    more: bool = False
    at: datetime = EPOCH

    @property
    def total(self) -> int:
        return sum(self.settled.values()) + len(self.unsettled)

    @property
    def exit(self) -> ExitCode:
        if self.unsettled:
            return ExitCode.PARTLY_FAILED
        if self.settled.get(ConsumerOutcome.REJECTED):
            return ExitCode.DRIFT
        return ExitCode.FINE


def dequeue(request: DequeueRequest, caller: Caller) -> DequeueResult:
    """Take mails until a person stops it, the limit is reached, or none came for `wait`.

    A mail leaves the queue when its consumer has succeeded; what is unacked at the end is delivered again.
    """
    consumer = request.consumer(to_stderr=caller.stdout_is_json)
    if consumer is None:
        return with_queues(request.settings, lambda connections: _listed(connections, request))

    async def taken(connections: QueueConnections) -> DequeueResult:
        taking = _Taking(consumer, connections, request, caller)
        async with connections.open() as queue:
            with stop_signal() as stop:
                async with queue.dequeue(request.prefetch) as mails:
                    await taking.take(mails, stop)
        return DequeueResult(request, taking.settled, tuple(taking.unsettled))

    return with_queues(request.settings, taken)


async def _listed(connections: QueueConnections, request: DequeueRequest) -> DequeueResult:
    found = list[Listed]()
    most = request.limit or request.prefetch
    more = False
    async with connections.open(dry_run=True) as queue, aclosing(queue.browse(WAITING)) as mails:
        async for listed in mails:
            if more := len(found) == most:
                break
            found.append(listed)
    return DequeueResult(request, listed=tuple(found), more=more, at=connections.now)


@dataclass(slots=True)
class _Taking:
    """Takes mails and works on several at once."""

    consumer: Consumer
    connections: QueueConnections
    request: DequeueRequest
    caller: Caller
    begun: int = 0
    settled: Counter[ConsumerOutcome] = field(default_factory=Counter)
    unsettled: list[str] = field(default_factory=list)

    async def take(self, mails: AsyncIterator[Dequeued], stop: asyncio.Event) -> None:
        """On return, every mail that was begun is settled, or back with the broker."""
        room = asyncio.Semaphore(self.request.prefetch)
        limit = self.request.limit
        async with asyncio.TaskGroup() as working:
            while not stop.is_set() and (limit is None or self.begun < limit):
                await room.acquire()
                idle = None
                if not self.request.forever:
                    idle = self._idle()
                mail = await next_until(mails, stop, idle)
                if mail is None:
                    return
                self.begun += 1
                working.create_task(self._work(mail)).add_done_callback(lambda _: room.release())

    async def _idle(self) -> None:
        await self.connections.clock.pause(self.request.wait.total_seconds())

    async def _work(self, mail: Dequeued) -> None:
        try:
            outcome = await self._consumed(mail)
            await outcome.settle(mail)
        except MailmendError as error:
            self.unsettled.append(str(mail.enqueue_id))
            self.caller.remark(f"not settled: {mail.enqueue_id}: {error}")
        else:
            self.settled[outcome] += 1

    async def _consumed(self, mail: Dequeued) -> ConsumerOutcome:
        """Return what the consumer decides; a mail whose command cannot be started is retried later."""
        try:
            return await self.consumer(mail)
        except OSError as error:
            self.caller.remark(f"retried: {mail.enqueue_id}: the command cannot run: {error.strerror or error}")
            return ConsumerOutcome.RETRIED


_ORDER: Final = (
    "This is the order of the listing; the broker's own may differ: urgent mails come more often, and what came back "
    "comes later. Unacked mails are listed too."
)


def dequeue_document(result: DequeueResult) -> Document:
    request = result.request
    counts = {outcome.value: result.settled.get(outcome, 0) for outcome in ConsumerOutcome}
    json = {"dry_run": request.dry_run, "taken": result.total, **counts, "unsettled": result.unsettled}
    if not request.dry_run:
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        line = f"Took {result.total:,} mails from {request.queue}"
        if named:
            line += f": {named}"
        return queue_document(result, json, (f"{line}.",))
    json |= {"would_take": [mail_json(mail, result.at) for mail in result.listed], "more": result.more}
    if not result.listed:
        return queue_document(result, json, (f"Nothing was taken. No mail waits in {request.queue}.",))
    more = ", and there are more" if result.more else ""
    body: Sequence[Part] = (
        mails_table(f"First in {request.queue}, as listed", result.listed, result.at),
        f"Nothing was taken. {len(result.listed):,} mails would be handed over{more}.",
        _ORDER,
    )
    return queue_document(result, json, body)


WAIT_MAX: Final = timedelta(days=1)


def _refuse_waiting(others: dict[str, Any], context: click.Context) -> None:
    waits = context.get_parameter_source("wait") is ParameterSource.COMMANDLINE
    for name, given in (("--forever", others["forever"]), ("--wait", waits)):
        if given and others["dry_run"]:
            raise WrongUse(f"{name} is for taking mails, and --dry-run takes none", mend="Leave one of them out.")


DEQUEUE: Final = Command(
    name="dequeue",
    summary="Take mails: into a folder, or to a command each.",
    about="""A mail leaves the queue only when its files are on the disk, or its command has ended with 0. After Ctrl-C
    or SIGTERM what is unacked is finished; a second one gives it back to the broker.

    A command gets the message on its standard input; MAIL_ID, MAIL_NAME, MAIL_SENDER, MAIL_RECIPIENTS (with spaces),
    MAIL_STATE, MAIL_ATTEMPTS and MAIL_QUEUE describe it. MAIL_RECIPIENTS_FILE names a file with one recipient a line;
    recipients of more than 64 KiB are in that file only. The command exits with 0: done with; 75 (EX_TEMPFAIL): tried
    again later; anything else, or a signal: rejected, to the dead letter queue. A command that cannot be started is
    tried again later. No shell is between; no variable of ours (MAILMEND_*) and none of AWS_* is in its environment.
    What it prints goes to stdout, or, with --json, to stderr.

    A dry run takes no mail: it lists the first mails that wait, at most --limit, or --prefetch without --limit. It
    needs neither --dir nor --exec; a command that is named must exist.""",
    service="mailmend.admin.queue.dequeue:dequeue",
    present="mailmend.admin.queue.dequeue:dequeue_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--dir",
            "Folder for the files: ID.eml and ID.json of each mail.",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
        ),
        option("--exec", "Give each mail to this command.", "command", metavar="COMMAND"),
        option("--limit", "Maximum number of mails.", type=click.IntRange(min=1), metavar="N"),
        option("--wait", "End when no mail came for this long.", type=Duration(WAIT_MAX), default="5s"),
        flag("--forever", "Do not end where no mail comes."),
        option(
            "--prefetch",
            "How many mails of each priority are taken, and worked on, at once.",
            type=click.IntRange(1, 1000),
            default=PREFETCH_DEFAULT,
        ),
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"), check=_refuse_waiting),),
    examples="""
        mailmend queue dequeue --dry-run --limit 10                   who would be handed over first, as they are listed
        mailmend queue dequeue --dir /var/tmp/mails --limit 10        ID.eml and ID.json for each, then acked
        mailmend queue dequeue --exec 'sendmail -i -t' --forever      a consumer; ends in good order on SIGTERM""",
    exits="0 every mail that was taken was done with or will be tried again, 1 some were rejected, 2 wrong use, 3 some "
    "could not be settled (they will be delivered again), 4 cannot reach.",
)
