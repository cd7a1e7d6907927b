"""`check --projections james` as a person types it: rows that contradict each other, which no repair mends."""

from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.catalog.compared_tables import QUOTA_VALUE, SIEVE, SIEVE_ACTIVE, USER
from mailmend.model.catalog.james_tables import ATTACHMENT
from mailmend.model.catalog.mail import MAILBOX_PATH, MESSAGE_ID, MESSAGE_V3
from mailmend.model.errors import AccessDenied
from mailmend.model.operations import Change, Count, Put, Read, Scan
from mailmend.model.table import Table
from tests.support.cluster_twin import ClusterTwin, NamedTables
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import message
from tests.support.schemas import served_table
from tests.support.striking import Strike
from tests.support.writing import Faults

JAMES = ("--projections", "james", "--engine", "local", "--json")
AT_ONCE = (*JAMES, "--delay", "0")
ROOT = "#private&ann"


@pytest.fixture
def james(cluster: ClusterTwin, mail: MailKeyspace) -> NamedTables:
    """A keyspace with the tables of users, scripts and quotas, and a delegation that only one side knows."""
    known = cluster.keyspaces[mail.name]
    more = tuple(map(served_table, (USER, SIEVE, SIEVE_ACTIVE, QUOTA_VALUE)))
    cluster.keyspaces[mail.name] = replace(known, tables=(*known.tables, *more))
    tables = cluster.keyspace(mail.name)
    tables.write(Change(USER, ("ann",), {"algorithm": "PBKDF2"}))
    tables.write(Change(USER, ("bob",), {"algorithm": "PBKDF2"}, add={"delegated_users": frozenset({"ann"})}))
    cluster.clock.advance(1)
    return tables


def keys(ended: Ended) -> list[tuple[str, list[str]]]:
    return [(one["table"], one["key"]) for one in ended.json["mismatches"]["first"]]


def of(table: Table, operation: Any) -> bool:
    return isinstance(operation, Scan) and operation.table is table


def test_a_mismatch_is_named_with_what_mends_it_and_fails_the_check(james: NamedTables, mailmend: CommandLine) -> None:
    james.write(Put(SIEVE_ACTIVE, {"user_name": "ann", "script_name": "holiday"}))

    ended = mailmend("check", *AT_ONCE)
    shown = mailmend("check", *(word for word in AT_ONCE if word != "--json"))

    assert (ended.code, ended.json["exit"]) == (1, 1), ended.err
    assert ended.json["mismatches"]["in"] == {"user": 1, "sieve_active": 1}
    assert keys(ended) == [("user", ["bob", "ann"]), ("sieve_active", ["ann"])]
    assert "no repair mends: user 1, sieve_active 1" in shown.out
    assert "        DELETE /users/ann/authorizedUsers/bob\n" in shown.out
    assert "No drift." not in shown.out


def test_tables_that_agree_leave_no_drift(james: NamedTables, mailmend: CommandLine) -> None:
    james.write(Change(USER, ("ann",), add={"authorized_users": frozenset({"bob"})}))

    ended = mailmend("check", *AT_ONCE)
    shown = mailmend("check", *(word for word in AT_ONCE if word != "--json"))

    assert (ended.code, ended.json["mismatches"]) == (0, {"number": 0, "in": {}, "first": []})
    assert (ended.json["scanned"]["user"], ended.json["scanned"]["aclv2"]) == (2, 0)
    assert "No drift." in shown.out


def test_what_is_mended_during_the_delay_is_not_named(
    james: NamedTables, mailmend: CommandLine, cluster: ClusterTwin
) -> None:
    """As James does from its log of batches."""
    mends = Change(USER, ("ann",), add={"authorized_users": frozenset({"bob"})})
    began = cluster.clock.monotonic()
    scans = Strike(lambda one: of(USER, one), then=lambda: james.write(mends), times=1)
    james.surround = scans

    ended = mailmend("check", *JAMES, "--delay", "60s")

    assert (ended.code, ended.json["mismatches"]["number"]) == (0, 0)
    assert cluster.clock.monotonic() - began >= 60


def test_without_a_second_look_the_first_one_counts(
    james: NamedTables, mailmend: CommandLine, cluster: ClusterTwin
) -> None:
    began = cluster.clock.monotonic()

    ended = mailmend("check", *JAMES, "--no-recheck")

    assert keys(ended) == [("user", ["bob", "ann"])]
    assert cluster.clock.monotonic() - began < 60


