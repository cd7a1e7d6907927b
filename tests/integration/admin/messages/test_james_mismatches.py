"""James's tables that are compared and never written, on a real Cassandra."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from mailmend.model.catalog.compared_tables import CURRENT_QUOTA, QUOTA_VALUE, SIEVE, SIEVE_ACTIVE, USER
from mailmend.model.catalog.james_tables import ACL, ATTACHMENT, USER_MAILBOX_ACL
from mailmend.model.catalog.mail import ATTACHMENTS, MAILBOX_PATH, MESSAGE_ID, MESSAGE_V3
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Count, Put, Remove
from mailmend.repair.scanners.attachment_comparison import uuid_of
from tests.support.declared_shops import DeclaredShop, declared_shop
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

TABLES = (
    *(USER, SIEVE, SIEVE_ACTIVE, QUOTA_VALUE, CURRENT_QUOTA),
    *(ACL, USER_MAILBOX_ACL, ATTACHMENT, MAILBOX_PATH, MESSAGE_ID, MESSAGE_V3),
)
BOX = UUID("6e1aea00-e509-11f1-b512-b9fb9d6f173b")
MESSAGE = UUID("6e1aea00-e509-11f1-b512-b9fb9d6f173c")
ROOT = "#private&ann"


@pytest.fixture
def james(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    """Two users and their delegation, an active script, a mail of 40 bytes with an attachment, and its quotas."""
    with declared_shop(cassandra, tmp_path, Schema((ATTACHMENTS,), TABLES), "") as shop:
        tables = shop.tables
        ann = {"authorized_users": frozenset({"bob"})}
        bob = {"delegated_users": frozenset({"ann"})}
        tables.write(Change(USER, ("ann",), {"algorithm": "PBKDF2"}, add=ann))
        tables.write(Change(USER, ("bob",), {"algorithm": "PBKDF2"}, add=bob))
        tables.write(Put(SIEVE, {"user_name": "ann", "script_name": "holiday", "is_active": True}))
        tables.write(Put(SIEVE_ACTIVE, {"user_name": "ann", "script_name": "holiday"}))
        path = {"namespace": "#private", "user": "ann", "mailboxname": "INBOX", "mailboxid": BOX}
        tables.write(Put(MAILBOX_PATH, path))
        row = {"mailboxid": BOX, "uid": 1, "messageid": MESSAGE, "fullcontentoctets": 40}
        tables.write(Put(MESSAGE_ID, row))
        named = {"id": "abc", "name": "x.png", "cid": None, "isinline": False}
        tables.write(Put(MESSAGE_V3, {"messageid": MESSAGE, "attachments": (named,)}))
        tables.write(Put(ATTACHMENT, {"idasuuid": uuid_of("abc"), "id": "abc", "blobid": "1_2_x"}))
        for kind, number in (("count", 1), ("size", 40)):
            tables.write(Count(QUOTA_VALUE, (ROOT, "MAILBOX", kind), {"currentvalue": number}))
        tables.write(Count(CURRENT_QUOTA, (ROOT,), {"messagecount": 1, "storage": 40}))
        yield shop


def keys(james: DeclaredShop, *named: str) -> tuple[int, list[list[str]]]:
    ended = james.mailmend("check", *named, "--projections", "james", "--engine", "local", "--json")
    found = ended.json["mismatches"]
    assert found is not None, ended.err
    return ended.code, [mismatch["key"] for mismatch in found["first"]]


NAMED = ("quotaCurrentValue", "currentQuota", "attachmentV2")


def test_tables_of_a_sound_james_have_no_mismatch(james: DeclaredShop) -> None:
    assert keys(james) == (0, [])
    for table in NAMED:
        assert keys(james, table) == (0, [])


def test_delegations_and_scripts_that_contradict_each_other_are_named(james: DeclaredShop) -> None:
    james.tables.write(Remove(USER, ("ann",)))
    james.tables.write(Remove(SIEVE, ("ann", "holiday")))

    assert keys(james) == (1, [["bob", "ann"], ["ann"]])


def test_quotas_that_differ_are_named(james: DeclaredShop) -> None:
    james.tables.write(Count(QUOTA_VALUE, (ROOT, "MAILBOX", "size"), {"currentvalue": 2}))
    james.tables.write(Count(CURRENT_QUOTA, (ROOT,), {"messagecount": -1}))

    assert keys(james, "quotaCurrentValue") == (1, [[ROOT, "size"]])
    assert keys(james, "currentQuota") == (1, [[ROOT, "count"]])


def test_an_attachment_without_its_row_is_named_unless_rows_expire(james: DeclaredShop) -> None:
    james.tables.write(Remove(ATTACHMENT, (uuid_of("abc"),)))
    assert keys(james, "attachmentV2") == (1, [[str(MESSAGE), "abc"]])

    other = UUID("6e1aea00-e509-11f1-b512-b9fb9d6f173d")
    named = {"id": "def", "name": None, "cid": None, "isinline": False}
    james.tables.write(Put(MESSAGE_V3, {"messageid": other, "attachments": (named,)}))
    cells = {"id": "def", "blobid": "1_2_y"}
    james.tables.write(Change(ATTACHMENT, (uuid_of("def"),), cells, ttl_seconds=3_600))

    assert keys(james, "attachmentV2") == (0, [])
