"""Loading mail folders into the store: in batches, in bounded memory, never twice by accident.

Each message of the folder counts in exactly one sum: stored, already there, or refused by name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from model.errors import UnsafeRequest
from model.ids import MailboxId
from model.instants import MICROS
from model.messages.message import Mail
from model.ports import Clock, Progress
from repair.writing.load_journal import Folder, LoadJournal, message_id_of
from repair.writing.mail_files import OCTETS_MAX, FolderKind, Found, Refused, mail_in
from repair.writing.mail_headers import mail_of
from repair.writing.message_store import MessageStore


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
        unjournalled: those of them that could not be journalled: only a check finds them.
        octets: bytes stored now.
    """

    stored: int = 0
    already: int = 0
    refused: int = 0
    lagged: int = 0
    octets: int = 0
    unjournalled: int = 0


class Loader:
    """Loads one folder into one mailbox.

    Args:
        store: the target.
        clock: the time of the load.
        state: the directory of load journals.
        progress: called after each batch.
        refuse: called for each refusal.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        state: Path,
        progress: Progress,
        refuse: Callable[[Refused], None],
        *,
        limits: LoadLimits = LIMITS,
    ) -> None:
        self._store, self._clock, self._state = store, clock, state
        self._progress, self._refuse, self._limits = progress, refuse, limits

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
        """
        self._progress.stage(f"loading {folder.path}")
        with LoadJournal(self._state, folder) as journal:
            load = journal.open(self._clock.new_uuid(), again=again)
            was_finished, sums = journal.state.finished, Loaded()
            for batch in self._batches(folder, journal):
                sums = _added(sums, self._store_batch(batch, journal, load, mailbox))
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
            octets += len(item.content) if isinstance(item, Found) else 0
            if len(batch) >= self._limits.batch_messages or octets >= self._limits.batch_octets:
                yield batch
                batch, octets = [], 0
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
        """Store a batch without the messages that an interrupted load had stored."""
        doubtful = journal.state.in_doubt
        found = [item for item in batch if isinstance(item, Found)]
        journal.begin([item.key for item in found])
        here = {item.key for item in found if item.key in doubtful and self._is_here(load, item, mailbox)}
        mails = [self._mail(load, item) for item in found if item.key not in here]
        stored = self._store.add_all(mailbox, mails)
        journal.end(batch[-1].next_offset)
        refused = self._name_refused(batch)
        self._progress.advance(len(batch))
        return Loaded(
            stored=len(stored),
            already=len(here),
            refused=refused,
            lagged=sum(one.lagged for one in stored) + len(here),
            octets=sum(mail.octets for mail in mails),
            unjournalled=sum(not one.journalled for one in stored),
        )

    def _mail(self, load: UUID, item: Found) -> Mail:
        return replace(mail_of(item, self._now()), message_id=message_id_of(load, item.key))

    def _is_here(self, load: UUID, item: Found, mailbox: MailboxId) -> bool:
        return self._store.complete(message_id_of(load, item.key), mailbox)

    def _name_refused(self, batch: list[Found | Refused]) -> int:
        refused = [item for item in batch if isinstance(item, Refused)]
        for item in refused:
            self._refuse(item)
        return sum(item.mail for item in refused)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.micros() / MICROS, UTC)


def _added(one: Loaded, other: Loaded) -> Loaded:
    return Loaded(
        one.stored + other.stored,
        one.already + other.already,
        one.refused + other.refused,
        one.lagged + other.lagged,
        one.octets + other.octets,
        one.unjournalled + other.unjournalled,
    )
