"""The local engine and the mending of counters on a real Cassandra, with rows that James wrote."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from mailmend.cql.driver.session import CassandraCluster, Contact, connect
from mailmend.cql.memory import MemoryTables
from mailmend.model.operations import Count, Read
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Counts
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.repair.clock import SystemClock, Timing, take_as_of
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, VirtualClock
from tests.support.james import damages, james_families, load_james, put_james
from tests.support.keyspaces import dropped
from tests.support.mail_states import MailKeyspace, emptied, ledger_of
from tests.support.progress import SilentProgress
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

MAIL = "d_local_mail"
CLOCK = SystemClock()
QUIET = Timing(no_writers=True)


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port, cassandra.local_dc)) as cluster:
        yield cluster
        dropped(cluster, (MAIL,))


@pytest.fixture(scope="module")
def mail(cluster: CassandraCluster) -> Tables:
    dropped(cluster, (MAIL,))
    return load_james(cluster, MAIL, damaged=True)


@pytest.fixture(scope="module")
def ledger(shared_mail: MailKeyspace) -> Ledger:
    return Ledger(ledger_of(emptied(shared_mail)), CLOCK)


def found(mail: Tables, ledger: Ledger) -> list[Suspect]:
    detection = LocalEngine(mail, ledger, CLOCK).detect(RepairSettings("mail", james_families()), SilentProgress())
    suspects = list(detection.suspects())
    detection.close()
    return sorted(suspects, key=_order)


def _order(suspect: Suspect) -> tuple[str, str]:
    return suspect.projection, str(suspect.key)


def in_memory() -> Sequence[Suspect]:
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    put_james(tables, at=START - 10**12, damaged=True)
    engine = LocalEngine(tables, Ledger(MemoryTables(clock.micros), clock), clock)
    detection = engine.detect(RepairSettings("mail", james_families()), SilentProgress())
    suspects = sorted(detection.suspects(), key=_order)
    detection.close()
    return suspects


def policy(cluster: CassandraCluster, ledger: Ledger) -> RepairPolicy:
    as_of = take_as_of(CLOCK, cluster, QUIET)
    return RepairPolicy(ledger.start(MAIL, "repair messages", as_of, {}).id, as_of, 5.0, MENDABLE)


def test_a_check_finds_the_damages_and_a_repair_leaves_only_lost_content(
    mail: Tables, ledger: Ledger, cluster: CassandraCluster
) -> None:
    """200 found as in the twin; 182 mended; afterwards 18 without content, and 83 leaks as before."""
    engine = LocalEngine(mail, ledger, CLOCK)
    detection = engine.detect(RepairSettings("mail", james_families()), SilentProgress())
    assert sorted(detection.suspects(), key=_order) == in_memory()
    outcomes = list(detection.revisit(policy(cluster, ledger), SilentProgress()))
    detection.close()
    assert [one.error for one in outcomes if one.error] == []
    results = Counter((one.suspect.projection, one.result) for one in outcomes)
    assert results[("messageIdTable", Verdict.FIXED)] == 182
    left = Counter((one.projection, one.verdict) for one in found(mail, ledger))
    assert left == {("messageIdTable", Verdict.LOST_CONTENT): 18, ("messageV3", Verdict.LEAK): 83}
    expected = {(one.mailbox_id, one.uid): one.expected_projection for one in damages()}
    mirror = james_families()[0].mirror
    for key, row in expected.items():
        seen = mail.read(Read(mirror.table, key))
        assert (seen[0].row if seen else None) == (row and {**dict.fromkeys(mirror.table.names), **row, **_sets(row)})


def _sets(row: object) -> dict[str, object]:
    return {"userflags": row.get("userflags")} if isinstance(row, dict) else {}


def test_counters_are_found_mended_and_taken_back(mail: Tables, ledger: Ledger, cluster: CassandraCluster) -> None:
    (counts,) = (one for one in james_families()[0].projections if isinstance(one, Counts))
    boxes = sorted({one.mailbox_id for one in damages()})[:3]
    before = {box: mail.read(Read(counts.table, (box,)))[0].row for box in boxes}
    for box in boxes:
        mail.write(Count(counts.table, (box,), {"count": 40, "unseen": -2}))
    suspects = [one for one in found(mail, ledger) if one.projection == counts.name]
    assert {one.key for one in suspects} == {(box,) for box in boxes}
    leases = Leases(ledger.tables, CLOCK, "us")
    mender = CounterMender(mail, MAIL, james_families(), CLOCK, QUIET, ledger, leases)
    job = policy(cluster, ledger)
    assert job.run is not None
    outcomes = list(mender.revisit(lambda: found(mail, ledger), job))
    assert [one.result for one in outcomes] == [Verdict.FIXED] * 3
    assert [one for one in found(mail, ledger) if one.projection == counts.name] == []
    back = list(mender.undo(ledger.findings(job.run), policy(cluster, ledger)))
    assert [one.result for one in back] == [Verdict.FIXED] * 3
    for box in boxes:
        assert mail.read(Read(counts.table, (box,)))[0].row["count"] == before[box]["count"] + 40
