"""What each role may do, as a table that people can read; a node that was told so; what one does to see it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.schema.grants import ROLES
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS, EVENT_STORE
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import AccessDenied
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Remove
from mailmend.model.table import Column, Kind, Table
from tests.support.commands import CommandLine, Ended
from tests.support.guarded import GuardedNode
from tests.support.keyspaces import MAIL, created, dropped
from tests.support.mail_states import QUIET, MailKeyspace

PERMISSIONS = """
                    reader  repairer  loader  migrator  adviser  queue_reader  queue  collector
imapUidTable        S       SM        SM      -         S        -             -      S
messageIdTable      S       SM        SM      -         S        -             -      S
messageV3           S       S         SM      -         -        -             -      S
messageCounter      S       S         SM      -         S        -             -      -
modseq              S       S         SM      -         S        -             -      -
mailboxCounters     S       SM        SM      -         -        -             -      -
firstUnseen         S       SM        SM      -         -        -             -      -
mailboxRecents      S       SM        SM      -         -        -             -      -
messageDeleted      S       SM        SM      -         -        -             -      -
applicableFlag      S       SM        SM      -         -        -             -      -
mailbox             S       SM        SM      -         -        -             -      -
mailboxPathV3       S       S         SM      -         -        -             -      -
blobs               -       -         SM      -         -        -             -      SM
blobParts           -       -         SM      -         -        -             -      SM
enqueuedMailsV4     -       -         -       -         S        S             SM     S
deletedMailsV2      -       -         -       -         -        S             SM     S
browseStart         -       -         -       -         S        S             SM     S
contentStart        -       -         -       -         -        S             SM     -
dueMails            -       -         -       -         -        S             SM     S
sliceTallies        -       -         -       -         -        S             SM     -
queueState          -       -         -       -         -        S             SM     -
backlogs            -       -         -       -         -        S             SM     -
backlogMails        -       -         -       -         -        S             SM     -
eventStore          -       -         -       -         S        S             SM     -
letters             -       -         -       -         -        -             -      S
others              -       -         -       -         -        -             -      -
repair_run          -       SM        -       -         -        -             -      SM
repair_finding      -       SM        -       -         -        -             -      S
repair_lag          -       SM        M       -         -        -             -      -
repair_lease        S       SM        -       SM        -        -             -      SM
delivery_suspension -       SM        -       -         -        -             SM     -
delivery_condition  -       SM        -       -         -        -             SM     -
delivery_order_history - SM     -       -         -        -             SM     -
delivery_intent     -       SM        -       -         -        -             SM     -
delivery_policies   -       SM        -       -         -        -             SM     -
schema_migration    S       S         -       SM        -        -             -      -
schema_statement    S       S         -       SM        -        -             -      -
schema_unlock       S       S         -       SM        -        -             -      -
schema_baseline     S       S         -       SM        -        -             -      -
"""
"""S: SELECT, M: MODIFY (which is TRUNCATE as well). Only the migrator alters and drops, and only in its keyspaces."""

_SOME: Mapping[str, Any] = {
    "timeuuid": UUID("6e0ab5e0-8d1c-11f0-9a5e-0242ac120002"),
    "uuid": UUID("6e0ab5e0-8d1c-41f0-9a5e-0242ac120002"),
    "bigint": 1,
    "blob": b"x",
    "int": 1,
    "text": "x",
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
}

KEYSPACE, LEDGER, ELSEWHERE = "h_mail", "h_ledger", "h_elsewhere"
PASSWORD = "Tr0ub4dor-of-the-test"

LETTERS = Table("letters", (Column("k", "text", Kind.PARTITION), Column("blobId", "text")))
"""Somebody else's table in the mail keyspace, whose column says that it may refer to blobs."""

MAIL_TABLES = (*MAIL.tables, BLOBS, BLOB_PARTS, *QUEUE_TABLES, EVENT_STORE, LETTERS)
OTHERS = Table("others", (Column("k", "text", Kind.PARTITION), Column("v", "text")))
TABLES = {
    table.spelling: (keyspace, table)
    for keyspace, tables in ((KEYSPACE, MAIL_TABLES), (LEDGER, LEDGER_TABLES), (ELSEWHERE, (OTHERS,)))
    for table in tables
}


