"""Identities tell their birth."""

from uuid import UUID, uuid1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.ids import (
    EnqueueId,
    QueueName,
    keyed_id,
    later_uuid,
    micros_of,
    moved_id,
    part_id,
    put_off_id,
    report_id,
    restored_id,
)

WAS = EnqueueId(UUID(int=1))
SPOOL = QueueName("spool")


def at(ticks: int, node: int = 1) -> UUID:
    """The version-1 UUID of a node at a time."""
    low, mid, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
    return UUID(fields=(low, mid, high | 0x1000, 0x81, 0x23, node))


def test_a_time_uuid_of_now_is_of_this_century() -> None:
    """The epoch is right: Gregorian ticks become microseconds since 1970."""
    assert 1_700_000_000_000_000 < micros_of(uuid1()) < 4_100_000_000_000_000


@given(st.integers(0, 2**59))
def test_the_instant_of_a_time_uuid_is_what_was_put_in(ticks: int) -> None:
    assert micros_of(at(ticks)) == (ticks - 0x01B21DD213814000) // 10


@pytest.mark.parametrize("seen", [1_000, 0xFFFFFFFF, 0xFFFF_FFFFFFFF, 0x123_4567_89ABCDEF])
def test_an_id_that_is_not_later_than_another_becomes_one_a_microsecond_after_that(seen: int) -> None:
    for own in (seen, seen - 1):
        assert later_uuid(at(own, node=7), at(seen, node=8)) == at(seen + 10, node=7)


def test_an_id_that_is_later_stays_as_it_is() -> None:
    assert later_uuid(at(1_001, node=7), at(1_000, node=8)) == at(1_001, node=7)


@pytest.mark.parametrize(
    ("derived", "kept"),
    [
        (restored_id(WAS, SPOOL), "8c234f81-edf4-5517-89db-ecc360397430"),
        (put_off_id(WAS, [2, 10]), "91f6746e-f8c7-586e-a50c-fd84331a5dcb"),
        (report_id(WAS), "f6add3c2-a325-5d5e-868f-a4c59c92746d"),
        (part_id(WAS, 3), "54c58174-686d-5325-ae01-695c0e3b90b1"),
        (moved_id(WAS, SPOOL), "29c14400-3a49-5eca-86c6-d4d078ba21f2"),
        (keyed_id("key", "one", "two"), "c624e150-d588-56a9-b4d3-4d7d25fd42be"),
    ],
)
def test_a_server_of_a_later_version_goes_on_with_the_ids_of_its_predecessor(derived: UUID, kept: str) -> None:
    """A retry after an upgrade must find the mail that was written before it."""
    assert derived == UUID(kept)


def test_recipients_that_come_again_have_one_id_in_any_order() -> None:
    assert put_off_id(WAS, [10, 2]) == put_off_id(WAS, [2, 10])
    assert put_off_id(WAS, [10, 2]) != put_off_id(WAS, [102])


def test_a_key_differs_from_its_texts_wherever_one_ends() -> None:
    ids = [keyed_id("ab", "c"), keyed_id("a", "bc"), keyed_id("abc"), keyed_id("ab", "c", "")]
    assert len(set(ids)) == len(ids)
