"""Each role of `schema grants` on a node that demands TLS, a password and a permission: it does its work, no more."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from mailmend.admin.local import processes
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.schema.grants import ROLES
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail import FIRST_UNSEEN
from mailmend.model.errors import AccessDenied
from mailmend.model.ids import MailboxId
from mailmend.model.operations import Put, Scan
from mailmend.repair.clock import SystemClock
from mailmend.repair.store.message import FlagsChange, FlagsMode, parse_flags
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import StampSource, WriterSettings
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.session import SparkSettings
from mailmend.spark_repair.source import Source
from tests.support.commands import QUICK
from tests.support.guarded import SUPERUSER, GuardedNode, impostor
from tests.support.mail_states import MailKeyspace
from tests.support.memory_blobs import MemoryBlobs
from tests.support.roles import (
    ELSEWHERE,
    KEYSPACE,
    LEDGER,
    LETTERS,
    PASSWORD,
    TABLES,
    Granted,
    granted_roles,
    may_read,
    may_write,
    permitted_quickly,
    refused,
    run_as_cqlsh,
    said_what_is_missing,
)
from tests.support.thorough import first_of
from tests.support.writing import LagList
from tests.support.writing import mail as a_mail

pytestmark = [pytest.mark.cassandra]

DAY_MICROS = 86_400_000_000
TO_INBOX = ("--user", "ann", "--mailbox", "INBOX")
LETTER = "From ann Thu Jan  1 00:00:00 2026\nSubject: one\n\nhello\n\n"

AS_SUPERUSER = {"MAILMEND_USERNAME": SUPERUSER, "MAILMEND_PASSWORD": SUPERUSER}
LOOKING = (
    ("plan",),
    ("plan", "--from-model"),
    ("verify",),
    ("history",),
    ("lint", "--live"),
    ("adopt", "--dry-run"),
    ("export", "--live", "--only", "page", "--dir", "-"),
)
"""What `mailmend schema` says without changing anything."""


@pytest.fixture(scope="module")
def granted(guarded: GuardedNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Granted]:
    with granted_roles(guarded, tmp_path_factory.mktemp("dba")) as granted:
        yield granted


@pytest.fixture(scope="module")
def sessions(granted: Granted) -> Iterator[dict[str, CassandraCluster]]:
    with ExitStack() as stack:
        yield {role: stack.enter_context(connect(granted.node.contact(f"mailmend_{role}", PASSWORD))) for role in ROLES}


@pytest.fixture
def mail(granted: Granted) -> MailKeyspace:
    granted.mail.refill()
    return granted.mail


@pytest.mark.parametrize(("role", "table", "letters"), permitted_quickly())
def test_a_role_reads_and_writes_what_its_work_needs_and_nothing_else(
    sessions: dict[str, CassandraCluster], role: str, table: str, letters: str
) -> None:
    """One cell of the table of permissions; nobody but the migrator alters or drops anything."""
    cluster, (keyspace, declared) = sessions[role], TABLES[table]
    name = f"{keyspace}.{declared.name}"

    assert may_read(cluster, keyspace, declared) is ("S" in letters)
    assert may_write(cluster, keyspace, declared) is ("M" in letters)
    if "M" not in letters:
        assert refused(cluster, f"TRUNCATE {name}")
    if role != "migrator" or keyspace == ELSEWHERE:
        assert refused(cluster, f"ALTER TABLE {name} ADD h_new int")
        assert refused(cluster, f"DROP TABLE {name}")


@pytest.mark.parametrize("role", ROLES)
def test_no_role_makes_keyspaces_or_roles_or_hands_out_what_it_has(
    sessions: dict[str, CassandraCluster], role: str
) -> None:
    cluster, migrates = sessions[role], role == "migrator"
    replication = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"

    assert refused(cluster, f"CREATE KEYSPACE h_new {replication}")
    assert refused(cluster, f"ALTER KEYSPACE {ELSEWHERE} {replication}")
    assert refused(cluster, f"DROP KEYSPACE {ELSEWHERE}")
    assert refused(cluster, f"CREATE TABLE {ELSEWHERE}.h_new (k int PRIMARY KEY)")
    assert refused(cluster, "CREATE ROLE h_new")
    assert refused(cluster, f"GRANT SELECT ON KEYSPACE {KEYSPACE} TO mailmend_{role}")
    assert refused(cluster, "ALTER ROLE cassandra WITH PASSWORD = 'x'")
    assert refused(cluster, "SELECT * FROM system_auth.roles")
    assert refused(cluster, f"CREATE TABLE {KEYSPACE}.h_{role} (k int PRIMARY KEY)") is not migrates
    assert refused(cluster, f"DROP TABLE IF EXISTS {KEYSPACE}.h_{role}") is (role != "migrator")


def test_a_reader_checks_and_cannot_repair(granted: Granted, mail: MailKeyspace, tmp_path: Path) -> None:
    """Drift is found, a dry run says what is due, and a repair is refused by the server, not by our good manners."""
    mail.lose_projection(mail.truths[0])
    mailmend = granted.shell(tmp_path, "reader")

    found = mailmend("check", *QUICK, "--json")
    assert (found.code, found.json["findings"]) == (1, {"messageIdTable": {"PROJECT": 1}}), found.err
    assert mailmend("check", "messages", "--engine", "local", "--no-recheck", "--json").code == 1
    dry = mailmend("repair", "messages", *QUICK, "--dry-run", "--json")
    assert (dry.code, dry.json["due"]) == (1, {"PROJECT": 1}), dry.err
    by_key = mailmend("repair", "messages", "--dry-run", "--delay", "0", "--mailbox", str(mail.mailbox), "--scan")
    assert by_key.code == 1, by_key.err
    assert mailmend("schema", "apply", "--dry-run").code == 0

    for command in (("repair", "messages", *QUICK), ("repair", "lags"), ("runs", "list")):
        said_what_is_missing(mailmend(*command), "mailmend_reader", LEDGER)
    assert mail.mirror(mail.truths[0]) is None


def test_a_repairer_mends_takes_back_and_lists(granted: Granted, mail: MailKeyspace, tmp_path: Path) -> None:
    mailmend = granted.shell(tmp_path, "repairer")
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])
    mail.lose_truth(mail.truths[2])

    mended = mailmend("repair", "messages", *QUICK, "--json")
    assert mended.code == 0, mended.err
    assert {"PROJECT", "AMEND", "WITHDRAW"} <= set(mended.json["fixed"])
    assert mailmend("check", *QUICK).code == 0
    assert mailmend("repair", "lags", "--delay", "0", "--json").code == 0
    back = mailmend("undo", mended.json["run"], "--json")
    assert back.code == 0, back.err
    listed = mailmend("runs", "list", "--json")
    assert {run["command"] for run in listed.json["runs"]} >= {"repair", "undo"}
    assert mailmend("runs", "show", mended.json["run"], "--findings").code == 0
    shown = mailmend("metrics", "show")
    assert (shown.code, 'mailmend_ledger_up{keyspace="' in shown.out) == (0, True), shown.err

    said_what_is_missing(mailmend("load", str(letters(tmp_path)), *TO_INBOX), "mailmend_repairer", "")
    said_what_is_missing(mailmend("schema", "apply"), "mailmend_repairer", f"{LEDGER}.schema_migration")


def test_a_loader_loads(granted: Granted, mail: MailKeyspace, tmp_path: Path) -> None:
    """Mailbox, content, truth, projections and counters; it can neither check the ledger nor alter a table."""
    mailmend = granted.shell(tmp_path, "loader")

    loaded = mailmend("load", str(letters(tmp_path)), *TO_INBOX, "--json")

    assert (loaded.code, loaded.json["stored"], loaded.json["lagged"]) == (0, 2, 0), loaded.err
    granted.superuser.session.execute(f"TRUNCATE {KEYSPACE}.mailboxcounters")  # `refill` knows one mailbox only
    said_what_is_missing(mailmend("runs", "list"), "mailmend_loader", LEDGER)
    said_what_is_missing(mailmend("schema", "apply"), "mailmend_loader", f"{LEDGER}.schema_migration")


@pytest.mark.parametrize("stamp", first_of(StampSource))
def test_a_service_writes_messages_as_a_loader(
    granted: Granted, mail: MailKeyspace, sessions: dict[str, CassandraCluster], stamp: StampSource
) -> None:
    """Everything that becomes of a message, through the library itself; nothing lags for want of a permission."""
    lags, clock = LagList(), SystemClock()
    inbox, archive = MailboxId(clock.new_uuid()), MailboxId(clock.new_uuid())
    tables = sessions["loader"].keyspace(KEYSPACE)
    with MessageStore(tables, MemoryBlobs(clock), lags, clock, settings=WriterSettings(stamp=stamp)) as store:
        stored = store.add(inbox, a_mail("one", r"\Recent", "work"))
        store.set_flags(stored.place, FlagsChange(FlagsMode.ADD, parse_flags([r"\Seen", "later"])))
        copied = store.copy(stored.place, archive)
        moved = store.move(stored.place, archive)
        store.delete(copied.place)

        assert store.find(archive, moved.uid) is not None
        assert store.content(moved.place.message_id)
        store.delete(moved.place)
    assert (lags.causes, lags.suspects) == ([], [])
    granted.superuser.session.execute(f"TRUNCATE {KEYSPACE}.mailboxcounters")  # `refill` knows one mailbox only


@pytest.mark.parametrize(
    ("role", "command"),
    first_of(
        [
            ("reader", ("lint", "--live")),
            ("migrator", ("plan", "--from-model")),
            ("migrator", ("force-unlock", "--reason", "gone", "--yes")),
            *(("reader", command) for command in LOOKING if command[0] != "lint"),
            *(("migrator", command) for command in LOOKING if command != ("plan", "--from-model")),
        ],
        quick=3,
    ),
    ids=lambda part: part if isinstance(part, str) else " ".join(part),
)
def test_the_schema_is_looked_at_by_readers_and_migrators(
    granted: Granted, tmp_path: Path, role: str, command: tuple[str, ...]
) -> None:
    ended = granted.shell(tmp_path, role)("schema", *command)

    assert ended.code in {0, 1}, ended.err


def test_an_adviser_reads_what_it_measures(granted: Granted, mail: MailKeyspace, tmp_path: Path) -> None:
    mailmend = granted.shell(tmp_path, "adviser")

    ended = mailmend("schema", "advise", "--no-trial", "--json")

    assert ended.code == 0, ended.err
    assert "permission" not in ended.out + ended.err
    said_what_is_missing(mailmend("check", *QUICK), "mailmend_adviser", KEYSPACE)


def test_a_collector_collects(granted: Granted, mail: MailKeyspace, tmp_path: Path) -> None:
    """What nothing refers to, James's own tables or anybody's; a before-image counts. It can mend no message."""
    mailmend, old = granted.shell(tmp_path, "collector"), SystemClock().micros() - 30 * DAY_MICROS
    tables = granted.superuser.keyspace(KEYSPACE)
    ids = [f"1_600_{uuid4()}" for _ in range(3)]
    parts = [Put(BLOB_PARTS, {"id": one, "chunknumber": 0, "data": b"x"}, at=old) for one in ids]
    counts = [Put(BLOBS.with_columns(BLOBS.key), {"id": one, "position": 1}, at=old) for one in ids]
    assert not any(tables.write_all([*parts, *counts, Put(LETTERS, {"k": "one", "blobid": ids[0]})]))
    blobs = ("blobs", *QUICK, "--blobs", "cassandra:", "--no-broker", "--json")

    checked = mailmend("check", *blobs)
    assert checked.json["findings"]["COLLECT"] == 2, checked.err
    repaired = mailmend("repair", *blobs)
    assert repaired.json["removed"] == 2, repaired.err
    assert {row["id"] for row in tables.scan(Scan(BLOBS, ("id",)))} & set(ids) == {ids[0]}

    said_what_is_missing(mailmend("repair", "messages", *QUICK), "mailmend_collector", "")
    said_what_is_missing(granted.shell(tmp_path, "reader")("check", *blobs), "mailmend_reader", KEYSPACE)


def test_a_migrator_applies_and_then_holds_too_much(granted: Granted, tmp_path: Path) -> None:
    """It creates tables and reads no mail; who creates a table is granted all of it, which --check finds and mends."""
    mailmend = granted.shell(tmp_path, "migrator")
    check = ("schema", "grants", "--role", "migrator", "--check", "--json")
    assert mailmend(*check).json["roles"][0]["superfluous"] == []

    applied = mailmend("schema", "apply", "--json")
    assert (applied.code, "table attachmentV2" in applied.json["created"]) == (0, True), applied.err
    assert mailmend("schema", "verify").code == 0
    said_what_is_missing(mailmend("check", *QUICK), "mailmend_migrator", KEYSPACE)
    said_what_is_missing(mailmend("load", str(letters(tmp_path)), *TO_INBOX), "mailmend_migrator", "")

    found = mailmend(*check)
    (migrator,) = found.json["roles"]
    assert {"permission": "SELECT", "on": f"TABLE {KEYSPACE}.attachmentv2", "through": "mailmend_migrator"} in migrator[
        "superfluous"
    ]
    assert (found.code, found.json["exit"]) == (1, 1)
    run_as_cqlsh(granted.superuser, "\n".join(migrator["mend"]))
    assert mailmend(*check).code == 0
    with connect(granted.node.contact("mailmend_migrator", PASSWORD)) as cluster:
        assert refused(cluster, f"SELECT * FROM {KEYSPACE}.attachmentV2")
        assert not refused(cluster, f"ALTER TABLE {KEYSPACE}.attachmentV2 WITH comment = 'still its own to alter'")


def test_what_is_granted_is_what_is_needed(granted: Granted, tmp_path: Path) -> None:
    """A superuser compares all roles; a role compares itself, and is told that it may not ask for another."""
    mine = granted.shell(tmp_path, "reader")
    # The migrator may have made tables of James since the grants: the check asks for those too.
    since = mine("schema", "grants", "--role", "reader", "--check")
    run_as_cqlsh(granted.superuser, "\n".join(line for line in since.out.splitlines() if line.endswith(";")))
    assert mine("schema", "grants", "--role", "reader", "--check").code == 0
    other = mine("schema", "grants", "--role", "loader", "--check")
    assert (other.code, "superuser" in other.err) == (4, True)

    granted.superuser.session.execute(f"GRANT MODIFY ON TABLE {KEYSPACE}.mailbox TO mailmend_reader")
    granted.superuser.session.execute(f"REVOKE SELECT ON TABLE {KEYSPACE}.modseq FROM mailmend_reader")
    ended = mine("schema", "grants", "--role", "reader", "--check")

    assert ended.code == 1
    assert f"GRANT SELECT ON TABLE {KEYSPACE}.modseq TO mailmend_reader;" in ended.out
    assert f"REVOKE MODIFY ON TABLE {KEYSPACE}.mailbox FROM mailmend_reader;" in ended.out
    run_as_cqlsh(granted.superuser, "\n".join(line for line in ended.out.splitlines() if line.endswith(";")))
    assert mine("schema", "grants", "--role", "reader", "--check").code == 0


def test_a_permission_missing_in_the_middle_is_named(granted: Granted, mail: MailKeyspace, tmp_path: Path) -> None:
    mailmend = granted.shell(tmp_path, "reader")
    with without_first_unseen(granted):
        ended = mailmend("check", *QUICK)

    said_what_is_missing(ended, "mailmend_reader", f"{KEYSPACE}.firstunseen")
    assert "SELECT" in ended.err
    assert mailmend("check", *QUICK).code == 0


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_checks_and_repairs_under_the_same_roles(
    spark: SparkSession, granted: Granted, mail: MailKeyspace, tmp_path: Path
) -> None:
    """The connector and the executors get in with TLS and a password, and need no grant besides; no secret is in ps."""
    mail.lose_projection(mail.truths[0])
    spark_engine = ("--engine", "spark", "--delay", "0", "--json")

    mended = granted.shell(tmp_path, "repairer")("repair", "messages", *spark_engine)
    assert mended.code == 0, mended.err
    assert mended.json["fixed"] == {"PROJECT": 1}
    assert PASSWORD not in everybodys_words() + SparkSettings().log.read_text(encoding="utf-8", errors="replace")
    reader = granted.node.contact("mailmend_reader", PASSWORD)
    with without_first_unseen(granted), pytest.raises(AccessDenied) as lacking, translated(reader, KEYSPACE):
        Source(spark, reader, KEYSPACE).scan(FIRST_UNSEEN, ("uid",)).count()
    assert f"'mailmend_reader' may not read {KEYSPACE} with Spark: it has no SELECT on table" in lacking.value.what
    assert lacking.value.mend.endswith("mailmend schema grants --check")


def test_a_script_is_for_people_too_and_holds_no_password(granted: Granted) -> None:
    out = granted.script.out

    assert granted.script.code == 0, granted.script.err
    assert "CREATE ROLE IF NOT EXISTS mailmend_reader WITH LOGIN = false;" in out
    assert f"CREATE TABLE IF NOT EXISTS {LEDGER}.repair_run" in out
    assert f"-- not there, so nothing is granted on: {KEYSPACE}.schemaversion" in out
    assert "PASSWORD = '...'" in out
    assert all(line.startswith("--") for line in out.splitlines() if "PASSWORD" in line)


def test_a_wrong_password_is_reported_without_it(granted: Granted, tmp_path: Path) -> None:
    node = granted.node
    for username, password in (("mailmend_reader", "Wr0ng-Secret"), ("nobody", "Wr0ng-Secret"), ("", "")):
        ended = node.shell(tmp_path, username, password)("schema", "verify")

        assert (ended.code, "refused the credentials" in ended.err) == (4, True), ended.err
        assert "Wr0ng-Secret" not in ended.out + ended.err


def test_a_password_file_never_shows_its_word(granted: Granted, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    mailmend = granted.node.shell(tmp_path, "mailmend_reader", "", MAILMEND_KEYSPACE=KEYSPACE)

    ended = mailmend("schema", "apply", "--dry-run", "--password-file", str(tmp_path / "password"))

    assert ended.code == 0, ended.err


def test_tls_that_fails_says_whose_fault_it_is(granted: Granted, tmp_path: Path) -> None:
    """An authority that nobody asked for, no TLS where it is demanded, TLS where nobody speaks it: exit 4, in words."""
    mailmend, node = granted.shell(tmp_path, "reader"), granted.node
    for options, said in (
        (("--tls-ca", node.stranger.file), "not signed by an authority that we know"),
        (("--no-tls",), "it may require TLS"),
    ):
        ended = mailmend("check", *QUICK, *options)

        assert (ended.code, said in ended.err) == (4, True), ended.err
        assert "Traceback" not in ended.err
        assert PASSWORD not in ended.out + ended.err


def test_the_nodes_names_are_checked_on_demand(granted: Granted, tmp_path: Path) -> None:
    """The real node's certificate names its address; an impostor's, though signed by the same authority, another."""
    mailmend, authority = granted.shell(tmp_path, "reader"), granted.node.authority
    assert mailmend("schema", "apply", "--dry-run", "--tls-hostnames").code == 0
    other = authority.signed("other", "DNS:mail.example,IP:10.1.2.3")
    expired = authority.signed("expired", "IP:127.0.0.1", expired=True)
    ours = authority.signed("ours", "IP:127.0.0.1")
    for shown, demands, said in (
        (other, None, "is for another host"),
        (expired, None, "out of its time"),
        (ours, authority, "our certificate"),
    ):
        with impostor(shown, demands) as port:
            ended = mailmend("check", *QUICK, "--tls-hostnames", "--port", str(port))

        assert (ended.code, said in ended.err) == (4, True), ended.err


def test_a_table_that_a_new_version_brings_is_made_by_the_same_script(granted: Granted, tmp_path: Path) -> None:
    """Nobody but the migrator creates anything: the command says so, --check prints what makes it and grants it."""
    mailmend = granted.shell(tmp_path, "repairer")
    check = ("schema", "grants", "--role", "repairer", "--role", "loader", "--check")
    granted.superuser.session.execute(f"DROP TABLE {LEDGER}.repair_lag")

    said_what_is_missing(mailmend("repair", "lags", "--delay", "0"), "mailmend_repairer", f"all tables in {LEDGER}")
    found = granted.shell(tmp_path, "dba", **AS_SUPERUSER)(*check, "--json")
    assert found.code == 1, found.err
    assert [text.split("(")[0] for text in found.json["creations"]] == [
        f"CREATE TABLE IF NOT EXISTS {LEDGER}.repair_lag "
    ]
    for script in (found.json["creations"], *(role["mend"] for role in found.json["roles"])):
        run_as_cqlsh(granted.superuser, "\n".join(script))
    assert granted.shell(tmp_path, "dba", **AS_SUPERUSER)(*check).code == 0
    assert mailmend("repair", "lags", "--delay", "0").code == 0


@contextmanager
def without_first_unseen(granted: Granted) -> Iterator[None]:
    granted.superuser.session.execute(f"REVOKE SELECT ON TABLE {KEYSPACE}.firstunseen FROM mailmend_reader")
    try:
        yield
    finally:
        granted.superuser.session.execute(f"GRANT SELECT ON TABLE {KEYSPACE}.firstunseen TO mailmend_reader")


def letters(folder: Path) -> Path:
    mbox = folder / "archive.mbox"
    mbox.write_text(LETTER * 2)
    return mbox


def everybodys_words() -> str:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(process.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(found)


def test_passwords_and_tls_are_asked_for_where_requested(guarded: GuardedNode) -> None:
    host, port = guarded.server.host, guarded.server.port

    assert processes.speaks_cql(host, port, tls=True)
    assert processes.logs_in(host, port, "cassandra", "cassandra", tls=True)
    assert not processes.logs_in(host, port, "cassandra", "wrong", tls=True)
    assert not processes.speaks_cql(host, port)
    assert not processes.logs_in(host, port, "cassandra", "cassandra")
    assert not processes.reaches_all(host, port)
