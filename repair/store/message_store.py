"""Writing mail: the truth first, then projections, with retries (docs/design.md, "Write path").

Asked where a generator of numbers may be behind them: its table was restored from a backup. A
message in the truth that the mirror does not show is not seen here; a check finds it, and then the
generator.

A change counts as done once the truth has it. What could not be projected is journalled as a lag
and the answer says so; a change whose truth write got no clear answer raises, and all that hangs on
it is journalled to be looked at.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Self, TypeVar

from mailmend.model.blobs import BlobKind, Blobs
from mailmend.model.catalog.mail import MESSAGE_COUNTER, MESSAGES, MODSEQ
from mailmend.model.errors import (
    BlobMissing,
    BlobsUnreachable,
    CannotReach,
    Contended,
    MailmendError,
    Unjournalled,
    UnknownMessage,
)
from mailmend.model.ids import BlobId, MailboxId, MessageId, ModSeq, Uid
from mailmend.model.instants import MICROS
from mailmend.model.operations import Level, Put, Read, Scan, Seen
from mailmend.model.ports import Clock, Lags, Tables
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Family
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Row
from mailmend.repair.retries import Retries
from mailmend.repair.store.mailboxes import Sequence as Numbers
from mailmend.repair.store.message import FlagsChange, MessageKey, NewMail, Stored
from mailmend.repair.store.plans import (
    BlobIds,
    Position,
    content_row,
    copied_row,
    flagged_row,
    place_of,
    renumbered_row,
    truth_row,
)
from mailmend.repair.store.writes import DEFAULTS, Committed, Projector, Propagation, WriterSettings, truth_by

LATEST_UIDS = 100
"""The number of latest uids whose modseqs are compared with the generator's."""


@dataclass(frozen=True, slots=True)
class NumbersInUse:
    """Looks at the rows of one mailbox of the mirror."""

    tables: Tables
    mirror: Mirror
    retries: Retries

    def highest_uid(self, mailbox: MailboxId, last: int) -> int:
        """The highest uid in the mailbox, where it is above `last`; else `last`."""
        return self.retries.call(lambda: max((row["uid"] for row in self._rows(mailbox, last)), default=last))

    def highest_modseq(self, mailbox: MailboxId, last: int, last_uid: int | None) -> int:
        """The highest modseq in the mailbox, where the latest messages have one above `last`; else `last`.

        Args:
            mailbox: whose rows are read: all of them only where a modseq above `last` was seen.
            last: the last modseq that the generator gave.
            last_uid: the last uid of the mailbox; None where it is not known, and no row is read.
        """
        if last_uid is None:
            return last
        latest = self._highest_modseq(mailbox, max(0, last_uid - LATEST_UIDS))
        if latest <= last:
            return last
        return self._highest_modseq(mailbox, 0)

    def messages_at(self, mailbox: MailboxId, uids: Sequence[int]) -> Mapping[int, MessageId | None]:
        """The messages at these places, by uid; None at a place whose row names no message."""
        lead = self._lead
        read = Read(self.mirror.table, (mailbox,), among=tuple(uids), columns=(lead,))
        rows = self.retries.call(lambda: self.tables.read(read))
        return {seen.row["uid"]: seen.row.get(lead) for seen in rows}

    def _highest_modseq(self, mailbox: MailboxId, after: int) -> int:
        return self.retries.call(lambda: max((row["modseq"] or 0 for row in self._rows(mailbox, after)), default=0))

    def _rows(self, mailbox: MailboxId, after: int) -> Iterator[Row]:
        return self.tables.scan(
            Scan(self.mirror.table, ("uid", "modseq"), Level.QUORUM, under=(mailbox,), after=(after,))
        )

    @property
    def _lead(self) -> str:
        (lead,) = self.mirror.truth.partition_names
        return self.mirror.own_names.get(lead, lead)


T = TypeVar("T")
U = TypeVar("U")


