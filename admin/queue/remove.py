"""Delete or purge mails; each is first kept in a file of removed mails, which `restore` reads."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.removed_mails import RemovedMailsFile, removed_mails_path
from mailmend.admin.queue.request import DryRunRequest, MailSelection, confirm
from mailmend.mailqueue.queue import Removed
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
    removed: Removed
    at: datetime
    listed: tuple[Listed, ...] = ()
    kept: Path | None = None
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        return ExitCode.PARTLY_FAILED if self.removed.failed else ExitCode.FINE


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
        forgotten = ", without keeping them" if request.no_keep else ""
        confirm(f"Remove every mail of {request.queue} in {request.place}{forgotten}?", caller, yes=request.yes)
    return _remove("purge", None, request, caller)


def _remove(verb: str, selection: MailSelection | None, request: PurgeRequest, caller: Caller) -> RemoveResult:
    async def removed(connections: QueueConnections) -> RemoveResult:
        path = removed_mails_path(state_folder("queue"), request.queue, connections.now, verb)
        file, without_content, first = RemovedMailsFile(path, request.queue), 0, list[Listed]()
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
            kept = path if file.count else None
            if kept:
                caller.remark(f"Kept in {kept}")
        return RemoveResult(request, found, connections.now, tuple(first), kept, without_content)

    return with_queues(request.settings, removed)
