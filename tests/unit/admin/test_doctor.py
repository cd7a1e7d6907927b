"""What the doctor makes of what it found: each part, well and unwell, and how the command ends."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailmend.admin.local import doctor as service
from mailmend.admin.local.doctor import unfit
from mailmend.admin.local.doctor_judgement import (
    BrokerFound,
    ClusterFound,
    Installed,
    PartFound,
    PartState,
    ServersFound,
    SparkClusterFound,
    UnfitPackage,
    exit_of,
    judged,
)
from mailmend.mailqueue.rules.health import HealthProblem, HealthReason
from mailmend.model.errors import BlobsUnreachable, BrokerUnreachable, CannotReach, ExitCode, JavaMissing, WrongUse
from mailmend.repair.clock import ClockReading
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine

OK, CHANGE, NONE, AWAY = (
    PartState.OK,
    PartState.TO_CHANGE,
    PartState.NOT_CONFIGURED,
    PartState.CANNOT_REACH,
)
NO_DELAYS = HealthReason(HealthProblem.DELAYS_IGNORED, "delayed mails are not kept back", "pulsar-admin namespaces")
CONNECTOR = "com.datastax.spark:spark-cassandra-connector_2.12:3.5.1"
HERE = Installed(
    python="3.11.7",
    python_wanted="<3.15,>=3.11",
    python_serves=True,
    packages={"cassandra-driver": "3.30.1", "scylla-driver": None, "pyspark": "3.5.9", "click": "8.4.0"},
    java="17 (/usr/bin/java)",
    scala="2.12.18",
    connector=CONNECTOR,
    connector_here=True,
)
CLUSTER = ClusterFound(
    place="c1 port 9042",
    title="Cassandra 5.0",
    releases={"c1": "5.0.9", "c2": "5.0.9"},
    clocks=ClockReading(0, (1, 2), 3),
    keyspace="mail",
    lacking=(),
    ledger="mailmend",
    ledger_there=True,
)
BROKER = BrokerFound("rabbit:5672", "RabbitMQ 4.0.5")
SERVERS = ServersFound(cluster=CLUSTER, broker=BROKER, blobs="the bucket x answers")
ALONE = ServersFound()


def packages(**changed: str | None) -> dict[str, Any]:
    return {"packages": {**HERE.packages, **{name.replace("_", "-"): one for name, one in changed.items()}}}


def of_part(part: str, found: list[PartFound]) -> PartFound:
    (one,) = (one for one in found if one.part == part)
    return one


def test_where_all_is_well_each_part_has_a_line_and_nothing_to_do() -> None:
    found = judged(HERE, SERVERS)

    assert {one.state for one in found} == {OK}
    assert not any(one.next for one in found)
    assert [one.part for one in found] == [
        *("Python", "driver", "libraries", "Java", "Spark", "Scala", "connector", "settings"),
        *("cluster", "clocks", "keyspace", "ledger", "broker", "blobs"),
    ]


@pytest.mark.parametrize(
    ("part", "changed", "state", "seen", "next_is"),
    [
        ("Python", {"python": "3.10.1", "python_serves": False}, CHANGE, "made for <3.15,>=3.11", "uv venv"),
        ("Python", {"executors_python": "3.12.1"}, CHANGE, "PYSPARK_PYTHON names 3.12.1", "a Python 3.11"),
        ("Python", {"executors_python": "3.11.2"}, OK, "3.11.7", ""),
        ("driver", packages(cassandra_driver=None), CHANGE, "none is installed", "mailmend[cassandra]"),
        ("driver", packages(scylla_driver="3.29.12"), CHANGE, "each takes the import name", "pip uninstall"),
        ("driver", packages(cassandra_driver=None, scylla_driver="3.29.12"), OK, "scylla-driver 3.29.12", ""),
        (
            "libraries",
            {"unfit": [UnfitPackage("pyarrow", "19.0", ">=20", "spark"), UnfitPackage("rich", None, ">=15")]},
            CHANGE,
            "pyarrow 19.0 (wanted: >=20), rich is missing (wanted: >=15)",
            "pip install --upgrade 'mailmend[spark]'",
        ),
        ("Java", {"java": JavaMissing("Spark needs Java", mend="Install it")}, CHANGE, "Spark needs Java", "Install"),
        (
            "Java",
            {"java": JavaMissing("no Java", mend="Install"), **packages(pyspark=None)},
            NONE,
            "no Java",
            "Install",
        ),
        ("Java", {"java_of_wheel": True}, OK, "17", ""),
        ("Java", {"java_of_wheel": True, **packages(pyspark="4.3.0")}, CHANGE, "lacks modules", "JAVA_HOME"),
        ("Spark", packages(pyspark=None), NONE, "PySpark is not installed", "mailmend[spark]"),
        ("Scala", {"scala": "2.13.16"}, CHANGE, "is made for 2.12", "mailmend[spark]"),
        ("Scala", {"scala": None}, OK, "2.12, the connector's version", ""),
        ("connector", {"connector": WrongUse("PySpark 9 is not served", mend="Pin")}, CHANGE, "is not served", "Pin"),
        ("connector", {"connector_here": False}, OK, "Maven Central", ""),
    ],
    ids=str,
)
def test_what_this_machine_has(part: str, changed: dict[str, Any], state: PartState, seen: str, next_is: str) -> None:
    found = of_part(part, judged(replace(HERE, **changed), SERVERS))

    assert (found.state, seen in found.seen, next_is in found.next) == (state, True, True), found
    assert bool(found.next) is (state is not OK)


def cluster(**changed: Any) -> dict[str, Any]:
    return {"cluster": replace(CLUSTER, **changed)}


@pytest.mark.parametrize(
    ("part", "changed", "state", "seen", "next_is"),
    [
        ("Spark cluster", {"spark": SparkClusterFound("http://m:8080", None)}, AWAY, "no version", "--master"),
        ("Spark cluster", {"spark": SparkClusterFound("http://m:8080", "3.5.1")}, OK, "3.5.1 at http://m:8080", ""),
        ("Spark cluster", {"spark": SparkClusterFound("http://m:8080", "4.1.2")}, CHANGE, "3.5.9", "pyspark==4.1.2"),
        ("Spark cluster", {"spark": SparkClusterFound("http://m:8080", "3.4.4")}, CHANGE, "3.4.4", "3.5 and 4"),
        ("settings", {"settings": Path("/etc/m.toml")}, OK, "/etc/m.toml", ""),
        ("settings", {"open_files": [Path("/etc/keys")]}, CHANGE, "every user", "chmod o-rwx /etc/keys"),
        ("cluster", {"cluster": None}, NONE, "no host is named", "mailmend local up"),
        ("cluster", {"cluster": CannotReach("c1 gives no answer", mend="Look")}, AWAY, "no answer", "Look"),
        ("cluster", {"cluster": WrongUse("the password is not known", mend="Set")}, CHANGE, "password", "Set"),
        ("cluster", cluster(releases={"c1": "5.0.9", "c2": None}), CHANGE, "no answer from c2", "nodetool status"),
        ("cluster", cluster(down=("c3",)), CHANGE, "2 of 3 nodes up", "nodetool status"),
        ("cluster", cluster(releases={"c1": "5.0.9", "c2": "4.1.3"}), CHANGE, "4.1.3, 5.0.9", "nodetool version"),
        ("cluster", cluster(releases={"c1": "4.0.1"}), OK, "release 4.0.1", ""),
        ("cluster", cluster(releases={"c1": "3.11.19"}), CHANGE, "3.11.19", "4.0 to 5.0"),
        ("cluster", cluster(releases={"c1": "6.0-beta"}), CHANGE, "6.0", "4.0 to 5.0"),
        ("cluster", cluster(releases={"c1": "3.0.8"}, title="ScyllaDB"), OK, "ScyllaDB", ""),
        ("cluster", cluster(schemas=2), CHANGE, "2 schemas", "runbook show schema-disagreement"),
        ("clocks", cluster(clocks=ClockReading(0, (4_900_000,), 0)), OK, "4.900 s", ""),
        ("clocks", cluster(clocks=ClockReading(0, (-5_100_000,), 0)), CHANGE, "5.100 s", "chronyc tracking"),
        ("keyspace", cluster(lacking=None), CHANGE, "mail does not exist", "mailmend schema apply"),
        ("keyspace", cluster(lacking=("firstUnseen",)), CHANGE, "lacks firstUnseen", "schema verify --keyspace mail"),
        ("ledger", cluster(ledger_there=False), NONE, "mailmend does not exist", "The first repair"),
        ("broker", {"broker": None}, NONE, "none is named", "MAILMEND_BROKER"),
        ("broker", {"broker": BrokerUnreachable("rabbit is away", mend="Start it")}, AWAY, "is away", "Start it"),
        ("broker", {"broker": replace(BROKER, alarms=("memory",))}, CHANGE, "memory", "runbook"),
        ("broker", {"broker": replace(BROKER, product="RabbitMQ 3.8.0+1")}, OK, "RabbitMQ 3.8.0+1 at rabbit:5672", ""),
        ("broker", {"broker": replace(BROKER, product="RabbitMQ 3.7.28")}, CHANGE, "3.7.28", "RabbitMQ 3.8 or later"),
        ("broker", {"broker": replace(BROKER, product="a broker of no version")}, CHANGE, "no version", "RabbitMQ 3.8"),
        ("broker", {"broker": replace(BROKER, product="Pulsar 4.2.4")}, OK, "Pulsar 4.2.4 at rabbit:5672", ""),
        ("broker", {"broker": replace(BROKER, product="Pulsar 2.9.5")}, CHANGE, "2.9.5", "Pulsar 2.10 or later"),
        (
            "broker",
            {"broker": replace(BROKER, product="Pulsar 4.2.4", policies=(NO_DELAYS, NO_DELAYS))},
            CHANGE,
            "are not kept back; and 1 more: mailmend queue health",
            "pulsar-admin",
        ),
        ("blobs", {"blobs": None}, NONE, "no store is named", "MAILMEND_BLOBS"),
        ("blobs", {"blobs": BlobsUnreachable("the bucket is away", mend="Look")}, AWAY, "is away", "Look"),
    ],
    ids=str,
)
def test_what_the_servers_tell(part: str, changed: dict[str, Any], state: PartState, seen: str, next_is: str) -> None:
    found = of_part(part, judged(HERE, replace(SERVERS, **changed)))

    assert (found.state, seen in found.seen, next_is in found.next) == (state, True, True), found
    assert bool(found.next) is (state is not OK)


def test_a_broker_without_its_http_api_is_well_enough() -> None:
    found = of_part("broker", judged(HERE, replace(SERVERS, broker=replace(BROKER, has_api=False))))

    assert (found.state, "--broker-management" in found.next) == (OK, True)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ((OK, NONE), ExitCode.FINE),
        ((OK, CHANGE, NONE), ExitCode.DRIFT),
        ((CHANGE, AWAY, OK), ExitCode.CANNOT_REACH),
    ],
)
def test_the_worst_decides_how_it_ends(states: tuple[PartState, ...], code: ExitCode) -> None:
    """A part that nobody configured is nothing to change."""
    assert exit_of([PartFound("a part", state, "") for state in states]) is code


def test_packages_are_held_against_what_ours_asks_for() -> None:
    """With the marker of this Python; what an extra brings may be missing, what is always needed may not."""
    here = {"click": "8.3.1", "pyspark": "3.5.9", "pyarrow": "23.0", "pandas": "3.0", "aio-pika": "10.2.0rc1"}
    asked = (
        "click<9,>=8.4",
        "rich<16,>=15",
        "pyspark==3.5.9; python_version < '3' and extra == 'spark'",
        "pyspark==3.5.9; python_version >= '3' and extra == 'spark'",
        "pyarrow>=20; extra == 'spark'",
        "pandas<3,>=2.2; extra == 'spark'",
        "aio-pika<11,>=10.2rc1; extra == 'queue'",
        "obstore<0.13,>=0.12.1; extra == 'queue'",
        "unknown==1; extra == 'another'",
    )

    assert unfit(here.get, asked) == [
        UnfitPackage("click", "8.3.1", "<9,>=8.4"),
        UnfitPackage("rich", None, "<16,>=15"),
        UnfitPackage("pandas", "3.0", "<3,>=2.2", "spark"),
    ]


def test_this_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has: the tests run, so there is a Python that serves, and a driver."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    found = service.installed()

    assert found.python_serves
    assert found.executors_python in {found.python, None}
    assert of_part("driver", judged(found, ALONE)).state is OK


def test_a_spark_cluster_is_asked_at_the_page_of_its_master(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()
    page = b'<span class="version" style="margin-right: 15px;">3.5.9</span> Spark Master at spark://m:7077'

    def answered(*given: object) -> tuple[int, bytes]:
        asked.append(given[:3])
        return 200, page

    monkeypatch.setattr(service, "http_answer", answered)
    named = ("spark://m:7077,n:7077", "http://m:8081/proxy/")
    found = [service.spark_cluster_found(one) for one in named]

    assert found == [SparkClusterFound("http://m:8080", "3.5.9"), SparkClusterFound("http://m:8081", "3.5.9")]
    assert asked == [("m", 8080, "/"), ("m", 8081, "/proxy/")]


class TestCommand:
    """`mailmend doctor`, on a cluster in memory."""

    @pytest.fixture(autouse=True)
    def _well_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(service, "installed", lambda: HERE)

    def test_each_part_is_one_line(self, mailmend: CommandLine) -> None:
        ended, shown = mailmend("doctor", "--json"), mailmend("doctor")

        parts = ended.json["parts"]
        assert (ended.code, ended.json["exit"]) == (shown.code, ended.code) == (0, 0), ended.out
        assert {one["part"]: one["state"] for one in parts}["cluster"] == "OK"
        assert len(shown.out.splitlines()) == len(parts)
        assert all(set(one) == {"part", "state", "seen", "next"} for one in parts)

    def test_what_is_named_badly_is_a_finding_and_the_rest_is_looked_at(
        self, mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """A user without a password, half a pair of keys, a key file that all can read, clocks apart."""
        cluster.nodes_ahead_micros = 7_000_000
        secret = tmp_path / "secret"
        secret.write_text("AK\nSK\n")
        secret.chmod(0o644)
        queue = {
            "MAILMEND_BROKER": "amqp://james@rabbit",
            "MAILMEND_BLOBS": "s3://mails?endpoint=https://s3.example.org",
        }

        ended = mailmend("doctor", "--json", "--tls-key", str(secret), "--no-tls", **queue, MAILMEND_S3_ACCESS_KEY="AK")

        found = {one["part"]: one for one in ended.json["parts"]}
        assert ended.code == 1, ended.out
        assert {one["part"] for one in found.values() if one["state"] == "TO_CHANGE"} == {
            *("settings", "clocks", "broker", "blobs")
        }
        assert "password of 'james'" in found["broker"]["seen"]
        assert "one of the keys" in found["blobs"]["seen"]
        assert str(secret) in found["settings"]["next"]

    def test_a_folder_is_not_made_by_looking(self, mailmend: CommandLine, tmp_path: Path) -> None:
        """Neither one that is not there, nor the mark of a store in one that is."""
        absent, empty = tmp_path / str(uuid4()), tmp_path / "empty"
        empty.mkdir()

        first, second = (mailmend("doctor", "--json", "--blobs", one.as_uri()) for one in (absent, empty))

        assert (first.code, absent.exists(), list(empty.iterdir())) == (0, False, [])
        assert (second.code, "Is its disk mounted?" in second.out) == (4, True)

    def test_tables_of_blobs_are_those_of_the_keyspace(self, mailmend: CommandLine) -> None:
        found = mailmend("doctor", "--json", "--blobs", "cassandra:").json["parts"]

        assert {one["part"]: one["seen"] for one in found}["blobs"] == "in blobs and blobParts of mail"
