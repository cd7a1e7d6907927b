"""The queue's configuration where James keeps it: events in eventStore, appended by conditional writes.

Several processes, James's among them, may start at once with different settings. Each appends after what it has read;
the loser reads again, and its settings are checked against the winner's.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mailmend.mailqueue.rules.configuration import (
    AGGREGATE,
    DEFAULT,
    ConfigurationEvent,
    QueueConfiguration,
    change,
    event_json,
    event_of,
)
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.errors import Contended, DoubtfulWrite
from mailmend.model.operations import Level, PutIfAbsent, Read
from mailmend.model.ports import AsyncTables

ROUNDS_MAX: Final = 20
"""How many conditional writes in a row may lose to other processes, each of which starts with other settings."""

EVENTS: Final = EVENT_STORE.with_columns(column for column in EVENT_STORE.columns if column.name != "snapshot")
"""eventStore without its static column `snapshot`: older generations lack it, and James writes it only for other
aggregates than this one."""

Wish = Callable[[QueueConfiguration], QueueConfiguration]


class Configurations:
    """The configurations of one keyspace; every queue in it is cut the same way."""

    def __init__(self, tables: AsyncTables) -> None:
        self._tables = tables

    async def current(self) -> QueueConfiguration | None:
        """The configuration in force; None where none was ever set."""
        return _last(await self.history())

    async def history(self) -> list[ConfigurationEvent]:
        """Every configuration that was set, the oldest first."""
        return await self._events(Level.QUORUM)

    async def require(self, wanted: QueueConfiguration | None = None) -> QueueConfiguration:
        """Put the wanted configuration in force if it is not; each process calls this when it starts.

        Args:
            wanted: None for what is stored, or James's defaults where nothing is.

        Raises:
            ConfigurationRefused: the change would hide mails from listings; nothing was written.
        """
        return await self.alter(lambda current: wanted or current)

    async def alter(self, wish: Wish) -> QueueConfiguration:
        """Change the configuration in force at that moment; one that stays the same appends no event.

        Args:
            wish: a function from the configuration in force (James's defaults where none was set) to the wanted one.
        """
        for _ in range(ROUNDS_MAX):
            events = await self._events(Level.SERIAL)
            current = _last(events)
            agreed = change(current, wish(current or DEFAULT))
            if agreed == current or await self._appended(events, agreed):
                return agreed
        raise Contended("others kept changing the queue's configuration", mend="Run the same again.")

    async def _events(self, level: Level) -> list[ConfigurationEvent]:
        """A SERIAL read completes an open conditional write."""
        seen = await self._tables.read(Read(EVENTS, (AGGREGATE,), level))
        return [event_of(stored.row["eventid"], stored.row["event"]) for stored in seen]

    async def _appended(self, events: Sequence[ConfigurationEvent], agreed: QueueConfiguration) -> bool:
        """Whether the event was written; where the answer was lost, the next round reads it."""
        event_id = 0
        if events:
            event_id = events[-1].event_id + 1
        row = {"aggregateid": AGGREGATE, "eventid": event_id, "event": event_json(event_id, agreed)}
        try:
            return (await self._tables.attempt(PutIfAbsent(EVENTS, row))).applied
        except DoubtfulWrite:
            return False


def _last(events: Sequence[ConfigurationEvent]) -> QueueConfiguration | None:
    if not events:
        return None
    return events[-1].configuration
