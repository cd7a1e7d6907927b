"""`mailmend queue enqueue`: mails from files, or from a pipe, into a queue; now or later."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from admin.cli.kinds import Duration, Named
from admin.cli.queue.shared import answer_json, dry_run_option, json_option, remark, say
from admin.cli.queue_options import QueueSettings, always, queue_options
from admin.letters import Letter, letters_in
from admin.queue_output import instant_text, shown
from admin.wiring_queue import Sides, on_sides
from mailqueue.concurrency import all_of
from mailqueue.rabbitmq.codec import attribute
from mailqueue.rabbitmq.enqueue import DELAY_MAX, admitted, due_time, no_due_mails
from mailqueue.rabbitmq.mail_queue import MailQueue
from model.errors import BadMail, CannotReach, ExitCode, MailmendError, WrongUse
from model.ids import EnqueueId
from model.queue.mails import PRIORITIES, Mail

AT_ONCE: Final = 16
"""How many mails are on their way at once; so many contents are held."""


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
    """What became of one file.

    Attributes:
        enqueue_id: None where it is not in the queue.
        content_bytes: how long its message is, where that was all that was asked.
    """

    file: str
    enqueue_id: EnqueueId | None = None
    error: MailmendError | None = None
    content_bytes: int = 0


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
  mailmend queue enqueue *.eml --recipient archive@example.org --delay 2h --dry-run      whether all of them could
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
@dry_run_option
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
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put messages into a queue, each .eml file (or standard input, as -) as one mail.

    When this ends with 0 each mail is kept by broker, tables and object store. A mail that is named as failed is not in
    the queue, unless its message says what is left of it. The files are looked at before the first is taken, then read
    one after the other. A dry run reads them all, and checks settings, envelope, delay and priority against the
    keyspace; it asks neither broker nor store.
    """
    if delay is not None and at is not None:
        raise WrongUse("--delay and --at say the same thing", mend="Give one of them.")
    letters = letters_in(files)
    mail = Mail(
        name or "",
        recipients,
        sender=None if sender in {None, "", "<>"} else sender,
        state=state,
        attributes={key: attribute(value) for key, value in attributes},
    )

    when = When(delay, at, priority)
    if dry_run:
        looked = on_sides(replace(settings, broker=None, blobs=None), lambda sides: _looked(sides, letters, mail, when))
        return _tell(settings, looked, as_json=as_json)
    done = on_sides(settings, lambda sides: _enqueued(sides, letters, mail, when))
    code = _code(done)
    if as_json:
        answer_json(settings, {"dry_run": False, **_json(done)}, code)
    else:
        _show(settings, done)
    return int(code)


@dataclass(frozen=True, slots=True)
class Look:
    """What would be enqueued, and when it would be due; None: at once."""

    letters: list[Enqueued]
    due_at: datetime | None


def _checked(sides: Sides, mail: Mail, when: When) -> datetime | None:
    """When such mails would be due; all that can be known of them before anything is put.

    Raises:
        WrongUse: James could not read such a mail, or there is no such priority, delay or time.
        Delayed: a delay, where the keyspace has no table for delayed mails.
    """
    due_at = due_time(sides.now, when.delay, when.at)
    if due_at is not None and not sides.own.due:
        raise no_due_mails()
    admitted(_named(mail, sides), when.priority)
    return due_at


async def _looked(sides: Sides, letters: Sequence[Letter], mail: Mail, when: When) -> Look:
    """Every letter read, one at a time, and none put."""
    due_at = _checked(sides, mail, when)
    return Look([await _read(letter) for letter in letters], due_at)


async def _read(letter: Letter) -> Enqueued:
    try:
        return Enqueued(letter.name, content_bytes=len(await letter.content()))
    except BadMail as error:
        return Enqueued(letter.name, error=error)


async def _enqueued(sides: Sides, letters: Sequence[Letter], mail: Mail, when: When) -> list[Enqueued]:
    """So many at once are read and put, and no more are held."""
    _checked(sides, mail, when)
    async with sides.queue() as queue:

        async def put(letter: Letter) -> Enqueued:
            return await _put(queue, letter, _named(mail, sides), when)

        return await all_of(letters, put, AT_ONCE)


async def _put(queue: MailQueue, letter: Letter, mail: Mail, when: When) -> Enqueued:
    try:
        content = await letter.content()
        enqueue_id = await queue.enqueue(mail, content, delay=when.delay, at=when.at, priority=when.priority)
    except MailmendError as error:
        return Enqueued(letter.name, error=error)
    return Enqueued(letter.name, enqueue_id)


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


def _tell(settings: QueueSettings, looked: Look, *, as_json: bool) -> int:
    """What a dry run found."""
    fine = [one for one in looked.letters if one.error is None]
    code = ExitCode.FINE if len(fine) == len(looked.letters) else ExitCode.PARTLY_FAILED
    if as_json:
        would = [{"file": one.file, "bytes": one.content_bytes} for one in fine]
        found = {**_json(looked.letters), "would_enqueue": would, "due_at": instant_text(looked.due_at)}
        answer_json(settings, {"dry_run": True, **found}, code)
        return int(code)
    for one in looked.letters:
        if one.error:
            remark(f"would not be enqueued: {one.file}: {one.error}")
    due = f"due at {shown(looked.due_at)}" if looked.due_at else "due at once"
    length = sum(one.content_bytes for one in fine)
    say(f"Nothing was enqueued. {len(fine):,} mails ({length:,} bytes) would go into {settings.name}, {due}.")
    return int(code)
