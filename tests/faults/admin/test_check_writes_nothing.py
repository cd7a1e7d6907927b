"""What promises to look only writes nothing: the server's own write counters are read before and after.

Counted is every mutation that the node applies, table by table (`system_views.local_write_latency`), of the mail
keyspace, of its ledger and of the schema. It is the lowest door that there is: whatever a client, the driver or Spark's
connector sends, it must pass there. Two kinds of writes are the server's own, of reads as well, and are counted apart:

- `system.paxos`: a SERIAL read leaves a promise of its ballot there, for a moment (it is how Cassandra makes sure that
  no half-accepted write is overlooked). Only what is about to be written is read so; a check leaves none.
- other tables of the keyspace `system`: prepared statements, sizes, compactions: the node's diary.

Not seen with a single replica: read repair, by which the server itself brings replicas together when it is read at a
quorum.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from mailmend.admin.local.demo import break_one_by_one
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.mail_states import QUIET, MailKeyspace, mail_keyspace
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

MESSAGES = 30
ATTEMPTS_MAX = 6
"""On a server that others use too, their schema changes and conditional writes can only add to what is counted."""

LOCAL = ("--engine", "local")
QUICK = ("--delay", "0", "--json")

Writes = Mapping[tuple[str, str], int]


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def broken(cluster: CassandraCluster) -> Iterator[MailKeyspace]:
    """A keyspace with every kind of damage: whoever wanted to write would find a reason."""
    mail = mail_keyspace(cluster, f"h_reads_{uuid4().hex[:8]}")
    break_everything(mail)
    yield mail
    dropped(cluster, (mail.name,))


def break_everything(mail: MailKeyspace) -> None:
    mail.refill(MESSAGES)
    for damage in break_one_by_one(mail.truths, at=time.time_ns() // 1000):
        for write in damage.writes:
            mail.tables.write(write)


@pytest.fixture
def mailmend(cassandra: CassandraServer, tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, cassandra, **QUIET)


def writes_of(cluster: CassandraCluster) -> Writes:
    rows = cluster.session.execute("SELECT keyspace_name, table_name, count FROM system_views.local_write_latency")
    return {(keyspace, table): count for keyspace, table, count in rows}


def keyspaces_of(cluster: CassandraCluster) -> set[str]:
    return {name for (name,) in cluster.session.execute("SELECT keyspace_name FROM system_schema.keyspaces")}


def written_while(cluster: CassandraCluster, act: Callable[[], object]) -> Counter[tuple[str, str]]:
    before = writes_of(cluster)
    act()
    return Counter({table: count - before.get(table, 0) for table, count in writes_of(cluster).items()})


def looked(cluster: CassandraCluster, mail: MailKeyspace, mailmend: CommandLine, *command: str) -> tuple[Ended, int]:
    """How the command ended, and how many promises its SERIAL reads left; it must have written nothing else."""
    ledger = f"{mail.name}_ledger"
    ended: list[Ended] = []

    def act() -> None:
        ended.append(mailmend(*command, "--keyspace", mail.name, "--ledger-keyspace", ledger))

    for _ in range(ATTEMPTS_MAX):
        written = written_while(cluster, act)
        assert {table: n for (keyspace, table), n in written.items() if keyspace in (mail.name, ledger) and n} == {}
        assert ledger not in keyspaces_of(cluster)
        schema = {table: n for (keyspace, table), n in written.items() if keyspace == "system_schema" and n}
        if not schema:
            return ended[-1], written["system", "paxos"]
    pytest.fail(f"{' '.join(command)} changed the schema each time, or somebody else did: {schema}")


def fewest_promises(
    cluster: CassandraCluster, mail: MailKeyspace, mailmend: CommandLine, command: tuple[str, ...], enough: int
) -> int:
    """The fewest promises of a few runs: what others leave at the same time only adds to them."""
    fewest = looked(cluster, mail, mailmend, *command)[1]
    for _ in range(ATTEMPTS_MAX):
        if fewest <= enough:
            break
        fewest = min(fewest, looked(cluster, mail, mailmend, *command)[1])
    return fewest


def test_the_counters_see_a_single_write(cluster: CassandraCluster, broken: MailKeyspace) -> None:
    """One deletion of nothing, and the schema of a new keyspace: both are counted, so zero means zero."""
    other = f"h_reads_{uuid4().hex[:8]}"
    last = broken.truths[-1]

    deleted = written_while(cluster, lambda: broken.lose_truth({**last, "uid": 9_999_999}))
    made = written_while(cluster, lambda: cluster.execute_ddl(keyspace_cql(other, in_every_data_centre(1))))
    dropped(cluster, (other,))

    assert deleted[broken.name, "imapuidtable"] == 1
    assert made["system_schema", "keyspaces"] > 0


@pytest.mark.parametrize(
    "command",
    [
        ("check", "all", *LOCAL, *QUICK),
        ("check", "messages", *LOCAL, "--no-recheck", "--json"),
        ("repair", "messages", "--dry-run", *LOCAL, *QUICK),
        ("repair", "messages", "--dry-run", "--orphans", "quarantine", "--leaks", "collect", *LOCAL, *QUICK),
        ("repair", "messages", "--dry-run", "--dangling", "restore", "--beat-ahead", *LOCAL, *QUICK),
    ],
    ids=" ".join,
)
def test_looking_writes_nothing(
    cluster: CassandraCluster, broken: MailKeyspace, mailmend: CommandLine, command: tuple[str, ...]
) -> None:
    ended, _ = looked(cluster, broken, mailmend, *command)

    assert ended.code == 1, ended.err
    assert ended.json["run"] is None
    assert {"PROJECT", "AMEND", "WITHDRAW"} <= set(ended.json["findings"]["messageIdTable"])


def test_named_messages_and_mailboxes_are_only_looked_at(
    cluster: CassandraCluster, broken: MailKeyspace, mailmend: CommandLine
) -> None:
    for target in (("--message", str(broken.truths[0]["messageid"])), ("--mailbox", str(broken.mailbox), "--scan")):
        ended, _ = looked(cluster, broken, mailmend, "repair", "messages", "--dry-run", *target, *QUICK)
        assert ended.code == 1, ended.err


@pytest.mark.spark
@pytest.mark.parametrize("command", first_of(["repair messages --dry-run", "check all"]))
def test_looking_with_spark_writes_nothing(
    spark: SparkSession,
    cluster: CassandraCluster,
    broken: MailKeyspace,
    mailmend: CommandLine,
    command: str,
) -> None:
    """The connector's scans and the second looks of the executors are reads, all of them."""
    ended, _ = looked(cluster, broken, mailmend, *command.split(), "--engine", "spark", *QUICK)

    assert ended.code == 1, ended.err
    assert {"PROJECT", "AMEND", "WITHDRAW"} <= set(ended.json["findings"]["messageIdTable"])


def test_a_check_leaves_no_promise_whatever_it_finds(
    cluster: CassandraCluster, broken: MailKeyspace, mailmend: CommandLine
) -> None:
    command = ("check", "all", *LOCAL, *QUICK)
    assert fewest_promises(cluster, broken, mailmend, command, 0) == 0

    broken.refill(MESSAGES)
    assert fewest_promises(cluster, broken, mailmend, command, 0) == 0
    break_everything(broken)
