"""Taking over a real keyspace of James: recognised in every generation, nothing of it altered, and given back.

One keyspace, made by James's own statements, walks from generation to generation by the CQL of `plan --from-model`'s
own logic, so the way between them is carried out on a real server as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from mailmend.cql.render import ddl_cql
from mailmend.cql.schema.changes import Gap, Include, changes
from mailmend.cql.schema.generations import GENERATIONS, JAMES_3_8, Generation
from mailmend.cql.schema.upgrades import Standing
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.catalog.ledger import SCHEMA_BASELINE, SCHEMA_MIGRATION
from mailmend.model.catalog.mail_queue import OWN_QUEUE_TABLES, queue_tables_of
from mailmend.model.errors import ExitCode
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from tests.support.commands import CommandLine, command_line
from tests.support.james import SCHEMA_FILE, put_james
from tests.support.schemas import served
from tests.support.servers import CassandraServer
from tests.support.thorough import ALL

pytestmark = pytest.mark.cassandra

A_DAY_AGO = 1_760_000_000_000_000
Snapshot = Mapping[str, Any]


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port)) as opened:
        yield opened


@pytest.fixture(scope="module")
def names(cluster: CassandraCluster) -> Iterator[list[str]]:
    held: list[str] = []
    yield held
    for name in held:
        cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {name}")


def named(names: list[str], what: str) -> str:
    name = f"adopt_{what}_{uuid4().hex[:6]}"
    names.append(name)
    return name


@pytest.fixture(scope="module")
def james(cluster: CassandraCluster, names: list[str]) -> str:
    name = named(names, "james")
    for statement in SCHEMA_FILE.read_text(encoding="utf-8").split(";"):
        if statement.strip():
            cluster.execute_ddl(statement.replace("apache_james", name))
    put_james(cluster.keyspace(name), at=A_DAY_AGO)
    return name


@pytest.fixture(scope="module")
def mailmend(cassandra: CassandraServer, names: list[str], tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    ledger = named(names, "ledger")
    return command_line(tmp_path_factory.mktemp("home"), cassandra, MAILMEND_LEDGER_KEYSPACE=ledger)


def snapshot(cluster: CassandraCluster, keyspace: str) -> Snapshot:
    """All that the server knows of the keyspace's schema, and how many writes each of its tables has seen."""
    parts = ("tables", "columns", "dropped_columns", "types", "indexes", "views", "keyspaces")
    held: dict[str, Any] = {
        part: cluster.query(f"SELECT * FROM system_schema.{part} WHERE keyspace_name = ?", (keyspace,))
        for part in parts
    }
    written = cluster.query("SELECT keyspace_name, table_name, count FROM system_views.local_write_latency")
    mine = {row["table_name"]: row["count"] for row in written if row["keyspace_name"] == keyspace}
    assert mine["imapuidtable"] > 0
    return held | {"writes": mine}


def walked_to(cluster: CassandraCluster, keyspace: str, generation: Generation) -> None:
    """Take the keyspace to another generation, as an upgrade of James would, and drop what that generation drops."""
    live = live_schema(cluster, keyspace)
    wanted = served(generation.schema)
    known = {table.name for one in GENERATIONS for table in one.schema.tables}
    others = tuple(table for table in live.tables if table.name not in known)
    types = tuple(one for one in live.types if wanted.user_type(one.name) is None)
    expected = Schema((*wanted.types, *types), (*wanted.tables, *others))
    for one in changes(Gap(expected, live, frozenset({Include.REMOVALS}))):
        assert one.statement is not None, one.manual
        cluster.execute_ddl(ddl_cql(one.statement, keyspace))


def test_every_generation_is_taken_over_and_given_back_and_nothing_of_it_is_altered(
    cluster: CassandraCluster, james: str, mailmend: CommandLine, pytestconfig: pytest.Config
) -> None:
    """Adopted, adopted again, verified, forgotten; the server's own tables and counters stand still."""
    fingerprints = set()
    generations = GENERATIONS if pytestconfig.getoption(ALL) else GENERATIONS[::3]
    for generation in reversed(generations):
        # Given a keyspace of that generation
        if generation is not JAMES_3_8:
            walked_to(cluster, james, generation)
        before = snapshot(cluster, james)

        # When it is adopted, once after a dry run, and once more
        dry = mailmend("schema", "adopt", "--keyspace", james, "--dry-run", "--json")
        first = mailmend("schema", "adopt", "--keyspace", james, "--json")
        again = mailmend("schema", "adopt", "--keyspace", james, "--json")

        # Then it is recognised, remembered, and left as it was
        assert [one.code for one in (dry, first, again)] == [0, 0, 0], (dry.err, first.err, again.err)
        assert (dry.json["baseline"], dry.json["adopted"]) == (None, False)
        assert first.json["generation"] == generation.name
        assert first.json["adopted"]
        assert first.json["drift"] == []
        assert again.json["standing"] == Standing.ADOPTED.value
        assert not again.json["adopted"]
        assert again.json["baseline"] == first.json["baseline"]
        fingerprints.add(first.json["baseline"]["fingerprint"])
        assert snapshot(cluster, james) == before

        # And verify and plan find nothing to do in it
        verified = mailmend("schema", "verify", "--keyspace", james, "--json")
        assert (verified.code, verified.json["adopted"], verified.json["drift"]) == (0, True, []), verified.out
        assert verified.json["history"]["pending"] == []
        assert mailmend("schema", "plan", "--from-model", "--keyspace", james).code == 0

        # When it is given back, nothing is left of it in the ledger
        forgotten = mailmend("schema", "adopt", "--forget", "--keyspace", james, "--json")
        assert forgotten.json["forgotten"]["generation"] == generation.name
        ledger = cluster.keyspace(mailmend.environment["MAILMEND_LEDGER_KEYSPACE"])
        for table in (SCHEMA_BASELINE, SCHEMA_MIGRATION):
            assert [row for row in ledger.scan(Scan(table, ("keyspacename",))) if row["keyspacename"] == james] == []
        assert snapshot(cluster, james) == before
    assert len(fingerprints) == len(generations)


