"""The journal of a move between two queues: a file for its owner's eyes only, which an interrupted move goes on from.

Its first line names both queues. Then there is a line of JSON for each mail that was taken, its envelope as James's
payload has it, and one for each that is done. A line is on the disk before its mail leaves the source; a line whose end
is missing is of a mail that never left. A move that is done puts `.done` behind the name of the file.
"""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID, uuid4

from mailmend.admin.queue.removed_mails import instant_in
from mailmend.mailqueue.codec import payload_of, queued_of
from mailmend.mailqueue.queue_move import MovingMail
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.model.errors import BadPayload, StateUnwritable, UnsafeRequest, WrongUse
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.repair.ledger.before_images import BROKEN
from mailmend.repair.synced_files import OWNER_ALONE, append_synced, make_own_folder, sync_folder

FORMAT: Final = "queue-move/1"
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
        self._pending.append(_line(mail))
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
        mail = _mail_of(document)
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
        if {name: first.get(name) for name in ends} == dict(ends) and first.get("format") == FORMAT:
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
            if not lines or json.loads(lines[0]).get("format") != FORMAT:
                continue
            for document in map(json.loads, lines[1:]):
                if "payload" in document:
                    yield path, _mail_of(document)
        except (*BROKEN, BadPayload) as error:
            raise WrongUse(f"{path} is no journal of a move: {error}") from error


def created(folder: Path, queue: QueueName, ends: Mapping[str, str], now: datetime) -> Path:
    """A new journal.

    Raises:
        StateUnwritable: the disk refused it.
    """
    path = folder / f"{queue}-move-{now:%Y%m%dT%H%M%S.%fZ}-{os.getpid()}{_SUFFIX}"
    first = {"format": FORMAT, "move": uuid4().hex[:12], **ends}
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


def _line(mail: MovingMail) -> str:
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


def _mail_of(document: dict[str, Any]) -> MovingMail:
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
