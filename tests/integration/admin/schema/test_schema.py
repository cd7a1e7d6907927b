"""Schemas on a real server: created, created again, verified, broken, recognised, completed."""

import json
from collections.abc import Iterable, Iterator

import pytest

from mailmend.admin.main import run
from mailmend.cql.applying import Step, ensure_ledger
from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import keyspace_exists, live_schema
from mailmend.cql.migrate.files import shipped
from mailmend.cql.migrate.rollout import RolloutPlan, RolloutRequest, plan_rollout
from mailmend.cql.render import parse_replication
from mailmend.cql.schema.difference import Aspect, differences
from mailmend.cql.schema.generations import AUGUST_2026, JAMES_3_8, JAMES_3_9, NEWEST
from mailmend.cql.schema.migrations import LedgerRecord
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import FAMILIES, MAIL_TABLES, SCHEMA, CompactionChoice
from mailmend.model.operations import Level, Read, Scan
from mailmend.repair.binding import bind
from tests.support.applying import apply_schema, missing_steps, verify_schema
from tests.support.james import SCHEMA_FILE, james_families, james_rows, james_schema, load_james
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

pytestmark = pytest.mark.cassandra

BIG_TABLES = 6
"""The steps of a plan up to the three big tables: the keyspace, two types, the tables."""

OTHER_TYPE = "(mailboxid timeuuid, recent_mesage_uid int, PRIMARY KEY (mailboxid, recent_mesage_uid))"
OTHER_ORDER = "(mailboxid timeuuid, uid bigint, PRIMARY KEY (mailboxid, uid)) WITH CLUSTERING ORDER BY (uid DESC)"


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port)) as opened:
        yield opened


@pytest.fixture
def keyspace(cassandra: CassandraServer, cluster: CassandraCluster) -> Iterator[str]:
    name = cassandra.keyspace()
    yield name
    cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {name}")


@pytest.fixture(scope="module")
def james(cassandra: CassandraServer, cluster: CassandraCluster) -> Iterator[str]:
    """The whole keyspace of James 3.8.1, created by its own statements; not to be changed by a test."""
    name = cassandra.keyspace()
    for statement in SCHEMA_FILE.read_text(encoding="utf-8").split(";"):
        if statement.strip():
            cluster.execute_ddl(statement.replace("apache_james", name))
    yield name
    cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {name}")


def create(cluster: CassandraCluster, steps: Iterable[Step]) -> None:
    for step in steps:
        cluster.execute_ddl(step.cql)


def rollout(cluster: CassandraCluster, keyspace: str, *, complete: bool = False) -> RolloutPlan:
    return plan_rollout(cluster, LedgerRecord(), RolloutRequest(keyspace, shipped(), ours=True, complete=complete))


def test_apply_creates_everything_once_and_what_drifts_from_it_is_found(
    cluster: CassandraCluster, keyspace: str
) -> None:
    """A second apply finds nothing missing, verify nothing wrong to the last option, and the families bind whole.

    Then a column is dropped, another one added, a type, an order and an option are others, and a table is dropped.
    """
    first = apply_schema(cluster, keyspace)
    again = apply_schema(cluster, keyspace)
    assert len(first) == 1 + len(SCHEMA.types) + len(SCHEMA.tables)
    assert again == ()
    recognition = verify_schema(cluster, keyspace)
    assert recognition.generation is NEWEST
    assert recognition.made_here
    assert recognition.drift == recognition.notes == ()
    live = live_schema(cluster, keyspace)
    assert differences(SCHEMA, live) == ()
    assert {table.name for table in live.tables} == {table.name for table in SCHEMA.tables}
    assert bind(keyspace, live) == FAMILIES

    for statement in (
        "ALTER TABLE {}.messageidtable DROP save_date",
        "ALTER TABLE {}.modseq ADD label text",
        "DROP TABLE {}.mailboxrecents",
        f"CREATE TABLE {{}}.mailboxrecents {OTHER_TYPE}",
        "DROP TABLE {}.messagedeleted",
        f"CREATE TABLE {{}}.messagedeleted {OTHER_ORDER}",
        "DROP TABLE {}.firstunseen",
        "ALTER TABLE {}.mailbox WITH caching = {{'keys': 'NONE'}}",
    ):
        cluster.execute_ddl(statement.format(keyspace))
    found = verify_schema(cluster, keyspace)
    assert {(one.aspect, one.owner, one.subject) for one in found.drift} == {
        (Aspect.MISSING_COLUMN, "messageIdTable", "save_date"),
        (Aspect.UNEXPECTED_COLUMN, "modseq", "label"),
        (Aspect.DIFFERENT_COLUMN, "mailboxRecents", "recent_mesage_uid"),
        (Aspect.DIFFERENT_ORDER, "messageDeleted", ""),
        (Aspect.MISSING_TABLE, "firstUnseen", ""),
    }
    assert (Aspect.DIFFERENT_OPTION, "mailbox", "caching") in {
        (one.aspect, one.owner, one.subject) for one in found.notes
    }


