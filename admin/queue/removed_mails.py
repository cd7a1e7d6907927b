"""Files of mails that were removed from their queues: `restore` reads them.

One file for each command, for its owner's eyes only: a line of JSON for each mail, its
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

from mailmend.mailqueue.codec import payload_of, queued_of
from mailmend.mailqueue.rules.mails import Listed, QueuedMail, queue_name
from mailmend.model.errors import BadPayload, StateUnwritable, WrongUse
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
