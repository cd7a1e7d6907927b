"""mailmend on a Spark cluster of its own processes: by --master, and from a zip by spark-submit."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cql.contact import Contact
from cql.session import CassandraCluster, connect
from spark_repair.session import SparkSettings, connector_coordinates, launch_options
from tests.support.james import load_james
from tests.support.keyspaces import dropped
from tests.support.servers import CassandraServer
from tests.support.standalone import spark_home, standalone_cluster

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PACKAGES = ("admin", "cql", "mailqueue", "model", "repair", "spark_repair")
MAIL, BOOK = (f"d_cluster_{kind}_{uuid4().hex[:8]}" for kind in ("mail", "ledger"))
SMALL = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.driver.host": "127.0.0.1"}
SECONDS_MAX = 500


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    """A session of the driver, over a keyspace with 200 damages."""
    with connect(Contact((cassandra.host,), cassandra.port, cassandra.local_dc)) as cluster:
        dropped(cluster, (MAIL, BOOK))
        load_james(cluster, MAIL, damaged=True)
        yield cluster
        dropped(cluster, (MAIL, BOOK))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master with two workers of one core and 512 MB."""
    with standalone_cluster(tmp_path_factory.mktemp("spark")) as url:
        yield url


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our packages as `make zip` makes them: what the wheel holds."""
    path = tmp_path_factory.mktemp("zip") / "mailmend.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for package in PACKAGES:
            for file in sorted((ROOT / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(ROOT))
    return path


def where(cassandra: CassandraServer) -> list[str]:
    """The options that name the server and the keyspaces."""
    address = ["--host", cassandra.host, "--port", str(cassandra.port), "--local-dc", cassandra.local_dc]
    return [*address, "--keyspace", MAIL, "--ledger-keyspace", BOOK, "--json"]


def answer_of(command: list[str], exit_code: int, **env: str) -> dict[str, Any]:
    """The one JSON object that a command prints: the last line, for spark-submit puts stderr before it on stdout."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=ROOT, env={**os.environ, **env}
    )
    assert done.returncode == exit_code, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_repair_runs_on_two_workers(cassandra: CassandraServer, cluster: CassandraCluster, master: str) -> None:
    """Given a master and two workers, when a repair is sent there, then 182 places are mended on its executors."""
    conf = [part for name, value in SMALL.items() for part in ("--spark-conf", f"{name}={value}")]
    command = [sys.executable, "-m", "admin.cli", "repair", "messages", "--no-writers", "--delay", "0s"]
    answer = answer_of([*command, "--master", master, *conf, *where(cassandra)], exit_code=1)
    assert answer["findings"]["messageIdTable"]["LOST_CONTENT"] == 18
    assert sum(answer["fixed"].values()) >= 182
    assert answer["failed"] == 0


def test_spark_submit_checks_from_a_zip(
    cassandra: CassandraServer, cluster: CassandraCluster, master: str, zipped: Path
) -> None:
    """Given only the zip, when spark-submit runs the command, then the answer is the same object as ever."""
    conf = [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", master, *conf, *connector()]
    check = ["check", "messages", "--no-recheck", *where(cassandra)]
    answer = answer_of(
        [*submit, "--py-files", str(zipped), str(ROOT / "admin" / "submit.py"), *check],
        exit_code=1,
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    assert answer["scanned"]["imapUidTable"] > 0
    assert answer["findings"]["messageV3"] == {"LEAK": 83}


def connector() -> list[str]:
    """The connector as it is on this machine's disk, else by its coordinates, as a person would write it."""
    known = launch_options(SparkSettings())
    if "spark.jars" in known:
        return ["--jars", known["spark.jars"]]
    return ["--packages", connector_coordinates(version("pyspark"))]
