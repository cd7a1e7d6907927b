"""Bad input to `mailmend schema`: what is wrong, in which file and line, how to mend it; and nothing was done yet."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.commands import CommandLine, Ended, command_line
from tests.support.migrating import HEAD, SHOP, written
from tests.support.migration_cluster import MigrationCluster

ORDERS, LABELS, TOTALS, PLACES = SHOP
TABLE = "CREATE TABLE a (k int PRIMARY KEY, v text)"
NEW = ("--replication-factor", "1")


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    secret = {"MAILMEND_USERNAME": "ann", "MAILMEND_PASSWORD": "h1dden-pass"}
    return command_line(tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="shop", **secret)


def refused(ended: Ended, *said: str, code: int = 2) -> str:
    """It ended with that code and one message for a person, which says all of this; nothing else was said."""
    assert (ended.code, ended.out) == (code, ""), ended
    assert ended.err.startswith("mailmend: "), ended.err
    for words in said:
        assert words in ended.err, ended.err
    for never in ("Traceback", "h1dden-pass", "should not happen"):
        assert never not in ended.err, ended.err
    return ended.err


BAD: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "misspelt word": (
        {ORDERS: f"{TABLE};\nCREATE TABEL b (k int PRIMARY KEY);\n"},
        (f"{ORDERS}, line 6, column 8", "CREATE TABEL b (k int PRIMARY KEY);\n       ^", "Did you mean TABLE?"),
    ),
    "no end": ({ORDERS: "CREATE TABLE a (k int PRIMARY KEY"}, (f"{ORDERS}, line 5, column", "^")),
    "open text": ({ORDERS: f"{TABLE} WITH comment = 'never ended;\n"}, (f"{ORDERS}, line 5, column", "^")),
    "no key": ({ORDERS: "CREATE TABLE a (k int);"}, (f"{ORDERS}, line 5",)),
    "number twice": (
        {ORDERS: TABLE, "0001_post_other.cql": TABLE},
        ("number 0001 is there twice: 0001_post_other.cql and 0001_pre_orders.cql", "the next free number"),
    ),
    "number missing": (
        {ORDERS: TABLE, TOTALS: TABLE},
        (f"number 0002 is missing: {TOTALS} comes where it should stand", "Numbers follow on each other from 0001"),
    ),
    "number nought": ({"0000_pre_a.cql": TABLE}, ("'0000_pre_a.cql' has the number 0000", "numbered from 0001")),
    "no such name": ({"orders.cql": TABLE}, ("'orders.cql' is not the name of a migration", "0007_pre_add_labels")),
    "nothing in it": ({ORDERS: ""}, (f"{ORDERS} holds no statement",)),
    "a keyspace of its own": (
        {ORDERS: "CREATE TABLE other.a (k int PRIMARY KEY);"},
        (f"{ORDERS}, line 5", "other"),
    ),
    "refused by any server": (
        {ORDERS: f"{TABLE};\nALTER TABLE a ADD v text;\n"},
        (f"{ORDERS}, line 6: the server would refuse it", "Nothing of this plan was run"),
    ),
    "a table that is not there": (
        {ORDERS: f"{TABLE};\n\nALTER TABLE b ADD v text;\n"},
        (f"{ORDERS}, line 7: the server would refuse it", "b"),
    ),
    "a key dropped": ({ORDERS: f"{TABLE};\nALTER TABLE a DROP k;\n"}, (f"{ORDERS}, line 6",)),
    "sent twice it is another": (
        {ORDERS: f"{TABLE};\nUPDATE a SET v = v + 'x' WHERE k = 1;\n"},
        (f"{ORDERS}, line 6: a migration may not hold `UPDATE a SET v = v + 'x' WHERE k = 1", "Reason: "),
    ),
    "a role": (
        {ORDERS: "CREATE ROLE bob WITH PASSWORD = 'x' AND LOGIN = true;"},
        (f"{ORDERS}, line 5: a migration may not hold", "mailmend schema grants"),
    ),
}


@pytest.mark.parametrize("command", [("plan",), ("apply",), ("apply", "--dry-run"), ("plan", "--json")], ids=" ".join)
@pytest.mark.parametrize("kind", BAD)
def test_a_folder_that_cannot_be_run_is_refused_before_anything_is_done(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, kind: str, command: tuple[str, ...]
) -> None:
    """By file and line; the caret stands under what is meant; a plan refuses what an apply would."""
    files, said = BAD[kind]
    folder = str(written(tmp_path / "db", files))
    refused(mailmend("schema", *command, "--migrations", folder, *NEW), *said)
    assert cluster.untouched
    assert cluster.keyspaces == {}


@pytest.mark.parametrize("command", ["plan", "apply", "verify"])
@pytest.mark.parametrize(
    "top",
    [
        ("", "does not say at its top: Why, Effect, Undo"),
        ("-- Why: a test.\n-- Undo: drop it.\n\n", "does not say at its top: Effect"),
        ("-- Why: a test.\n-- Effect:\n-- Undo: drop it.\n\n", "does not say at its top: Effect"),
    ],
    ids=["none", "two of three", "an empty one"],
)
def test_a_file_says_why_it_is_there(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, command: str, top: tuple[str, str]
) -> None:
    """What it does and how it is undone, too; the message shows the form."""
    head, said = top
    folder = str(written(tmp_path / "db", {ORDERS: TABLE}, head))
    refused(mailmend("schema", command, "--migrations", folder), ORDERS, said, "'-- Why: ...'")
    assert cluster.contacts == [], "it was told without asking any cluster"


@pytest.mark.parametrize("command", ["plan", "apply", "verify"])
def test_a_folder_that_is_none_is_named(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, command: str
) -> None:
    """One that is not there, one without a migration, and a file in its place."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    nowhere, empty, file = (
        mailmend("schema", command, "--migrations", str(tmp_path / name)) for name in ("nowhere", "empty", "file")
    )
    refused(nowhere, f"{tmp_path / 'nowhere'} is not a folder", "--migrations")
    refused(empty, "holds no migration", "0001_pre_what_it_does.cql")
    assert (file.code, "is a file" in file.err) == (2, True)
    assert cluster.contacts == []