class MessageStore:
    """The messages of one keyspace, for services that write them. Thread-safe.

    It writes the truth, its projections and the content. James keeps further tables of a mail, and
    this class leaves them as they are:

    - `email_query_view_received_at`, `email_query_view_sent_at`, `email_query_view_date_lookup`:
      `POST /mailboxes?task=populateEmailQueryView`
    - `message_fast_view_projection`: `POST /mailboxes?task=recomputeFastViewProjectionItems`
    - `quotaCurrentValue`, `currentQuota`: `POST /quota/users?task=RecomputeCurrentQuotas`
    - `pop3metadata`: `POST /mailboxes?task=fixPop3Inconsistencies`
    - `thread_2`, `thread_lookup_3` (`threadTable`, `threadLookupTable` before 3.9): James has no
      task. A reply to such a mail begins a thread of its own.
    - `attachmentV2`: James has no task. The attachments are in the content.
    - the search index: `POST /mailboxes?task=reIndex`

    Args:
        tables: the mail keyspace.
        blobs: where contents are kept.
        lags: where projections that could not be written are journalled.
        clock: the time of stamps, waits and new message ids.
        family: the declarations, restricted to what the live schema has; None: all of James's.
        settings: how to write; None: conditionally, as James does by default.
    """

    def __init__(
        self,
        tables: Tables,
        blobs: Blobs,
        lags: Lags,
        clock: Clock,
        *,
        family: Family | None = None,
        settings: WriterSettings | None = None,
    ) -> None:
        if family is None:
            family = MESSAGES
        if settings is None:
            settings = DEFAULTS
        self._tables = tables
        self._blobs = BlobBridge(blobs)
        self._clock = clock
        self._family = family
        self._settings = settings
        self._content = content_of(family)
        self._retries = Retries(clock, settings.retries)
        self._truth = truth_by(settings, tables, family.truth, clock, self._retries)
        self._in_use = NumbersInUse(tables, family.mirror, self._retries)
        rounds = settings.rounds_max
        self._uids = Numbers(tables, MESSAGE_COUNTER, self._retries, rounds, self._in_use.highest_uid)
        self._modseqs = Numbers(tables, MODSEQ, self._retries, rounds, self._highest_modseq)
        self._projector = Projector(
            tables,
            (family,),
            lags,
            self._retries,
            clock,
            settings.send_micros,
        )
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="mailmend-store")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads after their current work."""
        self._pool.shutdown()

    def add(self, mailbox: MailboxId, mail: NewMail) -> Stored:
        """Store a mail in a mailbox.

        Raises:
            CannotReach: the truth could not be written, or the outcome of its write is unknown.
            Contended: other processes took every uid or modseq first.
        """
        return self.add_all(mailbox, (mail,))[0]

    def add_all(self, mailbox: MailboxId, mails: Sequence[NewMail]) -> list[Stored]:
        """Store many mails in a mailbox under consecutive uids and one modseq, several at a time.

        Raises:
            CannotReach: as `add`; mails that are already stored stay.
        """
        if not mails:
            return []
        first = self._uids.take(mailbox, len(mails))
        modseq = ModSeq(self._modseqs.take(mailbox))
        saved_at = self._now()
        taken = self._in_use.messages_at(mailbox, range(first, first + len(mails)))

        def insert(place: int) -> Committed:
            mail = mails[place]
            message_id = mail.message_id or MessageId(self._clock.new_uuid())
            blobs = self._keep_content(message_id, mail)
            position = Position(MessageKey(message_id, mailbox, Uid(first + place)), modseq, saved_at)
            row = truth_row(self._family.truth, mail, blobs, position)
            return self._insert(row, taken, fresh=mail.message_id is None)

        outcomes = self._each(insert, range(len(mails)))
        stored = self._projected([made for made in outcomes if isinstance(made, Committed)])
        for outcome in outcomes:
            if isinstance(outcome, MailmendError):
                raise outcome
        return stored

    def copy(self, place: MessageKey, mailbox: MailboxId) -> Stored:
        r"""Copy a message to a mailbox (also its own): same id and content, new uid and modseq, \Recent.

        Raises:
            UnknownMessage: there is no such message.
        """
        seen = self._seen(place)
        uid = Uid(self._uids.take(mailbox))
        modseq = ModSeq(self._modseqs.take(mailbox))
        position = Position(MessageKey(place.message_id, mailbox, uid), modseq, self._now())
        taken = self._in_use.messages_at(mailbox, (uid,))
        return self._projected([self._insert(copied_row(seen.row, position), taken)])[0]

    def move(self, place: MessageKey, mailbox: MailboxId) -> Stored:
        """Move a message: copy it, then delete the original, as James does.

        Raises:
            UnknownMessage: there is no such message.
            MailmendError: the delete failed; the message is in both mailboxes, and the error says so.
        """
        copied = self.copy(place, mailbox)
        try:
            deleted = self.delete(place)
        except UnknownMessage:
            return copied  # another process moved or deleted it meanwhile: the copy stays
        except MailmendError as error:
            error.add_note(f"the message is in both mailboxes; its copy is uid {copied.uid} of {mailbox}")
            raise
        return _beside(copied, deleted)

    def delete(self, place: MessageKey) -> Stored:
        """Delete a message, exactly this uid, from one mailbox. The collection of leaks removes its content.

        Raises:
            UnknownMessage: there is no such message.
        """

        def attempt() -> Stored | None:
            seen = self._seen(place)
            with self._looked_at(seen.row):
                made = self._truth.remove(seen)
            if made is None:
                return None
            return self._projected([made])[0]

        return self._rounds(attempt, place)

    def look(self, place: MessageKey) -> Seen:
        """Read the truth row of a message with its write times, for `seen` of `set_flags`.

        Raises:
            UnknownMessage: there is no such message.
        """
        return self._seen(place)

    def set_flags(self, place: MessageKey, change: FlagsChange, seen: Seen | None = None) -> Stored:
        """Change a message's flags; a change that changes nothing writes nothing.

        Args:
            place: where the message is.
            change: the change, applied to the flags that the message has when it is written.
            seen: what `look` gave, however long ago: it saves the read before. The condition of the write finds
                out when it is stale, and then it is read after all (plain writes have none, and always read).

        Raises:
            UnknownMessage: there is no such message.
            Contended: others kept changing the same message.
        """
        propagation = Propagation.COMPLETE
        given = seen

        def attempt() -> Stored | None:
            nonlocal propagation, given
            before, after = self._about_to_flag(place, change, given)
            given = None
            if after is None:
                return _stored(before.row, propagation)
            modseq = self._modseqs.take(place.mailbox_id, above=before.row.get("modseq") or 0)
            after = {**after, "modseq": ModSeq(modseq)}
            with self._looked_at(after):
                made = self._truth.change(before, after)
            if made is None:
                return None
            propagation = Propagation.worst(propagation, *self._projector.project([made]))
            if not made.sure:
                return None
            return _stored(after, propagation)

        return self._rounds(attempt, place)

    def _about_to_flag(self, place: MessageKey, change: FlagsChange, given: Seen | None) -> tuple[Seen, Row | None]:
        """The row as seen and as changed; None where nothing changes, which only a read can tell."""
        if given is not None and self._is_guarded(given, place):
            after = flagged_row(given.row, change, ModSeq(0))
            if after is not None:
                return given, after
        seen = self._seen(place)
        return seen, flagged_row(seen.row, change, ModSeq(0))

    def _is_guarded(self, given: Seen, place: MessageKey) -> bool:
        """Whether the write's condition detects that this look is stale, and its stamp can follow from it."""
        return self._settings.strong and place_of(given.row) == place and "modseq" in given.written_at

    def complete(self, message_id: MessageId, mailbox: MailboxId) -> bool:
        """Whether a message is in a mailbox; if so, its projections are journalled to be looked at.

        Used after an interrupted add, when the message may be in the truth only.

        Raises:
            Unjournalled: it could not be journalled.
        """
        key = (message_id, mailbox)
        rows = self._retries.call(lambda: self._tables.read(Read(self._family.truth, key, Level.SERIAL)))
        if self._projector.suspect((seen.row for seen in rows), "its writer was interrupted") is Propagation.LOST:
            raise Unjournalled(
                f"message {message_id} was stored by a writer that was interrupted, and that could not be journalled",
                mend="Make room on the disk, or wait for the ledger; then type the same command again.",
            )
        return bool(rows)

    def find(self, mailbox: MailboxId, uid: Uid) -> MessageKey | None:
        """The place of a message by its uid, from the mirror; None where the mirror has none."""
        rows = self._tables.read(Read(self._family.mirror.table, (mailbox, uid)))
        if not rows or not rows[0].row.get("messageid"):
            return None
        return MessageKey(rows[0].row["messageid"], mailbox, uid)

    def content(self, message_id: MessageId) -> bytes:
        """The bytes of a message.

        Raises:
            UnknownMessage: its content is gone.
            BlobsUnreachable: the store does not answer, or has other bytes: encrypted, compressed.
        """
        rows = self._tables.read(Read(self._content.table, (message_id,)))
        if rows:
            header = rows[0].row.get("headercontent")
            body = rows[0].row.get("bodycontent")
            if header and body:
                with suppress(BlobMissing):  # reported below
                    content = self._blobs.get(header, body)
                    said = rows[0].row.get("fullcontentoctets")
                    _refuse_other_size(message_id, len(content), said)
                    return content
        raise UnknownMessage(f"message {message_id} has no content")

    def _keep_content(self, message_id: MessageId, mail: NewMail) -> BlobIds:
        blobs = self._retries.call(lambda: self._blobs.put(mail.header, mail.body))
        row = content_row(self._content.table, message_id, mail, blobs)
        self._retries.call(lambda: self._tables.write(Put(self._content.table, row)))
        return blobs

    def _insert(self, row: Row, taken: Mapping[int, MessageId | None], *, fresh: bool = False) -> Committed:
        """Insert a row where its place is free, else under another uid.

        Args:
            row: the whole row.
            taken: the messages at the places of its batch, by uid.
            fresh: as for `ConditionalTruth.insert`.
        """
        mailbox: MailboxId = row["mailboxid"]
        for _ in range(self._settings.numbers_max):
            uid = row["uid"]
            if taken.get(uid, row["messageid"]) == row["messageid"]:
                with self._looked_at(row):
                    made = self._truth.insert(row, fresh=fresh)
                if made:
                    return made
            row = renumbered_row(row, Uid(self._uids.take(mailbox, above=self._in_use.highest_uid(mailbox, uid))))
            taken = self._in_use.messages_at(mailbox, (row["uid"],))
        raise Contended(
            f"message {row['messageid']} does not show in mailbox {row['mailboxid']} under any of "
            f"{self._settings.numbers_max} uids",
            mend="Most likely a deletion from a clock that runs ahead hides it: compare the clocks, try again later.",
        )

    def _projected(self, batch: Sequence[Committed]) -> list[Stored]:
        propagations = self._projector.project(batch)
        return [_stored(made.row, propagation) for made, propagation in zip(batch, propagations, strict=True)]

    def _seen(self, place: MessageKey) -> Seen:
        seen = self._truth.read(place.key)
        if seen is None:
            raise UnknownMessage(
                f"message {place.message_id} is not in mailbox {place.mailbox_id} under uid {place.uid}"
            )
        return seen

    @contextmanager
    def _looked_at(self, row: Row) -> Iterator[None]:
        """Journal all projections of the row where its truth write gets no answer."""
        try:
            yield
        except CannotReach as error:
            if self._projector.suspect((row,), error.what) is Propagation.LOST:
                error.mend = f"{error.mend} {_UNKEPT}".strip()
            raise

    def _rounds(self, attempt: Callable[[], Stored | None], place: MessageKey) -> Stored:
        stored = self._retries.rounds(attempt, self._settings.rounds_max)
        if stored is None:
            raise Contended(f"others kept changing message {place.message_id} in mailbox {place.mailbox_id}")
        return stored

    def _each(self, step: Callable[[T], U], items: Sequence[T]) -> list[U | MailmendError]:
        def outcome(item: T) -> U | MailmendError:
            try:
                return step(item)
            except MailmendError as error:
                return error

        if len(items) == 1:  # no other thread is needed
            return [outcome(items[0])]
        return list(self._pool.map(outcome, items))

    def _highest_modseq(self, mailbox: MailboxId, last: int) -> int:
        return self._in_use.highest_modseq(mailbox, last, self._uids.last(mailbox))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.micros() / MICROS, UTC)


