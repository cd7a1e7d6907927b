"""Which of the queue's tables a live keyspace has, and how long their rows live there.

James's four must be there, in James's form. Each of our own three may be missing, as in an adopted keyspace of James:
the queue then works without what the table is for (docs/adr/0016).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mailmend.model.catalog.mail_queue import (
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    JAMES_QUEUE_TABLES,
    OWN_QUEUE_TABLES,
    QUEUE_STATE,
    SLICE_TALLIES,
)
from mailmend.model.cql_types import normal_type
from mailmend.model.errors import SchemaMismatch
from mailmend.model.keyspace import Schema
from mailmend.model.names import text_of
from mailmend.model.table import Column, Kind, Table
from mailmend.model.texts import keyspace_option


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Which of our own queue tables a live keyspace has, and how long the rows of James's tables live.

    Attributes:
        due: whether mails can be delayed (`dueMails`).
        tallies: whether mails are counted as they are enqueued and dequeued (`sliceTallies`).
        state: whether the progress of the sweeps is stored (`queueState`).
        row_ttl_seconds: how long a row of enqueuedMailsV4 lives; 0: for ever, as in tables that James created.
        mark_ttl_seconds: how long a mark of deletedMailsV2 lives; 0: for ever.
        shared: whether another program, which keeps no tallies, may enqueue here: James, in a keyspace that it created.
    """

    due: bool = True
    tallies: bool = True
    state: bool = True
    row_ttl_seconds: int = 0
    mark_ttl_seconds: int = 0
    shared: bool = False

    @property
    def marks_expire(self) -> bool:
        return self.mark_ttl_seconds > 0

    @property
    def marks_outlive_rows(self) -> bool:
        """Whether every mark outlives its row; if not, deleted mails can show up again."""
        return not self.mark_ttl_seconds or 0 < self.row_ttl_seconds < self.mark_ttl_seconds


def queue_tables_of(live: Schema, keyspace: str) -> OwnTables:
    """The queue's tables in the live keyspace; `keyspace` is its name, for the error message.

    Raises:
        SchemaMismatch: one of James's four tables is missing, or any of the seven is there in another form.
    """
    lacking = (*_missing(JAMES_QUEUE_TABLES, live), *_otherwise((*JAMES_QUEUE_TABLES, *OWN_QUEUE_TABLES), live))
    if lacking:
        raise SchemaMismatch(keyspace, lacking, mend=_mend(keyspace, live))
    row_ttl_seconds = time_to_live(live.table(ENQUEUED_MAILS.name))
    return OwnTables(
        due=live.table(DUE_MAILS.name) is not None,
        tallies=live.table(SLICE_TALLIES.name) is not None,
        state=live.table(QUEUE_STATE.name) is not None,
        row_ttl_seconds=row_ttl_seconds,
        mark_ttl_seconds=time_to_live(live.table(DELETED_MAILS.name)),
        shared=not row_ttl_seconds,
    )


def time_to_live(table: Table | None) -> int:
    """Default time to live of the table in seconds; 0: rows never expire."""
    if table is None:
        return 0
    return int(text_of(table.options.get("default_time_to_live", "0")))


def _mend(keyspace: str, live: Schema) -> str:
    if any(_missing(JAMES_QUEUE_TABLES, live)):
        return (
            f"Create them with: mailmend schema apply {keyspace_option(keyspace)}; "
            "where James made the keyspace, with: "
            f"mailmend schema apply --optional mail-queue {keyspace_option(keyspace)}"
        )
    return f"See what differs with: mailmend schema verify {keyspace_option(keyspace)}"


def _missing(tables: Iterable[Table], live: Schema) -> Iterator[str]:
    for table in tables:
        if live.table(table.name) is None:
            yield table.spelling


def _otherwise(tables: Iterable[Table], live: Schema) -> Iterator[str]:
    for table in tables:
        found = live.table(table.name)
        if found is None:
            continue
        if [_key_part(key) for key in found.key] != [_key_part(key) for key in table.key]:
            key = ", ".join(column.spelling for column in table.key)
            yield f"{table.spelling} with the key ({key})"
            continue
        for column in table.columns:
            if column.name not in found or _type(found.column(column.name)) != _type(column):
                yield f"{table.spelling}.{column.spelling} of type {column.type}"


def _key_part(column: Column) -> tuple[str, Kind]:
    return column.name, column.kind


def _type(column: Column) -> str:
    return normal_type(column.type)
