"""Who refers to blobs: one source for each place, each read whole or not at all.

One reference too many leaves a leak, one too few loses mail. So every row counts, even the row of a
marked mail that is not swept yet, and every text column of the keyspace whose name says that it may
hold ids of blobs, James's own or not. A missing blob is reported only for rows that need it: the
blob of a marked mail is gone on purpose.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from mailmend.mailqueue.rules.blob_ids import is_blob_id
from mailmend.model.catalog.james_tables import TEXTS, may_name_blobs, naming_blobs
from mailmend.model.catalog.ledger import REPAIR_FINDING
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Tables
from mailmend.model.table import Row, Table
from mailmend.repair.joins.records import Record, Spill, Workshop
from mailmend.repair.ledger.before_images import image_from

_NEED: Final = frozenset({"messagev3", "attachmentv2", "duemails", "mailrepositorycontentv2", ENQUEUED_MAILS.name})
"""Tables whose rows need their blobs in this store; others may mean another store, or copy what these say."""

_COLLECTION: Final = re.compile(r"(?:frozen<)?(?:set|list)<(?:text|varchar|ascii)>>?")


class Reference(NamedTuple):
    """A blob's id, and who refers to it; whether it must be there."""

    blob_id: str
    referrer: str
    needed: bool = False


class ReferenceSource(Protocol):
    """A place that refers to blobs. Adapters: those below, and what a service has read of the broker."""

    @property
    def name(self) -> str: ...

    def references(self) -> Iterator[Reference]:
        """Every reference of this place; blocks. Raises a `MailmendError` where one of them cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class TableReferences:
    """The rows of a table; `columns` hold ids, or sets or lists of them."""

    table: Table
    columns: tuple[str, ...]
    tables: Tables
    level: Level = Level.LOCAL_QUORUM
    needed: bool = False

    @property
    def name(self) -> str:
        return self.table.spelling

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns that name a row to a person: all but instants."""
        return tuple(column.name for column in self.table.key if column.type != "timestamp")

    @property
    def marks(self) -> bool:
        """Whether a row counts as finished once its mail is marked."""
        return self.table.name in {ENQUEUED_MAILS.name, DUE_MAILS.name}

    def references(self) -> Iterator[Reference]:
        rows = self.tables.scan(Scan(self.table, tuple(dict.fromkeys((*self.keys, *self.columns))), self.level))
        if self.marks:
            return self._joined(rows)
        return self._of(rows, needed=self.needed)

    def _of(self, rows: Iterable[Row], *, needed: bool) -> Iterator[Reference]:
        keys = self.keys
        for row in rows:
            referrer = referrer_of([row[name] for name in keys])
            for column in self.columns:
                cell = row[column]
                if isinstance(cell, str):
                    yield Reference(cell, referrer, needed)
                else:
                    for text in cell or ():
                        yield Reference(text, referrer, needed)

    def _joined(self, rows: Iterable[Row]) -> Iterator[Reference]:
        """Rows of the queue, each with whether it is marked; joined on disk."""
        with Workshop() as workshop:
            spill = Spill(workshop, "mails")
            for row in rows:
                named = [(reference.blob_id, reference.referrer) for reference in self._of((row,), needed=True)]
                spill.add((_mail_key(row), *named))
            for mark in self.tables.scan(Scan(DELETED_MAILS, ("queuename", "enqueueid"), self.level)):
                spill.add((_mail_key(mark), None))
            for part in spill.parts():
                yield from _unless_marked(part)


def _mail_key(row: Row) -> tuple[str, bytes]:
    return (row["queuename"], row["enqueueid"].bytes)


def _unless_marked(part: list[Record]) -> Iterator[Reference]:
    marked = {key for key, *found in part if found == [None]}
    for key, *found in part:
        for reference in found:
            if reference is not None:
                blob_id, referrer = reference
                yield Reference(blob_id, referrer, key not in marked)


def referrer_of(key: Iterable[Any]) -> str:
    """A row's key as one line."""
    return " ".join(map(str, key))


