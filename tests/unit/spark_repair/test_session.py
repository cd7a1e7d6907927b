"""How Spark is launched: with the right connector, within bounds, and with nothing secret on a command line."""

import os
import sys
from pathlib import Path

import pytest

from mailmend.model.errors import CannotReach, JavaMissing, WrongUse
from mailmend.spark_repair import session
from mailmend.spark_repair.session import SparkSettings, connector_coordinates, launch_options


def test_each_lane_has_its_connector() -> None:
    """PySpark 3.5 ships Scala 2.12, PySpark 4 ships 2.13."""
    assert connector_coordinates("3.5.9") == "com.datastax.spark:spark-cassandra-connector_2.12:3.5.1"
    assert connector_coordinates("4.3.0") == "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"


def test_these_tests_run_with_spark_4_too(request: pytest.FixtureRequest) -> None:
    """The lane of Spark 4 takes what has this mark."""
    assert request.node.get_closest_marker("spark")


def test_another_spark_is_refused_by_name() -> None:
    with pytest.raises(WrongUse, match="PySpark 5"):
        connector_coordinates("5.0.0")


def test_local_spark_listens_to_this_machine_only(tmp_path: Path) -> None:
    local = launch_options(SparkSettings("local[2]", cache=tmp_path))
    remote = launch_options(SparkSettings("spark://master:7077", cache=tmp_path))
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in remote


def test_the_bounds_and_the_quiet_are_set(tmp_path: Path) -> None:
    options = launch_options(SparkSettings(driver_memory="3g", cache=tmp_path))
    assert options["spark.driver.memory"] == "3g"
    assert options["spark.speculation"] == "false"
    assert options["spark.ui.enabled"] == "false"
    assert options["spark.ui.showConsoleProgress"] == "false"
    assert "password" in options["spark.redaction.regex"]
    assert "spark.sql.extensions" not in options
    assert not any("auth" in name for name in options)


def test_settings_of_ones_own_win(tmp_path: Path) -> None:
    settings = SparkSettings(cache=tmp_path, options={"spark.ui.enabled": "true", "spark.executor.memory": "8g"})
    options = launch_options(settings)
    assert options["spark.ui.enabled"] == "true"
    assert options["spark.executor.memory"] == "8g"


def test_no_task_of_a_local_master_waits_for_a_better_place(tmp_path: Path) -> None:
    """Tasks that wait there can wait for ever; a cluster offers its cores again each second."""
    local = launch_options(SparkSettings("local[2]", cache=tmp_path))
    cluster = launch_options(SparkSettings("spark://10.0.0.1:7077", cache=tmp_path))

    assert local["spark.locality.wait"] == "0s"
    assert "spark.locality.wait" not in cluster


def test_only_what_stays_hot_is_compiled_twice(tmp_path: Path) -> None:
    """And a Java that names its thresholds otherwise starts all the same."""
    java = launch_options(SparkSettings(cache=tmp_path))["spark.driver.extraJavaOptions"].split()
    assert "-XX:Tier4CompileThreshold=150000" in java
    assert "-XX:+IgnoreUnrecognizedVMOptions" in java
    own = {"spark.driver.extraJavaOptions": "-Dmine=1"}
    assert launch_options(SparkSettings(cache=tmp_path, options=own))["spark.driver.extraJavaOptions"] == "-Dmine=1"


def test_a_brief_scan_is_compiled_once(tmp_path: Path) -> None:
    options = launch_options(SparkSettings(cache=tmp_path, brief=True))
    assert options["spark.driver.extraJavaOptions"] == "-XX:TieredStopAtLevel=1"


def test_the_connector_is_given_as_files_and_spark_resolves_nothing(tmp_path: Path) -> None:
    """Spark's own resolver takes ~/.m2 for a source."""
    jars = (tmp_path / "a.jar", tmp_path / "b.jar")

    options = launch_options(SparkSettings(jars=jars, cache=tmp_path))

    assert options["spark.jars"] == f"{jars[0]},{jars[1]}"
    assert not [name for name in options if name.startswith(("spark.jars.packages", "spark.jars.ivy"))]


def test_the_cache_follows_the_users_own_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG_CACHE_HOME is honoured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert SparkSettings().folder == tmp_path / "mailmend"
    assert SparkSettings().log == tmp_path / "mailmend" / "spark.log"


def test_without_java_it_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="Java 17"), session._environment(SparkSettings(cache=tmp_path)):
        pytest.fail("never entered")


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", "/somebody/elses/spark")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("MAILMEND_TOKENS", "secret")
    with session._environment(SparkSettings(java_home="/a/java", cache=tmp_path)):
        assert os.environ["JAVA_HOME"] == "/a/java"
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert "SPARK_HOME" not in os.environ
        assert "MAILMEND_TOKENS" not in os.environ
    assert os.environ["MAILMEND_TOKENS"] == "secret"
    assert os.environ["SPARK_HOME"] == "/somebody/elses/spark"
    assert "PYSPARK_PYTHON" not in os.environ
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize(
    ("master", "before", "address"),
    [
        ("local[*]", None, "127.0.0.1"),
        ("spark://127.0.0.1:7077", None, "127.0.0.1"),
        ("local[2]", "10.0.0.9", "10.0.0.9"),
        ("spark://master:7077", None, None),
    ],
)
def test_a_local_spark_does_not_look_up_the_name_of_its_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, before: str | None, address: str | None
) -> None:
    """Laptops and containers have names without an address; what somebody chose is kept."""
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    if before:
        monkeypatch.setenv("SPARK_LOCAL_IP", before)

    with session._environment(SparkSettings(master, java_home="/a/java", cache=tmp_path)):
        assert os.environ.get("SPARK_LOCAL_IP") == address

    assert os.environ.get("SPARK_LOCAL_IP") == before


def test_a_log_that_cannot_be_written_is_named_before_spark_starts() -> None:
    """The home of a service's user is often a folder that is not there."""
    settings = SparkSettings("local[1]", java_home="/a/java", cache=Path("/dev/null/cache"))

    with pytest.raises(WrongUse, match=r"Spark's log /dev/null/cache/spark\.log cannot be written") as caught:
        session._launched(settings)

    assert "XDG_CACHE_HOME" in caught.value.mend


def test_a_user_without_a_home_has_the_one_that_the_system_writes_for_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", refused)

    assert SparkSettings().log == Path("/nonexistent/.cache/mailmend/spark.log")


def test_a_spark_that_does_not_start_names_its_log(tmp_path: Path) -> None:
    settings = SparkSettings("spark://nobody:7077", cache=tmp_path)
    error = session._start_failure(settings, RuntimeError("\n[JAVA_GATEWAY_EXITED] Java gateway exited\n at x"))
    assert isinstance(error, CannotReach)
    assert "JAVA_GATEWAY_EXITED" in error.what
    assert str(settings.log) in str(error)
    assert "at x" not in str(error)
