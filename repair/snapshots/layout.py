"""Where the snapshot files of tables are: a data folder with snapshots, or copies of such folders.

`nodetool snapshot` links the files of a table into `TABLE-ID/snapshots/NAME/`, with `manifest.json`
(its files, and the time) and `schema.cql` (the table as it was). A folder of files is taken with
the `schema.cql` in it, or in the nearest folder above it up to the named one.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from mailmend.cql.language.parser import parse
from mailmend.cql.statements.base import NamedStatement
from mailmend.cql.statements.columns import AddColumns, DropColumns
from mailmend.cql.statements.keyspaces import CreateType
from mailmend.cql.statements.tables import CreateTable
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.table import COMPACT_STORAGE, Table, UserType
from mailmend.repair.snapshots.wire import DroppedColumn

DATA: Final = "-Data.db"
SCHEMA: Final = "schema.cql"
MANIFEST: Final = "manifest.json"
SNAPSHOTS: Final = "snapshots"

FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "big": frozenset({"ma", "mb", "mc", "md", "me", "na", "nb", "nc", "oa"}),
    "bti": frozenset({"da"}),
}
"""The versions of SSTables that Cassandra 5.0 reads, by format."""

_FILE: Final = re.compile(r"([a-z]{2})-[0-9a-z_]+-([a-z]+)-Data\.db")
_TABLE_FOLDER: Final = re.compile(r"(\w+)-[0-9a-f]{32}")
_COMPRESSOR: Final = re.compile(
    r"(?:org\.apache\.cassandra\.io\.compress\.)?(?:LZ4|Snappy|Deflate|Zstd|Noop)Compressor"
)
_CREATED: Final = re.compile(
    r"""^[ \t]*CREATE\s+(TABLE|TYPE|MATERIALIZED\s+VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?"""
    r"""(?:"((?:[^"]|"")+)"|(\w+))\s*\.""",
    re.IGNORECASE | re.MULTILINE,
)
_LENGTH_BYTES: Final = 2
_OR_THE_CLUSTER: Final = "Leave --snapshot out to read the cluster."


_Described = CreateTable | CreateType | AddColumns | DropColumns


@dataclass(frozen=True, slots=True)
class SnapshotFolder:
    """The files of one table in one folder.

    Attributes:
        files: the files that end in -Data.db.
        taken: when the snapshot was taken, in seconds since 1970.
        missing: the files that its manifest names and that are not there.
    """

    path: Path
    keyspace: str
    table: Table
    schema: Schema
    dropped: tuple[DroppedColumn, ...]
    files: tuple[Path, ...]
    taken: float
    missing: tuple[Path, ...] = ()

    @property
    def table_id(self) -> str:
        """Which table of this name it is; empty where the schema does not say."""
        return self.table.options.get("id", "").strip("'").lower()


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table with its files in all folders, whose rows are merged: the newest cell counts."""

    table: Table
    folders: tuple[SnapshotFolder, ...]

    @property
    def schema(self) -> Schema:
        return self.folders[0].schema

    @property
    def dropped(self) -> tuple[DroppedColumn, ...]:
        """The columns that a node has dropped, by its latest drop: files may have them."""
        found: dict[str, DroppedColumn] = {}
        for gone in chain.from_iterable(folder.dropped for folder in self.folders):
            name = gone.column.name
            if name not in found or found[name].at < gone.at:
                found[name] = gone
        return tuple(found.values())

    @property
    def files(self) -> tuple[Path, ...]:
        found: list[Path] = []
        for folder in self.folders:
            found += folder.files
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables of one keyspace in some snapshot folders.

    Attributes:
        tables: by name.
        taken: when the last of the snapshots was taken, in seconds since 1970.
        missing: the files that a manifest names and that are not there.
    """

    keyspace: str
    tables: Mapping[str, SnapshotTable]
    taken: int
    missing: tuple[Path, ...] = field(default=())

    @property
    def number_of_files(self) -> int:
        return sum(len(table.files) for table in self.tables.values())

    @property
    def schema(self) -> Schema:
        """The tables and types of the keyspace, as far as the snapshot has them."""
        types: dict[str, UserType] = {}
        for table in self.tables.values():
            types |= {user_type.name: user_type for user_type in table.schema.types}
        return Schema(tuple(types.values()), tuple(table.table for table in self.tables.values()))