@pytest.mark.parametrize(
    "choice", first_of([CompactionChoice.UNIFIED, CompactionChoice.LEVELED, CompactionChoice.TWCS])
)
def test_the_choice_of_compaction_is_kept(cluster: CassandraCluster, keyspace: str, choice: CompactionChoice) -> None:
    create(cluster, missing_steps(cluster, keyspace, compaction=choice)[:BIG_TABLES])
    truth = live_schema(cluster, keyspace).table("imapuidtable")
    assert truth is not None
    assert truth.compaction is not None
    strategies = {"twcs": "TimeWindow", "unified": "Unified", "leveled": "Leveled"}
    assert truth.compaction.strategy == f"{strategies[choice.value]}CompactionStrategy"
    assert verify_schema(cluster, keyspace).notes == ()


def test_each_generation_is_recognised_on_a_server(cluster: CassandraCluster, keyspace: str) -> None:
    """Step by step from the newest to the oldest, by the columns that James dropped since."""
    create(cluster, missing_steps(cluster, keyspace)[:BIG_TABLES])
    newer = NEWEST
    assert verify_schema(cluster, keyspace).generation is NEWEST
    for generation in (AUGUST_2026, JAMES_3_9):
        for table in generation.schema.tables[:3]:
            before = newer.schema.table(table.name)
            assert before is not None
            added = ", ".join(f"{one.name} {one.type}" for one in table.columns if one.name not in before)
            if added:
                cluster.execute_ddl(f"ALTER TABLE {keyspace}.{table.name} ADD ({added})")
        assert verify_schema(cluster, keyspace).generation is generation
        newer = generation


def test_the_keyspace_of_james_is_recognised_and_right(cluster: CassandraCluster, james: str) -> None:
    found = verify_schema(cluster, james)
    assert found.generation is JAMES_3_8
    assert not found.made_here
    assert found.drift == ()
    assert {one.aspect for one in found.notes} == {
        Aspect.DIFFERENT_OPTION,
        Aspect.MISSING_TABLE,
        Aspect.UNEXPECTED_TABLE,
        Aspect.UNEXPECTED_TYPE,
    }
    assert "messagev2" in {one.owner for one in found.notes}


def test_the_keyspace_of_james_binds_as_its_generation(cluster: CassandraCluster, james: str) -> None:
    """The same families as the test rows' own, whatever order the server lists columns in."""
    for bound, expected in zip(bind(james, live_schema(cluster, james)), james_families(), strict=True):
        assert [one.name for one in bound.projections] == [one.name for one in expected.projections]
        assert {column.name for column in bound.mirror.compared} == {one.name for one in expected.mirror.compared}
        assert [set(table.names) for table in bound.tables] == [set(table.names) for table in expected.tables]
    assert "flaguser" in {column.name for column in bind(james, live_schema(cluster, james))[0].mirror.compared}


def test_what_a_keyspace_of_james_lacks_is_created_only_on_request(cluster: CassandraCluster, keyspace: str) -> None:
    """First it is told, then, with `complete`, created: what mailmend needs, in the form of that generation."""
    create(cluster, missing_steps(cluster, keyspace)[:BIG_TABLES])
    cluster.execute_ddl(f"ALTER TABLE {keyspace}.imapuidtable WITH comment = 'James'' own'")
    wanted = [f"table {table.spelling}" for table in MAIL_TABLES[3:]]
    assert [step.creates for step in rollout(cluster, keyspace).withheld] == wanted
    asked = rollout(cluster, keyspace, complete=True)
    assert ([step.creates for step in asked.besides], asked.withheld) == (wanted, ())
    create(cluster, asked.besides)
    assert verify_schema(cluster, keyspace).agrees


