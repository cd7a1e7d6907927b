"""Loading mail folders into the store: in batches, in bounded memory, never twice by accident.

Each message of the folder counts in exactly one sum: stored, already there, refused by name, or
deleted in the source. What belongs elsewhere is skipped by name. The bytes of an mbox are accounted
for: the bytes that were read are the bytes of messages, envelope lines and separators, or the load
fails.

What was loaded is kept in one small local file per folder and mailbox, so that an interrupted load resumes. Its first
line names the load; then each batch has a line before it is stored (`begin`) and one after (`end`), on disk before the
load goes on. A message's id is made of the load and of its key, so a message that was stored just before a kill is
recognised by its id. What can be duplicated: a message of the last, unfinished batch that was moved or deleted between
the kill and the resumption; and everything, when this file was removed.
"""

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from operator import add
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from mailmend.model.errors import BadMail, OctetsLost, StateUnwritable, UnsafeRequest, WrongUse
from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.instants import MICROS
from mailmend.model.ports import Clock, Progress
from mailmend.repair.store.mail_files import OCTETS_MAX, FolderKind, Found, Refused, WhyNotStored, mail_in, mail_of
from mailmend.repair.store.mbox import Doubt
from mailmend.repair.store.message import NewMail
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.synced_files import make_own_folder, open_own

_HEAD_OCTETS = 4096
_TAIL_OCTETS = 1024
_MULTICAST = 1 << 40
_OFFSET_MAX = 1 << 60


@dataclass(frozen=True, slots=True)
class Folder:
    """A mail folder and its target mailbox: they identify a load."""

    path: Path
    kind: FolderKind
    keyspace: str
    user: str
    mailbox: str

    @property
    def file_name(self) -> str:
        identity = [self.keyspace, self.user, self.mailbox, self.kind.value, str(self.path.resolve())]
        return f"load-{_digest(json.dumps(identity).encode())}.jsonl"


@dataclass(slots=True)
class Progressed:
    """The state of a load in its journal: its id, what is stored, and what may be stored.

    Attributes:
        done: keys of stored messages, as digests; empty for an mbox, which has an offset.
        offset: up to where an mbox is stored.
        begun: keys of the latest batch.
        in_doubt: keys of all batches that were begun and not ended.
    """

    load: UUID | None = None
    head: str = ""
    tail: str = ""
    offset: int = 0
    finished: bool = False
    done: set[bytes] = field(default_factory=set)
    begun: frozenset[str] = frozenset()
    in_doubt: frozenset[str] = frozenset()


