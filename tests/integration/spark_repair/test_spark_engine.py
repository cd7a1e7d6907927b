"""The Spark engine on a real Cassandra: it finds what the local engine finds, and mends it on its executors."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from uuid import uuid1, uuid4

import pytest
from pyspark.sql import SparkSession

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.errors import CannotReach, MailmendError, UnknownKeyspace
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, Read
from mailmend.model.ports import Tables
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock, Timing, take_as_of
from mailmend.repair.decisions.pressure import Strain
from mailmend.repair.ledger.before_images import image_digest
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.fixer import Fixer
from mailmend.repair.mending.limits import BURST_SECONDS
from mailmend.repair.mending.throttle import Throttle
from mailmend.repair.scanners.local import LocalEngine
from mailmend.spark_repair import message_inconsistencies
from mailmend.spark_repair.executors import tasks_at_once
from mailmend.spark_repair.fixing import Workplace, finding_from, revisited
from mailmend.spark_repair.message_inconsistencies import SparkEngine
from mailmend.spark_repair.pace import paced
from mailmend.spark_repair.suspects import KEY, PROJECTION, TRUTH_KEYS, VERDICT, WANTED
from tests.support.james import damages, james_families, james_rows, load_james
from tests.support.keyspaces import LEDGER, created, dropped
from tests.support.progress import SilentProgress
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]

MAIL, HEALTHY, BOOK = (f"d_spark_{kind}_{uuid4().hex[:8]}" for kind in ("mail", "healthy", "ledger"))
CLOCK = SystemClock()
SURVEY = RepairSettings("mail", james_families())
TRUTH, MIRROR = SURVEY.families[0].truth, SURVEY.families[0].mirror.table
DAY_SECONDS = 86_400


@pytest.fixture(scope="module")
def contact(cassandra: CassandraServer) -> Contact:
    return Contact((cassandra.host,), cassandra.port, cassandra.local_dc)


@pytest.fixture(scope="module")
def cluster(contact: Contact) -> Iterator[CassandraCluster]:
    with connect(contact) as cluster:
        yield cluster
        dropped(cluster, (MAIL, HEALTHY, BOOK))


@pytest.fixture(scope="module")
def mail(cluster: CassandraCluster) -> Tables:
    dropped(cluster, (MAIL,))
    return load_james(cluster, MAIL, damaged=True)


@pytest.fixture(scope="module")
def ledger(cluster: CassandraCluster) -> Ledger:
    return Ledger(created(cluster, BOOK, LEDGER), CLOCK)


@pytest.fixture
def engine(spark: SparkSession, contact: Contact) -> SparkEngine:
    return SparkEngine(spark, contact, MAIL, BOOK)


@pytest.mark.thorough
def test_a_healthy_keyspace_has_leaks_and_nothing_else(
    spark: SparkSession, contact: Contact, cluster: CassandraCluster
) -> None:
    """What James wrote agrees with itself; 83 contents of deleted messages stayed. Every row is counted."""
    dropped(cluster, (HEALTHY,))
    load_james(cluster, HEALTHY)
    detection = SparkEngine(spark, contact, HEALTHY).detect(SURVEY, SilentProgress())
    assert detection.counts == {"messageV3": {Verdict.LEAK: 83}}
    assert detection.scanned == {
        table.spelling: len(james_rows(table.name)) for family in james_families() for table in family.tables
    }
    detection.close()


@pytest.mark.thorough
def test_what_executors_put_into_a_plan_is_known_again_here(
    engine: SparkEngine, ledger: Ledger, cluster: CassandraCluster, mail: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before-images come from executors as text; whoever applies the plan reads the rows anew, and sees the same."""
    monkeypatch.setattr(message_inconsistencies, "IN_DRIVER_MAX", 0)
    detection = engine.detect(replace(SURVEY, families=SURVEY.families[:1]), SilentProgress())
    looks = RepairPolicy(None, take_as_of(CLOCK, cluster, Timing(no_writers=True)), 5.0)
    due = [one for one in detection.revisit(looks, SilentProgress()) if one.due]
    detection.close()
    planned = [replace(one.suspect, planned=image_digest(one)) for one in due]
    again = list(Fixer(mail, ledger, CLOCK, SURVEY.families, looks).revisit(planned))
    assert (len(again) >= 182, [one for one in again if not one.due]) == (True, [])