def edited(folder: Path) -> None:
    file = folder / LABELS
    file.write_text(file.read_text(encoding="utf-8") + "-- a word\n", encoding="utf-8")


def removed(folder: Path) -> None:
    (folder / PLACES).unlink()


def renamed(folder: Path) -> None:
    (folder / LABELS).rename(folder / "0002_pre_tags.cql")


def replaced(folder: Path) -> None:
    (folder / PLACES).unlink()
    (folder / "0004_pre_quite_another.cql").write_text(HEAD + TABLE, encoding="utf-8")


def moved(folder: Path) -> None:
    (folder / LABELS).rename(folder / "spare")
    (folder / TOTALS).rename(folder / "0002_post_no_totals.cql")
    (folder / "spare").rename(folder / "0003_pre_labels.cql")


TAMPERINGS: Mapping[Callable[[Path], None], tuple[str, str, str]] = {
    edited: ("edited migration", LABELS, "Put the text back that was applied"),
    removed: ("missing migration", PLACES, "Put the file back"),
    renamed: ("renamed migration", "0002_pre_tags.cql", f"Rename it back: {LABELS}"),
    replaced: ("replaced migration", "0004_pre_quite_another.cql", f"Put {PLACES} back"),
    moved: ("moved migration", "0003_pre_labels.cql", f"Rename it back: {LABELS}"),
}


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda one: one.__name__)
def test_what_was_applied_is_never_another_later(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, tamper: Callable[[Path], None]
) -> None:
    """Plan and apply refuse, a dry run too; verify tells it as drift; each says which file and what to do."""
    folder = written(tmp_path / "db")
    shop = ("--migrations", str(folder))
    assert mailmend("schema", "apply", *shop, *NEW).code == 0
    kind, file, mend = TAMPERINGS[tamper]
    tamper(folder)
    cluster.forget()

    for command in (("plan",), ("plan", "--from-model"), ("apply",), ("apply", "--dry-run"), ("apply", "--json")):
        ended = refused(
            mailmend("schema", *command, *shop), "are not those that were applied to shop", kind, file, mend
        )
        assert "mailmend schema history --keyspace shop" in ended

    found = mailmend("schema", "verify", *shop, "--json")
    assert found.code == found.json["exit"] == 1
    assert [mend in one["mend"] for one in found.json["drift"] if (one["aspect"], one["subject"]) == (kind, file)] == [
        True
    ]
    shown = mailmend("schema", "verify", *shop)
    assert (shown.code, shown.err) == (1, "")
    assert any(line.startswith(f"{kind}: {file}: ") and mend in line for line in shown.out.splitlines())
    assert cluster.untouched


