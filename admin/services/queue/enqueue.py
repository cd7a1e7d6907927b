"""Put mails into a queue."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from admin.services.caller import Caller
from admin.services.queue.letters import Letter, letters_in
from admin.services.queue.request import DryRunRequest
from admin.wiring.delivery import policies_in
from admin.wiring.queues import QueueConnections, with_queues
from delivery.envelopes import counted_mail, with_bytes
from delivery.quotas import QueueQuotas
from mailqueue.codec import attribute
from mailqueue.codec.admission import admitted, check_room
from mailqueue.concurrency import all_of
from mailqueue.queue import MailQueue, due_time, no_due_mails
from model.errors import BadMail, CannotReach, ExitCode, MailmendError, QuotaFull, WrongUse
from model.ids import EnqueueId
from model.pickup.quotas import QueueQuota, QuotaUsage
from model.queue.mails import Mail

AT_ONCE: Final = 16
"""How many mails are enqueued at once; so many contents are held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueRequest(DryRunRequest):
    """Enqueue messages with one envelope.

    Attributes:
        policies: a file whose quotas are heeded; None: there are none.
    """

    files: tuple[Path, ...]
    recipients: tuple[str, ...]
    sender: str | None = None
    name: str | None = None
    state: str = "root"
    attributes: tuple[tuple[str, str], ...] = ()
    priority: int | None = None
    due_in: timedelta | None = None
    at: datetime | None = None
    policies: Path | None = None


@dataclass(frozen=True, slots=True)
class EnqueuedFile:
    """The result of one file.

    Attributes:
        enqueue_id: None where it is not in the queue.
        content_bytes: the length of its message, in a dry run.
    """

    file: str
    enqueue_id: EnqueueId | None = None
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
        return [one for one in self.files if one.error]

    @property
    def succeeded(self) -> list[EnqueuedFile]:
        return [one for one in self.files if not one.error]

    @property
    def exit(self) -> ExitCode:
        if not self.failed:
            return ExitCode.FINE
        unreachable = not self.succeeded and all(isinstance(one.error, CannotReach) for one in self.failed)
        return ExitCode.CANNOT_REACH if unreachable else ExitCode.PARTLY_FAILED


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
    letters, limits = letters_in(request.files), policies_in(request.policies).quotas
    settings = replace(request.settings, broker=None, blobs=None) if request.dry_run else request.settings
    return with_queues(settings, lambda connections: _enqueued(connections, letters, request, limits))


async def _enqueued(
    connections: QueueConnections, letters: Sequence[Letter], request: EnqueueRequest, limits: tuple[QueueQuota, ...]
) -> EnqueueResult:
    due_at = due_time(connections.now, request.due_in, request.at)
    if due_at is not None and not connections.can_delay:
        raise no_due_mails()
    check_room(admitted(_mail(connections, request), request.priority))
    if request.dry_run and not limits:
        return EnqueueResult(request, [await _read(letter) for letter in letters], due_at)
    async with connections.open(dry_run=request.dry_run) as queue:
        quotas = QueueQuotas(queue=queue, clock=connections.clock, usage=QuotaUsage(limits))
        if limits:
            await quotas.count()

        async def put(letter: Letter) -> EnqueuedFile:
            return await _put(queue, letter, _mail(connections, request), request, quotas)

        if request.dry_run:
            return EnqueueResult(request, [await put(letter) for letter in letters], due_at)
        return EnqueueResult(request, await all_of(letters, put, AT_ONCE))


def _mail(connections: QueueConnections, request: EnqueueRequest) -> Mail:
    """The envelope of one mail, with a generated name where none is given."""
    mail = Mail(
        request.name or f"Mail-{connections.clock.random_uuid()}",
        request.recipients,
        sender=None if request.sender in {None, "", "<>"} else request.sender,
        state=request.state,
        attributes={key: attribute(value) for key, value in request.attributes},
    )
    return replace(mail, last_updated=connections.now)


async def _read(letter: Letter) -> EnqueuedFile:
    try:
        return EnqueuedFile(letter.name, content_bytes=len(await letter.content()))
    except BadMail as error:
        return EnqueuedFile(letter.name, error=error)


async def _put(
    queue: MailQueue, letter: Letter, mail: Mail, request: EnqueueRequest, quotas: QueueQuotas
) -> EnqueuedFile:
    """Put a message into the queue; in a dry run only see whether that could be."""
    try:
        content = await letter.content()
        counted = [counted_mail(mail, len(content))]
        if full := quotas.refusal(counted):
            raise QuotaFull(
                f"the quota {full.name} is full", mend="Come again once mails that it counts have left the queue."
            )
        with quotas.usage.putting(counted):
            if request.dry_run:
                return EnqueuedFile(letter.name, content_bytes=len(content))
            enqueue_id = await queue.enqueue(
                with_bytes(mail, content), content, delay=request.due_in, at=request.at, priority=request.priority
            )
    except MailmendError as error:
        return EnqueuedFile(letter.name, error=error)
    return EnqueuedFile(letter.name, enqueue_id)
