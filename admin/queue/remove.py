"""`mailmend queue delete` and `purge`: each mail is first kept in a file that `restore` reads."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.options import flag
from mailmend.admin.frame.values import NOTHING_WRITTEN
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import (
    DRY_RUN,
    FILTERS,
    QUEUE_ARGUMENT,
    YES,
    queue_settings,
    unless,
)
from mailmend.admin.queue.removed_mails import RemovedMailsFile, removed_mails_path
from mailmend.admin.queue.request import DryRunRequest, MailSelection, confirm
from mailmend.admin.queue.values import mail_json, mails_table, queue_document
from mailmend.mailqueue.queue import AffectedMails
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.errors import ExitCode, WrongUse

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
