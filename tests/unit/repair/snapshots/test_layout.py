"""Where snapshots are looked for, and what is refused before anything is read."""

import json
from pathlib import Path

import pytest

from mailmend.model.errors import WrongUse
from mailmend.repair.snapshots.layout import snapshot_in

SCHEMA = """
CREATE TYPE IF NOT EXISTS mail.base (name text);
CREATE TABLE IF NOT EXISTS mail.users (
    id uuid PRIMARY KEY,
    old text,
    base frozen<base>,
    files list<frozen<file>>
) WITH ID = 3edbdfd0-ed36-11f1-9bfd-9d7c4565d2bf
    AND comment = '';
ALTER TABLE mail.users DROP old USING TIMESTAMP 17;
"""
ID = "users-0123456789abcdef0123456789abcdef"


def snapshot(place: Path, *files: str, schema: str = SCHEMA, listed: tuple[str, ...] | None = None) -> Path:
    place.mkdir(parents=True)
    for name in files:
        (place / name).write_bytes(b"")
    (place / "schema.cql").write_text(schema)
    manifest = {"files": list(listed or files), "created_at": "2026-01-02T03:04:05.678Z"}
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def test_a_data_folder_is_read_through_its_snapshot(tmp_path: Path) -> None:
    """Live files next to the snapshot, and the files of an index, are left out."""
    taken = snapshot(tmp_path / "mail" / ID / "snapshots" / "nightly", "nb-1-big-Data.db", "nb-2-big-Data.db")
    (tmp_path / "mail" / ID / "nb-3-big-Data.db").write_bytes(b"")
    (taken / ".index").mkdir()
    (taken / ".index" / "nb-4-big-Data.db").write_bytes(b"")

    found = snapshot_in([tmp_path], "mail")

    users = found.tables["users"]
    assert [file.name for file in users.files] == ["nb-1-big-Data.db", "nb-2-big-Data.db"]
    assert users.table.names == ("id", "base", "files")
    assert [(gone.column.name, gone.at) for gone in users.dropped] == [("old", 17)]
    assert found.taken == 1767323045
    assert found.missing == ()


def test_copies_of_several_nodes_are_one_table(tmp_path: Path) -> None:
    places = [snapshot(tmp_path / node / ID, "nb-1-big-Data.db") for node in ("one", "other")]

    assert len(snapshot_in(places, "mail").tables["users"].files) == 2


def test_a_column_that_one_node_dropped_later_counts_as_dropped_then(tmp_path: Path) -> None:
    snapshot(tmp_path / "one" / ID, "nb-1-big-Data.db")
    snapshot(tmp_path / "other" / ID, "nb-1-big-Data.db", schema=SCHEMA.replace("17", "19"))

    (gone,) = snapshot_in([tmp_path / "one", tmp_path / "other"], "mail").tables["users"].dropped

    assert (gone.column.name, gone.at) == ("old", 19)


def test_an_empty_table_has_a_folder(tmp_path: Path) -> None:
    snapshot(tmp_path / ID)

    assert snapshot_in([tmp_path], "mail").tables["users"].files == ()


def test_one_schema_describes_folders_that_are_named_like_tables(tmp_path: Path) -> None:
    """The output of DESCRIBE KEYSPACE next to a folder for each table."""
    (tmp_path / "schema.cql").write_text(
        "CREATE TABLE mail.a (x int PRIMARY KEY); CREATE TABLE mail.b (y int PRIMARY KEY);"
    )
    for table in ("a", "b"):
        (tmp_path / table).mkdir()
        (tmp_path / table / "nb-1-big-Data.db").write_bytes(b"")

    assert set(snapshot_in([tmp_path], "mail").tables) == {"a", "b"}


def test_a_file_that_the_manifest_names_and_that_is_gone_is_missing(tmp_path: Path) -> None:
    place = snapshot(tmp_path / ID, "nb-1-big-Data.db", listed=("nb-1-big-Data.db", "nb-2-big-Data.db"))

    assert snapshot_in([tmp_path], "mail").missing == (place / "nb-2-big-Data.db",)


def test_without_a_name_one_of_two_snapshots_is_not_guessed(tmp_path: Path) -> None:
    for name in ("early", "late"):
        snapshot(tmp_path / "mail" / ID / "snapshots" / name, "nb-1-big-Data.db")

    with pytest.raises(WrongUse, match="--snapshot-name late"):
        snapshot_in([tmp_path], "mail")

    assert snapshot_in([tmp_path], "mail", "early").tables["users"].folders[0].path.name == "early"


@pytest.mark.parametrize("name", ["aa-1-bti-Data.db", "pa-1-big-Data.db", "mc-1-odd-Data.db", "odd-Data.db"])
def test_a_format_that_is_not_read_is_refused_by_name(tmp_path: Path, name: str) -> None:
    snapshot(tmp_path / ID, name)

    with pytest.raises(WrongUse, match=name):
        snapshot_in([tmp_path], "mail")


