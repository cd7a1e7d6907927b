"""Executors on other hosts, here those of other users, read through TLS; and nobody sees what they do it with."""

import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest

from mailmend.admin.local.processes import free_port
from mailmend.cql.driver.session import connect
from mailmend.spark_repair.session import SparkSettings
from tests.support.guarded import GuardedNode, guarded_node
from tests.support.james import load_james
from tests.support.keyspaces import dropped
from tests.support.spark_cluster import SparkCluster, small_environment, spark_cluster

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.thorough]

KEYSPACE = f"k_tls_{uuid4().hex[:8]}"
PASSWORD, STORE_PASSWORD = "Kept-By-The-Role", "Kept-By-The-Stores"
WITH_A_KNOWN_STORE_PASSWORD = f"""
import secrets
secrets.token_urlsafe = lambda *_: {STORE_PASSWORD!r}
from mailmend.__main__ import main
main()
"""
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.shuffle.readHostLocalDisk": "false",  # of another user here, of another host elsewhere
    "spark.ui.enabled": "true",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
_LOOK_SECONDS = 0.2


@dataclass(slots=True)
class Seen:
    """What anybody on this machine saw while a command ran.

    Attributes:
        pages: of Spark's UI, by path.
        stores: of each file that executors unpacked: its user and its mode.
    """

    command_lines: set[str] = field(default_factory=set)
    pages: dict[str, str] = field(default_factory=dict)
    stores: set[tuple[int, int]] = field(default_factory=set)

    def look(self, ui: str, work: Path) -> None:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                self.command_lines.add(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        for path in ("/environment/", "/SQL/"):
            with suppress(OSError), urlopen(ui + path, timeout=5) as page:
                self.pages[path] = page.read().decode()
        for store in work.glob("worker*/work/*/*/mailmend-tls-*/*"):
            with suppress(OSError):
                self.stores.add((store.stat().st_uid, stat.S_IMODE(store.stat().st_mode)))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with guarded_node(tmp_path_factory.mktemp("certificates"), clients=True) as node:
        yield node


@pytest.fixture(scope="module")
def standalone() -> Iterator[SparkCluster]:
    with spark_cluster("nobody", "daemon") as cluster:
        yield cluster


@pytest.fixture
def keyspace(node: GuardedNode) -> Iterator[str]:
    with connect(replace(node.contact(), request_seconds=60.0, write_seconds=60.0)) as cluster:
        cluster.execute_ddl(f"CREATE ROLE mender WITH PASSWORD = '{PASSWORD}' AND LOGIN = true AND SUPERUSER = true")
        load_james(cluster, KEYSPACE, damaged=True)
        yield KEYSPACE
        dropped(cluster, (KEYSPACE, f"{KEYSPACE}_ledger"))


def test_executors_on_other_hosts_read_and_mend_and_no_secret_is_seen(
    node: GuardedNode, standalone: SparkCluster, keyspace: str, tmp_path: Path
) -> None:
    """They scan by Java and mend by Python, both showing the client's certificate."""
    events, temporary = tmp_path / "events", tmp_path / "tmp"
    events.mkdir()
    temporary.mkdir()
    port = free_port(["127.0.0.1"])
    script = tmp_path / "known.py"
    script.write_text(WITH_A_KNOWN_STORE_PASSWORD)
    command = [sys.executable, str(script), "repair", "messages", *wanted(node, keyspace)]
    conf = SMALL | {"spark.ui.port": str(port), "spark.eventLog.dir": events.as_uri()}
    options = [word for name, value in conf.items() for word in ("--spark-conf", f"{name}={value}")]
    environment = small_environment() | {
        "HOME": str(tmp_path),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(SparkSettings().folder.parent),
        "PYSPARK_PYTHON": str(standalone.python),
        "MAILMEND_PASSWORD": PASSWORD,
    }
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [*command, "--master", standalone.master, *options],
            env=environment,
            cwd=tmp_path,
            stdout=output,
            stderr=output,
        )
        seen = Seen()
        while process.poll() is None:
            seen.look(f"http://127.0.0.1:{port}", standalone.folder)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
    said = (tmp_path / "output").read_text()
    # Then executors mended
    assert process.returncode == 1, said
    assert '"failed": 0' in said
    assert '"PROJECT": 19' in said
    # with stores that were theirs alone
    owners = {Path(standalone.folder, f"worker{number}").stat().st_uid for number in (1, 2)}
    assert seen.stores == {(owner, 0o600) for owner in owners}
    # and are gone everywhere
    assert [*standalone.folder.rglob("*mailmend-tls*"), *standalone.folder.rglob("*.p12")] == []
    assert list(temporary.glob("mailmend-tls-*")) == []
    # and nobody saw a secret
    assert node.client is not None
    key_line = node.client.key.read_text().splitlines()[2]
    reported = [*seen.command_lines, *seen.pages.values(), said, SparkSettings().log.read_text(errors="replace")]
    assert set(seen.pages) == {"/environment/", "/SQL/"}
    assert any("CoarseGrainedExecutorBackend" in line for line in seen.command_lines)
    reported += [text(file) for folder in (standalone.folder, events) for file in folder.rglob("*") if file.is_file()]
    for secret in (PASSWORD, STORE_PASSWORD, key_line):
        assert [one[:200] for one in reported if secret in one] == []


def wanted(node: GuardedNode, keyspace: str) -> Sequence[str]:
    contact = node.contact()
    return (
        *("--no-writers", "--delay", "0s", "--json", "--username", "mender"),
        *("--host", contact.hosts[0], "--port", str(contact.port)),
        *("--tls-ca", str(contact.tls_ca), "--tls-cert", str(contact.tls_cert), "--tls-key", str(contact.tls_key)),
        *("--keyspace", keyspace, "--ledger-keyspace", f"{keyspace}_ledger"),
    )


def text(file: Path) -> str:
    return file.read_text(errors="replace")
