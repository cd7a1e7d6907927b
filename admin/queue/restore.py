"""`mailmend queue restore`: put removed mails back into their queues."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, queue_settings, unless
from mailmend.admin.queue.removed_mails import RemovedMailRecord, RestoredLog, read_removed_mails
from mailmend.admin.queue.request import DryRunRequest
from mailmend.mailqueue.admission import admissible
from mailmend.mailqueue.queue import MailQueue, RemovedMail, RestoreResult, Restoring
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.errors import CannotReach, ExitCode, MailmendError, UnsafeRequest, WrongUse
from mailmend.model.ids import EnqueueId, QueueName, restored_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest(DryRunRequest):
    """Put back what a file of removed mails holds; `ids`: only these mails."""

    file: Path
    again: bool = False
    ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Which mails of a file of removed mails are asked for, and which of them are not restored yet.

    Attributes:
        total: how many of its mails are asked for.
        missing: those that are not restored, by queue; their bytes are read when needed.
        truncated: whether the end of the file is missing; mails there were never removed.
    """

    total: int = 0
    missing: Mapping[QueueName, frozenset[EnqueueId]] = field(default_factory=dict)
    truncated: bool = False

    @property
    def count(self) -> int:
        return sum(map(len, self.missing.values()))

    @classmethod
    def of(cls, file: Path, *, again: bool = False, ids: Collection[UUID] = ()) -> Self:
        """Read the file and its log of restored mails.

        Raises:
            WrongUse: not a file of removed mails, or one of `ids` is not in it.
            UnsafeRequest: all that is asked for was put back before.
        """
        truncated: list[bool] = []
        mails = dict[EnqueueId, QueueName]()
        for mail in read_removed_mails(file, lambda: truncated.append(True)):
            mails[mail.queued.enqueue_id] = mail.queue
        known = frozenset[EnqueueId]()
        if not again:
            known = RestoredLog(file).restored()
        which = f"all {len(mails):,} mails of {file}"
        if ids:
            mails = {enqueue_id: mails[enqueue_id] for enqueue_id in _held(file, mails, ids)}
            which = f"all {len(mails):,} mails of {file} that --id names"
        missing: dict[QueueName, set[EnqueueId]] = {}
        for enqueue_id, queue in mails.items():
            if enqueue_id not in known:
                missing.setdefault(queue, set()).add(enqueue_id)
        if mails and not missing:
            raise UnsafeRequest(f"{which} were put back before", mend="For second copies of them say --again.")
        by_queue = {queue: frozenset(ids) for queue, ids in missing.items()}
        return cls(len(mails), by_queue, bool(truncated))


def _held(file: Path, mails: Collection[EnqueueId], ids: Collection[UUID]) -> frozenset[EnqueueId]:
    """The ids, each of which the file holds.

    Raises:
        WrongUse: it does not hold all of them.
    """
    named = frozenset(map(EnqueueId, ids))
    if unknown := sorted(named.difference(mails)):
        raise WrongUse(
            f"{file} holds no mail {', '.join(map(str, unknown))}",
            mend=f"Nothing was put back. The ids that it holds: mailmend queue restore {file} --dry-run --json",
        )
    return named


@dataclass(frozen=True, slots=True)
class RestoredMails:
    """What became of the mails.

    Attributes:
        returns: by mail, what it took to bring it back.
        without_content: mails whose bytes were missing already when they were removed.
        failed: why others are not restored.
    """

    request: RestoreRequest
    plan: RestorePlan
    returns: Mapping[EnqueueId, RestoreResult] = field(default_factory=dict)
    without_content: tuple[EnqueueId, ...] = ()
    failed: Mapping[EnqueueId, str] = field(default_factory=dict)

    @property
    def restored(self) -> int:
        return sum(result in {RestoreResult.PUT, RestoreResult.PUBLISH} for result in self.returns.values())

    @property
    def already(self) -> int:
        """How many an earlier restore of the same file had put back."""
        nothing_to_do = sum(result is RestoreResult.NOTHING for result in self.returns.values())
        return self.plan.total - self.plan.count + nothing_to_do

    @property
    def never_left(self) -> list[EnqueueId]:
        """Mails that are still in their queue: their removal was interrupted."""
        return [enqueue_id for enqueue_id, result in self.returns.items() if result is RestoreResult.STAYS]

    @property
    def exit(self) -> ExitCode:
        if self.failed or self.without_content:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def restore(request: RestoreRequest, caller: Caller) -> RestoredMails:
    """Put back what is missing; an interrupted restore goes on from there.

    Raises:
        CannotReach: restored mails stay restored.
        WrongUse: not a file of removed mails, a mail is not in it, or James could not read such a mail.
        UnsafeRequest: all of its mails were put back before.
    """
    plan = RestorePlan.of(request.file, again=request.again, ids=request.ids)
    if request.dry_run or not plan.missing:
        return RestoredMails(request, plan)

    async def restored(connections: QueueConnections) -> RestoredMails:
        returning = _Returning(connections, request)
        caller.progress.stage("restore", plan.count)
        for name, missing in plan.missing.items():
            async with connections.open(name) as queue:
                looked_for = missing
                if request.again:
                    looked_for = frozenset()
                found = await queue.restoring(looked_for)
                waiting = set(missing)
                for mail in read_removed_mails(request.file, lambda: None):
                    if mail.queued.enqueue_id in waiting:
                        waiting.discard(mail.queued.enqueue_id)
                        await returning.put_back(queue, found, mail)
                        caller.progress.advance(1)
        return RestoredMails(request, plan, returning.returns, tuple(returning.without_content), returning.failed)

    return with_queues(request.settings, restored)


