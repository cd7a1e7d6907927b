"""Slices and buckets of a queue's time series: which partition of enqueuedMailsV4 a mail belongs to.

Compatible with James to the byte: a slice is named by its start, `floor(epoch seconds / window) * window`; the bucket
is the remainder, without its sign, of Java's hash of the mail's name. Source: James's ADR-31 and its `BucketedSlices`.
Instants are datetimes in UTC, windows are timedeltas of whole seconds.
"""

import codecs
from collections.abc import Iterator
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
    return hashed - _WORD if hashed >= _WORD // 2 else hashed
