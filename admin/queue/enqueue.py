"""`mailmend queue enqueue`: put mails into a queue.

A mail with more recipients than one mail of a queue may have becomes several. Their ids follow from a key, so that the
same command with the same key, after an error or a kill, puts each of them once.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.values import shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.letters import Letter, letters_in
from mailmend.admin.queue.options import DRY_RUN, queue_settings, unless
from mailmend.admin.queue.request import DryRunRequest, queue_document
from mailmend.delivery.mail.envelopes import counted_mail, with_bytes
from mailmend.delivery.policy.quotas import QueueQuota, QuotaUsage
from mailmend.delivery.shared.quotas import QueueQuotas
from mailmend.mailqueue.admission import admissible, check_room, parted
from mailmend.mailqueue.codec import attribute, with_priority
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.queue import MailQueue, due_time, no_due_mails
from mailmend.mailqueue.rules.mails import DELAY_MAX, NULL_SENDER, PRIORITIES, Mail
from mailmend.model.errors import BadMail, CannotReach, ExitCode, MailmendError, QuotaFull, WrongUse
from mailmend.model.ids import EnqueueId, keyed_id, part_id

AT_ONCE: Final = 16
"""How many mails are enqueued at once; the contents of this many mails are held in memory."""

RECIPIENTS_FILE_BYTES_MAX: Final = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueRequest(DryRunRequest):
    """Enqueue messages with one envelope.

    Attributes:
        recipients_file: a file with one recipient a line, which come behind `recipients`.
        policies: a file whose quotas are heeded; None: without quotas.
        idempotency_key: what the ids of the mails follow from; None: they are random.
    """

    files: tuple[Path, ...]
    recipients: tuple[str, ...] = ()
    recipients_file: Path | None = None
    sender: str | None = None
    name: str | None = None
    state: str = "root"
    attributes: tuple[tuple[str, str], ...] = ()
    priority: int | None = None
    due_in: timedelta | None = None
    at: datetime | None = None
    policies: Path | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class _Envelope:
    """What all files of a command have: the mails that each becomes, still without a name.

    Attributes:
        key: what the ids of the mails follow from; None: the queue draws the id of the only mail.
    """

    parts: Sequence[Mail]
    key: str | None


@dataclass(frozen=True, slots=True)
class _NumberedLetter:
    """A message with its place in the command, as one file may be named twice."""

    place: int
    letter: Letter


@dataclass(frozen=True, slots=True)
class EnqueuedFile:
    """The result of one file.

    Attributes:
        enqueue_ids: of the mails that it became; none where it is not in the queue, or not all of it.
        content_bytes: the length of its message, in a dry run.
    """

    file: str
    enqueue_ids: Sequence[EnqueueId] = ()
    error: MailmendError | None = None
    content_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """The result of each file; in a dry run, when the mails would be due (None: at once)."""

    request: EnqueueRequest
    files: Sequence[EnqueuedFile]
    due_at: datetime | None = None

    @property
    def failed(self) -> list[EnqueuedFile]:
        return [file for file in self.files if file.error]

    @property
    def succeeded(self) -> list[EnqueuedFile]:
        return [file for file in self.files if not file.error]

    @property
    def exit(self) -> ExitCode:
        if not self.failed:
            return ExitCode.FINE
        if not self.succeeded and all(isinstance(file.error, CannotReach) for file in self.failed):
            return ExitCode.CANNOT_REACH
        return ExitCode.PARTLY_FAILED


def enqueue(request: EnqueueRequest, _: Caller) -> EnqueueResult:
    """Put every message into the queue, as many at once as fit in memory.

    A dry run reads the messages one at a time, and asks neither broker nor blob store; with quotas it counts the queue.

    Raises:
        BadMail: a file is not there, cannot be read, or is empty, as far as its beginning shows.
        WrongUse: James could not read such a mail, no queue has room for its envelope, or there is no such priority,
            delay or time.
        Delayed: a delay, where the keyspace has no table for delayed mails.
        BadPolicyFile: the policies cannot be used; the message says where.
    """
    if request.due_in is not None and request.at is not None:
        raise WrongUse("--due-in and --at say the same thing", mend="Give one of them.")
    request = replace(request, recipients=_recipients(request), recipients_file=None)
    letters = letters_in(request.files)
    limits = _quotas_in(request.policies)
    settings = request.settings
    if request.dry_run:
        settings = replace(settings, broker=None, blobs=None)
    return with_queues(settings, lambda connections: _enqueued(connections, letters, request, limits))


def _quotas_in(file: Path | None) -> tuple[QueueQuota, ...]:
    """The quotas of a policy file, where one is named."""
    if file is None:
        return ()
    reading = import_or_name_extra("mailmend.delivery.policy.file.reading")
    quotas: tuple[QueueQuota, ...] = reading.read_policies(file).said.quotas
    return quotas


def _recipients(request: EnqueueRequest) -> tuple[str, ...]:
    """The recipients of the command, then the recipients of its file."""
    listed: list[str] = []
    if request.recipients_file:
        listed = _lines(request.recipients_file)
    recipients = (*request.recipients, *listed)
    if not recipients:
        raise WrongUse("the mail has no recipient", mend="Name one: --recipient, or --recipients-file.")
    return recipients


def _lines(file: Path) -> list[str]:
    """The lines that are not empty."""
    try:
        with file.open("rb") as stream:
            content = stream.read(RECIPIENTS_FILE_BYTES_MAX + 1)
        text = content.decode()
    except OSError as error:
        raise WrongUse(f"{file} cannot be read: {error.strerror or error}", mend="Nothing was enqueued.") from error
    except UnicodeDecodeError as error:
        raise WrongUse(f"{file} is not UTF-8", mend="Nothing was enqueued. Write one address a line.") from error
    if len(content) > RECIPIENTS_FILE_BYTES_MAX:
        raise WrongUse(f"{file} has more than {RECIPIENTS_FILE_BYTES_MAX:,} bytes", mend="Nothing was enqueued.")
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line]


async def _enqueued(
    connections: QueueConnections, letters: Sequence[Letter], request: EnqueueRequest, limits: tuple[QueueQuota, ...]
) -> EnqueueResult:
    due_at = due_time(connections.now, request.due_in, request.at)
    if due_at is not None and not connections.can_delay:
        raise no_due_mails()
    envelope = _envelope(connections, request)
    if request.dry_run and not limits:
        return EnqueueResult(request, [await _read(letter) for letter in letters], due_at)
    async with connections.open(dry_run=request.dry_run) as queue:
        quotas = QueueQuotas(queue=queue, clock=connections.clock, usage=QuotaUsage(limits))
        if limits:
            await quotas.count()

        async def put(numbered: _NumberedLetter) -> EnqueuedFile:
            random_name = f"Mail-{connections.clock.random_uuid()}"
            return await _put(queue, numbered, envelope, request, quotas, random_name)

        numbered = [_NumberedLetter(place, letter) for place, letter in enumerate(letters)]
        if request.dry_run:
            return EnqueueResult(request, [await put(letter) for letter in numbered], due_at)
        return EnqueueResult(request, await all_of(numbered, put, AT_ONCE))


def _envelope(connections: QueueConnections, request: EnqueueRequest) -> _Envelope:
    """The mails that each file becomes.

    Raises:
        WrongUse: James could not read one, or no queue has room for it.
    """
    sender = request.sender or None
    if sender == NULL_SENDER:
        sender = None
    mail = Mail(
        request.name or "Mail",
        request.recipients,
        sender=sender,
        state=request.state,
        attributes={key: attribute(value) for key, value in request.attributes},
    )
    if request.priority is not None:
        mail = with_priority(mail, request.priority)
    parts = parted(admissible(replace(mail, last_updated=connections.now)))
    for part in parts:
        check_room(part)
    key = request.idempotency_key
    if key is None and len(parts) > 1:
        key = str(connections.clock.random_uuid())
    return _Envelope(parts, key)


async def _read(letter: Letter) -> EnqueuedFile:
    try:
        return EnqueuedFile(letter.name, content_bytes=len(await letter.content()))
    except BadMail as error:
        return EnqueuedFile(letter.name, error=error)


async def _put(  # noqa: PLR0917 - what one file needs
    queue: MailQueue,
    numbered: _NumberedLetter,
    envelope: _Envelope,
    request: EnqueueRequest,
    quotas: QueueQuotas,
    random_name: str,
) -> EnqueuedFile:
    """Put a message into the queue; in a dry run only see whether that could be."""
    letter = numbered.letter
    try:
        content = await letter.content()
        counted = [counted_mail(part, len(content)) for part in envelope.parts]
        if full := quotas.refusal(counted):
            raise QuotaFull(
                f"the quota {full.name} is full", mend="Try again when mails that it counts have left the queue."
            )
        with quotas.usage.putting(counted):
            if request.dry_run:
                return EnqueuedFile(letter.name, content_bytes=len(content))
            if envelope.key is None:
                (part,) = envelope.parts
                named = with_bytes(replace(part, name=request.name or random_name), content)
                return EnqueuedFile(letter.name, [await _to_queue(queue, named, content, request)])
            ids = await _put_under_key(queue, numbered.place, content, envelope, request)
    except MailmendError as error:
        return EnqueuedFile(letter.name, error=error)
    return EnqueuedFile(letter.name, ids)


async def _put_under_key(
    queue: MailQueue, place: int, content: bytes, envelope: _Envelope, request: EnqueueRequest
) -> Sequence[EnqueueId]:
    """Put each mail that a message becomes, one after the other, under ids that follow from the key.

    The content is part of what they follow from: another mail under the same key is put all the same.
    """
    key = envelope.key or ""
    senders = [request.sender or ""]
    whole = keyed_id(key, queue.name, str(place), _digest(content), *senders, *request.recipients)
    name = request.name or f"Mail-{whole}"
    ids = list[EnqueueId]()
    for number, part in enumerate(envelope.parts):
        mail = with_bytes(replace(part, name=name), content)
        try:
            ids.append(await _to_queue(queue, mail, content, request, part_id(whole, number)))
        except MailmendError as error:
            error.mend = (
                f"{len(ids)} of the {len(envelope.parts)} mails that it became are in the queue, and the next one may "
                f"be. The same command with --idempotency-key {key} puts the others, and none twice. {error.mend}"
            )
            raise
    return ids


async def _to_queue(
    queue: MailQueue, mail: Mail, content: bytes, request: EnqueueRequest, known_as: EnqueueId | None = None
) -> EnqueueId:
    return await queue.enqueue(
        mail, content, delay=request.due_in, at=request.at, priority=request.priority, known_as=known_as
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def enqueue_document(result: EnqueueResult) -> Document:
    request = result.request
    done = result.succeeded
    failed = result.failed
    not_done = [{"file": file.file, "why": file.error.what} for file in failed if file.error]
    if request.dry_run:
        would = [{"file": file.file, "bytes": file.content_bytes} for file in done]
        json = {"dry_run": True, "enqueued": [], "failed": not_done, "would_enqueue": would, "due_at": result.due_at}
        due = "due at once"
        if result.due_at:
            due = f"due at {shown(result.due_at)}"
        size = sum(file.content_bytes for file in done)
        line = f"Nothing was enqueued. {len(done):,} mails ({size:,} bytes) would go into {request.queue}, {due}."
        remarks = [f"would not be enqueued: {file.file}: {file.error}" for file in failed]
        return queue_document(result, json, (line,), remarks)
    enqueued = list[dict[str, Any]]()
    body = list[str]()
    for file in done:
        ids = [str(enqueue_id) for enqueue_id in file.enqueue_ids]
        enqueued.append({"file": file.file, "id": ids[0], "ids": ids})
        body += [f"{enqueue_id}  {file.file}" for enqueue_id in ids]
    json = {"dry_run": False, "enqueued": enqueued, "failed": not_done}
    body.append(f"{len(body):,} mails are in {request.queue}.")
    remarks = [f"not enqueued: {file.file}: {file.error}" for file in failed]
    return queue_document(result, json, body, remarks)


def _attribute(value: Any) -> tuple[str, str]:
    name, equals, text = str(value).partition("=")
    if not name or not equals:
        raise WrongUse(f"{value!r} is not NAME=VALUE", mend="Write it like --attribute source=import.")
    return name, text


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        at = value
    else:
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError as error:
            raise WrongUse(f"{value!r} is not a time", mend="Write it like 2026-05-01T08:00:00Z.") from error
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    return at


ENQUEUE: Final = Command(
    name="enqueue",
    summary="Put .eml files into a queue; now, or later.",
    about="""Each file (or standard input, as -) is one mail. When the command ends with 0, each mail is stored by
    broker, tables and object store. A mail that is named as failed is not in the queue, unless its message says what
    is left of it. The beginnings of all files are read before the first mail is put; then the files are read one
    after the other. A dry run reads them all, and checks settings, envelope, delay and priority against the keyspace;
    it asks neither broker nor store.

    With --policies the queue is counted once, before the first mail is put; what others put there meanwhile is not
    seen. Quotas go by --attribute (tenantid, jobid, transportid, grouping) and the recipients' domains; the rules of
    `incoming` are for mails of clients.

    A mail with more than 5,000 recipients, or with recipients of more than 4 MiB, becomes several mails of the queue,
    each with some of them. They are put one after the other, so a kill or an error may leave some of them in the queue:
    with --idempotency-key the same command puts the others, and none twice. Where there is no key, the message of an
    error names one.

    An empty file, or a file of white space, is no mail: such a file is refused before anything is put. Arguments
    are UTF-8; others are refused.""",
    service="mailmend.admin.queue.enqueue:enqueue",
    present="mailmend.admin.queue.enqueue:enqueue_document",
    options=(
        click.Argument(
            ["files"], nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE..."
        ),
        option("--sender", "Sender of the mail: of its envelope. [default: the null sender]", metavar="ADDRESS"),
        option(
            "--recipient",
            "Recipient of the mail: of its envelope; may be given again.",
            "recipients",
            multiple=True,
            metavar="ADDRESS",
        ),
        option(
            "--recipients-file",
            "More recipients of the mail: a file with one address a line.",
            type=FILE,
            metavar="FILE",
        ),
        option("--name", "Name of the mail: as listings show it. [default: a name of its own]", metavar="NAME"),
        option("--state", "Processor that the mail waits for: it gets the mail.", default="root", metavar="STATE"),
        option(
            "--attribute",
            "An attribute of the mail: a text for James's mailets; may be given again.",
            "attributes",
            type=ParsedValue("attribute", _attribute),
            multiple=True,
            metavar="NAME=VALUE",
        ),
        option(
            "--priority",
            "Priority of the mail, from 0, the last, to 9, the first. [default: 5]",
            type=click.IntRange(PRIORITIES.start, PRIORITIES.stop - 1),
            metavar="N",
        ),
        option(
            "--due-in",
            "Deliver the mail no sooner than after this duration.",
            type=Duration(DELAY_MAX, zero=False),
        ),
        option(
            "--at",
            "Deliver the mail no sooner than this instant, like 2026-05-01T08:00:00Z.",
            type=ParsedValue("time", _instant),
            metavar="TIME",
        ),
        option(
            "--policies",
            "Policies in YAML: mails that would exceed one of their quotas are not put. [default: no quotas]",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--idempotency-key",
            "A text that no other command has: the ids of the mails follow from it and from their content. The same "
            "command with the same key, after an error or a kill, puts no mail twice. [default: the ids are random]",
            metavar="KEY",
        ),
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless(), blobs=unless()),),
    examples="""
        mailmend queue enqueue letter.eml --sender ann@example.org --recipient bob@example.org
        mailmend queue enqueue *.eml --recipient archive@example.org --due-in 2h --priority 1
        mailmend queue enqueue *.eml --recipient archive@example.org --due-in 2h --dry-run     whether all of them could
        mailmend queue enqueue *.eml --recipient bob@example.org --attribute tenantid=acme --policies policies.yaml
        mailmend queue enqueue letter.eml --recipients-file members.txt --idempotency-key letter-2026-05
        mail-source | mailmend queue enqueue - --recipient bob@example.org --at 2026-05-01T08:00:00Z""",
    exits="0 every mail is in the queue, confirmed by the broker; 2 wrong use; 3 some are not, or none as a quota is "
    "full (each is named); 4 none is: broker, tables or blobs cannot be reached.",
)