class LoadJournal:
    """The journal of one folder, locked by one process at a time. Use as a context manager."""

    def __init__(self, directory: Path, folder: Folder) -> None:
        self._folder = folder
        self._directory = directory
        self.state = Progressed()
        self._damaged = False
        with self._disk():
            make_own_folder(directory)
            self._file = open_own(directory / folder.file_name)

    def __enter__(self) -> Self:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UnsafeRequest(f"{self._folder.path} is being loaded by another process") from None
        with self._disk():
            self._file.seek(0)
            lines = self._file.read().splitlines()
        for line in lines:
            self._replay(line)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def open(self, new_load: UUID, *, again: bool = False) -> UUID:
        """The id of the load to resume, or of a new one.

        Raises:
            WrongUse: another file is there now, or the journal was damaged.
            StateUnwritable: the journal cannot be written; later steps raise it too.
        """
        if again or (self.state.load is None and not self._damaged):
            with self._disk():
                self._file.truncate(0)
            self.state = Progressed()
            self._append({"load": str(new_load), "path": str(self._folder.path), "head": self._head()})
            return new_load
        if self._damaged:
            file = self._directory / self._folder.file_name
            raise WrongUse(
                f"{file} was damaged: it tells how far the load of {self._folder.path} came",
                mend="See what is in the mailbox. --again loads everything, also what an earlier load had stored.",
            )
        self._check_same_file()
        assert self.state.load is not None
        return self.state.load

    def is_done(self, key: str) -> bool:
        return _key_digest(key) in self.state.done

    def begin(self, keys: Sequence[str]) -> None:
        """Record that a batch is about to be stored."""
        self._append({"begin": list(keys)})

    def end(self, offset: int) -> None:
        """Record that the batch is stored; in an mbox everything up to `offset`."""
        self._append({"end": offset, "tail": self._tail(offset)})

    def finish(self) -> None:
        self._append({"finished": True})

    def _append(self, entry: dict[str, Any]) -> None:
        line = b"\n" + json.dumps(entry).encode()  # starts a new line even after a torn last line
        with self._disk():
            if self._file.write(line) != len(line):  # unbuffered: a disk may accept a part and refuse the rest
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        self._replay(line.strip())

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A disk error ends the load; the begun batch is in doubt and looked for again."""
        try:
            yield
        except OSError as error:
            raise StateUnwritable(
                f"how far the load of {self._folder.path} came cannot be kept under {self._directory}: "
                f"{error.strerror}",
                mend="Make room there, or mend its permissions; then type the same command again: it goes on from "
                "where it stopped.",
            ) from error

    def _replay(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            return  # a line that a kill cut short
        except RecursionError:
            self._damaged = True
            return
        match entry:
            case {"load": str(load), "head": str(head)} if _is_uuid(load):
                self.state = Progressed(load=UUID(load), head=head)
            case {"begin": [*keys]} if all(isinstance(key, str) for key in keys):
                self.state.begun = frozenset(keys)
                self.state.finished = False
                self.state.in_doubt |= self.state.begun
            case {"end": int(offset), "tail": str(tail)} if 0 <= offset < _OFFSET_MAX:
                self._remember(self.state.begun)
                self.state.offset = offset
                self.state.tail = tail
                self.state.in_doubt -= self.state.begun
            case {"finished": True}:
                self.state.finished = True
            case {"load": _} | {"begin": _} | {"end": _} | {"finished": _}:
                self._damaged = True
            case _:
                pass  # a line of a later version

    def _remember(self, keys: Iterable[str]) -> None:
        if self._folder.kind is not FolderKind.MBOX:
            self.state.done.update(_key_digest(key) for key in keys)

    def _check_same_file(self) -> None:
        if self._folder.kind is not FolderKind.MBOX or not self.state.offset:
            return
        is_shorter = self.state.offset > _source_octets(self._folder)
        if is_shorter or self._head() != self.state.head or self._tail(self.state.offset) != self.state.tail:
            raise WrongUse(
                f"{self._folder.path} is not the file any more that was loaded up to byte {self.state.offset}",
                mend="If all of it is to be loaded, whatever was loaded before, say --again.",
            )

    def _head(self) -> str:
        """The start of an mbox's first line, which does not change when mail is appended."""
        return self._digest_at(0, _HEAD_OCTETS, first_line=True)

    def _tail(self, offset: int) -> str:
        start = max(0, offset - _TAIL_OCTETS)
        return self._digest_at(start, offset - start)

    def _digest_at(self, start: int, octets: int, *, first_line: bool = False) -> str:
        if self._folder.kind is not FolderKind.MBOX:
            return ""
        with self._folder.path.open("rb") as file:
            file.seek(start)
            if first_line:
                return _digest(file.readline(octets))
            return _digest(file.read(octets))


