"""Two engines, one answer: recorded attempts replayed by Spark and by this process alone come to the same."""

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql.driver.session import CassandraCluster, Contact, connect
from mailmend.delivery.ledger.attempts import AttemptsWanted, read_attempts
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.replay_sums import AttemptRecord, ReplaySums, most_delayed
from mailmend.delivery.policy.replaying import most_refusing, with_concurrency
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.ids import QueueName
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level
from mailmend.model.ports import Tables
from tests.support.attempts import DAY, attempt, drawn_attempts, row_of, rows_of
from tests.support.commands import command_line
from tests.support.keyspaces import created, dropped
from tests.support.progress import SilentProgress
from tests.support.servers import CassandraServer

pyspark = pytest.importorskip("pyspark")

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]

LEDGER = "d_replays"
COUNT, TOP = 3_000, 5
WANTED = AttemptsWanted("mail", QueueName("spool"), DAY + timedelta(seconds=1), DAY + timedelta(seconds=58))

BY_TENANT = """
- fields: [tenantid, remotemx: {first: [mx0.example, mx1.example]}]
  conditions: [{if: {remotemx: '#first'}, then: {concurrency: 2}}]
  default: {rate: 5/1}
- fields: [tenantid]
  default: {connectinterval: 0.02}
"""
BY_SOURCE = """
policies:
  - fields: [localip, remotemx]
    default: {concurrency: 3}
  - fields: [localip]
    default: {rate: 20/1}
suspends: [{tenantid: t3, transportid: bulk}, {localip: 192.0.2.1, recipientdomain: d0.example}]
"""
APART = """
- fields: [tenantid]
  default: {concurrency: 2}
- fields: [remotemx]
  default: {concurrency: 2}
"""
FILES = {"by tenant": BY_TENANT, "by source": BY_SOURCE, "nothing in common": APART, "nothing": "[]"}


@pytest.fixture(scope="module")
def contact(cassandra: CassandraServer) -> Contact:
    return Contact((cassandra.host,), cassandra.port, cassandra.local_dc)


@pytest.fixture(scope="module")
def cluster(contact: Contact) -> Iterator[CassandraCluster]:
    with connect(contact) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ledger(cluster: CassandraCluster) -> Iterator[Tables]:
    """Attempts of a queue, beside those of another queue and of another keyspace, and a row that is half gone."""
    tables = created(cluster, LEDGER, Schema((), (DELIVERY_ATTEMPT,)))
    writes = rows_of(drawn_attempts(random.Random(3), COUNT))
    writes += [row_of(attempt("x", recipientdomain="d0.example"), COUNT + 1, *place) for place in _ELSEWHERE]
    half = row_of(attempt("x"), COUNT + 2)
    writes.append(type(half)(half.table, {**half.row, "readyat": None, "startedat": None}))
    assert not any(tables.write_all(writes))
    yield tables
    dropped(cluster, (LEDGER,))


_ELSEWHERE = (("mail", "outgoing"), ("other", "spool"))


@pytest.fixture(scope="module")
def records(
    ledger: Tables, contact: Contact, shared_spark: Callable[[], Any]
) -> Iterator[tuple[AttemptRecord, AttemptRecord]]:
    source = pytest.importorskip("mailmend.spark_repair.source").Source(shared_spark(), contact, LEDGER)
    local = read_attempts(ledger, WANTED, Level.LOCAL_QUORUM, SilentProgress())
    distributed = pytest.importorskip("mailmend.spark_repair.attempts").read_attempts(source, WANTED, SilentProgress())
    yield local, distributed
    distributed.close()


def shown(sums: ReplaySums) -> dict[str, Any]:
    """Everything but what two engines may know otherwise: of counters and values those that are shown."""
    return {
        "total": sums.total,
        "without end": sums.without_end,
        "first": sums.first_ready,
        "recorded": sums.recorded,
        "simulated": sums.simulated,
        "policies": sums.policies,
        "limits": most_refusing(sums.uses, TOP),
        "values": most_delayed(sums.values, TOP),
    }


@pytest.mark.thorough
def test_both_engines_read_the_same(records: tuple[AttemptRecord, AttemptRecord]) -> None:
    """How many are wanted, how many rows lack when they began, how long an attempt lasts that has no end."""
    local, distributed = records
    assert 0 < local.attempts < COUNT
    assert (distributed.attempts, distributed.incomplete) == (local.attempts, local.incomplete)
    assert (local.incomplete, distributed.lasting) == (1, local.lasting)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_both_engines_come_to_the_same(records: tuple[AttemptRecord, AttemptRecord], name: str) -> None:
    """Whether the record falls apart into groups or not: waits, ends, limits, whose mails are delayed."""
    said = policies_of(FILES[name], name).said
    local, distributed = (one.replay(said, TOP) for one in records)
    assert shown(distributed) == shown(local)
    assert (local.total.delayed > 0) == bool(said.policies)
    if name != "by tenant":  # else nobody asks from where
        assert distributed.sources == local.sources or not said.policies


@pytest.mark.thorough
def test_both_engines_heed_a_concurrency_of_the_servers(records: tuple[AttemptRecord, AttemptRecord]) -> None:
    said = with_concurrency(PickupPolicies(), 20)
    local, distributed = (one.replay(said, TOP) for one in records)
    assert shown(distributed) == shown(local)
    assert local.policies[0].most == 20


def test_the_command_says_the_same_with_both_engines(
    ledger: Tables, cassandra: CassandraServer, tmp_path: Path, spark: Any
) -> None:
    """Also of how much it has read of a stretch of time, how many rows lack when they began, where the limits stand."""
    (tmp_path / "policies.yaml").write_text(BY_SOURCE)
    (tmp_path / "now.yaml").write_text(BY_TENANT)
    line = command_line(tmp_path, cassandra, MAILMEND_KEYSPACE="mail", MAILMEND_LEDGER_KEYSPACE=LEDGER)
    since, until = (f"{instant:%Y-%m-%dT%H:%M:%SZ}" for instant in (WANTED.since, WANTED.until) if instant)
    files = (str(tmp_path / "policies.yaml"), "spool", "--against", str(tmp_path / "now.yaml"))
    typed = ("policy", "simulate", *files, "--since", since, "--until", until)
    local, distributed = (line(*typed, "--json", "--engine", engine) for engine in ("local", "spark"))
    assert (local.code, distributed.code) == (0, 0), distributed.err
    assert {**distributed.json, "engine": "local"} == local.json
    assert (0 < local.json["attempts"] < COUNT, local.json["incomplete"]) == (True, 1)