@dataclass(slots=True)
class _Returning:
    """Puts back one mail after the other, and records each in the log next to the file."""

    connections: QueueConnections
    request: RestoreRequest
    returns: dict[EnqueueId, RestoreResult] = field(default_factory=dict)
    without_content: list[EnqueueId] = field(default_factory=list)
    failed: dict[EnqueueId, str] = field(default_factory=dict)

    async def put_back(self, queue: MailQueue, found: Restoring, mail: RemovedMailRecord) -> None:
        was = mail.queued.enqueue_id
        now = self.connections.now
        content = mail.content
        if content is None:
            content = (await self.connections.content_of(Listed(mail.queued, mail.enqueued_at))).content
        if content is None:
            self.without_content.append(was)
            return
        due_at = None
        if mail.is_delayed(now):
            due_at = mail.due_at
        removed = RemovedMail(was, replace(mail.queued.mail, last_updated=now), content, due_at)
        try:
            new, how = await self._brought_back(queue, found, removed)
        except (CannotReach, WrongUse):
            raise
        except MailmendError as error:
            self.failed[was] = error.what
            return
        self.returns[was] = how
        if how is not RestoreResult.STAYS:
            RestoredLog(self.request.file).note(was, new)

    async def _brought_back(
        self, queue: MailQueue, found: Restoring, removed: RemovedMail
    ) -> tuple[EnqueueId, RestoreResult]:
        if self.request.again:
            mail = admissible(removed.mail)
            # Its envelope may be larger than that of a new mail.
            new = await queue.enqueue(mail, removed.content, at=removed.due_at, was_queued=True)
            return new, RestoreResult.PUT
        return restored_id(removed.was, queue.name), await found.restore(removed)


def restore_document(result: RestoredMails) -> Document:
    request = result.request
    plan = result.plan
    json: dict[str, Any] = {
        **request.home,
        "file": str(request.file),
        "queues": sorted(plan.missing),
        "dry_run": request.dry_run,
        "restored": result.restored,
        "would_restore": None,
        "would_restore_ids": None,
        "already": result.already,
        "never_left": plain(result.never_left),
        "torn": plan.truncated,
        "without_content": plain(result.without_content),
        "failed": [{"id": str(enqueue_id), "why": why} for enqueue_id, why in result.failed.items()],
        "exit": int(result.exit),
    }
    if request.dry_run:
        ids = set[EnqueueId]().union(*plan.missing.values())
        json |= {"would_restore": plan.count, "would_restore_ids": sorted(map(str, ids))}
    return Document(json, _restored_lines(result), result.exit, _restore_remarks(result))


def _restored_lines(result: RestoredMails) -> list[str]:
    plan = result.plan
    request = result.request
    queues = ", ".join(sorted(plan.missing)) or "any queue"
    lines = [f"Put {result.restored:,} mails back into {queues}."]
    if request.dry_run:
        lines = [f"{NOTHING_WRITTEN} {plan.count:,} mails of {request.file} would go back into {queues}."]
    if result.already:
        lines.append(f"{result.already:,} had been put back by an earlier restore.")
    if result.never_left:
        lines.append(f"{len(result.never_left):,} never left their queue: their removal was interrupted.")
    return lines


def _restore_remarks(result: RestoredMails) -> list[str]:
    remarks = list[str]()
    if result.plan.truncated:
        remarks.append("The end of the file is missing; what stood there was not removed from its queue.")
    gone = "its bytes were missing when it was removed"
    remarks += [f"not restored: {enqueue_id}: {gone}" for enqueue_id in result.without_content]
    remarks += [f"not restored: {enqueue_id}: {why}" for enqueue_id, why in result.failed.items()]
    return remarks


RESTORE: Final = Command(
    name="restore",
    summary="Put back what a delete or purge removed.",
    about="""Each mail returns into the queue that it was in. It is enqueued anew, under a new id that follows from
    its old one; a mail whose time is still to come is delayed again. The restored mails are recorded next to the
    file, so a restore that was interrupted goes on where it stopped. A mail that is still listed under its old id,
    because its removal was interrupted, stays as it is. --id restores only the mails that it names, by their old ids;
    an id that the file does not hold is refused before anything is put back.""",
    service="mailmend.admin.queue.restore:restore",
    present="mailmend.admin.queue.restore:restore_document",
    options=(
        click.Argument(["file"], type=click.Path(path_type=Path)),
        option(
            "--id",
            "Only this mail: by the id it had; may be given again.",
            "ids",
            type=click.UUID,
            multiple=True,
            metavar="ID",
        ),
        flag("--again", "Repeat what was done already: a second copy of each mail that is back."),
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"), named=False),),
    examples="""
        mailmend queue restore ~/.local/share/mailmend/queue/spool-purge-20260501T120000.000000Z-77.jsonl.gz
        mailmend queue restore FILE --dry-run
        mailmend queue restore FILE --id 5f0c2d1e-0000-4000-8000-000000000001       this one alone""",
    exits="0 all of them are back, 2 wrong use (no such file or id; restored already), 3 some are not (each is named), "
    "4 cannot reach: the same command goes on from there. After a kill too: each mail is back once.",
)
