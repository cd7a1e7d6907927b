"""Drift of a real keyspace found, told with its mend, mended by what was told, and found no more."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import CassandraCluster, connect
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.migrating import written
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

SHOP = {
    "0001_pre_orders.cql": "CREATE TYPE place (street text, town text);\n"
    "CREATE TABLE orders (id uuid, at int, customer text, PRIMARY KEY (id, at));\n"
    "CREATE TABLE places (id uuid PRIMARY KEY, at frozen<place>) WITH gc_grace_seconds = 3600;\n",
    "0002_post_labels.cql": "ALTER TABLE orders ADD label text;\nCREATE INDEX by_label ON orders (label);\n",
}


@pytest.fixture
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as opened:
        yield opened


@pytest.fixture
def mailmend(cassandra: CassandraServer, cluster: CassandraCluster, tmp_path: Path) -> Iterator[CommandLine]:
    shop = f"verify_{uuid4().hex[:6]}"
    yield command_line(tmp_path, cassandra, MAILMEND_KEYSPACE=shop, MAILMEND_LEDGER_KEYSPACE=f"{shop}_ledger")
    dropped(cluster, (shop, f"{shop}_ledger"))


def test_drift_of_anybodys_keyspace_is_found_and_mended_by_the_plan_that_verify_names(
    cluster: CassandraCluster, mailmend: CommandLine, tmp_path: Path
) -> None:
    """Missing, unexpected, different, an edited file: found one by one and all together; mended, nothing is left."""
    # Given a keyspace that is what its migrations made of it
    folder, shop = str(written(tmp_path / "db", SHOP)), mailmend.environment["MAILMEND_KEYSPACE"]
    of = ("--migrations", folder)
    assert mailmend("schema", "apply", *of, "--replication-factor", "1").code == 0
    assert mailmend("schema", "verify", *of, "--json").json["drift"] == []

    # When somebody changes it by hand
    for statement in (
        "DROP INDEX {}.by_label",
        "ALTER TABLE {}.orders ADD hint text",
        "DROP TABLE {}.places",
        "CREATE TABLE {}.places (id uuid PRIMARY KEY, at frozen<place>)",
        "CREATE TABLE {}.mine (id uuid PRIMARY KEY)",
    ):
        cluster.execute_ddl(statement.format(shop))

    # Then all of it is told
    found = mailmend("schema", "verify", *of, "--json")
    assert found.code == 1
    assert {(one["aspect"], one["table"], one["subject"]) for one in found.json["drift"]} == {
        ("missing index", "orders", "by_label"),
        ("unexpected column", "orders", "hint"),
        ("different option", "places", "gc_grace_seconds"),
        ("unexpected table", "mine", ""),
    }

    # And what the plan prints mends it
    plan = mailmend("schema", "plan", "--from-model", "--include-options", "--include-drops", *of, "--json")
    assert plan.code == 1
    for statement in plan.json["statements"]:
        cluster.execute_ddl(statement)
    assert mailmend("schema", "plan", "--from-model", "--include-options", "--include-drops", *of).code == 0
    assert mailmend("schema", "verify", *of).code == 0

    # When a file is edited after it was applied, that is told too
    edited = Path(folder) / "0002_post_labels.cql"
    edited.write_text(edited.read_text(encoding="utf-8") + "-- a word\n", encoding="utf-8")
    ended = mailmend("schema", "verify", *of, "--json")
    assert (ended.code, [one["aspect"] for one in ended.json["drift"]]) == (1, ["edited migration"])
    assert json.dumps(ended.json["drift"]).count("version control") == 1
