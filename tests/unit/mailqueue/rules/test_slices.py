"""Slices and buckets: every instant lies in one slice, every name in one bucket, both as James reckons them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.slices import EPOCH, SECOND, bucket_of, java_hash, millis_of, slice_of, slices_between

INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - given one
WINDOWS = st.integers(1, 7 * 86_400).map(lambda seconds: timedelta(seconds=seconds))
NAMES = st.text(max_size=30)
HOUR = timedelta(hours=1)

HASHES = [
    ("", 0),
    ("a", 97),
    ("hello", 99_162_322),
    ("polygenelubricants", -(2**31)),
    ("😀", 1_772_899),
    ("peer-2024-0-ünï", -84_799_650),
    ("\uffff\uffff\uffff", 65_076_255),
    ("Mail1473344752-📧", -2_114_626_176),
    ("\x00", 0),
    ("\ud83d", 0xD83D),
]
"""As Java 17 answers for String.hashCode()."""


@pytest.mark.parametrize(("text", "hashed"), HASHES)
def test_the_hash_is_java_s(text: str, hashed: int) -> None:
    """Over UTF-16 units, in 32 bits with a sign, for the smallest number of all too."""
    assert java_hash(text) == hashed


@pytest.mark.parametrize(
    ("text", "bucket"),
    [("a", 6), ("polygenelubricants", 2), ("😀", 2), ("peer-2024-0-ünï", 5), ("\uffff\uffff\uffff", 6)],
)
def test_the_bucket_is_java_s(text: str, bucket: int) -> None:
    """The remainder first, then its sign is dropped: 7 buckets, as Java 17 answers."""
    assert bucket_of(text, 7) == bucket


@given(st.text(st.characters()))
def test_the_hash_is_the_polynomial_of_the_definition(text: str) -> None:
    """Half a surrogate pair is a unit like any other."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(encoded[place : place + 2]) for place in range(0, len(encoded), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units))

    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


@given(NAMES, st.integers(1, 1_000))
def test_every_name_lies_in_one_of_the_buckets(name: str, buckets: int) -> None:
    """However many there are: with more of them, those of before are still read."""
    assert bucket_of(name, buckets) in range(buckets)


@given(INSTANTS, WINDOWS)
def test_a_slice_is_named_by_its_start(at: datetime, window: timedelta) -> None:
    """Whole windows after 1970: whoever reckons, from wherever in the slice, comes to the same."""
    start = slice_of(at, window)

    assert (start - EPOCH) % window == timedelta(0)
    assert start <= at < start + window


def test_known_slices() -> None:
    """Reckoned by hand."""
    at = datetime(2026, 11, 20, 18, 43, 33, 78_000, tzinfo=UTC)

    assert slice_of(at, HOUR) == datetime(2026, 11, 20, 18, tzinfo=UTC)
    assert slice_of(at, timedelta(minutes=30)) == datetime(2026, 11, 20, 18, 30, tzinfo=UTC)
    assert slice_of(at, timedelta(days=1)) == datetime(2026, 11, 20, tzinfo=UTC)
    assert slice_of(at, timedelta(days=7)) == datetime(2026, 11, 19, tzinfo=UTC), "weeks begin on Thursday, as in 1970"
    assert slice_of(EPOCH - SECOND, HOUR) == EPOCH - HOUR


@given(INSTANTS, WINDOWS, st.integers(1, 60), st.integers(0, 5))
def test_whoever_walks_on_with_a_divided_window_meets_every_slice_of_before(
    at: datetime, smaller: timedelta, parts: int, ahead: int
) -> None:
    """From a browse start of the larger window, mails of then and of now are both come across."""
    larger = parts * smaller
    start = slice_of(at, larger)
    walked = set(slices_between(start, start + (ahead + 1) * larger, smaller))

    assert {start + step * larger for step in range(ahead + 1)} <= walked
    assert slice_of(at, smaller) in walked


def test_a_window_that_does_not_divide_hides_mails() -> None:
    """What the rule is there for: steps of 25 minutes from a full hour pass over the next full hour."""
    start = datetime(2026, 11, 20, 18, tzinfo=UTC)
    assert start + HOUR not in set(slices_between(start, start + 2 * HOUR, timedelta(minutes=25)))


@given(INSTANTS, WINDOWS, st.integers(0, 20))
def test_slices_between_are_one_window_apart_and_leave_the_end_out(at: datetime, window: timedelta, steps: int) -> None:
    """What comes before the end, all of it."""
    start = slice_of(at, window)
    slices = list(slices_between(start, start + steps * window, window))

    assert len(slices) == steps
    assert all(after - before == window for before, after in pairwise(slices))
    assert slices[:1] == [start][:steps]
    assert not list(slices_between(start + window, start, window))


def test_an_instant_is_the_whole_milliseconds_since_1970_as_james_s_messages_have_it() -> None:
    at = datetime(2026, 8, 29, 12, 0, 0, 7_999, tzinfo=UTC)

    assert millis_of(at) == 1_788_004_800_007
    assert isinstance(millis_of(at), int)