def message_id_of(load: UUID, key: str) -> MessageId:
    """A message's id in a load: a version-1 UUID of the load's time, the same at each try."""
    mixed = int.from_bytes(blake2b(load.bytes + _octets(key), digest_size=8).digest(), "big")
    node = (mixed & (2**48 - 1)) | _MULTICAST
    sequence = mixed >> 48
    fields = (load.time_low, load.time_mid, load.time_hi_version, sequence >> 8 & 0x3F, sequence & 0xFF, node)
    return MessageId(UUID(fields=fields, version=1))


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _octets(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _key_digest(key: str) -> bytes:
    return blake2b(_octets(key), digest_size=12).digest()


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """How much is held in memory at once.

    Attributes:
        batch_messages: messages that are stored together.
        batch_octets: the bytes after which a batch is full.
        octets_max: the largest message that is accepted, in bytes.
    """

    batch_messages: int = 64
    batch_octets: int = 16 * 2**20
    octets_max: int = OCTETS_MAX


LIMITS = LoadLimits()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The sums of a load.

    Attributes:
        stored: messages stored now.
        already: messages that an earlier, interrupted load had stored.
        refused: messages that could not be loaded; each was named.
        lagged: messages stored whose projections lag: `mailmend repair lags` mends them.
        octets: bytes stored now.
        unjournalled: the lags that could not be journalled: only a check finds them.
        skipped: sub-folders and files that are no part of this folder; each was named.
        deleted: messages that the source marks as deleted; they stay away.
        doubtful: lines that begin with `From ` and that may be read either way; each was named.
        octets_read: bytes of the source that were read.
        octets_envelopes: bytes of the mbox's lines above messages; in Apple's files, what is kept
            in addition to a message.
        octets_separators: bytes of the empty lines after messages.
        octets_already: bytes of the messages that an earlier load had stored.
        octets_left: bytes of messages that were refused or are deleted.
    """

    stored: int = 0
    already: int = 0
    refused: int = 0
    lagged: int = 0
    octets: int = 0
    unjournalled: int = 0
    skipped: int = 0
    deleted: int = 0
    doubtful: int = 0
    octets_read: int = 0
    octets_envelopes: int = 0
    octets_separators: int = 0
    octets_already: int = 0
    octets_left: int = 0

    @property
    def octets_accounted(self) -> int:
        """The bytes whose whereabouts are known: equal to those read, or something was lost."""
        messages = self.octets + self.octets_already + self.octets_left
        return messages + self.octets_envelopes + self.octets_separators


def _ignored(_: Doubt) -> None:
    """The default for doubts that the caller ignores."""


class Loader:
    """Loads one folder into one mailbox.

    Args:
        store: the target.
        clock: the time of the load.
        state: the directory of load journals.
        progress: called after each batch.
        refuse: called for each message or file that is not stored.
        doubt: called for each doubtful line of an mbox, up to `DOUBTS_MAX` of a message.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        state: Path,
        progress: Progress,
        refuse: Callable[[Refused], None],
        *,
        doubt: Callable[[Doubt], None] = _ignored,
        limits: LoadLimits = LIMITS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._progress = progress
        self._refuse = refuse
        self._limits = limits
        self._doubt = doubt

    def load(self, folder: Folder, mailbox: MailboxId, *, again: bool = False) -> Loaded:
        """Store the folder's messages that are not yet stored.

        Args:
            folder: the source and its target; its `kind` comes from `mail_files.kind_of`.
            mailbox: the mailbox of the folder's user and name.
            again: load all of it once more, even if it was loaded.

        Raises:
            BadMail: the folder cannot be read.
            UnsafeRequest: all of it was loaded already, or is being loaded.
            CannotReach: the store does not answer; the same command resumes the load.
            StateUnwritable: the journal cannot be written; the same command resumes the load.
            OctetsLost: the bytes that were read are not the bytes of the messages and of what is around them.
        """
        self._progress.stage(f"loading {folder.path}")
        with LoadJournal(self._state, folder) as journal:
            load = journal.open(self._clock.new_uuid(), again=again)
            was_finished = journal.state.finished
            sums = Loaded()
            start = journal.state.offset
            source_octets = _source_octets(folder)
            for batch in self._batches(folder, journal):
                sums = _added(sums, self._store_batch(batch, journal, load, mailbox))
            sums = replace(sums, octets_read=_octets_read(sums, journal.state.offset - start, folder.kind))
            check_octets(sums, folder, journal.state.offset, source_octets)
            if was_finished and sums == Loaded():
                raise UnsafeRequest(
                    f"{folder.path} was loaded into {folder.mailbox} of {folder.user} already, all of it",
                    mend="If a second copy of every message is wanted, say --again.",
                )
            journal.finish()
            return sums

    def _batches(self, folder: Folder, journal: LoadJournal) -> Iterator[list[Found | Refused]]:
        batch: list[Found | Refused] = []
        octets = 0
        for item in self._left(folder, journal):
            batch.append(item)
            if isinstance(item, Found):
                octets += len(item.content)
            if len(batch) >= self._limits.batch_messages or octets >= self._limits.batch_octets:
                yield batch
                batch = []
                octets = 0
        if batch:
            yield batch

    def _left(self, folder: Folder, journal: LoadJournal) -> Iterator[Found | Refused]:
        items = mail_in(folder.path, folder.kind, journal.state.offset, self._limits.octets_max)
        if folder.kind is FolderKind.MBOX:
            return items
        return (item for item in items if not journal.is_done(item.key))

    def _store_batch(
        self, batch: list[Found | Refused], journal: LoadJournal, load: UUID, mailbox: MailboxId
    ) -> Loaded:
        doubtful = journal.state.in_doubt
        found = [item for item in batch if isinstance(item, Found)]
        journal.begin([item.key for item in found])
        here = set()
        for item in found:
            if item.key in doubtful and self._is_here(load, item, mailbox):
                here.add(item.key)
        mails = [self._mail(load, item) for item in found if item.key not in here]
        stored = self._store.add_all(mailbox, mails)
        journal.end(batch[-1].next_offset)
        self._name(batch)
        self._progress.advance(len(batch))
        return replace(
            _as_read(batch, here),
            stored=len(stored),
            already=len(here),
            lagged=sum(mail.lagged for mail in stored) + len(here),
            octets=sum(mail.octets for mail in mails),
            unjournalled=sum(not mail.journalled for mail in stored),
        )

    def _mail(self, load: UUID, item: Found) -> NewMail:
        return replace(mail_of(item, self._now()), message_id=message_id_of(load, item.key))

    def _is_here(self, load: UUID, item: Found, mailbox: MailboxId) -> bool:
        return self._store.complete(message_id_of(load, item.key), mailbox)

    def _name(self, batch: list[Found | Refused]) -> None:
        for item in batch:
            if isinstance(item, Refused):
                self._refuse(item)
            for doubt in item.doubts:
                self._doubt(doubt)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.micros() / MICROS, UTC)


