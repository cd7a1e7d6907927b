"""Two engines, one answer: what Spark finds in a keyspace and what the local engine finds are the same suspects.

The keyspace is that of James with its recorded damages, and every other kind of damage besides: clashes, torn rows,
lost content, wrong filters, unions and counters, paths without mailboxes, generators behind the messages.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID, uuid1

import pytest

from mailmend.cql.driver.session import CassandraCluster, Contact, connect
from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MESSAGE_COUNTER, MODSEQ
from mailmend.model.operations import Change, Count, Put, Remove, Write
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.verdicts import DETECTED
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import Detector, RepairSettings
from mailmend.repair.mending.generators import BehindGenerator
from mailmend.repair.scanners.local import LocalEngine
from tests.support.james import james_families, james_rows, load_james
from tests.support.keyspaces import dropped
from tests.support.progress import SilentProgress
from tests.support.servers import CassandraServer
from tests.support.spark import jobs_of
from tests.support.thorough import first_of

pyspark = pytest.importorskip("pyspark")

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]

NAME = "d_engines"
CLOCK = SystemClock()
MESSAGES, PATHS = james_families()
ALONE = 90_000
"""A uid above all others of its mailbox."""


@pytest.fixture(scope="module")
def contact(cassandra: CassandraServer) -> Contact:
    return Contact((cassandra.host,), cassandra.port, cassandra.local_dc)


@pytest.fixture(scope="module")
def cluster(contact: Contact) -> Iterator[CassandraCluster]:
    with connect(contact) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mail(cluster: CassandraCluster) -> Iterator[Tables]:
    dropped(cluster, (NAME,))
    tables = load_james(cluster, NAME, damaged=True)
    assert not any(tables.write_all(further_damage(random.Random(7))))
    yield tables
    dropped(cluster, (NAME,))


def further_damage(chance: random.Random) -> list[Write]:
    truths = james_rows("imapuidtable", damaged=True)
    writes: list[Write] = []
    for one in MESSAGES.filters:
        for row in chance.sample(truths, 30):
            key = one.key_of(row)
            there: Sequence[Write] = (Put(one.table, one.table.key_row(key)), Remove(one.table, key))
            writes.append(chance.choice(there))
        strangers = [(row["mailboxid"], row["uid"] + 100_000) for row in chance.sample(truths, 5)]
        writes += [Put(one.table, one.table.key_row(key)) for key in strangers]
    for row in chance.sample(truths, 8):
        added = {"userflags": frozenset({"odd", "with, comma", 'with "quote"'})}
        writes.append(Change(MESSAGES.truth, MESSAGES.truth.key_of(row), add=added))
        writes += [Remove(union.table, union.key_of(row)) for union in MESSAGES.unions]
    torn, clashing = chance.sample(truths, 10), chance.sample(truths, 10)
    writes += [Change(MESSAGES.truth, MESSAGES.truth.key_of(row), assign={"headercontent": None}) for row in torn]
    writes += [Put(MESSAGES.truth, {**row, "messageid": chance.choice(truths)["messageid"]}) for row in clashing]
    assert MESSAGES.content is not None
    writes += [Remove(MESSAGES.content.table, (row["messageid"],)) for row in chance.sample(truths, 10)]
    for counts in MESSAGES.counts:
        deltas = [{"count": chance.randint(-2, 2), "unseen": chance.randint(-2, 2)} for _ in range(6)]
        pairs = zip(chance.sample(truths, 6), deltas, strict=True)
        writes += [Count(counts.table, counts.key_of(row), delta) for row, delta in pairs]
    writes += [Remove(PATHS.truth, PATHS.truth.key_of(row)) for row in chance.sample(james_rows("mailboxpathv3"), 5)]
    return [*writes, *generators_set_back()]


def generators_set_back() -> list[Write]:
    """A last number of 1 and no row, for each generator of some mailboxes; a mirror's row that has no truth."""
    mailboxes = with_messages()
    writes: list[Write] = [Put(MESSAGE_COUNTER, {"mailboxid": one, "nextuid": 1}) for one in mailboxes[:3]]
    writes += [Put(MODSEQ, {"mailboxid": one, "nextmodseq": 1}) for one in mailboxes[2:5]]
    writes += [Remove(table, (mailboxes[5],)) for table in (MESSAGE_COUNTER, MODSEQ)]
    alone = {"mailboxid": mailboxes[6], "uid": ALONE, "messageid": uuid1(), "modseq": ALONE}
    return [*writes, Put(MESSAGES.mirror.table, alone)]


def with_messages() -> list[UUID]:
    """The mailboxes of at least 2 messages, in order."""
    numbers = Counter(row["mailboxid"] for row in james_rows("imapuidtable", damaged=True))
    return sorted(mailbox for mailbox, messages in numbers.items() if messages > 1)


class Found(NamedTuple):
    """What an engine found."""

    suspects: list[Suspect]
    scanned: dict[str, int]
    generators: list[BehindGenerator]


def found(engine: Detector, families: tuple[Family, ...], jobs: Callable[[], int], **survey: Any) -> Found:
    """Spark begins no job for what follows its scan: few suspects are in this process then."""
    detection = engine.detect(RepairSettings(NAME, families, policy=RepairPolicy(**survey)), SilentProgress())
    of_scan = jobs()
    suspects, walked = (sorted(detection.suspects(), key=_place) for _ in range(2))
    looked = list(detection.revisit(RepairPolicy(None, CLOCK.micros(), 5.0), SilentProgress()))
    assert (walked, len(looked)) == (suspects, sum(map(detection.row_wise, families)))
    assert jobs() == of_scan
    scanned = dict(detection.scanned)
    counts = {name: dict(sums) for name, sums in detection.counts.items()}
    generators = detection.generators_behind()
    detection.close()
    assert sum(sum(sums.values()) for sums in counts.values()) == len(suspects)
    return Found(suspects, scanned, generators)


def _place(suspect: Suspect) -> tuple[str, str]:
    return suspect.projection, str(suspect.key)


@pytest.mark.parametrize("accept_torn", first_of([False, True]))
def test_both_engines_find_the_same(mail: Tables, contact: Contact, spark: Any, *, accept_torn: bool) -> None:
    """Key by key: verdicts, the truths that were seen, what is wanted; the same rows were read, and the generators."""
    spark_engine = pytest.importorskip("mailmend.spark_repair.message_inconsistencies").SparkEngine(
        spark, contact, NAME
    )
    ledger = Ledger(MemoryTables(CLOCK.micros), CLOCK)
    families = (MESSAGES, PATHS)
    jobs = partial(jobs_of, spark)
    local = found(LocalEngine(mail, ledger, CLOCK), families, jobs, accept_torn=accept_torn)
    distributed = found(spark_engine, families, jobs, accept_torn=accept_torn)
    assert distributed.suspects == local.suspects
    assert distributed.scanned == local.scanned
    assert distributed.generators == local.generators
    if not accept_torn:
        assert {suspect.verdict for suspect in local.suspects} == set(DETECTED)
        mailboxes = with_messages()
        uids = {one.mailbox: one.last for one in local.generators if one.table == "messageCounter"}
        modseqs = {one.mailbox: one.last for one in local.generators if one.table == "modseq"}
        assert uids.items() >= dict.fromkeys(mailboxes[:3], 1).items() | {(mailboxes[5], 0)}
        assert modseqs.items() >= dict.fromkeys(mailboxes[2:5], 1).items() | {(mailboxes[5], 0)}
        assert ALONE in {one.in_use for one in local.generators if one.mailbox == mailboxes[6]}
