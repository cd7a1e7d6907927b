"""mailmend on a Spark cluster: a real master with two workers, and `spark-submit` with the zip of our packages."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailmend.admin.local.jars import connector_jars
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS
from mailmend.model.operations import Scan
from mailmend.repair.staging.bucket import StagingBucket
from mailmend.spark_repair.session import SparkSettings, coordinates_here
from tests.bench.queue_past import WINDOW, Past
from tests.support.brokers import Broker
from tests.support.checkout import CHECKOUT
from tests.support.commands import command_line, contact_of
from tests.support.installed import HAS_UV, wheel_in
from tests.support.james import load_james
from tests.support.keyspaces import dropped
from tests.support.object_stores import S3
from tests.support.real_queue import real_queue
from tests.support.s3_twin import s3_twin
from tests.support.servers import CassandraServer
from tests.support.spark_cluster import HOME, SparkCluster, bare_python, small_environment, spark_cluster

QUICK = ("--no-writers", "--delay", "0s", "--json")
JSON_LOG = ("--log-level", "info", "--log-format", "json")
# The first compiler only, in JVMs of a short life.
SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.shuffle.readHostLocalDisk": "false",  # of another user here, of another host elsewhere
}
DAMAGE = {"PROJECT": 19, "AMEND": 127, "WITHDRAW": 36}
LOST = {"LOST_CONTENT": 18}
LEAKS = {"LEAK": 83}

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]
needs_uv = pytest.mark.skipif(not HAS_UV, reason="needs uv, which `make` installs")


@pytest.fixture(scope="module")
def standalone() -> Iterator[SparkCluster]:
    with spark_cluster("nobody", "daemon") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    return wheel_in(folder).rename(folder / "mailmend.zip")


@pytest.fixture
def keyspace(cluster: CassandraCluster) -> Iterator[str]:
    name = f"k_spark_{uuid4().hex[:8]}"
    load_james(cluster, name, damaged=True)
    yield name
    dropped(cluster, (name, f"{name}_ledger"))


def place(server: CassandraServer, keyspace: str) -> tuple[str, ...]:
    where = ("--host", server.host, "--port", str(server.port))
    return (*where, "--keyspace", keyspace, "--ledger-keyspace", f"{keyspace}_ledger")


def settings(option: str, values: Mapping[str, str]) -> Sequence[str]:
    return tuple(chain.from_iterable((option, f"{name}={value}") for name, value in values.items()))


def environment_of(folder: Path, python: Path) -> dict[str, str]:
    own = {"HOME": str(folder), "XDG_CACHE_HOME": str(SparkSettings().folder.parent), "PYSPARK_PYTHON": str(python)}
    return {name: value for name, value in (small_environment() | own).items() if not name.startswith("AWS_")}


def said(command: Sequence[str | Path], folder: Path, python: Path, code: int = 0, **variables: str) -> str:
    """What a process says that runs far from the checkout, with Spark's Python named to it."""
    environment = environment_of(folder, python) | variables
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    return ended.stdout


@pytest.mark.thorough
def test_the_workers_know_nothing_of_mailmend(standalone: SparkCluster, tmp_path: Path) -> None:
    """Else the test below would prove little: the libraries are there, our packages are not."""
    said([standalone.python, "-c", "import cassandra, pyspark, tenacity"], tmp_path, standalone.python)
    said([standalone.python, "-c", "import mailmend.repair"], tmp_path, standalone.python, code=1)