def _refuse_other_size(message_id: MessageId, size: int, said: int | None) -> None:
    if said is not None and size != said:
        raise BlobsUnreachable(
            f"the content of message {message_id} has {size:,} bytes, and its row says {said:,}",
            mend="Does James encrypt or compress its blobs (blob.properties)? It alone reads them.",
        )


def content_of(family: Family) -> Content:
    assert family.content is not None, "messages have content"
    return family.content


_UNKEPT = "What follows from it could not be journalled either: run mailmend check messages later."


def _stored(row: Row, propagation: Propagation) -> Stored:
    place = place_of(row)
    modseq = ModSeq(row.get("modseq") or 0)
    lagged = propagation is not Propagation.COMPLETE
    journalled = propagation is not Propagation.LOST
    return Stored(place.message_id, place.mailbox_id, place.uid, modseq, lagged, journalled)


def _beside(stored: Stored, other: Stored) -> Stored:
    return replace(stored, lagged=stored.lagged or other.lagged, journalled=stored.journalled and other.journalled)


class BlobBridge:
    """The contents of messages in a store of blobs, header and body side by side. Thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, header: bytes, body: bytes) -> BlobIds:
        """Store a message durably.

        Raises:
            BlobsUnreachable: the store does not answer, or accepts nothing.
        """
        contents = ((header, BlobKind.HEADER), (body, BlobKind.BODY))
        return BlobIds(*_run(self._blobs.put_all(contents)))

    def get(self, header: str, body: str) -> bytes:
        """The whole message.

        Raises:
            BlobMissing: the store has nothing under one of the ids.
            BlobsUnreachable: the store does not answer.
        """
        return b"".join(_run(self._blobs.get_all((BlobId(header), BlobId(body)))))


def _run(step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(step, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop for this process's blobs, in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mailmend-blobs", daemon=True).start()
    return loop
