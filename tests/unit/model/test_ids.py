"""Identities tell their birth."""

from uuid import UUID, uuid1

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.ids import micros_of


def test_a_time_uuid_of_now_is_of_this_century() -> None:
    """The epoch is right: Gregorian ticks become microseconds since 1970."""
    assert 1_700_000_000_000_000 < micros_of(uuid1()) < 4_100_000_000_000_000


@given(st.integers(0, 2**59))
def test_the_instant_of_a_time_uuid_is_what_was_put_in(ticks: int) -> None:
    low, mid, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    built = UUID(fields=(low, mid, high | 0x1000, 0x80, 0, 1))
    assert micros_of(built) == (ticks - 0x01B21DD213814000) // 10
