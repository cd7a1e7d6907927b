"""Slices and buckets of a queue's time series, and the rules of its browse start and content start. Pure.

*Slices*: which partition of enqueuedMailsV4 a mail belongs to. Compatible with James to the byte: a
slice is named by its start, `floor(epoch seconds / window) * window`; the bucket is the remainder,
without its sign, of Java's hash of the mail's name. Source: James's ADR-31 and its
`BucketedSlices`. Instants are datetimes in UTC, windows are timedeltas of whole seconds.

*Starts*: under these rules every mail stays visible. Before the browse start every mail is marked;
before the content start every row is removed. The browse start only grows, and stays at least the
grace behind the present time, so that mails enqueued under a slow clock are still seen. Source:
James's ADR-31 and ADR-32; docs/design.md, "Queue".
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WORD: Final = 2**32
_UTF_16: Final = codecs.lookup(
    "utf-16-be"
)  # loaded here, as a codec is a file: later there may be no descriptor for it


@dataclass(frozen=True, slots=True)
class Slicing:
    """How a queue is cut: the length of a slice, and the number of buckets in it."""

    window: timedelta
    buckets: int


def slice_of(at: datetime, window: timedelta) -> datetime:
    """The start of the slice that contains the time."""
    seconds = (at - EPOCH) // SECOND
    step = window // SECOND
    return EPOCH + timedelta(seconds=seconds // step * step)


def millis_of(at: datetime) -> int:
    """Milliseconds since 1970, as Cassandra and James's messages have them."""
    return (at - EPOCH) // _MILLISECOND


def slices_between(start: datetime, end: datetime, window: timedelta) -> Iterator[datetime]:
    """The starts of the slices from `start`, in steps of the window, before `end`."""
    while start < end:
        yield start
        start += window


def bucket_of(name: str, buckets: int) -> int:
    return abs(java_hash(name)) % buckets


def java_hash(text: str) -> int:
    """Java's String.hashCode(): over UTF-16 units, signed 32 bits."""
    units, _ = _UTF_16.encode(text, "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) % _WORD
    if hashed >= _WORD // 2:
        return hashed - _WORD
    return hashed


GRACE_MIN: Final = timedelta(minutes=15)
"""The least grace: clocks may differ by it, and a mail may take this long from getting its slice to its row."""


ROUNDS_PER_SLACK: Final = 16
"""How often, within the slack of rows, a process searches for mails to renew."""

_RENEWED_WITHIN: Final = 0.5 - 1 / ROUNDS_PER_SLACK
"""Of the slack: what a row has left at least that a sweep did not renew, for it is renewed with half of it left."""


def grace_of(window: timedelta) -> timedelta:
    """How far the browse start stays behind the present time."""
    return max(window, GRACE_MIN)


def furthest_browse_start(now: datetime, window: timedelta) -> datetime:
    """The latest possible browse start, whatever the slices before it hold."""
    return slice_of(now - grace_of(window), window)


def next_browse_start(current: datetime, first_live: datetime | None, now: datetime, window: timedelta) -> datetime:
    """The new browse start: never before the current one, never past a mail, never within the grace.

    Args:
        current: the present browse start.
        first_live: the first slice from there on with an unmarked mail; None: there is no such
            slice up to the grace.
        now: the time of our own clock.
        window: the slice window.
    """
    wanted = furthest_browse_start(now, window)
    if first_live is not None:
        wanted = min(first_live, wanted)
    return max(current, wanted)


def slice_for(now: datetime, browse_start: datetime | None, window: timedelta) -> datetime:
    """The slice for a mail that is enqueued now: never before the browse start, so that browsing shows the mail."""
    own = slice_of(now, window)
    if browse_start is None:
        return own
    return max(own, slice_of(browse_start, window))


def right_slice(
    slice_start: datetime, browse_start: datetime, reckoned_at: datetime, now: datetime, window: timedelta
) -> datetime:
    """The slice in which a row should be after it was written: another one if the browse start or the clock jumped.

    Args:
        slice_start: the slice in which the row was written.
        browse_start: the browse start, read after the row was written.
        reckoned_at: when the slice was computed, by our own clock.
        now: the time of the same clock after the row was written.
        window: the slice window.
    """
    if abs(now - reckoned_at) > grace_of(window):
        return slice_for(now, browse_start, window)
    return max(slice_start, slice_of(browse_start, window))


def live_slices(browse_start: datetime, now: datetime, window: timedelta) -> Iterable[datetime]:
    """The slices that may hold visible mails, the earliest first.

    The clocks of processes that enqueue or move the browse start may be ahead of ours.
    """
    ahead = max(now, browse_start + grace_of(window)) + GRACE_MIN
    return slices_between(slice_of(browse_start, window), slice_of(ahead, window) + window, window)


def gone_before(slice_start: datetime | None, browse_start: datetime | None) -> bool:
    """Whether the slice is before the browse start: each of its mails was marked, or moved to a later slice."""
    return slice_start is not None and browse_start is not None and slice_start < browse_start


def mark_may_have_expired(since: datetime, now: datetime, mark_ttl: timedelta) -> bool:
    """Whether a mark that was written at `since` or later may have expired; `mark_ttl` zero: marks live for ever."""
    return bool(mark_ttl) and since + mark_ttl <= now + GRACE_MIN


def moved_back(browse_start: datetime | None, furthest: datetime | None) -> bool:
    """Whether the browse start was moved back: it is before the furthest one that was recorded."""
    return browse_start is not None and furthest is not None and browse_start < furthest


def slices_to_clean(
    content_start: datetime, before: datetime, browse_start: datetime, window: timedelta
) -> Iterable[datetime]:
    """The slices whose rows are not needed any more, the earliest first.

    Args:
        content_start: the present content start; before it every row is removed.
        before: the browse start that this sweep found; earlier than the content start if it was
            moved back, and mails may have been enqueued in between since.
        browse_start: the present browse start; the slice that contains it is still browsed, and kept.
        window: the slice window.
    """
    return slices_between(slice_of(min(content_start, before), window), slice_of(browse_start, window), window)


def slack_of(row_ttl: timedelta, mark_ttl: timedelta) -> timedelta:
    """How much longer rows live than any mail should stay.

    Where mailmend created the tables it is the time by which marks outlive rows
    (`model.catalog.mail_queue.lifetimes`); elsewhere it is a third of `row_ttl`.
    """
    slack = row_ttl / 3
    if mark_ttl > row_ttl:
        slack = mark_ttl - row_ttl
    return min(slack, row_ttl)


def ageing_before(now: datetime, row_ttl: timedelta, mark_ttl: timedelta) -> datetime:
    """The time before which rows must have been written to be renewed: less than half of their slack is left."""
    return now - row_ttl + slack_of(row_ttl, mark_ttl) / 2


def rows_lapsed_before(
    swept_at: datetime | None, now: datetime, row_ttl: timedelta, mark_ttl: timedelta, window: timedelta
) -> datetime | None:
    """The slice before which rows of waiting mails may have expired, as no sweep renewed them; None: in none.

    Args:
        swept_at: when the last sweep ended; None: there was none.
        now: when the next sweep begins.
        row_ttl: how long rows live; zero: for ever.
        mark_ttl: how long marks live; zero: for ever.
        window: the slice window.
    """
    patience = slack_of(row_ttl, mark_ttl) * _RENEWED_WITHIN
    if not row_ttl or (swept_at is not None and now - swept_at <= patience):
        return None
    return slice_of(now - row_ttl + GRACE_MIN, window) + window
