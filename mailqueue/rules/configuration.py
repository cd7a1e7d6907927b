"""The configuration of the queues' view, which James stores as events (the last one counts), and its safe changes.

The rules are James's own. A mail is found by computing its slice and bucket again. With a slice window that does not
divide the previous one, or with fewer buckets, some mails would not be found. The pace may be any. Pure.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.mailqueue.rules.james_json import (
    json_text,
    object_in,
    refuse,
    seconds_of,
    whole_number_of,
    whole_seconds_of,
)
from mailmend.mailqueue.rules.slices import SECOND, Slicing
from mailmend.model.errors import BadPayload, ConfigurationRefused

AGGREGATE: Final = "CassandraMailQueueViewConfiguration"
"""The aggregate of the events; all queues of a keyspace share one configuration."""

EVENT_TYPE: Final = "cassandra-mail-queue-view-configuration"

_COUNTS: Final = range(1, 2**31)
_EVENT_IDS: Final = range(2**31)
"""Java's int."""

_WINDOWS: Final = range(1, 3_650 * 86_400 + 1)
"""In seconds; ten years are no slice any more."""

_LOST_IN_TIME: Final = "mails of its slices would be looked for in slices where they are not"
_LOST_IN_BUCKETS: Final = "mails of the others would not be looked for any more"

_MINUTE: Final = 60
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", _MINUTE), ("s", 1))


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """The slices and buckets of a keyspace's queues, and how often a process moves the browse start.

    Attributes:
        pace: on average one of this many dequeues and deletes moves the browse start (`updateBrowseStartPace`).
    """

    slicing: Slicing
    pace: int


@dataclass(frozen=True, slots=True)
class ConfigurationEvent:
    """A configuration that was set; the first event has the id 0."""

    event_id: int
    configuration: QueueConfiguration


DEFAULT: Final = QueueConfiguration(Slicing(timedelta(hours=1), 1), 1_000)
"""James's default configuration."""


def change(current: QueueConfiguration | None, wanted: QueueConfiguration) -> QueueConfiguration:
    """Change the configuration.

    Raises:
        ConfigurationRefused: it is invalid, or mails would no longer be found; the message says what would be allowed.
    """
    objections = tuple(_objections(current, wanted))
    if objections:
        whys, allowed = zip(*objections, strict=True)
        raise ConfigurationRefused("; ".join(whys), mend=" ".join(allowed))
    return wanted


def nearest_windows(current: timedelta, wanted: timedelta) -> tuple[timedelta, ...]:
    """The allowed windows nearest to the wanted one: the next below, and the next above where there is one.

    If whole minutes are wanted, whole minutes are returned, where there are any on that side.
    """
    allowed = _divisors(current // SECOND)
    seconds = wanted // SECOND
    above_from = bisect_right(allowed, seconds)
    below = allowed[:above_from][::-1]
    above = allowed[above_from:]
    grain = 1 if seconds % _MINUTE else _MINUTE
    nearest = []
    for side in (below, above):
        if side:
            length = next((length for length in side if not length % grain), side[0])
            nearest.append(timedelta(seconds=length))
    return tuple(nearest)


def event_json(event_id: int, configuration: QueueConfiguration) -> str:
    return json_text(
        {
            "eventId": event_id,
            "aggregateKey": AGGREGATE,
            "type": EVENT_TYPE,
            "bucketCount": configuration.slicing.buckets,
            "updateBrowseStartPace": configuration.pace,
            "sliceWindow": seconds_of(configuration.slicing.window),
        }
    )


def configuration_of(event: str) -> QueueConfiguration:
    """Parse an event.

    Raises:
        BadPayload: it holds no configuration; the message names the field.
    """
    fields = object_in(event, "the event")
    if fields.get("type") != EVENT_TYPE:
        refuse("type", f"is not {EVENT_TYPE}")
    window = whole_seconds_of(fields.get("sliceWindow"), "sliceWindow", _WINDOWS)
    buckets = whole_number_of(fields.get("bucketCount"), "bucketCount", _COUNTS)
    pace = whole_number_of(fields.get("updateBrowseStartPace"), "updateBrowseStartPace", _COUNTS)
    return QueueConfiguration(Slicing(window, buckets), pace)


def event_of(event_id: int, event: str | None) -> ConfigurationEvent:
    """Parse the event with that id.

    Raises:
        BadPayload: it cannot be read; the message names the event and the field.
    """
    try:
        if event is None:
            refuse("event", "is missing")
        return ConfigurationEvent(whole_number_of(event_id, "eventId", _EVENT_IDS), configuration_of(event))
    except BadPayload as error:
        raise BadPayload(
            f"event {event_id} of {AGGREGATE} in eventStore cannot be read: {error.what}",
            mend="Nothing is cut before it can: look at its row, and mend or delete it where you know what wrote it.",
        ) from error


def window_text(window: timedelta) -> str:
    """The window in its largest whole unit: 1h, 30m, 90s."""
    for unit, seconds in _UNITS:
        if window and not window % timedelta(seconds=seconds):
            return f"{window // timedelta(seconds=seconds)}{unit}"
    return f"{window / SECOND:g}s"


def _objections(current: QueueConfiguration | None, wanted: QueueConfiguration) -> Iterator[tuple[str, str]]:
    """Why it is refused, each reason with what would be allowed."""
    window = None
    buckets = 1
    if current:
        window = current.slicing.window
        buckets = current.slicing.buckets
    yield from _objections_to_window(window, wanted.slicing.window)
    yield from _objections_to_buckets(buckets, wanted.slicing.buckets)
    if wanted.pace not in _COUNTS:
        yield f"{wanted.pace} is no pace", "The pace is at least 1: one dequeue in that number moves the browse start."


def _objections_to_window(current: timedelta | None, wanted: timedelta) -> Iterator[tuple[str, str]]:
    if wanted % SECOND or wanted // SECOND not in _WINDOWS:
        yield (
            f"{window_text(wanted)} is no slice window",
            "A slice window is whole seconds, at least 1s and at most 3650d.",
        )
    elif current is not None and (wanted > current or current % wanted):
        texts = [window_text(window) for window in nearest_windows(current, wanted)]
        fault = "is longer than" if wanted > current else "does not divide"
        yield (
            f"a slice window of {window_text(wanted)} {fault} the last one, {window_text(current)}: {_LOST_IN_TIME}",
            f"Allowed next to it: {' or '.join(texts)}; every window that divides {window_text(current)} is.",
        )


def _objections_to_buckets(current: int, wanted: int) -> Iterator[tuple[str, str]]:
    if wanted not in _COUNTS:
        yield f"{wanted} is no number of buckets", f"Allowed: {current} or more."
    elif wanted < current:
        why = f"{wanted} {'bucket is' if wanted == 1 else 'buckets are'} fewer than the last number, {current}"
        yield f"{why}: {_LOST_IN_BUCKETS}", f"Buckets only grow: allowed are {current} or more."


def _divisors(number: int) -> list[int]:
    divisors: set[int] = set()
    for divisor in range(1, math.isqrt(number) + 1):
        if number % divisor == 0:
            divisors |= {divisor, number // divisor}
    return sorted(divisors)