@pytest.mark.parametrize("damaged", first_of([True, False]))
def test_the_rows_of_james_are_loaded_as_of_the_past(
    cluster: CassandraCluster, keyspace: str, *, damaged: bool
) -> None:
    tables = load_james(cluster, keyspace, damaged=damaged, age_seconds=3600)
    youngest = max(cluster.node_micros()) - 3599 * 1_000_000
    for table in james_schema().tables:
        wanted = {table.key_of(row): row for row in james_rows(table.name, damaged=damaged)}
        found = {table.key_of(row): row for row in tables.scan(Scan(table, table.names))}
        assert found.keys() == wanted.keys(), table.name
        for key, row in wanted.items():
            assert {name: cell for name, cell in found[key].items() if cell not in (None, frozenset(), ())} == {
                name: cell for name, cell in row.items() if cell not in (None, frozenset(), ())
            }
    truth = james_families()[0].truth
    for row in james_rows("imapuidtable", damaged=damaged)[:50]:
        (seen,) = tables.read(Read(truth, truth.key_of(row), Level.QUORUM, times=True))
        assert seen.newest is not None
        assert seen.newest < youngest


def test_the_ledger_is_created_like_the_mail_keyspace(cluster: CassandraCluster, keyspace: str) -> None:
    ledger = f"{keyspace}_ledger"
    cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {ledger}")
    create(cluster, missing_steps(cluster, keyspace, parse_replication("SimpleStrategy=3"))[:1])
    try:
        created = ensure_ledger(cluster, ledger, keyspace)
        assert len(created) == 1 + len(LEDGER_TABLES)
        assert ensure_ledger(cluster, ledger, keyspace) == ()
        assert cluster.replication_of(ledger) == cluster.replication_of(keyspace)
        findings = live_schema(cluster, ledger).table("repair_finding")
        assert findings is not None
        assert findings.options["default_time_to_live"] == str(30 * 24 * 3600)
        assert findings.compaction is not None
        assert findings.compaction.strategy == "TimeWindowCompactionStrategy"
    finally:
        cluster.execute_ddl(f"DROP KEYSPACE IF EXISTS {ledger}")


def test_the_command_applies_verifies_and_names_the_mend(
    cluster: CassandraCluster, keyspace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    contact = cluster.contact
    at = ["--host", contact.hosts[0], "--port", str(contact.port), "--keyspace", keyspace]

    assert run(["schema", "verify", *at]) == 2
    assert "mailmend schema apply" in capsys.readouterr().err

    assert run(["schema", "apply", *at, "--dry-run"]) == 0
    assert f"CREATE TABLE {keyspace}.imapUidTable" in capsys.readouterr().out
    assert not keyspace_exists(cluster, keyspace)

    assert run(["schema", "apply", *at, "--compaction", "leveled", "--json"]) == 0
    applied = json.loads(capsys.readouterr().out)
    assert "table imapUidTable" in applied["created"]
    assert applied["drift"] == applied["notes"] == []

    cluster.execute_ddl(f"DROP TABLE {keyspace}.firstunseen")
    assert run(["schema", "verify", *at, "--json"]) == 1
    (drift,) = json.loads(capsys.readouterr().out)["drift"]
    assert drift["mend"] == f"mailmend schema apply --keyspace {keyspace}"

    assert run(["schema", *drift["mend"].split()[2:], *at]) == 0
    assert "created table firstUnseen" in capsys.readouterr().out
    assert run(["schema", "verify", *at]) == 0
    assert "as expected" in capsys.readouterr().out


def test_the_command_tells_what_it_leaves_to_james(
    cluster: CassandraCluster, james: str, capsys: pytest.CaptureFixture[str]
) -> None:
    contact = cluster.contact
    at = ["--host", contact.hosts[0], "--port", str(contact.port), "--keyspace", james]
    assert run(["schema", "verify", *at]) == 0
    output = capsys.readouterr().out
    assert "generation 3.8.1, not made by mailmend" in output
    assert "Noted, not wrong" in output
    assert AUGUST_2026.name not in output
