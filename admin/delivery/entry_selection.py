"""Which recipients of a queue's mails are meant: as commands and callers over a network name them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from mailmend.delivery.mail.entries import EntryState
from mailmend.delivery.mail.queued import EntryField, EntryFilter
from mailmend.model.errors import WrongUse

_RANGE: Final = re.compile(r"(\d{1,6})(-(\d{1,6})?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySelection:
    """Which entries, relative to the time of the request; by default all. `retries`: at least, and at most, so many."""

    ids: tuple[str, ...] = ()
    texts: Mapping[EntryField, tuple[str, ...]] = field(default_factory=dict)
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    states: tuple[EntryState, ...] = ()
    retries: tuple[int, int | None] = (0, None)
    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    def at(self, now: datetime) -> EntryFilter:
        return EntryFilter(
            ids=frozenset(self.ids),
            texts=self.texts,
            attributes=self.attributes,
            states=frozenset(self.states),
            refusals_min=self.retries[0],
            refusals_max=self.retries[1],
            older_than_at=now - self.older_than if self.older_than else None,
            newer_than_at=now - self.newer_than if self.newer_than else None,
        )


def parse_retries(text: str) -> tuple[int, int | None]:
    """How often at least, and at most: `3`, `3-` for three or more, `3-10`."""
    found = _RANGE.fullmatch(text)
    if not found:
        raise WrongUse(f"{text!r} is no range of numbers", mend="Write 3, 3- for three or more, or 3-10.")
    low = int(found[1])
    if not found[2]:
        return low, low
    return low, int(found[3]) if found[3] else None


def parse_attribute(text: str) -> tuple[str, str]:
    """An attribute of a mail, and what it is to be: `campaign=spring`."""
    name, is_there, value = text.partition("=")
    if not name or not is_there:
        raise WrongUse(f"{text!r} is no attribute with a value", mend="Write it like campaign=spring.")
    return name, value


def attributes_of(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """By name, what each may be."""
    found = dict[str, tuple[str, ...]]()
    for name, value in pairs:
        found[name] = (*found.get(name, ()), value)
    return found
