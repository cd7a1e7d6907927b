"""`mailmend queue delete` and `purge`: each mail is first kept in a file that `restore` reads.

One file for each delete or purge, for its owner's eyes only: a line of JSON for each mail, its
envelope as James's payload has it, and its bytes. A mail is in the file, and the file on the disk,
before the mail leaves the queue; each write is a gzip member of its own, so that a file whose end
was cut off can be read up to there.
"""

import asyncio
import gzip
import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

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
from mailmend.admin.queue.request import DryRunRequest, MailSelection, confirm
from mailmend.admin.queue.values import mail_json, mails_table, queue_document
from mailmend.mailqueue.codec import payload_of, queued_of
from mailmend.mailqueue.queue import Removed
from mailmend.mailqueue.rules.mails import Listed, QueuedMail, queue_name
from mailmend.model.errors import BadPayload, ExitCode, StateUnwritable, WrongUse
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.table import Row
from mailmend.repair.ledger.before_images import BROKEN
from mailmend.repair.synced_files import append_synced, make_own_folder

FORMAT: Final = "kept-mail/1"
ROW_FORMAT: Final = "kept-row/1"
"""A row that no mail can be read from: for a person to mend, and passed over by a restore."""


@dataclass(frozen=True, slots=True)
class RemovedMailRecord:
    """A mail as it was in its queue.

    Attributes:
        content: its bytes; None where they were missing already.
    """

    queue: QueueName
    queued: QueuedMail
    enqueued_at: datetime
    due_at: datetime | None
    content: bytes | None

    def is_delayed(self, now: datetime) -> bool:
        return self.due_at is not None and self.due_at > now


@dataclass(slots=True, eq=False)
class _PendingLine:
    """A line that waits to be written."""

    text: str
    is_kept: bool = False


class RemovedMailsFile:
    """A file that is being written; it is created with the first mail.

    Args:
        path: where; there must be none of that name.
    """

    def __init__(self, path: Path, queue: QueueName) -> None:
        self.path = path
        self.count = 0
        self._queue = queue
        self._turn = asyncio.Lock()
        self._pending: list[_PendingLine] = []

    async def keep(self, listed: Listed, content: bytes | None) -> None:
        """On return the mail is on the disk. Concurrent calls share one write.

        Raises:
            StateUnwritable: the disk refused it.
        """
        await self._keep(_line(self._queue, listed, content))

    async def keep_row(self, row: Row, blobs: Mapping[str, bytes]) -> None:
        """Keep a row that cannot be decoded as a mail, and its blobs by column, as far as they exist.

        Raises:
            StateUnwritable: the disk refused it.
        """
        await self._keep(_row_line(self._queue, row, blobs))

    async def _keep(self, line: str) -> None:
        mine = _PendingLine(line)
        self._pending.append(mine)
        async with self._turn:
            if not mine.is_kept:
                await self._write_pending(mine)

    async def _write_pending(self, mine: "_PendingLine") -> None:
        """Write all lines that wait; where that fails, only `mine` fails, and the others are tried by their callers."""
        lines = self._pending
        self._pending = []
        try:
            await asyncio.to_thread(self._append, [line.text for line in lines])
        except BaseException:
            self._pending = [line for line in lines if line is not mine] + self._pending
            raise
        for line in lines:
            line.is_kept = True
        self.count += len(lines)

    def _append(self, lines: Sequence[str]) -> None:
        try:
            make_own_folder(self.path.parent)
            append_synced(self.path, gzip.compress("".join(lines).encode()))
        except OSError as error:
            raise StateUnwritable(
                f"{self.path} cannot be written: {error.strerror or error}; the mail was left in its queue",
                mend="Make room; or remove mails without keeping them: --no-keep.",
            ) from error


def removed_mails_path(folder: Path, queue: QueueName, now: datetime, verb: str) -> Path:
    """The file for mails that a command removes now; no two commands of one process share a name."""
    stem = f"{queue}-{verb}-{now:%Y%m%dT%H%M%S.%fZ}-{os.getpid()}"
    return folder / f"{stem}.jsonl.gz"


