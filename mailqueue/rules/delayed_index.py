"""When which delayed messages of a topic are due, in bounded memory. Pure.

Of more than it may keep it knows those that are due first, and from when on it knows too little: by then it is to be
built anew. Of n messages that none is added to, that is 2 n / `KEPT_MAX` times.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from mailmend.mailqueue.rules.places import MessagePlace

KEPT_MAX: Final = 50_000
"""The number of messages that are kept, at some 300 bytes each."""


class DelayedIndex:
    """Due times, in milliseconds since 1970, by place.

    Attributes:
        short_from: from when on it does not know all that are due; None: it knows them all.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._due_at: dict[MessagePlace, int] = {}
        self._by_time: list[tuple[int, MessagePlace]] = []
        self.short_from: int | None = None

    def __len__(self) -> int:
        return len(self._due_at)

    def add(self, place: MessagePlace, due_at: int) -> None:
        if self.short_from is not None and due_at >= self.short_from:
            return
        self._due_at[place] = due_at
        heappush(self._by_time, (due_at, place))
        if len(self._due_at) > self._kept_max or len(self._by_time) > 2 * self._kept_max:
            self._cut()

    def drop(self, places: Iterable[MessagePlace]) -> None:
        """Forget some, of which it may know nothing."""
        for place in places:
            self._due_at.pop(place, None)

    def has_due(self, now: int) -> bool:
        """Whether some are due, or may be."""
        return self.is_short(now) or bool(self._by_time and self._by_time[0][0] <= now)

    def is_short(self, now: int) -> bool:
        """Whether more may be due than it knows."""
        return self.short_from is not None and self.short_from <= now

    def take_due(self, now: int) -> list[MessagePlace]:
        """Those that are due, the first one first; it forgets them."""
        found = list[MessagePlace]()
        while self._by_time and self._by_time[0][0] <= now:
            due_at, place = heappop(self._by_time)
            if self._due_at.get(place) == due_at:
                del self._due_at[place]
                found.append(place)
        return found

    def _cut(self) -> None:
        """Keep the half that is due first, if there are too many; forget what was dropped."""
        entries = sorted((due_at, place) for place, due_at in self._due_at.items())
        if len(entries) > self._kept_max:
            kept = entries[: self._kept_max // 2]
            self.short_from = entries[len(kept)][0]
            self._due_at = {place: due_at for due_at, place in kept}
            entries = kept
        self._by_time = entries
        heapify(self._by_time)
