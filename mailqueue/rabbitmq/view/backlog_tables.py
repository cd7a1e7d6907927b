"""Backlogs in their tables: mails whose message the broker has no longer.

A mail in a backlog waits like any other: its row in enqueuedMailsV4 stays, so listings, sizes,
deletions and sweeps know it. What its broker had of it, the message, is a row of `backlogMails`
from then on.

Each process that takes mails writes stretches of its own, one for each sub-queue. A row's place in
its stretch is the time when it was put, in microseconds, and greater than those before: it is the
row's write time too. So no two processes write into one stretch, and no removal hides a later row,
whatever clocks say.

`backlogs` lists the stretches of a queue and who owns each: at first its writer. An owner has a row
that expires unless it is renewed (`SEEN_FOR`). A stretch whose owner has none is taken over by a
conditional write. A process that is slow may still write into a stretch that was taken over, so it
reads the owner after it has written rows: either it sees the new owner, and puts the rows again, or
the new owner began to read after the rows were there.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mailmend.mailqueue.broker import (
    ATTEMPTS_HEADER,
    DIED_HEADER,
    HAD_HEADER,
    SLICE_HEADER,
    Message,
)
from mailmend.mailqueue.codec import attempts_of, queued_of, slice_of_message
from mailmend.mailqueue.queue import IDS_MAX, refuse_too_many
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.catalog.mail_queue import BACKLOG_MAILS, BACKLOGS
from mailmend.model.errors import BadPayload, DoubtfulWrite, MailmendError, raise_first
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import (
    Change,
    ChangeIf,
    Level,
    Put,
    Read,
    Remove,
    RemoveIf,
    Scan,
)
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Key, Row
from mailmend.repair.retries import AsyncRetries

SEEN_FOR: Final = timedelta(seconds=30)
"""How long after its last sign an owner's stretches are still its own."""

_OWNERS: Final = ""
"""The rows of owners are under this name, which no sub-queue has."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a backlog, with rows of one writer.

    Attributes:
        name: of the sub-queue.
        text: its name in the table.
        owner: the process that alone may take mails from it; None: no process, for now.
        gone_to: no row is left at this place, or before it.
        put, gone: how many rows were put, at most, and how many of them were removed, at least.
    """

    name: SubQueueName
    text: str
    id: UUID
    owner: UUID | None
    gone_to: int = 0
    put: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class BacklogMail:
    """A message that waits in a backlog.

    Attributes:
        place: in its stretch.
        redelivered: whether a consumer may have had its mail before it was put.
    """

    place: int
    message: Message
    priority: int
    redelivered: bool
    dead_lettered: bool

    @property
    def again(self) -> Message:
        """The message as it goes back to the broker: a consumer may have had its mail."""
        headers: dict[str, int | str] = {**self.message.headers, HAD_HEADER: 1}
        if self.dead_lettered:
            headers[DIED_HEADER] = 1
        return Message(self.message.body, headers)

    @property
    def buried(self) -> Message:
        """The message as a dead letter."""
        return Message(self.message.body, {**self.message.headers, DIED_HEADER: 1})


