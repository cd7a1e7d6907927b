"""Wiring: which values and adapters stand behind what was typed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.frame import cluster as wiring_cluster
from mailmend.admin.frame.cluster import (
    OpenCluster,
    chosen_engine,
    contact_of,
    open_cluster,
    owner_name,
    queue_scanner,
    repair_tools,
    state_folder,
)
from mailmend.admin.frame.command import Command, CommandGroup, Late
from mailmend.admin.frame.extras import EXTRAS, imported
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.settings import ConnectionSettings, Tls
from mailmend.admin.local.jars import find_java
from mailmend.admin.main import COMMANDS
from mailmend.admin.messages.repair import RepairRequest, target_of
from mailmend.model.catalog.mail import MAILBOX_PATH, MESSAGES
from mailmend.model.errors import BadSettings, SchemaMismatch, UnknownKeyspace, UnknownRun, WrongUse
from mailmend.model.operations import Level, Put
from mailmend.repair.decisions.engines import Engine
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.limits import Pace
from mailmend.repair.scanners.lookup import Target, Targeted, TargetMailboxes, TargetMessages
from mailmend.spark_repair import session as spark_session
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.progress import SilentProgress
from tests.support.repairing import MAILBOX, message
from tests.support.schemas import without_tables

ONE: Any = message(1)
TWO: Any = message(2)
SPARK = Engine("spark", "asked for")


@pytest.fixture
def opened(mail: MailKeyspace, cluster: ClusterTwin) -> OpenCluster:
    with open_cluster(ConnectionSettings(keyspace="mail")) as found:
        return found


class TestTargets:
    """What a repair looks at."""

    @pytest.mark.parametrize(
        ("named", "target"),
        [
            ({}, None),
            ({"message": (ONE, TWO)}, TargetMessages((ONE, TWO))),
            ({"mailbox": (ONE, ONE, TWO), "scan": True}, TargetMailboxes((ONE, TWO), scan=True)),
            ({"message": (ONE,), "mailbox": (TWO,)}, TargetMessages((ONE,), (TWO,))),
            ({"message": (ONE,), "scan": True}, TargetMessages((ONE,), scan=True)),
        ],
    )
    def test_messages_and_mailboxes_are_named_by_id(self, opened: OpenCluster, named: Any, target: Target) -> None:
        """Without any the whole keyspace is scanned; mailboxes beside a message are where its rows are looked for."""
        assert target_of(opened, RepairRequest(connection=opened.connection, **named)) == target

    def test_a_user_stands_for_his_mailboxes(self, opened: OpenCluster, mail: MailKeyspace) -> None:
        for name, mailbox in (("INBOX", MAILBOX), ("Sent", ONE)):
            path = {"namespace": "#private", "user": "bob", "mailboxname": name, "mailboxid": mailbox}
            mail.tables.write(Put(MAILBOX_PATH, path))
        request = RepairRequest(connection=opened.connection, mailbox=(MAILBOX,), user=("bob",))

        target = target_of(opened, request)

        assert isinstance(target, TargetMailboxes)
        assert (target.ids[0], set(target.ids), len(target.ids)) == (MAILBOX, {MAILBOX, ONE}, 2)

    def test_a_scan_of_nothing_is_refused(self, opened: OpenCluster) -> None:
        with pytest.raises(WrongUse, match="--scan goes with"):
            target_of(opened, RepairRequest(connection=opened.connection, scan=True))


class TestKeyspaces:
    """Keyspaces as they really are."""

    def test_an_unknown_keyspace_is_refused(self, opened: OpenCluster) -> None:
        elsewhere = OpenCluster(ConnectionSettings(keyspace="nowhere"), opened.cluster, opened.clock)

        with pytest.raises(UnknownKeyspace):
            elsewhere.families()

    def test_a_keyspace_without_its_truth_is_refused(self, opened: OpenCluster, cluster: ClusterTwin) -> None:
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], "imapuidtable")

        with pytest.raises(SchemaMismatch):
            opened.families()

    def test_reading_the_ledger_creates_nothing(self, opened: OpenCluster, cluster: ClusterTwin) -> None:
        """None where there is none; naming a run of it is refused with how to name another ledger."""
        assert opened.existing_ledger() is None
        with pytest.raises(UnknownRun, match="--ledger-keyspace"):
            opened.known_ledger(ONE)
        assert cluster.carried_out == []

    def test_a_ledger_is_made_once_beside_the_mail(self, opened: OpenCluster, cluster: ClusterTwin) -> None:
        """Replicated as the mail keyspace is; the second time nothing is created."""
        opened.ledger()
        created = list(cluster.carried_out)
        opened.ledger()

        assert cluster.carried_out == created != []
        assert "mailmend" in cluster.keyspaces

    def test_a_check_has_nowhere_to_write_to(self, opened: OpenCluster, cluster: ClusterTwin) -> None:
        """Its ledger and leases are in memory; a named target needs no engine that scans."""
        order = RepairSettings("mail", opened.families((MESSAGES,)))

        tools = repair_tools(opened, order, TargetMessages(()), SilentProgress())
        assert isinstance(tools.engine, Targeted)
        assert (tools.ledger, tools.leases) == (None, None)
        assert cluster.carried_out == []


class TestEngines:
    """Which engine scans a whole keyspace."""

    @pytest.mark.usefixtures("mail", "cluster")
    def test_spark_runs_until_the_cluster_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else the second part of a check would start it again."""
        reported = []

        @contextmanager
        def started(_: object) -> Iterator[str]:
            reported.append("taken")
            yield "spark"
            reported.append("given back")

        monkeypatch.setattr(spark_session, "session_for_a_command", started)
        monkeypatch.setattr(wiring_cluster, "_java_home_of_spark", lambda: None)
        with open_cluster(ConnectionSettings(keyspace="mail")) as opened:
            order = RepairSettings("mail", opened.families((MESSAGES,)))
            repair_tools(opened, order, SPARK, SilentProgress())
            queue_scanner(opened, SPARK, Level.ONE, Pace(None, opened.clock))
            reported.append("both looked")
        assert reported == ["taken", "taken", "both looked", "given back", "given back"]

    def test_spark_is_refused_where_tls_names_no_authority(self, opened: OpenCluster) -> None:
        """Its connections check no host names: a certificate of any public authority would do for a node."""
        encrypted = replace(opened, connection=replace(opened.connection, tls=Tls()))
        order = RepairSettings("mail", opened.families((MESSAGES,)))

        with pytest.raises(BadSettings, match="check no host names") as of_messages:
            repair_tools(encrypted, order, SPARK, SilentProgress())
        with pytest.raises(BadSettings, match="check no host names") as of_queues:
            queue_scanner(encrypted, SPARK, Level.ONE, Pace(None, opened.clock))

        for caught in (of_messages, of_queues):
            assert caught.value.mend == "Name the authority of the nodes with --tls-ca, or use --engine local."

    def test_where_tls_names_no_authority_the_local_engine_is_chosen(
        self, opened: OpenCluster, cluster: ClusterTwin
    ) -> None:
        cluster.rows_recorded = 1_000_000
        encrypted = replace(opened, connection=replace(opened.connection, tls=Tls()))

        choice = chosen_engine(encrypted, ScanOptions(), lambda _: None)

        assert (choice.name, "no --tls-ca is given" in choice.why) == ("local", True)

    @pytest.mark.parametrize(
        ("rows", "without", "chosen"),
        [
            (999_999, None, "local: about 999,999 rows, Spark pays from 1,000,000"),
            (1_000_000, None, "spark: about 1,000,000 rows, Spark pays from 1,000,000"),
            (1_000_000, "pyspark", "local: about 1,000,000 rows, but PySpark is not installed"),
            (
                1_000_000,
                "java",
                "local: about 1,000,000 rows, but Spark needs Java 17 or 21; there is no Java at all",
            ),
        ],
    )
    def test_size_decides_and_what_is_installed(  # noqa: PLR0917 - the twins, and the columns of the table above
        self,
        opened: OpenCluster,
        cluster: ClusterTwin,
        monkeypatch: pytest.MonkeyPatch,
        rows: int,
        without: str | None,
        chosen: str,
    ) -> None:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        cluster.rows_recorded = rows
        monkeypatch.setattr(wiring_cluster, "find_spec", lambda name: None if name == without else name)
        found = [] if without == "java" else [Path("java")]
        monkeypatch.setattr("mailmend.admin.local.jars.candidates", lambda _: found)
        monkeypatch.setattr("mailmend.admin.local.jars.USUAL_PLACES", ())
        monkeypatch.setattr(wiring_cluster, "find_java", lambda program, env: find_java(program, env, lambda _: 17))

        said: list[str] = []
        choice = chosen_engine(opened, ScanOptions(), said.append)

        assert f"{choice.name}: {choice.why}" == chosen
        assert said == [f"Engine: {choice.name} ({choice.why})."]

    @pytest.mark.parametrize(
        ("scan", "submitted", "why"),
        [
            (ScanOptions(master="spark://spark1:7077"), False, "--master was given"),
            (ScanOptions(spark_conf=(("spark.executor.memory", "2g"),)), False, "--spark-conf was given"),
            (ScanOptions(), True, "spark-submit runs it"),
        ],
    )
    def test_whoever_gives_what_only_spark_takes_gets_spark(
        self,
        opened: OpenCluster,
        monkeypatch: pytest.MonkeyPatch,
        scan: ScanOptions,
        submitted: bool,
        why: str,
    ) -> None:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        if submitted:
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4040")

        engine = chosen_engine(opened, scan, lambda _: None)

        assert (engine.name, engine.why, engine.brief) == ("spark", why, True)
        assert (engine.master, engine.spark_conf) == (scan.master, dict(scan.spark_conf))


