"""What executors are sent: our packages once, whole, and only where they are not at home; which Python reads them."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from mailmend.spark_repair import executors
from mailmend.spark_repair.executors import PACKAGES, ZIP, runs_here, ship_packages, write_zip
from mailmend.spark_repair.session import SparkSettings, executors_python, launch_options


@dataclass
class Context:
    """As much of Spark's context as shipping asks."""

    master: str
    files: list[str] = field(default_factory=list)
    submitted: str | None = None

    @property
    def listFiles(self) -> list[str]:  # noqa: N802 - Spark's name
        return self.files

    def getConf(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"spark.submit.pyFiles": self.submitted}

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.files.append(path)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where Spark keeps the files of the driver."""
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("master", "here"),
    [("local", True), ("local[2]", True), ("local[*]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_only_threads_of_the_driver_are_at_home(master: str, *, here: bool) -> None:
    """`local-cluster` starts processes, for all its name."""
    assert runs_here(master) is here


def test_a_zip_is_enough_to_import_what_executors_run(tmp_path: Path) -> None:
    file = write_zip(tmp_path / ZIP)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    begin = f"import sys; sys.path[:0] = {[str(file), *libraries]}"
    script = f"{begin}; from mailmend.spark_repair import fixing; print(fixing.__file__)"

    said = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert said.stdout.strip() == str(file / "mailmend" / "spark_repair" / "fixing.py")
    names = ZipFile(file).namelist()
    assert {"mailmend/cql/schema.cql", *(f"mailmend/{package}/py.typed" for package in PACKAGES)} <= set(names)
    assert not [name for name in names if name.endswith(".pyc") or name.startswith("mailmend/admin")]


def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    assert write_zip(tmp_path / "a").read_bytes() == write_zip(tmp_path / "b").read_bytes()


def test_a_cluster_is_sent_the_packages_once(folder: Path) -> None:
    context: Any = Context("spark://somewhere:7077")
    ship_packages(context)
    ship_packages(context)
    assert context.files == [str(folder / ZIP)]
    assert (folder / ZIP).exists()


@pytest.mark.parametrize("master", ["local", "local[4]"])
def test_one_process_is_sent_nothing(folder: Path, master: str) -> None:
    context: Any = Context(master)
    ship_packages(context)
    assert context.files == []


def test_what_spark_submit_was_given_is_not_sent_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "__file__", "/spark/files/mailmend.zip/mailmend/spark_repair/executors.py")
    ours: Any = Context("yarn", submitted="file:/home/me/mailmend.zip")
    listed: Any = Context("yarn", files=["spark://driver:1/files/mailmend.zip"])
    others: Any = Context("yarn", submitted="file:/home/me/others.zip,hdfs:/x.py")
    for context in (ours, listed, others):
        ship_packages(context)
    assert (ours.files, listed.files) == ([], ["spark://driver:1/files/mailmend.zip"])
    assert others.files == [str(folder / ZIP)]


def test_executors_have_the_python_that_the_cluster_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    away = "spark://somewhere:7077"
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert executors_python(SparkSettings(away)) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    assert executors_python(SparkSettings(away)) == "/their/python"
    assert executors_python(SparkSettings("local[2]")) == sys.executable
    assert executors_python(SparkSettings(away, options={"spark.pyspark.python": "/a/python"})) == "/a/python"


@pytest.mark.parametrize(
    ("master", "host"),
    [
        ("spark://127.0.0.1:7077", "127.0.0.1"),
        ("spark://localhost:7077", "127.0.0.1"),
        ("spark://10.0.0.1:7077", None),
        ("spark://127.0.0.1.example.org:7077", None),
        ("spark://127.0.0.1:7077,10.0.0.1:7077", None),
        ("yarn", None),
    ],
)
def test_a_cluster_on_this_machine_calls_the_driver_here(master: str, host: str | None, tmp_path: Path) -> None:
    options = launch_options(SparkSettings(master, cache=tmp_path))
    assert (options.get("spark.driver.host"), options.get("spark.driver.bindAddress")) == (host, host)
    reported = SparkSettings(master, cache=tmp_path, options={"spark.driver.host": "10.0.0.9"})
    assert launch_options(reported)["spark.driver.host"] == "10.0.0.9"
