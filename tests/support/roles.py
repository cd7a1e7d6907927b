"""What each role may do, as a table that people can read; and what one does to see whether it is so."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cql.driver.session import CassandraCluster
from model.errors import AccessDenied
from model.operations import Remove
from model.schema.table import Table

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
mailbox             S       S         SM      -         -        -             -      -
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
eventStore          -       -         -       -         S        S             SM     -
letters             -       -         -       -         -        -             -      S
others              -       -         -       -         -        -             -      -
repair_run          -       SM        -       -         -        -             -      SM
repair_finding      -       SM        -       -         -        -             -      S
repair_lag          -       SM        M       -         -        -             -      -
repair_lease        S       SM        -       SM        -        -             -      SM
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


def permitted() -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    head, *lines = PERMISSIONS.strip("\n").splitlines()
    for line in lines:
        table, *cells = line.split()
        found += [(role, table, cell.strip("-")) for role, cell in zip(head.split(), cells, strict=True)]
    return found


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
