"""runbooks/migration-died-half-way.md: the applier of somebody's own folder is killed while it makes a table."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from tests.support.checkout import CHECKOUT
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.migrating import written
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

SECONDS_MAX = 120
COLUMNS = [f"hint{number}" for number in range(18)]
FILES = {
    "0001_pre_orders.cql": "CREATE TABLE orders (id uuid PRIMARY KEY, total int);\n",
    "0002_pre_hints.cql": "CREATE TABLE hints (id uuid PRIMARY KEY);\n"
    + "".join(f"ALTER TABLE hints ADD {name} text;\n" for name in COLUMNS),
}


@pytest.fixture
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as opened:
        yield opened


@pytest.fixture
def mailmend(cassandra: CassandraServer, cluster: CassandraCluster, tmp_path: Path) -> Iterator[CommandLine]:
    name = cassandra.keyspace()
    names = {"MAILMEND_KEYSPACE": name, "MAILMEND_LEDGER_KEYSPACE": f"{name}_ledger"}
    copies = {f"MAILMEND_SCHEMA_{command}_REPLICATION_FACTOR": "1" for command in ("PLAN", "APPLY")}
    yield command_line(tmp_path, cassandra, **names, **copies)
    dropped(cluster, (name, f"{name}_ledger"))


def test_nothing_is_dropped_and_the_page_leads_to_the_end(
    mailmend: CommandLine, cluster: CassandraCluster, tmp_path: Path
) -> None:
    """Every command of the page, with --migrations as it says; neither verify nor a plan from the model drops."""
    keyspace, folder = mailmend.environment["MAILMEND_KEYSPACE"], str(written(tmp_path / "db", FILES))
    _killed_when_there_are_hints(mailmend, cluster, folder)

    verified = mailmend("schema", "verify", "--migrations", folder)
    planned = mailmend("schema", "plan", "--from-model", "--include-drops", "--migrations", folder)
    assert (verified.code, planned.code) == (1, 1)
    assert "migration in flight: 0002_pre_hints.cql" in verified.out
    assert not re.search("DROP|--include-drops", verified.out + planned.out)
    assert "no drop is planned: 0002_pre_hints.cql has not ended" in planned.out

    page = page_named("migration-died-half-way")
    for section in ("Check", "Do", "Verify"):
        for command in page.commands(section):
            ended = _typed(mailmend, command, keyspace, folder)
            promised = re.search(r"# exit (\d)", command)
            assert ended.code == int(promised[1] if promised else 0), f"{command}\n{ended.out}\n{ended.err}"
    made = live_schema(cluster, keyspace).table("hints")
    assert made is not None
    assert set(made.names) == {"id", *COLUMNS}


def _typed(mailmend: CommandLine, command: str, keyspace: str, folder: str) -> Ended:
    words = shlex.split(command.replace("$KEYSPACE", keyspace), comments=True)
    return mailmend(*words[1:], "--migrations", folder)


def _killed_when_there_are_hints(mailmend: CommandLine, cluster: CassandraCluster, folder: str) -> None:
    """SIGKILL for the applier, between the first statement of the second file and its last; its lease stays behind."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
    keyspace, began = mailmend.environment["MAILMEND_KEYSPACE"], time.monotonic()
    program = "from mailmend.admin.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "schema", "apply", "--migrations", folder],
        env={**kept, **mailmend.environment, "HOME": str(mailmend.home), "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    made = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'hints'"
    while not cluster.query(made, (keyspace,)):
        assert process.poll() is None, "it ended before it made the table"
        assert time.monotonic() - began < SECONDS_MAX
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
