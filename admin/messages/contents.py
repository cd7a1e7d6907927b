"""Where the contents of messages are: in the store that is named, else where those of the keyspace's messages are.

Who reads the mail, James or ours, has one store. Which one shows in the messages that are there: a few are looked for.
So no mail is written where its reader would not find it, and none under an id that its reader deletes too early.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.settings import BlobsAddress, BlobsSettings, Store
from mailmend.admin.queue import connections as queues
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, is_blob_id, naming_of
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.errors import SchemaMismatch, UnsafeRequest
from mailmend.model.ids import BlobId, micros_of
from mailmend.model.operations import Scan
from mailmend.model.texts import keyspace_option

ROWS_READ: Final = 200
"""How many rows are read, in token order, so that old and new messages are among them."""

NEWEST: Final = 10
"""How many of these, the newest ones, are looked for in the store: it may have been another store before."""


def message_blobs(opened: OpenCluster, named: BlobsSettings | None, remark: Callable[[str], None]) -> Blobs:
    """The store of the contents, which names new blobs as those of the messages there are named.

    Without such messages ids are made of the bytes: copies of a message share one blob, and no delete removes it.

    Args:
        opened: the cluster, with the mail keyspace.
        named: the store that a person named; None: the tables of the mail keyspace.
        remark: receives a doubt about the store that was named.

    Raises:
        SchemaMismatch: the tables are to be used, and the keyspace has none.
        UnsafeRequest: none is named, and the contents of the keyspace's messages are not in its tables.
    """
    settings = named or BlobsSettings(BlobsAddress(Store.CASSANDRA))
    keyspace = opened.mail.name
    if settings.address.store is Store.CASSANDRA:
        _refuse_without_tables(opened, keyspace)
    tables = queues.tables_of(opened.mail)
    newest = _newest(opened)

    async def kept() -> list[tuple[BlobId, int]]:
        looked_in = queues.blobs_behind(settings, tables, opened.clock)
        return [(blob, at) for blob, at in newest if await looked_in.exists(blob)]

    found = run_async(kept()) if newest else []
    if 2 * len(found) <= len(newest) and newest:
        gone = f"of the {len(newest)} messages of {keyspace} that were looked at, {len(found)} have their content in "
        if named is None:
            raise UnsafeRequest(
                f"{gone}its tables {_TABLES}: who reads them has another store",
                mend=f"{_NAME_STORE}. To use the tables all the same: --blobs cassandra:",
            )
        remark(f"{gone}{settings.address.place}: is it the store that is read for this keyspace?")
    naming = settings.address.naming or (naming_of(found) if found else BlobNaming(BlobsMode.DEDUPLICATED))
    settings = settings._replace(address=replace(settings.address, naming=naming))
    return queues.blobs_behind(settings, tables, opened.clock)


def _newest(opened: OpenCluster) -> list[tuple[BlobId, int]]:
    """Ids of header blobs and when their messages were made, the newest first."""
    columns = ("messageid", "headercontent", "bodycontent")
    rows = opened.mail.scan(Scan(MESSAGE_V3, columns, limit=ROWS_READ))
    whole = ((micros_of(row["messageid"]), BlobId(row["headercontent"])) for row in rows if all(map(row.get, columns)))
    return [(blob, at) for at, blob in sorted(whole, reverse=True) if is_blob_id(blob)][:NEWEST]


def _refuse_without_tables(opened: OpenCluster, keyspace: str) -> None:
    live = live_schema(opened.cluster, keyspace)
    lacking = tuple(table.spelling for table in (BLOBS, BLOB_PARTS) if live.table(table.name) is None)
    if lacking:
        raise SchemaMismatch(
            keyspace,
            lacking,
            mend=f"{_NAME_STORE}. Where it should have them: mailmend schema verify {keyspace_option(keyspace)}",
        )


_TABLES: Final = f"{BLOBS.spelling} and {BLOB_PARTS.spelling}"
_NAME_STORE: Final = (
    "Name the store that James has for this keyspace (blob.properties): --blobs 's3://BUCKET?endpoint=URL', or "
    "MAILMEND_BLOBS"
)
