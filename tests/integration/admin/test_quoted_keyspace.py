"""A keyspace whose name needs double quotes, by the command line on a real Cassandra: from its creation to an undo.

`tests/equivalence/spark_repair/test_output.py` shows that Spark reads and mends such a keyspace.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.model.catalog.mail import MESSAGE_ID
from mailmend.model.operations import Remove, Scan
from tests.support.commands import QUICK, CommandLine, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

pytestmark = pytest.mark.cassandra

LETTER = "From ann Thu Jan  1 00:00:00 2026\nSubject: one\n\nhello\n\n"
LACKING = {"messageIdTable": {"PROJECT": 1}}


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as opened:
        yield opened


@pytest.fixture(scope="module")
def keyspace(cluster: CassandraCluster) -> Iterator[str]:
    """As CQL spells it; its ledger is beside it."""
    name = f'"OddKs_{uuid4().hex[:8]}"'
    yield name
    dropped(cluster, (name, _ledger(name)))


@pytest.fixture(scope="module")
def mailmend(cassandra: CassandraServer, keyspace: str, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """With the schema applied, and two mails loaded."""
    home = tmp_path_factory.mktemp("home")
    names = {"MAILMEND_KEYSPACE": keyspace, "MAILMEND_LEDGER_KEYSPACE": _ledger(keyspace)}
    typed = command_line(home, cassandra, **names)
    applied = typed("schema", "apply", "--replication-factor", "1")
    assert applied.code == 0, applied.err
    mbox = home / "archive.mbox"
    mbox.write_text(LETTER * 2)
    loaded = typed("load", str(mbox), "--user", "ann", "--mailbox", "INBOX", "--json")
    assert (loaded.code, loaded.json["stored"]) == (0, 2), loaded.err
    return typed


@pytest.fixture
def tables(mailmend: CommandLine, cluster: CassandraCluster, keyspace: str) -> Keyspace:
    """The mail tables, one mail not being in the projection."""
    assert mailmend.environment["MAILMEND_KEYSPACE"] == keyspace
    opened = cluster.keyspace(keyspace)
    lost = next(iter(opened.scan(Scan(MESSAGE_ID, MESSAGE_ID.names))))
    opened.write(Remove(MESSAGE_ID, MESSAGE_ID.key_of(lost)))
    return opened


def _ledger(keyspace: str) -> str:
    return f'{keyspace[:-1]}_Ledger"'


@pytest.mark.parametrize(
    "words", first_of(["verify", "plan --from-model", "grants", "history", "plan", "apply"], quick=3)
)
def test_the_owner_of_the_schema_takes_a_quoted_name(mailmend: CommandLine, keyspace: str, words: str) -> None:
    ended = mailmend("schema", *words.split())

    assert ended.code == 0, (ended.err, ended.out)
    assert keyspace in ended.out
    assert keyspace.lower() not in ended.out


def test_it_is_exported_and_linted_by_its_own_name(
    mailmend: CommandLine, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    exported = mailmend("schema", "export", "--live")
    linted = mailmend("schema", "lint", "--live")

    assert exported.code == 0, exported.err
    text = (tmp_path / "docs/schema/schema.cql").read_text()
    assert f"CREATE TABLE IF NOT EXISTS {keyspace}.imapuidtable (" in text
    assert linted.code == 0, linted.out
    assert f"keyspace {keyspace.strip(chr(34))}" in linted.out


def test_a_name_without_quotes_is_read_in_lower_case(mailmend: CommandLine, keyspace: str) -> None:
    bare = keyspace.strip('"')

    ended = mailmend("check", *QUICK, "--keyspace", bare)

    assert ended.code == 2
    assert f"keyspace '{bare.lower()}' does not exist" in ended.err
    assert f"Did you mean --keyspace '{keyspace}'?" in ended.err


def test_its_mails_are_checked_mended_and_undone(mailmend: CommandLine, tables: Keyspace, keyspace: str) -> None:
    found = mailmend("check", "messages", *QUICK, "--json")
    assert (found.code, found.json["findings"]) == (1, LACKING), found.err

    mended = mailmend("repair", "messages", *QUICK, "--no-writers", "--json")
    assert (mended.code, mended.json["fixed"], mended.json["keyspace"]) == (0, {"PROJECT": 1}, keyspace), mended.err
    assert len(list(tables.scan(Scan(MESSAGE_ID, MESSAGE_ID.names)))) == 2
    assert mailmend("check", *QUICK).code == 0

    undone = mailmend("undo", mended.json["run"], "--json")
    assert undone.code == 0, undone.err
    assert mailmend("check", *QUICK).code == 1
    assert mailmend("undo", undone.json["run"]).code == 0


@pytest.mark.parametrize("words", first_of(["repair lags --delay 0", "check queues --engine local", "runs list"]))
def test_other_commands_take_it(mailmend: CommandLine, words: str) -> None:
    ended = mailmend(*words.split(), "--json")

    assert ended.code == 0, ended.err