def snapshot_in(places: Sequence[Path], keyspace: str, name: str | None = None) -> Snapshot:
    """The tables of a keyspace in these folders.

    Args:
        places: folders of snapshots, or above them; several for several nodes.
        keyspace: its name.
        name: of the snapshot, where a folder has several.

    Raises:
        WrongUse: there is no snapshot of the keyspace, there are several of one table, or a file
            cannot be read.
    """
    folders: list[SnapshotFolder] = []
    others: set[str] = set()
    for place in places:
        if not place.is_dir():
            raise WrongUse(
                f"{place} is not a folder",
                mend="Name the folder of a snapshot with --snapshot.",
            )
        found = list(_folders_in(place, keyspace, name))
        if not found:
            raise _no_snapshot(place, name)
        others |= {seen for seen, _ in found}
        of_keyspace = []
        for seen, folder in found:
            if folder is not None and seen == keyspace:
                of_keyspace.append(folder)
        _refuse_several(place, of_keyspace)
        folders += of_keyspace
    if not folders:
        seen = ", ".join(sorted(others))
        raise WrongUse(
            f"the snapshot has no table of keyspace {keyspace!r}: it has tables of {seen}",
            mend="Name the keyspace with --keyspace.",
        )
    tables: dict[str, list[SnapshotFolder]] = {}
    for folder in folders:
        tables.setdefault(folder.table.name, []).append(folder)
    return Snapshot(
        keyspace,
        {table: _merged(found) for table, found in sorted(tables.items())},
        int(max(folder.taken for folder in folders)),
        tuple(chain.from_iterable(folder.missing for folder in folders)),
    )


def _no_snapshot(place: Path, name: str | None) -> WrongUse:
    what = f"{place} has no snapshot"
    if name:
        what += f" {name!r}"
    return WrongUse(
        what,
        mend="Name a folder that `nodetool snapshot` has made, or a copy with its schema.cql.",
    )


def _refuse_several(place: Path, folders: Sequence[SnapshotFolder]) -> None:
    """Refuse tables of several snapshots: one may be what was before a table was dropped."""
    names: dict[str, None] = {}
    for folder in folders:
        if folder.path.parent.name == SNAPSHOTS:
            names[folder.path.name] = None
    if len(names) > 1:
        *_, last = names
        raise WrongUse(
            f"{place} has {len(names)} snapshots: {', '.join(names)}",
            mend=f"Name one of them with --snapshot-name, as: --snapshot-name {last}",
        )


def _merged(folders: Sequence[SnapshotFolder]) -> SnapshotTable:
    first = folders[0]
    for other in folders[1:]:
        if other.table_id and first.table_id and other.table_id != first.table_id:
            raise WrongUse(
                f"{first.table.spelling} in {other.path} is another table than in {first.path}: "
                "it was dropped and created again",
                mend="Name a folder that has only one of the two with --snapshot.",
            )
        if other.table.columns != first.table.columns:
            raise WrongUse(
                f"{first.table.spelling} has other columns in {other.path} than in {first.path}",
                mend="Take the snapshots of all nodes after the last change of the schema.",
            )
    return SnapshotTable(first.table, tuple(folders))


def _folders_in(
    place: Path,
    keyspace: str,
    name: str | None,
) -> Iterator[tuple[str, SnapshotFolder | None]]:
    """The snapshot folders at a place, each after its keyspace.

    None is a folder of another keyspace, or of a view, which no check reads. Files of a live table
    next to its snapshots are left out.
    """
    found = sorted(_with_files(place))
    snapshots = [path for path in found if path.parent.name == SNAPSHOTS]
    if name is not None:
        snapshots = [path for path in snapshots if path.name == name]
        found = snapshots
    if snapshots and place not in snapshots:
        found = snapshots
    for path in found:
        yield _folder(path, place, keyspace)