@pytest.mark.usefixtures("james")
def test_a_table_that_is_named_is_looked_at_alone(mailmend: CommandLine) -> None:
    ended = mailmend("check", "user", *AT_ONCE)

    assert (ended.code, keys(ended)) == (1, [("user", ["bob", "ann"])])
    assert ended.json["scanned"] == {"user": 2}


def test_quotas_are_compared_where_they_are_named(
    james: NamedTables, mailmend: CommandLine, mail: MailKeyspace
) -> None:
    """They cost a read of every message."""
    path = {"namespace": "#private", "user": "ann", "mailboxname": "INBOX", "mailboxid": mail.mailbox}
    james.write(Put(MAILBOX_PATH, path))
    james.write(Count(QUOTA_VALUE, (ROOT, "MAILBOX", "count"), {"currentvalue": 5}))
    sizes = [row["fullcontentoctets"] for row in james.scan(Scan(MESSAGE_ID, ("fullcontentoctets",)))]
    james.write(Count(QUOTA_VALUE, (ROOT, "MAILBOX", "size"), {"currentvalue": sum(sizes)}))

    others = mailmend("check", *AT_ONCE)
    ended = mailmend("check", "quotaCurrentValue", *AT_ONCE)

    assert "messageidtable" not in others.json["scanned"]
    assert ended.code == 1
    assert ended.json["mismatches"]["first"] == [
        {
            "table": "quotaCurrentValue",
            "key": [ROOT, "count"],
            "by": 1,
            "what": f"the count of {ROOT} is 5, and its mailboxes have 4",
            "mend": "POST /quota/users?task=RecomputeCurrentQuotas",
        }
    ]


def test_a_quota_of_a_user_who_gets_mails_meanwhile_is_looked_at_a_third_time(
    james: NamedTables, mailmend: CommandLine
) -> None:
    """The first look at all messages takes long; the drift of 3 is seen by the two looks after it."""
    arrives = Count(QUOTA_VALUE, (ROOT, "MAILBOX", "count"), {"currentvalue": -4})
    james.write(Count(QUOTA_VALUE, (ROOT, "MAILBOX", "count"), {"currentvalue": 7}))
    james.surround = Strike(lambda one: of(QUOTA_VALUE, one), then=lambda: james.write(arrives), times=1)

    ended = mailmend("check", "quotaCurrentValue", *AT_ONCE)

    assert [(one["key"], one["by"]) for one in ended.json["mismatches"]["first"]] == [([ROOT, "count"], 3)]


def test_attachments_are_compared_where_they_are_named(james: NamedTables, mailmend: CommandLine) -> None:
    named = {"id": "abc", "name": None, "cid": None, "isinline": False}
    james.write(Put(MESSAGE_V3, {"messageid": message(9), "attachments": (named,)}))

    others = mailmend("check", *AT_ONCE)
    ended = mailmend("check", "attachmentV2", *AT_ONCE)

    assert ("attachmentV2", [str(message(9)), "abc"]) not in keys(others)
    assert (ended.code, keys(ended)) == (1, [("attachmentV2", [str(message(9)), "abc"])])
    assert ended.json["scanned"][ATTACHMENT.name] == 0


def test_a_keyspace_without_the_table_is_refused(mailmend: CommandLine, mail: MailKeyspace) -> None:
    ended = mailmend("check", "quotaCurrentValue", *AT_ONCE)

    assert ended.code == 2
    assert "the keyspace lacks quotaCurrentValue" in ended.err
    assert mailmend("check", *AT_ONCE).json["mismatches"]["number"] == 0, mail.name


def test_a_table_that_the_role_may_not_read_is_left_out_with_a_remark(
    james: NamedTables, mailmend: CommandLine
) -> None:
    """As `user`, which holds hashes of passwords."""
    james.surround = Strike(lambda one: of(USER, one), AccessDenied("no SELECT on user"))

    ended = mailmend("check", *AT_ONCE)

    assert (ended.code, ended.json["mismatches"]["number"]) == (0, 0)
    assert "user was not looked at: no SELECT on user." in ended.err


def test_a_check_of_james_writes_nothing(james: NamedTables, mailmend: CommandLine) -> None:
    asked = james.surround = Faults()

    assert mailmend("check", *AT_ONCE).code == 1
    assert all(isinstance(one, Read | Scan) for one in asked.seen)


@pytest.mark.usefixtures("james")
def test_another_check_looks_for_no_mismatches(mailmend: CommandLine) -> None:
    assert mailmend("check", "messages", "--engine", "local", "--delay", "0", "--json").json["mismatches"] is None