def read_removed_mails(file: Path, on_torn: Callable[[], None] | None = None) -> Iterator[RemovedMailRecord]:
    """The mails of such a file, in order.

    Args:
        file: where they are.
        on_torn: called where the end of the file is missing: mails there were never removed, as the
            file is on the disk before a mail goes.

    Raises:
        WrongUse: not such a file, or its end is missing and there is no `on_torn`: after the last readable mail.
    """
    try:
        with gzip.open(file, "rb") as stream:
            yield from _mails_in(stream, file)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WrongUse(f"{file} is not a file of removed mails: {error}") from error
    except EOFError:
        if on_torn is not None:
            on_torn()
            return
        raise WrongUse(f"{file} ends in the middle of a mail", mend="Every mail before it was read.") from None
    except OSError as error:
        raise WrongUse(
            f"{file} cannot be read: {error.strerror or error}",
            mend="Name a file that a delete or purge wrote: they are in ~/.local/share/mailmend/queue.",
        ) from error


class RestoredLog:
    """Which mails of a file are restored, written next to it: an interrupted restore goes on from there."""

    def __init__(self, kept: Path) -> None:
        self.path = kept.with_name(f"{kept.name}.restored")

    def restored(self) -> frozenset[EnqueueId]:
        if not self.path.exists():
            return frozenset()
        noted = map(_noted, self.path.read_text(encoding="utf-8").splitlines())
        return frozenset(enqueue_id for enqueue_id in noted if enqueue_id)

    def note(self, was: EnqueueId, now: EnqueueId) -> None:
        append_synced(self.path, f"{was} {now}\n".encode())


def _noted(line: str) -> EnqueueId | None:
    """The id that a line records; None where the line is torn: that mail is then looked for in the queue."""
    try:
        was, _ = map(UUID, line.split())
    except ValueError:
        return None
    return EnqueueId(was)


def _line(queue: QueueName, listed: Listed, content: bytes | None) -> str:
    document = {
        "format": FORMAT,
        "queue": queue,
        "enqueued_at": listed.enqueued_at.isoformat(),
        "due_at": None,
        "where": listed.whereabouts.value,
        "payload": payload_of(listed.queued).decode(),
        "content": None,
    }
    if listed.due_at:
        document["due_at"] = listed.due_at.isoformat()
    if content is not None:
        document["content"] = b64encode(content).decode()
    return json.dumps(document, ensure_ascii=False) + "\n"


def _row_line(queue: QueueName, row: Row, blobs: Mapping[str, bytes]) -> str:
    kept = {name: b64encode(content).decode() for name, content in blobs.items()}
    document = {"format": ROW_FORMAT, "queue": queue, "row": dict(row), "blobs": kept}
    return json.dumps(document, ensure_ascii=False, default=str) + "\n"


def _mails_in(stream: Iterable[bytes], file: Path) -> Iterator[RemovedMailRecord]:
    for number, line in enumerate(stream, 1):
        try:
            document = json.loads(line)
            if document["format"] != ROW_FORMAT:
                yield _mail_of(document)
        except (*BROKEN, BadPayload) as error:
            why, *_ = str(error).splitlines() or [type(error).__name__]
            raise WrongUse(f"{file}, line {number}: not a removed mail: {why}") from error


def _mail_of(document: dict[str, Any]) -> RemovedMailRecord:
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']!r}, not {FORMAT!r}")
    queue = queue_name(document["queue"])
    queued = queued_of(document["payload"].encode())
    enqueued_at = instant_in(document["enqueued_at"])
    due_at = None
    if document["due_at"]:
        due_at = instant_in(document["due_at"])
    content = None
    if document["content"] is not None:
        content = b64decode(document["content"], validate=True)
    return RemovedMailRecord(queue, queued, enqueued_at, due_at, content)


def instant_in(text: str) -> datetime:
    """Read an instant; one without its offset is a ValueError, as it could not be compared."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant without its offset")
    return instant


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
