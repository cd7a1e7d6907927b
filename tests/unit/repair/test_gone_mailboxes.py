"""Mailboxes that are no more: whose rows are named, and whose are not."""

from uuid import UUID

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.james_tables import ACL, ANNOTATION, USER_MAILBOX_ACL
from mailmend.model.catalog.mail import MAILBOX, MAILBOX_COUNTERS, MAILBOX_PATH, MESSAGE_COUNTER
from mailmend.model.catalog.mail import MESSAGE_ID as MESSAGES
from mailmend.model.catalog.of_mailboxes import TABLES_OF_MAILBOXES
from mailmend.model.operations import Count, Level, Put, Remove, Scan
from mailmend.repair.scanners.gone_mailboxes import GoneMailbox, MailboxRows, gone_mailboxes, suspect_mailboxes
from tests.support.clock import VirtualClock
from tests.support.repairing import message

BOX = message(1)
OTHER = message(2)
LIVE = {table.name for table, _ in TABLES_OF_MAILBOXES} | {MAILBOX.name, MAILBOX_PATH.name}


@pytest.fixture
def mail() -> MemoryTables:
    return MemoryTables(VirtualClock().micros)


def right(mailbox: UUID) -> Put:
    return Put(ACL, {"id": mailbox, "key": "ann", "rights": frozenset("lr")})


def suspects(mail: MemoryTables) -> MailboxRows:
    return suspect_mailboxes(mail, LIVE, Level.ONE)


def test_the_tables_that_have_rows_of_a_mailbox_are_named(mail: MemoryTables) -> None:
    mail.write(right(BOX))
    mail.write(Put(USER_MAILBOX_ACL, {"username": "ann", "mailboxid": BOX, "rights": "lr"}))
    mail.write(Put(ANNOTATION, {"mailboxid": BOX, "key": "/private/comment", "value": "x"}))
    mail.write(Count(MAILBOX_COUNTERS, (BOX,), {"count": 1}))

    assert suspects(mail) == {BOX: ["mailboxCounters", "aclv2", "UserMailboxACL", "annotation"]}


def test_a_mailbox_with_many_rows_is_named_once(mail: MemoryTables) -> None:
    for uid in range(1, 4):
        mail.write(Put(MESSAGES, {"mailboxid": BOX, "uid": uid, "messageid": message(uid)}))

    assert suspects(mail) == {BOX: ["messageIdTable"]}


@pytest.mark.parametrize(
    "left",
    [
        Put(MAILBOX, {"id": BOX, "name": "INBOX"}),
        Put(MAILBOX_PATH, {"namespace": "#private", "user": "bob", "mailboxname": "A", "mailboxid": BOX}),
    ],
    ids=["its row", "its path"],
)
def test_a_mailbox_of_which_one_of_two_rows_is_left_is_there(mail: MemoryTables, left: Put) -> None:
    mail.write(right(BOX))
    mail.write(left)

    assert suspects(mail) == {}


def test_generators_of_uids_stay_by_james_own_rule(mail: MemoryTables) -> None:
    mail.write(Put(MESSAGE_COUNTER, {"mailboxid": BOX, "nextuid": 4}))

    assert suspects(mail) == {}


def test_a_keyspace_without_tables_of_mailboxes_tells_nothing(mail: MemoryTables) -> None:
    mail.write(right(BOX))

    assert suspect_mailboxes(mail, LIVE - {MAILBOX.name}, Level.ONE) == {}


def test_a_table_that_the_keyspace_lacks_is_not_read(mail: MemoryTables) -> None:
    mail.write(right(BOX))

    assert suspect_mailboxes(mail, LIVE - {ACL.name}, Level.ONE) == {}


def test_what_james_removed_in_between_is_not_named(mail: MemoryTables) -> None:
    mail.write(right(BOX))
    mail.write(right(OTHER))
    before = suspects(mail)
    mail.write(Remove(ACL, (BOX,)))

    assert gone_mailboxes(before, suspects(mail)) == (GoneMailbox(OTHER, ["aclv2"]),)


def test_partitions_are_read_once_where_the_mailbox_is_the_partition() -> None:
    reads: list[Scan] = []

    def watch(operation: object, carry_out: object) -> object:
        assert isinstance(operation, Scan)
        reads.append(operation)
        return carry_out()  # type: ignore[operator]

    suspects(MemoryTables(VirtualClock().micros, watch))

    whole = [scan.table.spelling for scan in reads if not scan.distinct]
    assert whole == ["UserMailboxACL", "mailbox", "mailboxPathV3"]
