"""Staged scans on a real Cassandra: killed, cut off, in Spark, in a bucket; the same command goes on."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.model.errors import MailmendError
from mailmend.model.projections.findings import Suspect
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import Detector, RepairSettings
from mailmend.repair.scanners.local import LocalEngine
from mailmend.repair.staging.area import StagedScope, StagingArea, StagingStore, opened_area
from mailmend.repair.staging.bucket import StagingBucket
from mailmend.repair.staging.folder import StagingFolder
from mailmend.spark_repair.message_inconsistencies import SparkEngine
from tests.support.commands import CommandLine, contact_of
from tests.support.james import james_families, load_james
from tests.support.keyspaces import dropped
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.object_stores import S3
from tests.support.progress import SilentProgress
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra


@pytest.fixture
def mail(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with keyspace_of_its_own(cassandra, "staging") as keyspace:
        keyspace.refill(60)
        keyspace.lose_projection(keyspace.truths[0])
        yield keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.thorough])])
def test_a_repair_goes_on_with_what_a_check_read_that_was_killed(
    mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path, engine: str
) -> None:
    """SIGKILL, twice; what stands is not read again, and what is found and mended is what one run would."""
    place = tmp_path / "staged"
    staged = ("messages", "--delay", "0s", "--json", "--staging", str(place))
    slow = [sys.executable, "-m", "mailmend", "check", *staged, "--engine", engine, "--rows-per-second", "15"]
    environment = {**os.environ, "HOME": str(mailmend.home), **mailmend.environment}
    for more in (2, 6):
        process = subprocess.Popen(slow, env=environment, text=True, stdout=-1, stderr=-1)
        while len(list(place.glob("*.parquet"))) < more:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.kill()
        process.communicate()

    ended = mailmend("repair", *staged, "--engine", "local")

    assert (ended.code, ended.json["fixed"]) == (0, {"PROJECT": 1}), ended.err
    kept = ended.json["staging"]["kept"]
    assert (kept >= 6, ended.json["scanned"]["imapUidTable"]) == (True, 60)
    assert mail.mirror(mail.truths[0]) is not None
    assert list(place.glob("*.parquet")) == []
    assert mailmend("runs", "list", "--json").json["runs"][0]["options"]["segments_kept"].startswith(f"{kept} of ")


KEYSPACE = f"d_staged_{uuid4().hex[:8]}"
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as cluster:
        load_james(cluster, KEYSPACE, damaged=True)
        yield cluster
        dropped(cluster, (KEYSPACE,))


def attempt(store: StagingStore) -> StagingArea:
    reads = {name: one for family in james_families() for name, one in family.columns_read.items()}
    columns = {name: names for name, (_, names) in reads.items()}
    scope = StagedScope(version="1", keyspace=KEYSPACE, columns=columns, level="LOCAL_QUORUM", tables="these")
    with store.held():
        return opened_area(store, scope, dict.fromkeys(reads, 5), None, CLOCK.micros)


def found(engine: Detector, progress: SilentProgress | None = None) -> tuple[list[str], dict[str, int]]:
    detection = engine.detect(RepairSettings("mail", james_families()), progress or SilentProgress())
    suspects = sorted(map(_reported, detection.suspects()))
    scanned = dict(sorted(detection.scanned.items()))
    detection.close()
    return suspects, scanned


def _reported(suspect: Suspect) -> str:
    return f"{suspect.projection} {suspect.verdict} {suspect.key} {suspect.truth_keys}"


class Cut(SilentProgress):
    """Ends a scan once so many stages have begun."""

    left = 4

    def stage(self, name: str, total: int | None = None) -> None:
        SilentProgress.stage(self, name, total)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


Made = Callable[[StagingArea | None], Detector]


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest, cluster: CassandraCluster) -> Made:
    mail, ledger = cluster.keyspace(KEYSPACE), Ledger(cluster.keyspace(KEYSPACE), CLOCK)
    if request.param == "local":
        return lambda area: LocalEngine(mail, ledger, CLOCK, staging=area)
    session: SparkSession = request.getfixturevalue("spark")
    return lambda area: SparkEngine(session, cluster.contact, KEYSPACE, staging=area)


@pytest.mark.thorough
def test_a_scan_that_goes_on_finds_what_a_whole_one_finds(engine: Made, tmp_path: Path) -> None:
    """Whichever engine read the segments that stand; every third of them is gone.

    `tests/unit/admin/messages/test_staging.py` shows the same of the local engine, from every segment on.
    """
    store = StagingFolder(tmp_path / "staged")
    whole, first = found(engine(None)), found(engine(attempt(store)))
    store.remove([name for at, name in enumerate(store.names()) if name.endswith(".parquet") and at % 3 == 0])

    second, progress = attempt(store), SilentProgress()

    assert first == whole
    assert (0 < second.kept < second.number, second.attempt) == (True, 2)
    assert found(engine(second), progress) == whole
    assert attempt(store).kept == second.number
    assert any("stood" in stage and total for stage, total in progress.stages.items()), progress.stages


@pytest.mark.thorough
@pytest.mark.object_store
def test_a_bucket_serves_as_a_folder_does(cluster: CassandraCluster, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.bucket()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    store = StagingBucket(bucket.bucket, "mail/nightly", bucket.endpoint, bucket.region)
    mail, ledger = cluster.keyspace(KEYSPACE), Ledger(cluster.keyspace(KEYSPACE), CLOCK)
    whole = found(LocalEngine(mail, ledger, CLOCK))

    with pytest.raises(KeyboardInterrupt):
        found(LocalEngine(mail, ledger, CLOCK, staging=attempt(store)), Cut())
    second = attempt(store)

    assert second.kept == 15
    assert found(LocalEngine(mail, ledger, CLOCK, staging=second)) == whole
    second.clear()
    assert store.names() == {}


@pytest.mark.thorough
@pytest.mark.spark
def test_what_one_engine_has_read_the_other_goes_on_with(
    spark: SparkSession, cluster: CassandraCluster, tmp_path: Path
) -> None:
    store = StagingFolder(tmp_path / "staged")
    in_spark = found(SparkEngine(spark, cluster.contact, KEYSPACE, staging=attempt(store)))
    mail, ledger = _Deaf(), Ledger(cluster.keyspace(KEYSPACE), CLOCK)

    assert found(LocalEngine(mail, ledger, CLOCK, staging=attempt(store))) == in_spark


class _Deaf:
    """Tables that nobody may read."""

    def __getattr__(self, name: str) -> Any:
        raise MailmendError(f"{name} was asked for")
