"""`mailmend schema grants` and `export` of a cluster: asked what is there, compared, written, and nothing changed."""

from pathlib import Path

import pytest

from mailmend.cql.schema.generations import JAMES_3_9
from mailmend.cql.schema.grants import ROLES, Keyspaces, Resource, grants_of
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.table import Row
from tests.support.commands import CommandLine, command_line
from tests.support.migration_cluster import MigrationCluster, migration_cluster
from tests.support.schemas import served, without_tables

JAMES = served(JAMES_3_9.schema)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MigrationCluster:
    return migration_cluster(monkeypatch, mail=without_tables(JAMES, "modseq"))


@pytest.fixture
def mailmend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return command_line(tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="mail")


def statements(out: str) -> list[str]:
    code = " ".join(line for line in out.splitlines() if line.strip() and not line.startswith("--"))
    return [one.strip() for one in code.split(";") if one.strip()]


def listed(role: str, *, without: str = "", more: tuple[str, ...] = ()) -> list[Row]:
    needed = grants_of(ROLES[role], Keyspaces("mail", "mailmend"))
    held = [(f"<table {one.on.keyspace}.{one.on.table}>", one.permission) for one in needed if one.on.table]
    held += [
        (f"<keyspace {one.on.keyspace}>", one.permission) for one in needed if one.on.keyspace and not one.on.table
    ]
    named = f"mailmend_{role}"
    kept = [
        {"role": named, "resource": on, "permission": what} for on, what in held if without not in on or not without
    ]
    return [*kept, *({"role": named, "resource": on, "permission": "DROP"} for on in more)]


def granted(cluster: MigrationCluster, role: str, rows: list[Row], *, superuser: bool = False) -> None:
    cluster.roles[f"mailmend_{role}"] = [{"role": f"mailmend_{role}", "super": superuser}]
    cluster.permissions[f"mailmend_{role}"] = rows


