"""A live keyspace exported: the CQL makes the same keyspace again, and the page tells what is really there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from mailmend.cql.language.parser import parse
from mailmend.cql.schema.difference import differences
from mailmend.model.catalog.mail import IMAP_UID, MAIL_TYPES, MAILBOX, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind, Table
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

ODD = Table('"OddOne"', (Column('"Key"', "text", Kind.PARTITION), Column("v", "map<text,frozen<list<int>>>")))
FILTERS = tuple(one.table for one in MESSAGES.filters)
HELD = Schema(MAIL_TYPES, (IMAP_UID, MESSAGE_ID, MESSAGE_V3, MAILBOX, *FILTERS, ODD))


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as opened:
        yield opened


@pytest.fixture(scope="module")
def keyspace(cassandra: CassandraServer, cluster: CassandraCluster) -> Iterator[str]:
    """Some of the mail, a table that nobody knows, an index; and a second keyspace's name, all dropped afterwards."""
    name = cassandra.keyspace()
    created(cluster, name, HELD)
    cluster.execute_ddl(f"CREATE INDEX by_thread ON {name}.messagev3 (internaldate)")
    yield name
    dropped(cluster, (name, f"{name}_again"))


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: str, tmp_path: Path) -> CommandLine:
    """A shell that knows the cluster and the keyspace; nothing was ever repaired there."""
    names = {"MAILMEND_KEYSPACE": keyspace, "MAILMEND_LEDGER_KEYSPACE": f"{keyspace}_ledger"}
    return command_line(tmp_path, cassandra, **names)


def test_the_exported_cql_makes_the_same_keyspace_again(
    cluster: CassandraCluster, keyspace: str, mailmend: CommandLine
) -> None:
    """Types, tables with all their options, names in quotes, indexes: read back, nothing differs."""
    ended = mailmend("schema", "export", "--live", "--only", "cql", "--dir", "-")
    assert ended.code == 0, ended.err

    again = f"{keyspace}_again"
    text = ended.out.replace(keyspace, again)
    for one in parse(text):
        cluster.execute_ddl(text[one.span.start : one.span.end])

    assert differences(live_schema(cluster, keyspace), live_schema(cluster, again)) == ()


def test_the_page_of_a_live_keyspace_tells_what_is_there(keyspace: str, mailmend: CommandLine, tmp_path: Path) -> None:
    """In the model's words: spellings, projections that are there, and tables that it does not know."""
    ended = mailmend("schema", "export", "--live", "--dir", str(tmp_path), "--json")
    assert ended.code == 0, ended.err
    page = (tmp_path / "schema.md").read_text(encoding="utf-8")

    assert f"# The keyspace {keyspace}" in page
    assert "### imapUidTable" in page
    assert "**Projection** (filter) of imapUidTable: keys of the rows where flagSeen is false." in page
    assert "mailboxCounters" not in page.replace("mailboxCounters, ", "")
    assert page.index("## Other tables") < page.index("| `v` |")
    assert "firstUnseen" in (tmp_path / "schema.svg").read_text(encoding="utf-8")