def test_what_spark_finds_its_executors_mend(
    engine: SparkEngine, ledger: Ledger, cluster: CassandraCluster, mail: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """182 mended, 18 lost contents and 83 leaks left, nothing else, as the other engine sees.

    That both engines find the same is equivalence. A message that expires has a projection that expires with it,
    not later.
    """
    monkeypatch.setattr(message_inconsistencies, "IN_DRIVER_MAX", 0)
    expires = written_again_with_a_ttl(mail)
    survey = replace(SURVEY, families=SURVEY.families[:1])  # all damages are of messages
    detection = engine.detect(survey, SilentProgress())
    suspects = list(detection.suspects())
    outcomes = list(detection.revisit(policy(cluster, ledger), SilentProgress()))
    detection.close()
    assert [one.error for one in outcomes if one.error] == []
    assert sorted(map(_name, outcomes)) == sorted((one.projection, str(one.key)) for one in suspects)
    assert Counter(one.result for one in outcomes if one.suspect.projection == "messageIdTable")[Verdict.FIXED] == 182
    truth, projected = (mail.read(Read(one, one.key_of(expires), times=True))[0] for one in (TRUTH, MIRROR))
    assert projected.ttls.keys() == projected.written_at.keys()
    assert 0 < min(projected.ttls.values()) <= max(projected.ttls.values()) <= max(truth.ttls.values())
    again = LocalEngine(mail, ledger, CLOCK).detect(SURVEY, SilentProgress())
    left = Counter((one.projection, one.verdict) for one in again.suspects())
    again.close()
    assert left == {("messageIdTable", Verdict.LOST_CONTENT): 18, ("messageV3", Verdict.LEAK): 83}


def written_again_with_a_ttl(mail: Tables) -> Row:
    """The truth of a message whose projection is missing; all its cells expire."""
    lost = next(one.damaged_truth for one in damages() if one.kind == "missing_projection" and one.damaged_truth)
    row = {name: lost[name] for name in TRUTH.names if name in lost}
    mail.write(Put(TRUTH, row, ttl_seconds=DAY_SECONDS))
    return row


def _name(outcome: object) -> tuple[str, str]:
    suspect: Suspect = getattr(outcome, "suspect")  # noqa: B009
    return suspect.projection, str(suspect.key)


def policy(cluster: CassandraCluster, ledger: Ledger) -> RepairPolicy:
    as_of = take_as_of(CLOCK, cluster, Timing(no_writers=True))
    return RepairPolicy(ledger.start(MAIL, "repair messages", as_of, {}).id, as_of, 5.0, MENDABLE)


def test_tasks_side_by_side_pass_on_no_more_rows_a_second_than_asked(spark: SparkSession) -> None:
    """60 rows in four tasks, two at once, at 30 a second: two seconds at least, whatever columns are wanted."""
    began = CLOCK.micros()
    assert paced(spark.range(0, 60, 1, 4), 30, None).count() == 60
    assert CLOCK.micros() - began >= 2_000_000


@pytest.mark.usefixtures("mail")
def test_executors_that_look_again_share_a_pace_of_rows(spark: SparkSession, contact: Contact) -> None:
    """60 suspects, each with a projection, a content and a truth to read: 180 rows at 40 a second."""
    keys = f"{KEY} array<string>, {TRUTH_KEYS} array<array<string>>"
    names = f"{PROJECTION} string, {VERDICT} string, {keys}, {WANTED} string"
    rows = [("messageIdTable", "PROJECT", [str(uuid1()), "7"], [[str(uuid1())]], None) for _ in range(60)]
    suspects = spark.createDataFrame(rows, names)
    unhurried = RepairPolicy(None, CLOCK.micros(), 5.0, MENDABLE)
    place = Workplace(contact, MAIL, None, KEEP, james_families(), unhurried, tasks_at_once(spark))
    assert revisited(suspects, 60, place).count() == 60  # the workers have started now
    began = CLOCK.micros()

    looked = revisited(suspects, 60, replace(place, policy=replace(unhurried, rows_per_second=40)))

    assert [finding_from(row[0]).error for row in looked.collect()] == [None] * 60
    assert CLOCK.micros() - began >= (180 / 40 - 2 * BURST_SECONDS) * MICROS


@pytest.mark.thorough
def test_a_pace_is_kept_by_all_readers_together(spark: SparkSession, contact: Contact, mail: Tables) -> None:
    survey = RepairSettings("mail", james_families()[:1], policy=RepairPolicy(rows_per_second=100_000))
    detection = SparkEngine(spark, contact, MAIL).detect(survey, SilentProgress())
    assert detection.scanned["imapUidTable"] == len(james_rows("imapuidtable", damaged=True))
    detection.close()


@pytest.mark.thorough
def test_tasks_read_more_slowly_while_answers_are_slow(spark: SparkSession, contact: Contact, mail: Tables) -> None:
    """The rule of `--pace auto`, with latencies that the test makes up: calm until the scan begins, slow from then on.

    What it decides reaches tasks that are reading already.
    """
    calm, calm_seconds = _scanned_beside(spark, contact, 0.002)
    pressed, pressed_seconds = _scanned_beside(spark, contact, 0.02)

    assert (calm.lowest, calm.slowed) == (1_000, {})
    assert (pressed.lowest <= 250, set(pressed.slowed)) == (True, {Strain.LATENCY})
    assert pressed_seconds > calm_seconds + 4


def _scanned_beside(spark: SparkSession, contact: Contact, latency_seconds: float) -> tuple[Throttle, float]:
    """A scan at 1,000 rows a second at most, and how long it took."""
    looks = chain(repeat(0.002, 8), repeat(latency_seconds))
    throttle = Throttle(CLOCK, 1_000, lambda: next(looks))
    survey = RepairSettings("mail", james_families()[:1], policy=RepairPolicy(rows_per_second=1_000))
    began = CLOCK.monotonic()
    SparkEngine(spark, contact, MAIL, throttle=throttle).detect(survey, SilentProgress()).close()
    return throttle, CLOCK.monotonic() - began


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"keyspace": "d_nobody"}, UnknownKeyspace), ({"contact": Contact(("127.0.0.1",), 1)}, CannotReach)],
)
def test_what_is_not_there_is_said_plainly(
    engine: SparkEngine, change: dict[str, object], kind: type[MailmendError]
) -> None:
    wrong = {"session": engine.session, "contact": engine.contact, "keyspace": engine.keyspace} | change
    with pytest.raises(kind) as caught:
        SparkEngine(**wrong).detect(SURVEY, SilentProgress())  # type: ignore[arg-type]
    assert "java" not in str(caught.value).lower()
    assert "Exception" not in str(caught.value)