def _added(one: Loaded, other: Loaded) -> Loaded:
    return Loaded(*map(add, astuple(one), astuple(other)))


def _as_read(batch: Sequence[Found | Refused], here: Collection[str]) -> Loaded:
    """The sums of a batch that its items tell; `here` has the keys of messages that are stored already."""
    reasons: Counter[WhyNotStored] = Counter()
    doubtful = 0
    envelopes = 0
    separators = 0
    already = 0
    left = 0
    for item in batch:
        doubtful += item.doubtful
        envelopes += _around(item)
        separators += item.separator_octets
        if isinstance(item, Refused):
            reasons[item.reason] += 1
            left += item.octets
        elif item.key in here:
            already += len(item.content)
    return Loaded(
        refused=reasons[WhyNotStored.REFUSED],
        skipped=reasons[WhyNotStored.SKIPPED],
        deleted=reasons[WhyNotStored.DELETED],
        doubtful=doubtful,
        octets_envelopes=envelopes,
        octets_separators=separators,
        octets_already=already,
        octets_left=left,
    )


def _around(item: Found | Refused) -> int:
    """The size of what is around a message and no separator; a file keeps an mbox's line in its content."""
    if not item.next_offset:
        return item.beside_octets
    return item.beside_octets + len(item.envelope)


def _source_octets(folder: Folder) -> int:
    """The size of an mbox when its load begins: at least as much is read of it."""
    if folder.kind is not FolderKind.MBOX:
        return 0
    try:
        return folder.path.stat().st_size
    except OSError as error:
        raise BadMail(f"{folder.path} cannot be read: {error.strerror}") from error


def _octets_read(sums: Loaded, octets: int, kind: FolderKind) -> int:
    """The bytes that were read: in an mbox by its offsets, else by the sizes of the files."""
    if kind is FolderKind.MBOX:
        return octets
    return sums.octets_accounted


def check_octets(sums: Loaded, folder: Folder, offset: int, source_octets: int) -> None:
    """Refuse to call a load complete whose bytes do not add up.

    Args:
        sums: of this load.
        folder: its source.
        offset: up to where an mbox is stored.
        source_octets: the size of the mbox when the load began.

    Raises:
        OctetsLost: bytes of the source are in no message, and no envelope or separator either.
    """
    unread = max(0, source_octets - offset)
    missing = sums.octets_read - sums.octets_accounted + unread
    if missing:
        raise OctetsLost(
            f"{missing:,} bytes of {folder.path} are in no message: {sums.octets_read:,} bytes were read, "
            f"{sums.octets:,} stored, {sums.octets_accounted - sums.octets:,} are envelopes, separators and messages "
            f"that are not stored, and {unread:,} bytes at the end were not read",
            mend="Keep the file: what is stored is stored, the rest is not. Report this as a bug of mailmend.",
        )