class TestContact:
    """The connection as the driver takes it."""

    def test_everything_is_handed_on(self) -> None:
        tls = Tls(Path("/ca.pem"), Path("/me.pem"), Path("/me.key"))
        settings = ConnectionSettings(("a", "b"), 9, "dc", username="me", password="secret", tls=tls)

        contact = contact_of(settings)

        assert (contact.hosts, contact.port, contact.local_dc, contact.username) == (("a", "b"), 9, "dc", "me")
        assert (contact.tls_ca, contact.tls_cert, contact.tls_key) == ("/ca.pem", "/me.pem", "/me.key")
        assert "secret" not in repr(contact) + repr(settings)

    @pytest.mark.parametrize("names", [True, False])
    def test_names_in_certificates_are_demanded_where_requested(self, *, names: bool) -> None:
        contact = contact_of(ConnectionSettings(tls=Tls(Path("/ca.pem"), hostnames=names)))

        assert (contact.tls_hostnames, contact.tls) == (names, True)

    def test_tls_without_an_authority_takes_the_systems(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """And says so where the system has none: never a connection that trusts anybody."""
        bundle = tmp_path / "bundle.pem"
        bundle.write_text("")
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        contact = contact_of(ConnectionSettings(tls=Tls()))
        assert (contact.tls_ca, contact.tls_hostnames) == (str(bundle), True)

        bundle.unlink()
        monkeypatch.setattr("os.path.isfile", lambda _: False)
        with pytest.raises(BadSettings, match="--tls-ca"):
            contact_of(ConnectionSettings(tls=Tls()))

    def test_without_tls_no_file_is_named(self) -> None:
        contact = contact_of(ConnectionSettings())

        assert (contact.tls_ca, contact.tls_cert, contact.tls_key) == (None, None, None)


def test_an_owner_is_a_person_a_machine_and_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds a lease taken knows whom to ask; a container without user names gives its number."""
    assert owner_name().endswith(f" pid {os.getpid()}")

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert owner_name().startswith(f"{os.getuid()}@")


def test_state_lies_under_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Loads, removed mails and the spool each in a folder of their own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert state_folder("spool") == tmp_path / "mailmend" / "spool"


def places(group: CommandGroup) -> Iterator[str]:
    """Where what a command needs is imported from, but for those of the queue."""
    for one in group.commands:
        found = imported(one.place) if isinstance(one, Late) and one.name != "queue" else one
        if isinstance(found, CommandGroup):
            yield from places(found)
        elif isinstance(found, Command):
            yield from (found.service.partition(":")[0], found.present.partition(":")[0])


def test_only_commands_of_the_queue_need_its_libraries() -> None:
    """They come with an extra of their own; all others begin and end without it. No command needs that of staging."""
    modules = sorted(set(places(COMMANDS)))
    libraries = [library for library, extra in EXTRAS.items() if extra in {"queue", "staging"}]
    code = f"import sys, {', '.join(modules)}; print([one for one in {libraries} if one in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {
        "mailmend.admin.messages.shared_document",
        "mailmend.admin.local.doctor",
        "mailmend.admin.messages.blobs",
    } <= set(modules)
    assert ended.stdout == "[]\n"


def test_commands_that_deliver_nothing_import_nothing_of_delivery() -> None:
    """A check, a repair, and the work on a queue's tables and topics begin without the modules of deliveries."""
    modules = ("messages.check", "messages.repair", "queue.cleanup", "queue.reconcile", "queue.tend")
    imports = ", ".join(f"mailmend.admin.{module}" for module in modules)
    code = f"import sys, {imports}; print([name for name in sys.modules if name.startswith('mailmend.delivery')])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(
    "command",
    [
        ("check", "blobs", "--no-broker"),
        ("repair", "blobs", "--no-broker"),
        ("check", "--delay", "0s"),
        ("check", "queues"),
        ("repair", "queues", "--dry-run"),
        ("queue", "browse", "--with-content"),
        ("queue", "reconcile", "--broker", "amqp://127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_who_only_reads_blobs_makes_no_folder_for_them(
    mailmend: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    ended = mailmend(*command, "--blobs", f"file://{tmp_path}/typo")

    assert (ended.code, f"there is no folder {tmp_path}/typo" in ended.err) == (2, True), ended.err
    assert "--blobs, MAILMEND_BLOBS or the settings file" in ended.err
    assert not (tmp_path / "typo").exists()


def test_a_check_of_all_does_without_a_folder_that_no_mail_has_made_yet(mailmend: CommandLine, tmp_path: Path) -> None:
    """Where it stands in the settings: the queues of a new host have none."""
    assert mailmend("check", "--delay", "0s", MAILMEND_BLOBS=f"file://{tmp_path}/later").code == 0
    assert not (tmp_path / "later").exists()