def _with_files(place: Path) -> Iterator[Path]:
    """The folders of data files, or of an empty table's schema; folders of indexes are left out."""
    pending = [place]
    looked_at: set[Path] = set()
    while pending:
        folder = pending.pop()
        try:
            real = folder.resolve(strict=True)
            entries = list(folder.iterdir())
            visible = [entry for entry in entries if not entry.name.startswith(".")]
            within = [entry for entry in visible if entry.is_dir()]
        except (OSError, RuntimeError) as error:  # Python 3.11 has the latter for a link to itself
            raise _not_readable(folder, error) from error
        if real in looked_at:
            continue
        looked_at.add(real)
        names = {entry.name for entry in entries}
        if any(name.endswith(DATA) for name in names) or {SCHEMA, MANIFEST} <= names:
            yield folder
        pending += within


def _not_readable(path: Path, error: Exception) -> WrongUse:
    reason = getattr(error, "strerror", None) or error
    return WrongUse(
        f"{path} cannot be read: {reason}",
        mend="Run the command as a user who may read it.",
    )


def _folder(path: Path, place: Path, wanted: str) -> tuple[str, SnapshotFolder | None]:
    text, file = _schema_text(path, place)
    if (other := _other_keyspace(text, wanted)) is not None:
        return other, None
    if file.parent == path and _is_of_view(text):
        return wanted, None
    keyspace, table, schema, dropped = _described(text, file, path)
    files = tuple(sorted(found for found in path.iterdir() if found.name.endswith(DATA)))
    for found in files:
        refuse_unknown(found)
    manifest = _manifest(path)
    there = {found.name for found in files}
    missing = []
    for named in manifest.get("files") or ():
        if not isinstance(named, str) or named.startswith("."):
            continue  # a file of an index, which is not read
        if named.endswith(DATA) and named not in there:
            missing.append(path / named)
    return keyspace, SnapshotFolder(
        path=path,
        keyspace=keyspace,
        table=table,
        schema=schema,
        dropped=dropped,
        files=files,
        taken=_taken(path, manifest, files),
        missing=tuple(missing),
    )


def _schema_text(path: Path, place: Path) -> tuple[str, Path]:
    for folder in (path, *path.parents):
        file = folder / SCHEMA
        try:
            if file.is_file():
                return file.read_text(encoding="utf-8"), file
        except (OSError, UnicodeDecodeError) as error:
            raise _not_readable(file, error) from error
        if folder == place:
            break
    raise WrongUse(
        f"{path} has no schema.cql",
        mend="Name the folder that `nodetool snapshot` has made; the files of a running node "
        "change. For another copy write the output of DESCRIBE KEYSPACE to schema.cql.",
    )


def _other_keyspace(text: str, wanted: str) -> str | None:
    """The keyspace of a schema that is of others alone; its text is not read any further.

    A data folder has the system's keyspaces too, in whose tables there is what is not read.
    """
    named: dict[str, None] = {}
    for _kind, quoted, plain in _CREATED.findall(text):
        named[quoted.replace('""', '"') or plain.lower()] = None
    if not named or wanted in named:
        return None
    return next(iter(named))


def _is_of_view(text: str) -> bool:
    kinds = {kind.upper() for kind, _quoted, _plain in _CREATED.findall(text)}
    return "TABLE" not in kinds and any(kind.startswith("MATERIALIZED") for kind in kinds)


def _described(
    text: str,
    file: Path,
    path: Path,
) -> tuple[str, Table, Schema, tuple[DroppedColumn, ...]]:
    """The keyspace, and the table whose files are in `path`."""
    schema = Schema((), ())
    dropped: dict[str, list[DroppedColumn]] = {}
    keyspaces: dict[str, str] = {}
    for step in parse(text, str(file)):
        statement = step.statement
        if not isinstance(statement, _Described):
            continue
        if isinstance(statement, DropColumns):
            of_table = dropped.setdefault(name_of(statement.name.spelling), [])
            of_table += _drops(statement, schema)
        schema = _after(statement, schema)
        if isinstance(statement, CreateTable):
            keyspaces[name_of(statement.name.spelling)] = _keyspace_of(statement)
    table = _table_of(path, schema, file)
    if COMPACT_STORAGE in table.options:
        raise WrongUse(
            f"{table.spelling} has COMPACT STORAGE, which is not read from snapshots",
            mend="Leave --snapshot out: the check then reads the cluster.",
        )
    return keyspaces[table.name], table, schema, tuple(dropped.get(table.name, ()))


