"""`mailmend queue delete`, `purge` and `restore`.

Each removed mail is first kept in a file, which `restore` reads.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.kept_mails import (
    RemovedMailRecord,
    RemovedMailsFile,
    RestoredLog,
    read_removed_mails,
    removed_mails_path,
)
from mailmend.admin.queue.options import DRY_RUN, FILTERS, QUEUE_ARGUMENT, YES, queue_settings, unless
from mailmend.admin.queue.request import (
    DryRunRequest,
    MailSelection,
    confirm,
    mail_json,
    mails_table,
    queue_document,
)
from mailmend.mailqueue.admission import admissible
from mailmend.mailqueue.queue import AffectedMails, MailQueue, RemovedMail, RestoreResult, Restoring
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.errors import CannotReach, ExitCode, MailmendError, UnsafeRequest, WrongUse
from mailmend.model.ids import EnqueueId, QueueName, restored_id

LISTED_MAX: Final = 1000
"""How many of the mails that would be removed a dry run lists; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest(DryRunRequest):
    """Remove every mail of a queue."""

    no_keep: bool = False
    yes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest(PurgeRequest):
    """Remove the mails that match."""

    selection: MailSelection


@dataclass(frozen=True, slots=True)
class RemoveResult:
    """Which mails were removed, or in a dry run would be.

    Attributes:
        listed: the first of them, in a dry run.
        at: the time of that listing.
        kept: the file of removed mails; None without one.
        without_content: how many are kept without bytes, which were missing already.
    """

    request: PurgeRequest
    removed: AffectedMails
    at: datetime
    listed: tuple[Listed, ...] = ()
    kept: Path | None = None
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        if self.removed.failed:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def delete(request: DeleteRequest, caller: Caller) -> RemoveResult:
    """Remove the mails that match, delayed ones too.

    Raises:
        WrongUse: no filter is given.
        StateUnwritable: the file of removed mails cannot be written; no mail goes that is not in it.
    """
    if request.selection == MailSelection():
        raise WrongUse(
            "no filter is given, so every mail would be removed",
            mend="Say which: --sender, --recipient, --name, --state, --older-than, --newer-than or --id; "
            "or remove them all: mailmend queue purge",
        )
    return _remove("delete", request.selection, request, caller)


def purge(request: PurgeRequest, caller: Caller) -> RemoveResult:
    """Remove every mail of a queue, delayed ones too, after a person has agreed.

    Raises:
        UnsafeRequest: no person agreed.
    """
    if not request.dry_run:
        forgotten = ""
        if request.no_keep:
            forgotten = ", without keeping them"
        confirm(f"Remove every mail of {request.queue} in {request.place}{forgotten}?", caller, yes=request.yes)
    return _remove("purge", None, request, caller)


def _remove(verb: str, selection: MailSelection | None, request: PurgeRequest, caller: Caller) -> RemoveResult:
    async def removed(connections: QueueConnections) -> RemoveResult:
        path = removed_mails_path(state_folder("queue"), request.queue, connections.now, verb)
        file = RemovedMailsFile(path, request.queue)
        without_content = 0
        first = list[Listed]()
        caller.progress.stage(f"{verb} {request.queue}")

        async def keep(mail: Listed) -> None:
            nonlocal without_content
            if request.dry_run:
                if len(first) < LISTED_MAX:
                    first.append(mail)
            elif not request.no_keep:
                content = (await connections.content_of(mail)).content
                without_content += content is None
                await file.keep(mail, content)
            caller.progress.advance(1)

        try:
            async with connections.open(dry_run=request.dry_run) as queue:
                if selection is None:
                    found = await queue.purge(dry_run=request.dry_run, on_removed=keep)
                else:
                    found = await queue.delete(selection.at(connections.now), dry_run=request.dry_run, on_removed=keep)
        finally:
            kept = None
            if file.count:
                kept = path
                caller.remark(f"Kept in {kept}")
        return RemoveResult(request, found, connections.now, tuple(first), kept, without_content)

    return with_queues(request.settings, removed)


