"""Loading mail folders into the store: in batches, in bounded memory, never twice by accident.

Every message of the folder ends in exactly one sum: stored, already there, or refused by name.
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
    """How much is held at once.

    Attributes:
        batch_messages: messages that are stored together.
        batch_octets: bytes of them after which a batch is full.
        octets_max: the largest message that is taken.
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
        refused: messages that could not be taken; each was named.
        lagged: messages stored whose projections lag: `mailmend repair lags` mends them.
        unjournalled: those of them that neither the ledger nor the disk took note of: only a check finds them.
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
        store: where to.
        clock: the time of the load.
        state: the directory of load journals.
        progress: told of every batch.
        refuse: told of everything that was not taken.
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
        """Store every message of the folder that was not stored before.

        Args:
            folder: what to load, and where it goes; its `kind` comes from `mail_files.kind_of`.
            mailbox: the mailbox of the folder's user and name.
            again: forget that it was loaded, and load all of it once more.

        Raises:
            BadMail: the folder cannot be read.
            UnsafeRequest: all of it was loaded already, or is being loaded.
            CannotReach: the store does not answer; the same command goes on from there.
            StateUnwritable: the disk takes no note of how far it came; the same command goes on from there, too.
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
        """What is left to load, a batch at a time."""
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
        """Store a batch, except for what an interrupted load had stored of it."""
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
