"""The environment of a Python program whose settings name the servers of the tests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from mailmend.cql.driver.session import connect
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.keyspace import Schema
from mailmend.model.table import Table, columns
from tests.support.brokers import Broker
from tests.support.commands import contact_of
from tests.support.installed import without_ours
from tests.support.keyspaces import MAIL, created, dropped
from tests.support.real_queue import QUEUE_SCHEMA
from tests.support.servers import CassandraServer

SHOP = (
    Table("users", columns("user_id uuid", regular="email text, name text")),
    Table("users_by_email", columns("email text", regular="user_id uuid, name text")),
)
"""Tables of the program's own."""


@contextmanager
def settings_of_a_program(cassandra: CassandraServer, rabbitmq: Broker, home: Path) -> Iterator[Mapping[str, str]]:
    """A keyspace, a virtual host and a home of the program's own, as environment variables."""
    name = f"g_library_{uuid4().hex[:8]}"
    tables = (*MAIL.tables, *QUEUE_SCHEMA.tables, BLOBS, BLOB_PARTS, *SHOP)
    with connect(contact_of(cassandra)) as cluster, rabbitmq.vhost() as vhost:
        created(cluster, name, Schema(MAIL.types, tables))
        yield {
            **without_ours(),
            "HOME": str(home),
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_DATA_HOME": f"{home}/data",
            "MAILMEND_HOST": cassandra.host,
            "MAILMEND_PORT": str(cassandra.port),
            "MAILMEND_KEYSPACE": name,
            "MAILMEND_LEDGER_KEYSPACE": f"{name}_ledger",
            "MAILMEND_BROKER": rabbitmq.url(vhost),
            "MAILMEND_BLOBS": "cassandra:",
        }
        dropped(cluster, (name, f"{name}_ledger"))