def test_a_file_that_may_be_encrypted_is_refused_by_name(tmp_path: Path) -> None:
    place = snapshot(tmp_path / ID, "nb-1-big-Data.db")
    compressor = b"com.example.EncryptingLZ4Compressor"
    (place / "nb-1-big-CompressionInfo.db").write_bytes(len(compressor).to_bytes(2) + compressor)

    with pytest.raises(WrongUse, match=r"EncryptingLZ4Compressor.*may be encrypted"):
        snapshot_in([tmp_path], "mail")


@pytest.mark.parametrize(
    ("keyspace", "remove", "said"),
    [
        ("other", None, "it has tables of mail"),
        ("mail", "schema.cql", "has no schema.cql"),
    ],
)
def test_what_is_no_snapshot_of_the_keyspace_is_refused(
    tmp_path: Path, keyspace: str, remove: str | None, said: str
) -> None:
    place = snapshot(tmp_path / ID, "nb-1-big-Data.db")
    if remove:
        (place / remove).unlink()

    with pytest.raises(WrongUse, match=said):
        snapshot_in([tmp_path], keyspace)


OTHER_ID = "users-fedcba9876543210fedcba9876543210"
OTHER_SCHEMA = SCHEMA.replace("3edbdfd0", "4edbdfd0")
COMPACT = "CREATE TABLE odd.users (id uuid PRIMARY KEY) WITH COMPACT STORAGE;"


def test_a_table_that_was_dropped_and_created_again_is_not_merged_with_its_successor(tmp_path: Path) -> None:
    """Otherwise the rows of the dropped table come back."""
    snapshot(tmp_path / "one" / ID, "nb-1-big-Data.db")
    snapshot(tmp_path / "one" / OTHER_ID, "nb-1-big-Data.db", schema=OTHER_SCHEMA)

    with pytest.raises(WrongUse, match="dropped and created again"):
        snapshot_in([tmp_path], "mail")


def test_tables_of_different_snapshots_are_not_read_as_one(tmp_path: Path) -> None:
    """Cassandra itself takes a snapshot, named `dropped-...`, before it drops a table."""
    data = tmp_path / "mail"
    snapshot(data / ID / "snapshots" / "dropped-17-users", "nb-1-big-Data.db")
    snapshot(data / OTHER_ID / "snapshots" / "nightly", "nb-1-big-Data.db", schema=OTHER_SCHEMA)

    with pytest.raises(WrongUse, match="has 2 snapshots"):
        snapshot_in([tmp_path], "mail")

    (folder,) = snapshot_in([tmp_path], "mail", "nightly").tables["users"].folders
    assert folder.path.parent.parent.name == OTHER_ID


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("nb-1-big-Data.db", COMPACT),
        ("pa-1-big-Data.db", SCHEMA.replace("mail.", "odd.")),
        ("nb-1-big-Data.db", "CREATE TABLE odd.t (a vector<float, 3> PRIMARY KEY) WITH what = {'is': this};"),
        ("nb-1-big-Data.db", "CREATE MATERIALIZED VIEW IF NOT EXISTS mail.by_name AS SELECT * FROM mail.users;"),
    ],
)
def test_other_keyspaces_and_views_are_left_out(tmp_path: Path, name: str, schema: str) -> None:
    """A data folder has the system's keyspaces too: what is not read there refuses no check."""
    snapshot(tmp_path / "mail" / ID, "nb-1-big-Data.db")
    snapshot(tmp_path / "odd" / OTHER_ID, name, schema=schema)

    assert set(snapshot_in([tmp_path], "mail").tables) == {"users"}


def test_files_of_indexes_are_not_missing(tmp_path: Path) -> None:
    """A manifest names the files of an index after its folder."""
    snapshot(tmp_path / ID, "nb-1-big-Data.db", listed=("nb-1-big-Data.db", ".by_name/nb-1-big-Data.db"))

    assert snapshot_in([tmp_path], "mail").missing == ()


@pytest.mark.parametrize("said", ['{"files": null, "created_at": "yesterday"}', "[]", "{"])
def test_a_manifest_that_says_nothing_useful_is_no_manifest(tmp_path: Path, said: str) -> None:
    manifest = snapshot(tmp_path / ID, "nb-1-big-Data.db") / "manifest.json"
    manifest.write_text(said)

    assert snapshot_in([tmp_path], "mail").taken == int(manifest.stat().st_mtime)


def test_a_link_that_leads_back_counts_no_file_twice(tmp_path: Path) -> None:
    (snapshot(tmp_path / ID, "nb-1-big-Data.db") / "back").symlink_to(tmp_path)

    assert snapshot_in([tmp_path], "mail").number_of_files == 1


def test_a_schema_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (snapshot(tmp_path / ID, "nb-1-big-Data.db") / "schema.cql").write_bytes(b"\xff")

    with pytest.raises(WrongUse, match=r"schema\.cql cannot be read"):
        snapshot_in([tmp_path], "mail")
