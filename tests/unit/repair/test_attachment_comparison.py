"""Attachments that messages name: which lack a row, and where that is no fault."""

from typing import Any
from uuid import UUID

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.james_tables import ATTACHMENT
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.errors import TimedOut
from mailmend.model.operations import Change, Level, Put, Read, Remove
from mailmend.repair.scanners.attachment_comparison import uuid_of
from mailmend.repair.scanners.comparisons import TABLE_RULES
from mailmend.repair.scanners.mismatches import MismatchLook, confirmed
from tests.support.clock import VirtualClock
from tests.support.repairing import message
from tests.support.striking import Strike

MESSAGE = message(1)
OTHER = message(2)


@pytest.fixture
def mail() -> MemoryTables:
    return MemoryTables(VirtualClock().micros)


def look(mail: MemoryTables, first: MismatchLook | None = None) -> MismatchLook:
    (rule,) = [rule for rule in TABLE_RULES if rule.table is ATTACHMENT]
    return rule.look(mail, Level.ONE, first)


def names(mail: MemoryTables, identity: UUID, *ids: str) -> None:
    cells = tuple({"id": one, "name": None, "cid": None, "isinline": False} for one in ids)
    mail.write(Put(MESSAGE_V3, {"messageid": identity, "attachments": cells}))


def stored(mail: MemoryTables, *ids: str, ttl_seconds: int | None = None, **changed: Any) -> None:
    for one in ids:
        cells = {"id": one, "blobid": "1_2_x", "type": "image/png", "size": 4, **changed}
        mail.write(Change(ATTACHMENT, (uuid_of(one),), cells, ttl_seconds=ttl_seconds))


def found(mail: MemoryTables) -> list[tuple[str, ...]]:
    return sorted(mismatch.key for mismatch in look(mail).found)


def test_the_key_of_a_row_is_javas_uuid_of_the_bytes_of_its_id() -> None:
    """As `UUID.nameUUIDFromBytes("hello".getBytes(UTF_8))` gives it."""
    assert uuid_of("hello") == UUID("5d41402a-bc4b-3a76-b971-9d911017c592")


def test_each_attachment_that_a_message_names_has_its_row(mail: MemoryTables) -> None:
    names(mail, MESSAGE, "a", "b")
    names(mail, OTHER)
    stored(mail, "a", "b")

    assert look(mail).found == set()


def test_a_lost_row_and_half_a_row_are_found(mail: MemoryTables) -> None:
    """James shows neither of the two attachments since August 2026; before, half a row failed its reads."""
    names(mail, MESSAGE, "a", "b", "c")
    stored(mail, "a")
    stored(mail, "b", blobid=None)

    what = {mismatch.key: mismatch.what for mismatch in look(mail).found}

    assert what == {
        (str(MESSAGE), "b"): f"message {MESSAGE} names the attachment b, of which attachmentV2 has half a row",
        (str(MESSAGE), "c"): f"message {MESSAGE} names the attachment c, of which attachmentV2 has no row",
    }


def test_an_attachment_that_a_message_lists_twice_is_named_once(mail: MemoryTables) -> None:
    """The list is prepended to, so a message that was stored again has each attachment twice."""
    names(mail, MESSAGE, "a", "a")

    assert found(mail) == [(str(MESSAGE), "a")]


def test_a_row_that_no_message_names_only_takes_room(mail: MemoryTables) -> None:
    stored(mail, "a")

    assert look(mail).found == set()


def test_where_rows_expire_a_missing_one_is_no_mismatch(mail: MemoryTables) -> None:
    """With james.jmap.attachment.ttl, messages outlive the rows of their attachments."""
    names(mail, MESSAGE, "a")
    names(mail, OTHER, "b")
    stored(mail, "b", ttl_seconds=3_600)

    assert look(mail).found == set()


def test_a_message_that_is_removed_meanwhile_is_not_named(mail: MemoryTables) -> None:
    """James removes the attachments of a message before the message."""
    names(mail, MESSAGE, "a")
    names(mail, OTHER, "b")
    first = look(mail)
    mail.write(Remove(MESSAGE_V3, (MESSAGE,)))

    second = look(mail, first)

    assert [mismatch.key for mismatch in confirmed(first, second)] == [(str(OTHER), "b")]


def test_a_second_look_reads_only_the_messages_of_the_first(mail: MemoryTables) -> None:
    names(mail, MESSAGE, "a")
    names(mail, OTHER, "b")
    stored(mail, "b")

    second = look(mail, look(mail))

    assert second.scanned == {"messagev3": 1, "attachmentv2": 0}
    assert [mismatch.key for mismatch in second.found] == [(str(MESSAGE), "a")]


def test_a_row_that_cannot_be_read_is_not_taken_for_a_lost_one() -> None:
    reads = Strike(lambda one: isinstance(one, Read) and one.table is ATTACHMENT, TimedOut("no answer"))
    mail = MemoryTables(VirtualClock().micros, reads)
    names(mail, MESSAGE, "a")

    with pytest.raises(TimedOut):
        look(mail)