def table_references(
    schema: Schema, tables: Tables, level: Level = Level.LOCAL_QUORUM, declared: Iterable[str] = ()
) -> list[TableReferences]:
    """Every table that may refer to blobs. Delayed mails come twice, so that none is missed while it moves.

    Args:
        schema: the live keyspace.
        tables: its rows.
        level: of the scans.
        declared: `table.column` as an operator names them; their rows need their blobs.

    Raises:
        WrongUse: such a column is not there, or of a type that holds no ids in a form that is known.
    """
    named = dict[str, list[str]]()
    for text in declared:
        table, column = _declared(schema, text)
        named.setdefault(table.name, []).append(column)
    found = []
    for table in schema.tables:
        columns = tuple(dict.fromkeys((*_blob_columns(table), *named.get(table.name, ()))))
        if columns:
            needed = table.name in _NEED or table.name in named
            found.append(TableReferences(table, columns, tables, level, needed))
    return _delayed_twice(found)


def _delayed_twice(found: Sequence[TableReferences]) -> list[TableReferences]:
    """In the order of reading: delayed mails before and after those that wait, so that none is missed as it moves."""
    due: list[TableReferences] = []
    waiting: list[TableReferences] = []
    others: list[TableReferences] = []
    for references in found:
        if references.table.name == DUE_MAILS.name:
            due.append(references)
        elif references.marks:
            waiting.append(references)
        if not references.marks:
            others.append(references)
    return [*others, *due, *waiting, *due]


def _blob_columns(table: Table) -> Iterator[str]:
    for column in naming_blobs(table):
        if not _holds_ids(column.type):
            raise WrongUse(
                f"{table.spelling}.{column.spelling} may refer to blobs, and its type {column.type} is not read",
                mend="Text, and sets and lists of text, are: without that column no blob is safe.",
            )
        yield column.name


def _holds_ids(kind: str) -> bool:
    return kind in TEXTS or bool(_COLLECTION.fullmatch(kind.replace(" ", "")))


def _declared(schema: Schema, text: str) -> tuple[Table, str]:
    name, _, column = (part.lower() for part in text.partition("."))
    for table in schema.tables:
        for other in table.columns:
            if (table.name, other.name) == (name, column) and _holds_ids(other.type):
                return table, column
    raise WrongUse(
        f"--references {text} is no column of text in the keyspace", mend="Name it as TABLE.COLUMN; in no case."
    )


@dataclass(frozen=True, slots=True)
class BeforeImages:
    """Before-images that have not expired: an undo puts their rows back, and these refer to blobs."""

    ledger: Tables
    level: Level = Level.LOCAL_QUORUM
    name: str = "before-images"

    def references(self) -> Iterator[Reference]:
        for row in self.ledger.scan(Scan(REPAIR_FINDING, ("run", "before"), self.level)):
            if not row["before"]:
                continue
            image = image_from(row["before"])
            rows = list(image.truths)
            if image.projected:
                rows.append(image.projected)
            for seen in rows:
                for column, cell in seen.row.items():
                    if isinstance(cell, str) and may_name_blobs(column):
                        yield Reference(cell, f"run {row['run']}")


@dataclass(frozen=True, slots=True)
class IdsFile:
    """Ids that an operator declares, one on each line; what follows after a space says who refers to it."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def references(self) -> Iterator[Reference]:
        try:
            with self.path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    yield from self._of(line.rstrip("\r\n"), number)
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"{self.path} cannot be read: {error}", mend="It has one id on each line.") from error

    def _of(self, line: str, number: int) -> Iterator[Reference]:
        blob_id, _, referrer = line.strip().partition(" ")
        if blob_id:
            if not is_blob_id(blob_id):
                raise WrongUse(f"{self.path}, line {number}: {blob_id[:80]!r} is not the id of a blob")
            yield Reference(blob_id, referrer or f"line {number}", needed=True)


@dataclass(frozen=True, slots=True)
class KnownReferences:
    """References that were read beforehand, such as references in the broker."""

    name: str
    found: Sequence[Reference]

    def references(self) -> Iterator[Reference]:
        return iter(self.found)