class BacklogTables:
    """The backlogs of one queue in a keyspace."""

    def __init__(self, tables: AsyncTables, clock: Clock, queue: QueueName) -> None:
        self._tables = tables
        self._clock = clock
        self._queue = queue
        self._retries = AsyncRetries(clock)

    # Owners and their stretches

    async def show(self, owner: UUID) -> None:
        """Have it known that this owner is there; once more before `SEEN_FOR` has passed."""
        row = {"queuename": self._queue, "subqueue": _OWNERS, "stretch": owner, "owner": owner}
        await self._tables.write(Put(BACKLOGS, row, ttl_seconds=int(SEEN_FOR.total_seconds())))

    async def leave(self, owner: UUID) -> None:
        """Have it known that this owner is gone."""
        await self._tables.write(Remove(BACKLOGS, self._key(_OWNERS, owner)))

    async def stretches(self) -> tuple[list[Stretch], frozenset[UUID]]:
        """All stretches, by sub-queue; and the owners that are there."""
        stretches = list[Stretch]()
        owners = set[UUID]()
        scan = Scan(BACKLOGS, BACKLOGS.names, Level.QUORUM, under=(self._queue,))
        async for row in self._tables.scan(scan):
            if row["subqueue"] == _OWNERS:
                owners.add(row["stretch"])
            else:
                stretches.append(_stretch_of(row))
        return stretches, frozenset(owners)

    async def begin(self, name: SubQueueName, owner: UUID) -> Stretch:
        """List a stretch of this owner, before anything is put there.

        Its id is new, so no process competes for the row: a plain write is enough. Each later write
        of `owner` is conditional, and newer than this one whatever clocks say.
        """
        stretch = Stretch(name, name.text, self._clock.random_uuid(), owner)
        key = {"queuename": self._queue, "subqueue": name.text, "stretch": stretch.id}
        await self._retries.write(self._tables, Put(BACKLOGS, {**key, "owner": owner}, at=1))
        return stretch

    async def take_over(self, stretch: Stretch, owner: UUID) -> bool:
        """Have this owner in place of the one that is gone; whether no other was faster.

        A list is read page by page, and its owners before its stretches: so the owner is looked for
        once more.
        """
        if stretch.owner not in {None, owner} and await self._is_there(stretch.owner):
            return False
        key = self._list_key(stretch)
        change = ChangeIf(BACKLOGS, key, {"owner": stretch.owner}, assign={"owner": owner})
        try:
            return (await self._tables.attempt(change)).applied
        except DoubtfulWrite:
            return await self._owner(stretch, Level.SERIAL) == owner

    async def end(self, stretch: Stretch, last_place: int) -> None:
        """Strike a stretch without rows off the list; it stays where another owns it by now."""
        removed = RemoveIf(BACKLOGS, self._list_key(stretch), {"owner": stretch.owner})
        if (await self._tables.attempt(removed)).applied:
            rows = (self._queue, stretch.id)
            await self._tables.write(Remove(BACKLOG_MAILS, rows, at=self._stamp_after(last_place)))

    async def note(self, stretch: Stretch, figures: Mapping[str, int]) -> None:
        """Keep how far the stretch is: `gone_to`, `put` and `gone`."""
        assign = {_COLUMNS[name]: value for name, value in figures.items()}
        await self._tables.write(Change(BACKLOGS, self._list_key(stretch), assign))

    async def waiting(self) -> int:
        """How many mails are in backlogs, at most: some may have left meanwhile."""
        stretches, _ = await self.stretches()
        return sum(max(0, stretch.put - stretch.gone) for stretch in stretches)

    async def ids(self, ids_max: int = IDS_MAX) -> frozenset[EnqueueId]:
        """The ids of the mails in backlogs; a message that names no mail is left out.

        Raises:
            UnsafeRequest: there are more than `ids_max`.
        """
        found = set[EnqueueId]()
        stretches, _ = await self.stretches()
        for stretch in stretches:
            async for mail in self.mails(stretch, stretch.gone_to):
                with suppress(BadPayload):
                    found.add(queued_of(mail.message.body).enqueue_id)
                refuse_too_many(len(found), f"mails in backlogs of {self._queue}", ids_max)
        return frozenset(found)

    # Mails

    async def put(self, stretch: Stretch, mails: Sequence[BacklogMail]) -> bool:
        """Put mails at their places; whether the stretch is still its owner's.

        Raises:
            CannotReach: some may be there; none counts as put.
        """
        writes = []
        for mail in mails:
            row = self._row_of(stretch, mail)
            writes.append(Put(BACKLOG_MAILS, row, at=mail.place, joinable=True))
        raise_first(await self._retries.write_all(self._tables, writes))
        return await self._retries.call(lambda: self._owner(stretch, Level.QUORUM)) == stretch.owner

    async def mails(
        self,
        stretch: Stretch,
        after: int,
        limit: int | None = None,
    ) -> AsyncGenerator[BacklogMail]:
        """The mails behind a place, the oldest first."""
        scan = Scan(
            BACKLOG_MAILS,
            BACKLOG_MAILS.names,
            Level.QUORUM,
            under=(self._queue, stretch.id),
            after=(after,),
            limit=limit,
        )
        async for row in self._tables.scan(scan):
            yield _mail_of(row)

    async def remove(self, stretch: Stretch, places: Sequence[int]) -> list[MailmendError | None]:
        """Remove rows; for each its error, or None, in order."""
        writes = []
        for place in places:
            key = (self._queue, stretch.id, place)
            writes.append(Remove(BACKLOG_MAILS, key, at=self._stamp_after(place), joinable=True))
        return await self._retries.write_all(self._tables, writes)

    async def _is_there(self, owner: UUID) -> bool:
        """Whether this owner has shown a sign that has not expired."""
        return bool(await self._tables.read(Read(BACKLOGS, self._key(_OWNERS, owner))))

    async def _owner(self, stretch: Stretch, level: Level) -> UUID | None:
        seen = await self._tables.read(Read(BACKLOGS, self._list_key(stretch), level))
        if not seen:
            return None
        owner: UUID | None = seen[0].row["owner"]
        return owner

    def _stamp_after(self, place: int) -> int:
        """A write time that removes the row at a place, whichever clock gave it."""
        return max(self._clock.micros(), place + 1)

    def _list_key(self, stretch: Stretch) -> Key:
        return self._key(stretch.text, stretch.id)

    def _key(self, name: str, stretch: UUID) -> Key:
        return (self._queue, name, stretch)

    def _row_of(self, stretch: Stretch, mail: BacklogMail) -> Row:
        message = mail.message
        return {
            "queuename": self._queue,
            "stretch": stretch.id,
            "place": mail.place,
            "body": message.body,
            "timerangestart": slice_of_message(message),
            "attempts": attempts_of(message) or None,
            "priority": mail.priority,
            "redelivered": mail.redelivered,
            "deadlettered": mail.dead_lettered,
        }


_COLUMNS: Final = {"gone_to": "goneto", "put": "put", "gone": "gone"}


def _stretch_of(row: Row) -> Stretch:
    """A name that cannot be read is a sub-queue of its own: its mails are not lost with it."""
    try:
        name = SubQueueName.of(row["subqueue"])
    except BadPayload:
        name = SubQueueName("", row["subqueue"])
    return Stretch(
        name,
        row["subqueue"],
        row["stretch"],
        row["owner"],
        gone_to=row["goneto"] or 0,
        put=row["put"] or 0,
        gone=row["gone"] or 0,
    )


def _mail_of(row: Row) -> BacklogMail:
    headers: dict[str, int | str] = {}
    slice_start: datetime | None = row["timerangestart"]
    if slice_start is not None:
        headers[SLICE_HEADER] = millis_of(slice_start)
    if row["attempts"]:
        headers[ATTEMPTS_HEADER] = row["attempts"]
    return BacklogMail(
        row["place"],
        Message(row["body"] or b"", headers),
        row["priority"] or 0,
        bool(row["redelivered"]),
        bool(row["deadlettered"]),
    )
