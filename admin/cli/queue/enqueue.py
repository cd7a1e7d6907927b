"""`mailmend queue enqueue`: mails from files, or from a pipe, into a queue; now or later."""

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from admin.cli.kinds import Duration, Named
from admin.cli.queue.shared import answer_json, json_option, remark, say
from admin.cli.queue_options import QueueSettings, always, queue_options
from admin.wiring_queue import Sides, on_sides
from mailqueue.codec import attribute
from mailqueue.mail_queue import MailQueue
from mailqueue.serving.enqueueing import DELAY_MAX
from mailqueue.view.ahead import all_of
from model.errors import BadMail, CannotReach, ExitCode, MailmendError, WrongUse
from model.ids import EnqueueId
from model.mails import PRIORITIES, Mail

AT_ONCE: Final = 16
STDIN: Final = "-"


def _attribute(value: Any) -> tuple[str, str]:
    name, equals, text = str(value).partition("=")
    if not name or not equals:
        raise WrongUse(f"{value!r} is not NAME=VALUE", mend="Write it like --attribute source=import.")
    return name, text


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise WrongUse(f"{value!r} is not a time", mend="Write it like 2026-05-01T08:00:00Z.") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one file."""

    file: str
    enqueue_id: EnqueueId | None = None
    error: MailmendError | None = None


@dataclass(frozen=True, slots=True)
class When:
    """When the mails are to be delivered, and how urgently."""

    delay: timedelta | None
    at: datetime | None
    priority: int | None


@click.command(
    epilog="""\b
Examples:
  mailmend queue enqueue letter.eml --sender ann@example.org --recipient bob@example.org
  mailmend queue enqueue *.eml --recipient archive@example.org --delay 2h --priority 1
  mail-source | mailmend queue enqueue - --recipient bob@example.org --at 2026-05-01T08:00:00Z

\b
Exit codes: 0 every mail is in the queue, confirmed by the broker; 2 wrong use; 3 some are not (each is named);
4 none is: broker, tables or blobs cannot be reached."""
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE...")
@click.option("--sender", metavar="ADDRESS", help="Of the envelope. [default: the null sender]")
@click.option(
    "--recipient", "recipients", multiple=True, required=True, metavar="ADDRESS", help="Of the envelope; repeatable."
)
@click.option("--name", metavar="NAME", help="What the mail is called in listings. [default: a name of its own]")
@click.option("--state", default="root", show_default=True, metavar="STATE", help="The processor that gets it.")
@click.option(
    "--attribute",
    "attributes",
    type=Named("attribute", _attribute),
    multiple=True,
    metavar="NAME=VALUE",
    help="A text for James's mailets; repeatable.",
)
@click.option(
    "--priority",
    type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1),
    metavar="N",
    help="From 0, the last, to 9, the first. [default: 5]",
)
@click.option("--delay", type=Duration(DELAY_MAX, zero=False), help="Not before so long has passed.")
@click.option("--at", type=Named("time", _instant), metavar="TIME", help="Not before then, like 2026-05-01T08:00:00Z.")
@json_option
@queue_options(broker=always, blobs=always)
def enqueue(
    settings: QueueSettings,
    files: tuple[Path, ...],
    *,
    sender: str | None,
    recipients: tuple[str, ...],
    name: str | None,
    state: str,
    attributes: tuple[tuple[str, str], ...],
    priority: int | None,
    delay: timedelta | None,
    at: datetime | None,
    as_json: bool,
) -> int:
    """Put messages into a queue, each .eml file (or standard input, as -) as one mail.

    When this ends with 0 each mail is kept by broker, tables and object store. A mail that is named as failed is not in
    the queue, unless its message says what is left of it.
    """
    if delay is not None and at is not None:
        raise WrongUse("--delay and --at say the same thing", mend="Give one of them.")
    contents = [(str(file), content_of_file(file)) for file in files]
    mail = Mail(
        name or "",
        recipients,
        sender=None if sender in {None, "", "<>"} else sender,
        state=state,
        attributes={key: attribute(value) for key, value in attributes},
    )

    async def story(sides: Sides) -> list[Enqueued]:
        async with sides.queue() as queue:

            async def put(one: tuple[str, bytes]) -> Enqueued:
                return await _put(queue, one, _named(mail, sides), When(delay, at, priority))

            return await all_of(contents, put, AT_ONCE)

    done = on_sides(settings, story)
    code = _code(done)
    if as_json:
        answer_json(settings, _json(done), code)
    else:
        _show(settings, done)
    return int(code)


def content_of_file(file: Path) -> bytes:
    """A message's bytes.

    Raises:
        BadMail: it cannot be read, or is empty.
    """
    try:
        content = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
    except OSError as error:
        raise BadMail(f"{file} cannot be read: {error.strerror or error}", mend="Nothing was enqueued.") from error
    if not content.strip():
        raise BadMail(f"{file} is empty", mend="Nothing was enqueued.")
    return content


async def _put(queue: MailQueue, one: tuple[str, bytes], mail: Mail, when: When) -> Enqueued:
    file, content = one
    try:
        return Enqueued(file, await queue.enqueue(mail, content, delay=when.delay, at=when.at, priority=when.priority))
    except WrongUse:
        raise
    except MailmendError as error:
        return Enqueued(file, error=error)


def _named(mail: Mail, sides: Sides) -> Mail:
    return replace(mail, name=mail.name or f"Mail-{sides.clock.random_uuid()}", last_updated=sides.now)


def _code(done: list[Enqueued]) -> ExitCode:
    failed = [one.error for one in done if one.error]
    if not failed:
        return ExitCode.FINE
    unreachable = len(failed) == len(done) and all(isinstance(error, CannotReach) for error in failed)
    return ExitCode.CANNOT_REACH if unreachable else ExitCode.PARTLY_FAILED


def _json(done: list[Enqueued]) -> dict[str, Any]:
    return {
        "enqueued": [{"file": one.file, "id": str(one.enqueue_id)} for one in done if one.enqueue_id],
        "failed": [{"file": one.file, "why": one.error.what} for one in done if one.error],
    }


def _show(settings: QueueSettings, done: list[Enqueued]) -> None:
    for one in done:
        if one.error:
            remark(f"not enqueued: {one.file}: {one.error}")
        else:
            say(f"{one.enqueue_id}  {one.file}")
    say(f"{sum(one.error is None for one in done):,} mails are in {settings.name}.")