def test_no_table_is_mended_by_a_file_that_was_edited(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path
) -> None:
    """A column that only the edited text knows is told, and no command that would make it: first the files."""
    folder = written(tmp_path / "db")
    shop = ("--migrations", str(folder))
    mailmend("schema", "apply", *shop, *NEW)
    file = folder / LABELS
    file.write_text(
        file.read_text(encoding="utf-8").replace("label text;", "label text;\nALTER TABLE orders ADD hint text;"),
        encoding="utf-8",
    )
    drift = mailmend("schema", "verify", *shop, "--json").json["drift"]
    assert [(one["aspect"], one["subject"]) for one in drift] == [
        ("missing column", "hint"),
        ("edited migration", LABELS),
    ]
    assert drift[0]["mend"].startswith("first the migrations, as said of them; then again: mailmend schema verify")
    assert "cqlsh" not in drift[0]["mend"]


def test_a_file_put_in_between_displaces_nothing(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path
) -> None:
    """A branch that was merged late gets the next free number: every file that has moved is named."""
    folder = written(tmp_path / "db")
    shop = ("--migrations", str(folder))
    mailmend("schema", "apply", *shop, *NEW)
    cluster.forget()
    for name in reversed((LABELS, TOTALS, PLACES)):
        (folder / name).rename(folder / f"{int(name[:4]) + 1:04}{name[4:]}")
    (folder / "0002_pre_late.cql").write_text(HEAD + TABLE, encoding="utf-8")

    ended = refused(mailmend("schema", "apply", *shop), "moved migration", *(f"Rename it back: {n}" for n in (LABELS,)))

    assert all(name[5:] in ended for name in (LABELS, TOTALS, PLACES))
    assert cluster.untouched


@pytest.mark.parametrize("command", [("verify",), ("plan", "--from-model"), ("lint", "--live")], ids=" ".join)
@pytest.mark.parametrize("own", [True, False], ids=["own folder", "mail"])
def test_a_keyspace_that_does_not_exist(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, command: tuple[str, ...], *, own: bool
) -> None:
    """Named, with how to create it or to name another; looking at it does not make it."""
    folder = ("--migrations", str(written(tmp_path / "db"))) if own and command[0] != "lint" else ()
    refused(mailmend("schema", *command, *folder), "keyspace 'shop' does not exist", "--keyspace")
    assert (cluster.untouched, cluster.keyspaces) == (True, {})


@pytest.mark.parametrize("to", ["5", "9999"])
def test_a_number_that_no_migration_has(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, to: str
) -> None:
    shop = ("--migrations", str(written(tmp_path / "db")), *NEW)
    for command in ("plan", "apply"):
        ended = refused(mailmend("schema", command, *shop, "--to", to), f"there is no migration {int(to):04}")
        assert "The last of the folder is 0004." in ended
    assert cluster.untouched


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "0"), "--to"),
        (("--to", "10000"), "--to"),
        (("--to", "three"), "--to"),
        (("--phase", "later"), "--phase"),
        (("--replication", "dc1=0"), "--replication"),
        (("--replication", "dc1=three"), "is not a replication"),
        (("--replication-factor", "-1"), "--replication-factor"),
        (("--compaction", "size"), "--compaction"),
        (("--migrations",), "--migrations"),
        (("--no-such-option",), "--no-such-option"),
        (("more",), "more"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "said",
)
@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_wrong_option_is_refused_before_any_cluster_is_asked(
    cluster: MigrationCluster, mailmend: CommandLine, command: str, options: tuple[str, ...], said: str
) -> None:
    ended = mailmend("schema", command, *options)
    assert (ended.code, ended.out, said in ended.err) == (2, "", True), ended.err
    assert "Traceback" not in ended.err
    assert cluster.contacts == []


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (("--statement-timeout", "0"), "no time at all"),
        (("--agreement-timeout", "soon"), "is not a duration"),
        (("--lease", "2h"), "longer than 1h"),
        (
            ("--lease", "30s", "--statement-timeout", "1m"),
            "does not surely outlive a statement of 60 s\nGive a longer --lease, or a shorter --statement-timeout.",
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "said",
)
def test_limits_that_cannot_be_kept_are_refused(
    cluster: MigrationCluster, mailmend: CommandLine, limits: tuple[str, ...], said: str
) -> None:
    """Before any cluster is asked; a lease that ends before its statement would be none."""
    ended = mailmend("schema", "apply", *limits)
    assert (ended.code, said in ended.err, cluster.contacts) == (2, True, []), ended.err


