"""James's own tables next to the messages, by the declaration that comes with mailmend, on a real Cassandra."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.james_tables import ACL, EMAIL_QUERY_VIEW, USER_MAILBOX_ACL
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Put, Remove
from mailmend.model.table import Row
from tests.support.declared_shops import DeclaredShop, declared_shop
from tests.support.james_declared import CONTENTS, KEYS, MAPPINGS, POP3, SOURCES
from tests.support.repairing import message, truth_row
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

MAILBOX = UUID("6e1aea00-e509-11f1-b512-b9fb9d6f173b")
FOLLOWING = (USER_MAILBOX_ACL, KEYS, SOURCES, POP3, EMAIL_QUERY_VIEW)
REPOSITORY = "cassandra://var/mail/error/"
FOUND = {
    "usermailboxacl": {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 1},
    "mailrepositorykeys": {"PROJECT": 1},
    "mappings_sources": {"PROJECT": 1, "WITHDRAW": 1},
    "pop3metadata": {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 1},
    "email_query_view_received_at": {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 2},
}
UIDS = {1: (1, 2), 2: (3,), 3: (4,), 4: (5,)}
"""The uids of each message; the first one is in its mailbox twice, the third has no size, the fourth is deleted."""


@pytest.fixture
def james(cassandra: CassandraServer, tmp_path: Path) -> Iterator[DeclaredShop]:
    """Rights and mails as James writes them: rights are changed cell by cell, and a group has no row of its own."""
    with declared_shop(cassandra, tmp_path, Schema((), (ACL, CONTENTS, MAPPINGS, IMAP_UID, *FOLLOWING)), "") as shop:
        for key in ("ann@x.org", "bob@x.org", "$staff", "anyone"):
            given = {"rights": frozenset({"s", "l", "r"})}
            shop.tables.write(Change(ACL, (MAILBOX, key), add=given))
        for user in ("ann@x.org", "bob@x.org"):
            shop.tables.write(Put(USER_MAILBOX_ACL, {"username": user, "mailboxid": MAILBOX, "rights": "lrs"}))
        for mail in ("m1", "m2"):
            shop.tables.write(Put(CONTENTS, {"name": REPOSITORY, "mailkey": mail, "state": "error"}))
            shop.tables.write(Put(KEYS, {"name": REPOSITORY, "mailkey": mail}))
        for kind, value in (("", "bob@x.org"), ("alias:", "ann@x.org"), ("domainAlias:", "x.org")):
            mapping = {"user": "a", "domain": "y.org", "mapping": f"{kind}{value}"}
            source = {"mapping_type": kind, "mapping_value": value, "source": "a@y.org"}
            shop.tables.write(Put(MAPPINGS, mapping))
            shop.tables.write(Put(SOURCES, source))
        for number, uids in UIDS.items():
            for uid in uids:
                shop.tables.write(Put(IMAP_UID, truth_of(number, uid)))
        for number in (1, 2, 4):
            shop.tables.write(Put(POP3, popped(number)))
        for number in (1, 2, 3):
            shop.tables.write(Put(EMAIL_QUERY_VIEW, viewed(number)))
        yield shop


def truth_of(number: int, uid: int) -> Row:
    row = truth_row(number, uid=uid, mailboxid=MAILBOX, threadid=message(number), flagdeleted=number == 4)
    if number == 3:
        row["fullcontentoctets"] = None
    return row


def popped(number: int, size: int = 100) -> Row:
    return {"mailboxid": MAILBOX, "messageid": message(number), "size": size}


def viewed(number: int) -> Row:
    received = truth_of(number, 1)["internaldate"]
    return {"mailboxid": MAILBOX, "receivedat": received, "messageid": message(number), "thread_id": message(number)}


def looked_at(james: DeclaredShop, engine: str = "local") -> dict[str, Any]:
    return james.mailmend("check", "--projections", "james", "--engine", engine, "--json").json


def rows(james: DeclaredShop) -> dict[str, list[Row]]:
    return james.rows_of(FOLLOWING)


def test_tables_of_a_sound_james_have_no_drift(james: DeclaredShop) -> None:
    found = looked_at(james)

    assert (found["findings"], found["exit"]) == ({}, 0)
    truths = {"aclv2", "mailrepositorycontentv2", "rrt", "imapuidtable"}
    assert set(found["scanned"]) == truths | set(FOUND)


def damage(james: DeclaredShop) -> None:
    james.tables.write(Remove(USER_MAILBOX_ACL, ("ann@x.org", MAILBOX)))
    james.tables.write(Put(USER_MAILBOX_ACL, {"username": "bob@x.org", "mailboxid": MAILBOX, "rights": "l"}))
    james.tables.write(Put(USER_MAILBOX_ACL, {"username": "eve@x.org", "mailboxid": MAILBOX, "rights": "lrs"}))
    james.tables.write(Remove(KEYS, (REPOSITORY, "m1")))
    james.tables.write(Remove(SOURCES, ("domainAlias:", "x.org", "a@y.org")))
    james.tables.write(Put(SOURCES, {"mapping_type": "group:", "mapping_value": "ann@x.org", "source": "a@y.org"}))
    james.tables.write(Remove(POP3, (MAILBOX, message(1))))
    james.tables.write(Put(POP3, popped(2, size=7)))
    james.tables.write(Put(POP3, popped(9)))
    james.tables.write(Remove(EMAIL_QUERY_VIEW, EMAIL_QUERY_VIEW.key_of(viewed(1))))
    james.tables.write(Put(EMAIL_QUERY_VIEW, {**viewed(2), "thread_id": message(9)}))
    james.tables.write(Put(EMAIL_QUERY_VIEW, viewed(4)))
    james.tables.write(Put(EMAIL_QUERY_VIEW, {**viewed(9), "messageid": UUID(int=9)}))


def test_a_view_without_rows_is_left_and_said_so(james: DeclaredShop) -> None:
    for number in (1, 2, 3):
        james.tables.write(Remove(EMAIL_QUERY_VIEW, EMAIL_QUERY_VIEW.key_of(viewed(number))))

    found = looked_at(james)
    shown = james.mailmend("check", "--projections", "james").out

    assert (found["findings"], found["exit"]) == ({}, 0)
    assert [left["table"] for left in found["left_tables"]] == [EMAIL_QUERY_VIEW.spelling]
    assert "James fills it only where its listener is turned on" in shown


def test_tables_that_follow_are_mended_and_put_back(james: DeclaredShop) -> None:
    sound = rows(james)
    damage(james)
    damaged = rows(james)
    assert looked_at(james)["findings"] == FOUND

    repaired = james.mailmend("repair", "--projections", "james", "--engine", "local", "--json")

    assert repaired.code == 0, repaired.err
    assert rows(james) == sound
    assert james.mailmend("undo", repaired.json["run"], "--json").code == 0
    assert rows(james) == damaged


def test_the_declaration_is_shown_and_verified_like_a_file(james: DeclaredShop) -> None:
    shown = james.mailmend("projections", "show", "james").out
    verified = james.mailmend("projections", "verify", "james", "--json").json

    assert "joined_of" in shown
    assert [found["table"] for found in verified["projections"]] == list(FOUND)


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_finds_the_same(james: DeclaredShop) -> None:
    damage(james)

    assert looked_at(james, "spark")["findings"] == FOUND