def test_a_script_of_a_live_cluster_can_run_as_it_is(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    ended = mailmend("schema", "grants", "--role", "reader", "--role", "repairer")
    run = statements(ended.out)
    assert (ended.code, ended.err, cluster.untouched) == (0, "", True)
    created = [place for place, one in enumerate(run) if one.startswith("CREATE")]
    assert len(created) == 1 + len(LEDGER_TABLES), "the keyspace and its tables"
    assert created == list(range(len(created))), "before any grant on them"
    assert all(one.startswith("GRANT ") for one in run[len(created) :])
    assert not any("mail.modseq" in one for one in run)
    assert ended.out.count("-- not there, so nothing is granted on: mail.modseq") == 2
    document = mailmend("schema", "grants", "--role", "reader", "--json").json
    assert (document["roles"][0]["absent"], len(document["creations"])) == (["mail.modseq"], len(created))


def test_roles_without_work_are_left_out_unless_they_are_named(
    cluster: MigrationCluster, mailmend: CommandLine
) -> None:
    asked = ("schema", "grants", "--json")
    assert [one["role"] for one in mailmend(*asked).json["roles"]] == list(ROLES)
    idle = [role for role in ROLES.values() if role.only_with]
    assert [role.name for role in idle] == ["queue_reader", "queue"], "roles that need a table to have work"
    cluster.execute_ddl(f"DROP TABLE mail.{idle[0].only_with}")
    assert [one["role"] for one in mailmend(*asked).json["roles"]] == [name for name in ROLES if "queue" not in name]
    assert [one["role"] for one in mailmend(*asked, "--role", "queue").json["roles"]] == ["queue"]


def test_once_the_ledger_is_there_nothing_is_created_for_it(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    revoked = mailmend("schema", "grants", "--role", "repairer", "--revoke")
    assert all(
        one.startswith("REVOKE ") and "mailmend." not in one.split(" FROM ")[0] for one in statements(revoked.out)
    )
    mailmend("schema", "adopt", "--dry-run")
    cluster.keyspaces["mail"] = JAMES
    assert mailmend("schema", "adopt").code == 0
    script = mailmend("schema", "grants", "--role", "repairer", "--json").json
    assert not any("schema_migration" in one for one in script["creations"]), "what adopting made is not made again"
    assert any("mailmend.schema_migration" in one or "mailmend." in one for one in script["roles"][0]["statements"])


def test_a_role_that_holds_what_it_needs_is_right(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    cluster.keyspaces["mail"] = JAMES
    granted(cluster, "reader", listed("reader"))
    ended = mailmend("schema", "grants", "--role", "reader", "--check")
    assert (ended.code, "mailmend_reader has what it needs for" in ended.out) == (0, True), ended.out
    document = mailmend("schema", "grants", "--role", "reader", "--check", "--json").json
    (role,) = document["roles"]
    assert (role["exists"], role["superuser"], role["missing"], role["superfluous"]) == (True, False, [], [])
    assert (document["exit"], cluster.untouched) == (0, True)


def test_what_is_missing_and_what_is_too_much_is_mended_by_what_is_printed(
    cluster: MigrationCluster, mailmend: CommandLine
) -> None:
    cluster.keyspaces["mail"] = JAMES
    granted(cluster, "reader", listed("reader", without="imapuidtable", more=("<keyspace mail>",)))
    ended = mailmend("schema", "grants", "--role", "reader", "--check")
    document = mailmend("schema", "grants", "--role", "reader", "--check", "--json").json
    (role,) = document["roles"]
    assert (ended.code, document["exit"]) == (1, 1)
    assert role["missing"] == [{"permission": "SELECT", "on": "TABLE mail.imapuidtable"}]
    assert role["superfluous"] == [{"permission": "DROP", "on": "KEYSPACE mail", "through": "mailmend_reader"}]
    assert role["mend"] == [
        "GRANT SELECT ON TABLE mail.imapuidtable TO mailmend_reader;",
        "REVOKE DROP ON KEYSPACE mail FROM mailmend_reader;",
    ]
    assert ended.out.rstrip().endswith("\n".join(role["mend"]))


def test_a_superuser_is_too_much_of_a_role(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    cluster.keyspaces["mail"] = JAMES
    granted(cluster, "reader", listed("reader"), superuser=True)
    ended = mailmend("schema", "grants", "--role", "reader", "--check")
    assert (ended.code, "everything: it is a superuser" in ended.out) == (1, True)
    assert "ALTER ROLE mailmend_reader WITH SUPERUSER = false;" in ended.out


def test_prefixes_are_compared_too(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    asked: list[str] = []
    query = cluster.query

    def noted(text: str, values: tuple[object, ...] = ()) -> object:
        if text.startswith("LIST"):
            asked.append(text)
        return query(text, values)

    cluster.query = noted  # type: ignore[assignment,method-assign]
    mailmend("schema", "grants", "--role", "queue", "--check", "--name-prefix", "acme_")
    assert asked == ["LIST ROLES OF acme_queue", "LIST ALL PERMISSIONS OF acme_queue"]


def test_a_live_keyspace_is_written_as_it_is(cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path) -> None:
    cluster.execute_ddl("CREATE TABLE mail.theirs (k int PRIMARY KEY, v text)")
    cluster.forget()
    first = mailmend("schema", "export", "--live", "--dir", "out")
    assert (first.code, first.out.splitlines()) == (
        0,
        ["out/schema.cql written", "out/schema.md written", "out/schema.svg written"],
    )
    cql = (tmp_path / "out" / "schema.cql").read_text(encoding="utf-8")
    assert cql.startswith("-- Keyspace mail as Cassandra 5.0.9 has it.\n")
    assert "mail.theirs (" in cql
    assert "modseq (" not in cql.lower()
    page = (tmp_path / "out" / "schema.md").read_text(encoding="utf-8")
    assert "Read from the cluster by `mailmend schema export --live`." in page
    assert page.index("### imapUidTable") < page.index("## Other tables") < page.index("### theirs")
    again = mailmend("schema", "export", "--live", "--dir", "out", "--json")
    assert again.json == {"files": ["out/schema.cql", "out/schema.md", "out/schema.svg"], "written": [], "exit": 0}
    assert cluster.untouched


def test_a_live_keyspace_that_has_changed_makes_its_files_stale(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path
) -> None:
    mailmend("schema", "export", "--live", "--dir", "out")
    kept = (tmp_path / "out" / "schema.cql").read_bytes()
    cluster.execute_ddl("CREATE TABLE mail.theirs (k int PRIMARY KEY, v text)")
    stale = mailmend("schema", "export", "--live", "--dir", "out", "--check")
    assert (stale.code, stale.out.splitlines()) == (
        1,
        [
            "out/schema.cql is not up to date",
            "out/schema.md is not up to date",
            "out/schema.svg is up to date",
            "Next: the same command without --check",
        ],
    )
    document = mailmend("schema", "export", "--live", "--dir", "out", "--check", "--json").json
    assert (document["stale"], document["exit"]) == (["out/schema.cql", "out/schema.md"], 1)
    assert (tmp_path / "out" / "schema.cql").read_bytes() == kept
    one = mailmend("schema", "export", "--live", "--dir", "out", "--check", "--only", "drawing")
    assert (one.code, one.out) == (0, "out/schema.svg is up to date\n")


def test_one_live_file_goes_to_stdout(cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path) -> None:
    ended = mailmend("schema", "export", "--live", "--dir", "-", "--only", "cql")
    assert ended.out.startswith("-- Keyspace mail as Cassandra 5.0.9 has it.\n")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("schema")] == []


def test_the_model_is_written_without_asking_any_cluster(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    alone = mailmend("schema", "export", "--dir", "-", "--only", "page").out
    mailmend("schema", "export", "--dir", "out", "--only", "page", "--only", "drawing")
    page = Path("out/schema.md").read_text(encoding="utf-8")
    assert "](schema.svg)" in page
    assert "](schema.svg)" not in alone
    mailmend("schema", "export", "--dir", "out", "--only", "page")
    assert Path("out/schema.md").read_text(encoding="utf-8") == page, "it still stands beside it"
    assert cluster.contacts == []


@pytest.mark.parametrize("broken", ["binary", "folder"])
def test_a_file_that_cannot_be_compared_is_named(mailmend: CommandLine, tmp_path: Path, broken: str) -> None:
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "schema.cql"
    file.write_bytes(b"\xff\xfe") if broken == "binary" else file.mkdir()
    ended = mailmend("schema", "export", "--dir", "out", "--only", "cql")
    assert (ended.code, ended.out) == (2, "")
    assert "out/schema.cql cannot be read: " in ended.err
    assert file.is_dir() or file.read_bytes() == b"\xff\xfe"


def test_no_grant_is_on_more_than_a_role_needs() -> None:
    for name, role in ROLES.items():
        grants = grants_of(role, Keyspaces("mail", "mailmend"))
        assert not any(one.on == Resource() for one in grants), name
        shapes = {one.permission for one in grants} & {"CREATE", "ALTER", "DROP"}
        assert not shapes or name == "migrator", name