def remove_document(result: RemoveResult) -> Document:
    request = result.request
    count = result.removed.count
    failed = result.removed.failed
    json: dict[str, Any] = {
        "dry_run": request.dry_run,
        "removed": count,
        "would_remove": None,
        "failed": [{"id": unremoved.enqueue_id, "why": unremoved.why} for unremoved in failed],
        "kept": result.kept,
        "kept_without_content": result.without_content,
        "mails": None,
    }
    body: list[Part] = []
    if request.dry_run:
        json |= {"removed": 0, "would_remove": count}
        json["mails"] = [mail_json(mail, result.at) for mail in result.listed]
        if result.listed:
            body.append(mails_table(f"Would be removed from {request.queue}", result.listed, result.at))
        body.append(f"{NOTHING_WRITTEN} {count:,} would be removed from {request.queue}.")
        return queue_document(result, json, body)
    body.append(f"Removed {count:,} mails from {request.queue}.")
    if result.without_content:
        body.append(f"The bytes of {result.without_content:,} of them were missing already; their envelopes are kept.")
    if result.kept:
        body.append(f"To put them back: mailmend queue restore {result.kept}")
    remarks = [f"not removed: {unremoved.enqueue_id}: {unremoved.why}" for unremoved in failed]
    return queue_document(result, json, body, remarks)


_KEEPING: Final = """Each mail is kept first, envelope and bytes, in a file that only you may read, in
    ~/.local/share/mailmend/queue; the answer names it, and `mailmend queue restore FILE` puts its mails back. --no-keep
    forgets them for good."""

_REMOVE_EXITS: Final = (
    "0 done (or nothing matched), 2 wrong use, or not agreed to; 3 some could not be removed (each is named), 4 cannot "
    "reach: what was removed stays removed, the same command goes on."
)
_NO_KEEP: Final = flag("--no-keep", "Do not keep the removed mails in a file: they are gone.")

DELETE: Final = Command(
    name="delete",
    summary="Remove the mails that match; keeps them in a file first.",
    about=f"""Delayed mails are removed too. A removed mail is not delivered any more; only a mail that a consumer has
    at that moment may still be finished. The broker is not asked: its messages of removed mails are dropped on
    delivery, and never become dead letters. Over Pulsar the messages are acknowledged where they are; the answer
    comes half a second later, when every process knows. James may still deliver mails that it has prefetched by then.

    {_KEEPING}""",
    service="mailmend.admin.queue.remove:delete",
    present="mailmend.admin.queue.remove:remove_document",
    options=(QUEUE_ARGUMENT, DRY_RUN, _NO_KEEP),
    shared=(FILTERS, queue_settings(blobs=unless("dry_run"))),
    examples="""
        mailmend queue delete --sender spammer@example.org --dry-run     who would go
        mailmend queue delete --sender spammer@example.org
        mailmend queue delete outgoing --older-than 5d --state error --no-keep""",
    exits=_REMOVE_EXITS,
)

PURGE: Final = Command(
    name="purge",
    summary="Remove every mail; asks, and keeps them in a file first.",
    about=f"""Delayed mails are removed too. Dead letters stay. Over Pulsar dead letters are removed too, and kept in
    the file like the others; only dead letters that cannot be read as a mail stay. Over Pulsar messages about
    deletions stay until they expire (`mailmend queue tend`); they never delete a mail that comes later.

    {_KEEPING}""",
    service="mailmend.admin.queue.remove:purge",
    present="mailmend.admin.queue.remove:remove_document",
    options=(QUEUE_ARGUMENT, DRY_RUN, YES, _NO_KEEP),
    shared=(queue_settings(blobs=unless("dry_run")),),
    examples="""
        mailmend queue purge outgoing --dry-run
        mailmend queue purge outgoing --yes""",
    exits=_REMOVE_EXITS,
)


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
    service="mailmend.admin.queue.remove:restore",
    present="mailmend.admin.queue.remove:restore_document",
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