@pytest.mark.thorough
def test_a_cluster_mends_what_one_process_does(
    standalone: SparkCluster, cassandra: CassandraServer, keyspace: str, tmp_path: Path
) -> None:
    """Executors get mailmend from the driver: 182 mended, 18 lost contents and 83 leaks left, twice.

    Their logs name the run.
    """

    def mailmend(*arguments: str) -> dict[str, Any]:
        where = ("--master", standalone.master, *settings("--spark-conf", SMALL), *place(cassandra, keyspace))
        command = [sys.executable, "-m", "mailmend", *arguments, *QUICK, *JSON_LOG, *where]
        found: dict[str, Any] = json.loads(said(command, tmp_path, standalone.python, code=1))
        return found

    mended = mailmend("repair", "messages")
    assert mended["findings"] == {"messageIdTable": DAMAGE | LOST, "messageV3": LEAKS}
    assert (mended["fixed"], mended["left"], mended["failed"]) == (DAMAGE, LOST, 0)
    lines = chain.from_iterable(
        log.read_text().splitlines() for log in standalone.folder.glob("worker*/work/*/*/stderr")
    )
    assert {json.loads(line)["run"] for line in lines if '"connected to the cluster"' in line} == {mended["run"]}
    assert mailmend("check", "messages")["findings"] == {"messageIdTable": LOST, "messageV3": LEAKS}