@dataclass(frozen=True, slots=True)
class Granted:
    """The node after a DBA ran what `schema grants` printed, and gave each role its password."""

    node: GuardedNode
    superuser: CassandraCluster
    mail: MailKeyspace
    script: Ended

    def shell(self, home: Path, role: str, **environment: str) -> CommandLine:
        names = {"MAILMEND_KEYSPACE": KEYSPACE, "MAILMEND_LEDGER_KEYSPACE": LEDGER}
        shell = self.node.shell(home, f"mailmend_{role}", PASSWORD, **names, **QUIET)
        return replace(shell, environment={**shell.environment, **environment})


@contextmanager
def granted_roles(guarded: GuardedNode, home: Path) -> Iterator[Granted]:
    """What it creates stays until the node ends, or until it is created again."""
    names = {"MAILMEND_KEYSPACE": KEYSPACE, "MAILMEND_LEDGER_KEYSPACE": LEDGER}
    with connect(guarded.contact()) as superuser:
        dropped(superuser, (KEYSPACE, LEDGER, ELSEWHERE))
        run_as_cqlsh(superuser, "".join(f"DROP ROLE IF EXISTS mailmend_{role};\n" for role in ROLES))
        tables = created(superuser, KEYSPACE, Schema(MAIL.types, MAIL_TABLES))
        created(superuser, ELSEWHERE, Schema((), (OTHERS,)))
        script = guarded.shell(home, **names)("schema", "grants", "--with-create-role")
        run_as_cqlsh(superuser, script.out)
        for role in ROLES:
            run_as_cqlsh(superuser, f"ALTER ROLE mailmend_{role} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true;")
        yield Granted(guarded, superuser, MailKeyspace(KEYSPACE, tables), script)


def run_as_cqlsh(cluster: CassandraCluster, script: str) -> None:
    text = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    for statement in filter(str.strip, text.split(";")):
        cluster.session.execute(statement)


def permitted() -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    head, *lines = PERMISSIONS.strip("\n").splitlines()
    for line in lines:
        table, *cells = line.split()
        found += [(role, table, cell.strip("-")) for role, cell in zip(head.split(), cells, strict=True)]
    return found


def permitted_quickly() -> list[Any]:
    """Every cell of the table; `make test` takes the first of each role with the same permissions."""
    seen: set[tuple[str, str]] = set()
    cells = []
    for role, table, letters in permitted():
        again = (role, letters) in seen
        seen.add((role, letters))
        cells.append(pytest.param(role, table, letters, marks=[pytest.mark.thorough] * again))
    return cells


def refused(cluster: CassandraCluster, cql: str) -> bool:
    try:
        cluster.session.execute(cql)
    except Exception as error:
        if type(error).__name__ != "Unauthorized":
            raise
        return True
    return False


def may_read(cluster: CassandraCluster, keyspace: str, table: Table) -> bool:
    return not refused(cluster, f"SELECT * FROM {keyspace}.{table.name} LIMIT 1")


def may_write(cluster: CassandraCluster, keyspace: str, table: Table) -> bool:
    """Whether the role writes it: here, removes a row that is not there."""
    try:
        key = tuple(_SOME[column.type] for column in table.key)
        cluster.keyspace(keyspace).write(Remove(table, key))
    except AccessDenied:
        return False
    return True


def said_what_is_missing(ended: Ended, role: str, keyspace: str) -> None:
    """Exit 4: the role, a permission, a resource, the command to type next; no trace, no secret."""
    assert ended.code == 4, ended.err
    assert role in ended.err
    assert "it has no " in ended.err
    assert keyspace in ended.err
    assert "mailmend schema grants --check" in ended.err
    assert "Traceback" not in ended.err
    assert PASSWORD not in ended.out + ended.err
