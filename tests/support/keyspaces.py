"""Keyspaces of a test's own on a real server: created from the catalog, filled row by row, dropped afterwards."""

from collections.abc import Iterable
from dataclasses import dataclass

from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.render import in_every_data_centre, keyspace_cql, schema_cql
from mailmend.model.catalog.ledger import LEDGER_TABLES, REPAIR_LEASE
from mailmend.model.catalog.mail import MAIL_TABLES, MAIL_TYPES
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Remove, Scan

MAIL = Schema(MAIL_TYPES, MAIL_TABLES)
LEDGER = Schema((), LEDGER_TABLES)


@dataclass(frozen=True, slots=True)
class MailServer:
    """A real Cassandra with a keyspace of mail and one of a ledger, empty where a test begins."""

    cluster: CassandraCluster
    mail: Keyspace
    ledger: Keyspace


def created(cluster: CassandraCluster, name: str, schema: Schema) -> Keyspace:
    dropped(cluster, (name,))
    cluster.execute_ddl(keyspace_cql(name, in_every_data_centre(1)))
    for text in schema_cql(name, schema):
        cluster.execute_ddl(text)
    return cluster.keyspace(name)


def dropped(cluster: CassandraCluster, names: Iterable[str]) -> None:
    for name in names:
        cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {name}")


def emptied(cluster: CassandraCluster, keyspace: Keyspace, schema: Schema) -> None:
    """Truncate each table that has rows: cheaper than another keyspace, and older writes are seen afterwards."""
    for table in schema.tables:
        if any(keyspace.scan(Scan(table, (table.key[0].name,)))):
            cluster.execute_ddl(f"TRUNCATE {keyspace.name}.{table.name}")


def end_leases(ledger: Keyspace) -> None:
    """As their time does where their holder was killed."""
    for row in ledger.scan(Scan(REPAIR_LEASE, REPAIR_LEASE.names)):
        ledger.write(Remove(REPAIR_LEASE, REPAIR_LEASE.key_of(row)))