@pytest.fixture
def staged(standalone: SparkCluster, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StagingBucket:
    """A bucket whose keys each host finds in a file of its user's own."""
    for home in (tmp_path, *standalone.folder.glob("worker*")):
        file = home / ".aws" / "credentials"
        file.parent.mkdir()
        file.write_text(f"[default]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n")
        for one in (file.parent, file):
            shutil.chown(one, home.owner())
    # Arrow's S3 client reads the path of such a file once a process, after which other tests have other keys; it reads
    # variables each time.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    bucket = s3.bucket()
    return StagingBucket(bucket.bucket, "mail", bucket.endpoint, bucket.region)


@pytest.mark.thorough
@pytest.mark.object_store
def test_executors_without_a_common_folder_stage_in_a_bucket(
    standalone: SparkCluster, cassandra: CassandraServer, keyspace: str, staged: StagingBucket, tmp_path: Path
) -> None:
    """Their driver is killed; the next one goes on."""
    where = ("--master", standalone.master, *settings("--spark-conf", SMALL), *place(cassandra, keyspace))
    url = f"{staged.place}?endpoint={staged.endpoint}&region={staged.region}"
    command = [sys.executable, "-m", "mailmend", "check", "messages", *QUICK, *where, "--staging", url]

    with subprocess.Popen(
        [*command, "--rows-per-second", "100"],
        env=environment_of(tmp_path, standalone.python),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as slow:
        try:
            while len(staged.names()) < 4:  # one is the manifest
                assert slow.poll() is None
                time.sleep(0.5)
        finally:
            slow.kill()
    ended = json.loads(said(command, tmp_path, standalone.python, code=1))

    assert ended["findings"] == {"messageIdTable": DAMAGE | LOST, "messageV3": LEAKS}
    assert ended["staging"]["kept"] >= 3
    assert staged.names() == {}


@pytest.mark.thorough
def test_executors_together_keep_a_limit_and_hear_of_a_higher_one_while_they_read(
    standalone: SparkCluster, cassandra: CassandraServer, keyspace: str, tmp_path: Path
) -> None:
    """5,900 rows at 10 a second are ten minutes; once the first are read, the run is allowed more.

    A run that did not hear of it would still read when the patience is over, also on a busy machine.
    """
    where = ("--master", standalone.master, *settings("--spark-conf", SMALL), *place(cassandra, keyspace))
    command = [sys.executable, "-m", "mailmend", "repair", "messages", *QUICK, "--rows-per-second", "10", *where]
    environment = environment_of(tmp_path, standalone.python)
    with subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, stdout=-1, stderr=-1) as process:
        assert process.stderr is not None
        line = next((line for line in process.stderr if line.startswith("scan: ")), "it ended")
        names = {"MAILMEND_KEYSPACE": keyspace, "MAILMEND_LEDGER_KEYSPACE": f"{keyspace}_ledger"}
        mailmend = command_line(tmp_path, cassandra, **names)
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert mailmend("jobs", "set", run["run"], "--rows-per-second", "50000").code == 0
        out, err = process.communicate(timeout=300)

    rows = int(re.sub(r"scan: ([\d,]+).*\n", r"\1", line).replace(",", ""))
    assert 0 < rows < 2_000, f"what is read ahead is among them: {line}"
    mended = json.loads(out)
    assert (process.returncode, mended["fixed"], mended["left"]) == (1, DAMAGE, LOST), err
    assert mended["pace"]["set"][0]["rows_per_second"] == 50_000


IN_PORTIONS = """
import mailmend.spark_repair.blob_collection
mailmend.spark_repair.blob_collection.PORTION = 3
from mailmend.__main__ import main
main()
"""


@pytest.mark.broker
@pytest.mark.thorough
def test_a_cluster_cleans_queues_and_collects_blobs(
    standalone: SparkCluster, cassandra: CassandraServer, rabbitmq: Broker, tmp_path: Path
) -> None:
    """Its executors remove marks; the listing of a bucket, which they have no keys of, reaches them in portions."""
    past = Past(QueueName("spool"), 40, slice_of(datetime.now(UTC) - 8 * WINDOW, WINDOW))
    written = round((datetime.now(UTC) - 2 * WINDOW).timestamp() * MICROS)
    with s3_twin() as twin:
        blobs = {
            "MAILMEND_BLOBS": f"s3://{twin.bucket}?endpoint={twin.endpoint}",
            "MAILMEND_S3_ACCESS_KEY": "AKIATEST",
            "MAILMEND_S3_SECRET_KEY": "secret",
        }
        with real_queue(cassandra, rabbitmq, tmp_path, blobs) as queue:
            for table in (ENQUEUED_MAILS, DELETED_MAILS):
                name = f"{queue.keyspace.name}.{table.name}"
                queue.cluster.execute_ddl(f"ALTER TABLE {name} WITH default_time_to_live = 0")
            writes = [replace(one, at=written) for one in chain(past.starts(), past.rows(), past.marks())]
            assert not any(queue.keyspace.write_all(writes))
            queue.put("waits")
            needed, gone = set(twin.objects), {f"1_600_{uuid4()}" for _ in range(7)}
            twin.objects |= dict.fromkeys(gone, b"x")

            def mailmend(*arguments: str) -> dict[str, Any]:
                spark = ("--master", standalone.master, *settings("--spark-conf", SMALL))
                command = [sys.executable, "-c", IN_PORTIONS, *arguments, *spark, "--delay", "0s", "--json"]
                found: dict[str, Any] = json.loads(
                    said(command, tmp_path, standalone.python, 0, **queue.line.environment)
                )
                return found

            cleaned = mailmend("repair", "queues", "--marks", "old", "--marks-age", "1h")
            collected = mailmend("repair", "blobs", "--oldest-message", "1d")

            (one,) = cleaned["queues"]
            assert (one["removed_rows"], one["removed_marks"], one["waiting"]) == (40, 40, 1)
            assert not list(queue.keyspace.scan(Scan(DELETED_MAILS, DELETED_MAILS.names)))
            assert queue.names() == ["waits"]
            assert (collected["removed"], set(twin.objects)) == (len(gone), needed)


@needs_uv
@pytest.mark.thorough
def test_spark_submit_runs_the_zip(cassandra: CassandraServer, keyspace: str, zipped: Path, tmp_path: Path) -> None:
    """All of mailmend from the zip, by Spark's own script: what it finds, its report, its exit code."""
    connector = {"spark.jars": ",".join(map(str, connector_jars(coordinates_here())))}
    script: list[str | Path] = [HOME / "bin" / "spark-submit", "--master", "local[2]", "--py-files", zipped]
    submit = [*script, *settings("--conf", SMALL | connector), CHECKOUT / "admin" / "submit.py"]
    report = ("--report", tmp_path / "drift.html")
    command = [*submit, "check", "messages", *QUICK, *report, *place(cassandra, keyspace)]

    lines = said(command, tmp_path, bare_python(tmp_path), code=1).splitlines()  # spark-submit adds what was on stderr

    (found,) = (json.loads(line) for line in lines if line.startswith("{"))
    assert found["findings"] == {"messageIdTable": DAMAGE | LOST, "messageV3": LEAKS}
    assert found["engine"] == {"name": "spark", "why": "spark-submit runs it"}
    assert "LOST_CONTENT" in (tmp_path / "drift.html").read_text()