def test_what_an_upgrade_note_left_to_do_is_listed_printed_and_run_by_name(
    cluster: CassandraCluster, james: str, mailmend: CommandLine
) -> None:
    # Given a keyspace whose operator has not followed two notes
    cluster.execute_ddl(f"ALTER TABLE {james}.attachmentv2 DROP message_id")
    cluster.execute_ddl(f"ALTER TABLE {james}.modseq WITH compaction = {{'class': 'LeveledCompactionStrategy'}}")

    # Then both are listed, with reason, risk and CQL
    found = mailmend("schema", "adopt", "--dry-run", "--keyspace", james, "--json")
    optional = {one["name"]: one for one in found.json["optional"]}
    assert found.code == 0
    assert {"attachment-message-id", "tune-mail-compaction"} <= set(optional)
    (tuning,) = optional["tune-mail-compaction"]["plan"]
    assert tuning["risk"] == "rewrite"
    assert tuning["cql"].startswith(f"ALTER TABLE {james}.modseq WITH compaction")

    # When one is run by its name, with the risk that a dropped column returns, only that is done, and only once
    shown = mailmend("schema", "apply", "--optional", "attachment-message-id", "--dry-run", "--keyspace", james)
    assert f"ALTER TABLE {james}.attachmentV2 ADD message_id timeuuid;" in shown.out
    named = ("schema", "apply", "--optional", "attachment-message-id", "--keyspace", james)
    assert mailmend(*named).code == ExitCode.NOT_ALLOWED
    ran = mailmend(*named, "--allow", "data-loss", "--json")
    assert ran.json["sent"] == [f"ALTER TABLE {james}.attachmentV2 ADD message_id timeuuid;"], ran.err
    again = mailmend(*named)
    assert "nothing of attachment-message-id is left" in again.out
    left = mailmend("schema", "adopt", "--dry-run", "--keyspace", james, "--json").json["optional"]
    assert {one["name"] for one in left} == set(optional) - {"attachment-message-id"}

    # And a misspelt name runs nothing
    assert mailmend("schema", "apply", "--optional", "attachment", "--keyspace", james).code == 2


def test_our_queue_tables_come_into_a_keyspace_of_james_by_name_only(
    cluster: CassandraCluster, james: str, mailmend: CommandLine
) -> None:
    """They are neither missed nor made by the way; then there are our tables too, and James's own are as before."""
    assert mailmend("schema", "adopt", "--keyspace", james).code == 0
    before = {table.name: table for table in live_schema(cluster, james).tables}
    bare = queue_tables_of(live_schema(cluster, james), james)
    assert (bare.due, bare.tallies, bare.state, bare.backlogs) == (False, False, False, False)
    assert mailmend("schema", "plan", "--keyspace", james).code == 0
    assert mailmend("schema", "apply", "--keyspace", james).code == 0
    assert {table.name: table for table in live_schema(cluster, james).tables} == before

    shown = mailmend("schema", "apply", "--optional", "mail-queue", "--dry-run", "--keyspace", james)
    assert shown.out.count("CREATE TABLE IF NOT EXISTS") == len(OWN_QUEUE_TABLES)
    made = mailmend("schema", "apply", "--optional", "mail-queue", "--keyspace", james, "--json")
    assert (made.code, len(made.json["sent"])) == (0, len(OWN_QUEUE_TABLES)), made.err

    after = {table.name: table for table in live_schema(cluster, james).tables}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {table.name for table in OWN_QUEUE_TABLES}
    ours = replace(bare, due=True, tallies=True, state=True, backlogs=True)
    assert queue_tables_of(live_schema(cluster, james), james) == ours
    verified = mailmend("schema", "verify", "--keyspace", james, "--json")
    assert (verified.code, verified.json["drift"], verified.json["adopted"]) == (0, [], True), verified.out
    again = mailmend("schema", "apply", "--optional", "mail-queue", "--keyspace", james)
    assert "nothing of mail-queue is left" in again.out


def test_james_own_schema_version_is_written_only_when_asked_for(
    cluster: CassandraCluster, james: str, mailmend: CommandLine
) -> None:
    """Dry first, with the value before; nonsense refused; undone by the CQL that it names."""
    versions = cluster.keyspace(james)

    def standing() -> list[int]:
        return [row["value"] for row in versions.scan(Scan(SCHEMA_VERSION, ("value",)))]

    before = standing()
    dry = mailmend("schema", "adopt", "--write-schema-version", "15", "--dry-run", "--keyspace", james, "--json")
    assert dry.json["schema_version"]["before"] == 12
    assert "12 to 13" in dry.json["schema_version"]["caution"]
    for nonsense in ("3", "999", "-1"):
        refused = mailmend("schema", "adopt", "--write-schema-version", nonsense, "--dry-run", "--keyspace", james)
        assert (refused.code, "Traceback" in refused.err) == (2, False)
    assert standing() == before

    wrote = mailmend("schema", "adopt", "--write-schema-version", "15", "--keyspace", james, "--json")
    assert wrote.code == 0, wrote.err
    assert max(standing()) == 15
    lower = mailmend("schema", "adopt", "--write-schema-version", "14", "--keyspace", james)
    assert lower.code == 2
    assert "reads the greatest" in lower.err
    assert wrote.json["schema_version"]["undo"].startswith(f"DELETE FROM {james}.schemaversion")
    cluster.session.execute(wrote.json["schema_version"]["undo"])
    assert standing() == before