WINDOWS = "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unt': 'DAYS'}"


@pytest.mark.parametrize(
    "lacks",
    [
        ("compaction = {'class': 'NoSuchStrategy'}", "5.0.9", "Cassandra 5.0 has no compaction class NoSuchStrategy"),
        (
            "compaction = {'class': 'UnifiedCompactionStrategy'}",
            "4.1.10",
            "Cassandra 4.1 has no compaction class UnifiedCompactionStrategy",
        ),
        ("compaction = {'class': 'DateTieredCompactionStrategy'}", "5.0.9", "has no compaction class DateTiered"),
        (f"compaction = {WINDOWS}", "5.0.9", "has no option compaction_window_unt"),
        (f"compaction = {WINDOWS}", "4.0.14", "Did you mean compaction_window_unit?"),
        ("gc_grace_second = 3600", "4.1.10", "Cassandra 4.1 has no table option gc_grace_second"),
        ("read_repair_chance = 0.1", "4.0.14", "Cassandra 4.0 has no table option read_repair_chance"),
        ("allow_auto_snapshot = false", "4.1.10", "Cassandra 4.1 has no table option allow_auto_snapshot"),
        ("memtable = 'trie'", "4.0-rc1", "Cassandra 4.0 has no table option memtable"),
        ("compression = {'sstable_compression': 'LZ4Compressor'}", "5.0.9", "takes no sstable_compression"),
        ("read_repair = 'SOMETIMES'", "5.0.9", "read_repair has no value SOMETIMES"),
    ],
    ids=lambda one: f"{one[0]} on {one[1]}",
)
def test_a_class_or_an_option_that_this_server_lacks_is_reported_before_anything_is_run(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, lacks: tuple[str, str, str]
) -> None:
    """Whether a table is created with it or altered; the server would refuse it when half of the file is done."""
    given, cluster.release_version, said = lacks
    for number, statement in enumerate((f"{TABLE} WITH {given};", f"{TABLE};\nALTER TABLE a WITH {given};")):
        folder = str(written(tmp_path / f"db{number}", {ORDERS: statement}))
        for command in (("plan",), ("apply", "--dry-run"), ("apply",)):
            ended = mailmend("schema", *command, "--migrations", folder, *NEW)
            refused(ended, f"{ORDERS}, line {5 + number}: the server would refuse it: ", said, "Nothing of this plan")
    assert (cluster.untouched, cluster.keyspaces) == (True, {})


@pytest.mark.parametrize(
    ("given", "release"),
    [
        ("compaction = {'class': 'UnifiedCompactionStrategy'}", "5.0.9"),
        ("compaction = {'class': 'com.example.OurOwnStrategy', 'mood': 'good'}", "5.0.9"),
        ("allow_auto_snapshot = false AND cdc = true", "5.0-beta2"),
        ("an_option_of_tomorrow = 1", "6.0.1"),
        ("tombstone_gc = {'mode': 'repair'}", "3.0.8"),
        ("nodesync = {'enabled': 'true'}", "4.0.0.6816"),
    ],
    ids=["known", "somebody's own class", "known since", "a later server", "scylla", "another maker's"],
)
def test_what_may_be_known_to_the_server_is_left_to_it(
    cluster: MigrationCluster, mailmend: CommandLine, tmp_path: Path, given: str, release: str
) -> None:
    """Only where every name is known here is one refused for not being known."""
    cluster.release_version = release
    folder = str(written(tmp_path / "db", {ORDERS: f"{TABLE} WITH {given};"}))
    assert mailmend("schema", "plan", "--migrations", folder, *NEW).code == 1


@pytest.mark.parametrize("release", ["4.0.14", "4.1.10", "5.0.9", "5.1.0"])
def test_our_own_tables_are_refused_by_no_server_that_we_serve(
    cluster: MigrationCluster, mailmend: CommandLine, release: str
) -> None:
    cluster.release_version = release
    for choice in ("twcs", "leveled"):
        assert mailmend("schema", "plan", "--keyspace", "mail", "--compaction", choice).code == 1