def _after(statement: _Described, schema: Schema) -> Schema:
    """The schema after a statement; Cassandra leaves out user types of elements of a collection."""
    match statement:
        case CreateTable():
            return replace(schema, tables=(*schema.tables, statement.table))
        case CreateType():
            return replace(schema, types=(*schema.types, statement.type))
        case _:
            return statement.apply(schema)


def _drops(statement: DropColumns, schema: Schema) -> Iterator[DroppedColumn]:
    table = statement.table_in(schema)
    for spelling in statement.columns:
        yield DroppedColumn(table.column(spelling), int(statement.timestamp or 0))


def _keyspace_of(statement: NamedStatement) -> str:
    return name_of(statement.name.keyspace or "")


def _table_of(path: Path, schema: Schema, file: Path) -> Table:
    if len(schema.tables) == 1 and file.parent == path:
        return schema.tables[0]
    for folder in (path, *path.parents):
        folder_of = _TABLE_FOLDER.fullmatch(folder.name)
        name = folder.name
        if folder_of:
            name = folder_of[1]
        table = schema.table(f'"{name}"')
        if table is not None:
            return table
        if folder == file.parent:
            break
    raise WrongUse(
        f"{path} is of no table that {file} names",
        mend="A folder of files is named like its table, or like TABLE-ID as Cassandra names it.",
    )


def _manifest(path: Path) -> Mapping[str, Any]:
    try:
        found: Any = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return found


def _taken(path: Path, manifest: Mapping[str, Any], files: Sequence[Path]) -> float:
    """When the snapshot was taken: by its manifest, the manifest's own time, or its newest file."""
    said = manifest.get("created_at")
    if isinstance(said, str):
        with suppress(ValueError):
            created = datetime.fromisoformat(said)
            return created.replace(tzinfo=created.tzinfo or UTC).timestamp()
    dated = [path / MANIFEST]
    if not dated[0].is_file():
        dated = [*files, path]
        if files:
            dated = list(files)
    return max(file.stat().st_mtime for file in dated)


def refuse_unknown(file: Path) -> None:
    """Refuse a file of a format, a version or a compressor that is not read.

    Raises:
        UnknownFormat: names the file and what it is.
    """
    named = _FILE.fullmatch(file.name)
    if named is None or named[1] not in FORMATS.get(named[2], ()):
        known = "; ".join(f"{name} {', '.join(sorted(FORMATS[name]))}" for name in FORMATS)
        raise UnknownFormat(
            f"{file} is of a format that is not read",
            mend=f"Files of Cassandra 3.0 to 5.0 are read: {known}. {_OR_THE_CLUSTER}",
        )
    compressor = _compressor_of(file)
    if compressor is not None and not _COMPRESSOR.fullmatch(compressor):
        raise UnknownFormat(
            f"{file} is written by {compressor}, which is not read: it may be encrypted",
            mend=f"LZ4, Snappy, Deflate and Zstd are read. {_OR_THE_CLUSTER}",
        )


class UnknownFormat(WrongUse):
    """A file of a format, a version or a compressor that is not read."""


def _compressor_of(file: Path) -> str | None:
    """The class that compressed a file; None where it is not compressed, or does not say."""
    about = file.with_name(file.name.removesuffix(DATA) + "-CompressionInfo.db")
    try:
        with about.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES))
            name = stream.read(length)
    except OSError:
        return None
    try:
        return name.decode("ascii") or None
    except UnicodeDecodeError:
        return None  # damaged: the reader names it
