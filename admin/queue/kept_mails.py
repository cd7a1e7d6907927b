"""Files in which mails are kept while they are in no queue.

A file of removed mails is written by one command, for its owner's eyes only: a line of JSON for
each mail, its envelope as James's payload has it, and its bytes. A mail is in the file, and the
file on the disk, before the mail leaves the queue; each write is a gzip member of its own, so that
a file whose end was cut off can be read up to there. `restore` reads these files.

The first line of a move's journal names both queues. Then there is a line of JSON for each mail
that was taken, its envelope as James's payload has it, and one for each that is done. A line is on
the disk before its mail leaves the source; a line whose end is missing is of a mail that never
left. A move that is done puts `.done` behind the name of the file.
"""

import asyncio
import gzip
import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID, uuid4

from mailmend.mailqueue.codec import payload_of, queued_of
from mailmend.mailqueue.queue_move import MovingMail
from mailmend.mailqueue.rules.mails import Listed, QueuedMail, Whereabouts, queue_name
from mailmend.model.errors import BadPayload, StateUnwritable, UnsafeRequest, WrongUse
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.table import Row
from mailmend.repair.ledger.before_images import BROKEN
from mailmend.repair.synced_files import OWNER_ALONE, append_synced, make_own_folder, sync_folder

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


MOVE_FORMAT: Final = "queue-move/1"
_SUFFIX: Final = ".jsonl"


class MoveJournalFile:
    """The journal of one move; a context, in which no other process has it. Implements `MoveJournal`.

    Args:
        path: the file, which is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left: dict[EnqueueId, MovingMail] = {}
        self.known: set[EnqueueId] = set()
        self.move = ""
        self._turn = asyncio.Lock()
        self._pending: list[str] = []
        self._lock = -1

    def __enter__(self) -> Self:
        self._lock = os.open(self.path, os.O_RDONLY)
        try:
            flock(self._lock, LOCK_EX | LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UnsafeRequest(
                f"another process goes on with this move: {self.path}", mend="Let it end, or stop it first."
            ) from error
        self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with suppress(StateUnwritable):  # what is lost is looked for at the target
                self._write()
        finally:
            os.close(self._lock)

    async def take(self, mail: MovingMail) -> None:
        """As the port says. Concurrent calls share one write."""
        self._pending.append(_moving_line(mail))
        async with self._turn:
            if self._pending:
                await asyncio.to_thread(self._write)
        self.left[mail.was] = mail
        self.known.add(mail.was)

    def done(self, was: EnqueueId) -> None:
        """As the port says: it is written with the next mail, or at the end."""
        self._pending.append(json.dumps({"done": str(was)}) + "\n")
        self.left.pop(was, None)

    def finish(self) -> None:
        """Put it aside: the move is done."""
        self._write()
        self.path = self.path.rename(self.path.with_name(self.path.name + ".done"))
        sync_folder(self.path.parent)

    def _write(self) -> None:
        """Write what is pending: all of it, or nothing."""
        if not self._pending:
            return
        count = len(self._pending)
        size = self.path.stat().st_size
        try:
            append_synced(self.path, "".join(self._pending[:count]).encode())
        except OSError as error:
            os.truncate(self.path, size)
            raise StateUnwritable(
                f"{self.path} cannot be written: {error.strerror or error}; the mail was left in its queue",
                mend="Make room; then the same command goes on.",
            ) from error
        del self._pending[:count]

    def _read(self) -> None:
        """Read it, and cut off a last line whose end is missing."""
        content = self.path.read_bytes()
        whole = _whole(content)
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        first, *lines = whole.decode().splitlines()
        try:
            self.move = json.loads(first)["move"]
            for line in lines:
                self._heard(json.loads(line))
        except (*BROKEN, BadPayload) as error:
            raise WrongUse(f"{self.path} is no journal of a move: {error}") from error

    def _heard(self, document: dict[str, Any]) -> None:
        if was := document.get("done"):
            self.left.pop(EnqueueId(UUID(was)), None)
            return
        mail = _moving_mail_of(document)
        self.left[mail.was] = mail
        self.known.add(mail.was)


def unfinished(folder: Path, queue: QueueName, ends: Mapping[str, str]) -> Path | None:
    """The journal of an unfinished move of the queue between these two ends."""
    for path in sorted(folder.glob(f"{queue}-move-*{_SUFFIX}")):
        with path.open(encoding="utf-8") as file:
            try:
                first = json.loads(file.readline())
            except (ValueError, RecursionError):
                continue  # killed while it was created: nothing was taken
        if not isinstance(first, dict):
            continue
        if {name: first.get(name) for name in ends} == dict(ends) and first.get("format") == MOVE_FORMAT:
            return path
    return None


def mails_on_their_way(folder: Path) -> Iterator[tuple[Path, MovingMail]]:
    """Every mail that a move took which is not finished, with its journal; those too that are at the target by now.

    Raises:
        WrongUse: a journal cannot be read.
    """
    for path in sorted(folder.glob(f"*-move-*{_SUFFIX}")):
        try:
            lines = _whole(path.read_bytes()).decode().splitlines()
        except FileNotFoundError:
            continue  # finished meanwhile
        except (OSError, ValueError) as error:
            raise WrongUse(f"{path} cannot be read: {error}", mend="It is the journal of a queue move.") from error
        try:
            if not lines or json.loads(lines[0]).get("format") != MOVE_FORMAT:
                continue
            for document in map(json.loads, lines[1:]):
                if "payload" in document:
                    yield path, _moving_mail_of(document)
        except (*BROKEN, BadPayload) as error:
            raise WrongUse(f"{path} is no journal of a move: {error}") from error


def created(folder: Path, queue: QueueName, ends: Mapping[str, str], now: datetime) -> Path:
    """A new journal.

    Raises:
        StateUnwritable: the disk refused it.
    """
    path = folder / f"{queue}-move-{now:%Y%m%dT%H%M%S.%fZ}-{os.getpid()}{_SUFFIX}"
    first = {"format": MOVE_FORMAT, "move": uuid4().hex[:12], **ends}
    try:
        make_own_folder(folder)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, OWNER_ALONE))
        sync_folder(folder)
        append_synced(path, (json.dumps(first) + "\n").encode())
    except OSError as error:
        raise StateUnwritable(
            f"{path} cannot be written: {error.strerror or error}; nothing was moved", mend="Make room, then again."
        ) from error
    return path


def _whole(content: bytes) -> bytes:
    """Without a last line whose end is missing."""
    return content[: content.rfind(b"\n") + 1]


def _moving_line(mail: MovingMail) -> str:
    listed = mail.listed
    document = {
        "was": str(mail.was),
        "payload": payload_of(listed.queued).decode(),
        "enqueued_at": listed.enqueued_at.isoformat(),
        "due_at": None,
        "attempts": listed.attempts,
    }
    if listed.due_at:
        document["due_at"] = listed.due_at.isoformat()
    return json.dumps(document, ensure_ascii=False) + "\n"


def _moving_mail_of(document: dict[str, Any]) -> MovingMail:
    due_at = None
    whereabouts = Whereabouts.WAITING
    if document["due_at"]:
        due_at = instant_in(document["due_at"])
        whereabouts = Whereabouts.DELAYED
    listed = Listed(
        queued_of(document["payload"].encode()),
        instant_in(document["enqueued_at"]),
        whereabouts,
        due_at=due_at,
        attempts=document["attempts"],
    )
    return MovingMail(EnqueueId(UUID(document["was"])), listed)
