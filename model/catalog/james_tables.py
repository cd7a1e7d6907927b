"""The tables of James next to the messages, and the columns that refer to blobs.

They are declared so that a keyspace made here is one that James can take over. Names and types are
James's, newest generation; which of them a given James has depends on the modules that it runs
with.
"""

import re
from typing import Final

from mailmend.model.table import Column, Compaction, Table, columns

SIZE_TIERED = Compaction("SizeTieredCompactionStrategy")
LEVELED = Compaction("LeveledCompactionStrategy")
LZ4_8_KIB = {"compression": "{'chunk_length_in_kb': '8', 'class': 'LZ4Compressor'}"}
"""Compression in chunks of 8 KiB, half the default: a read of one small row decompresses less."""

BLOOM_1_PERCENT = {"bloom_filter_fp_chance": "0.01"}


def cached(rows_per_partition: int) -> dict[str, str]:
    """The caching option: all keys and that many rows of each partition."""
    return {"caching": f"{{'keys': 'ALL', 'rows_per_partition': '{rows_per_partition}'}}"}


ATTACHMENT = Table(
    "attachmentV2",
    columns("idAsUUID uuid", regular="id text, blobId text, type text, message_id timeuuid, size bigint"),
    comment="Attachments by id: their type, size, message and blob",
    compaction=SIZE_TIERED,
    options=cached(10),
)
ACL = Table(
    "aclv2",
    columns("id timeuuid", "key text", "rights set<text>"),
    comment="Rights on each mailbox, one row per holder",
    options=cached(10),
)
USER_MAILBOX_ACL = Table(
    "UserMailboxACL",
    columns("userName text", "mailboxid timeuuid", "rights text"),
    comment="Other people's mailboxes that a user may open: a projection of aclv2",
    compaction=LEVELED,
    options=cached(10),
)
ANNOTATION = Table(
    "annotation",
    columns("mailboxId timeuuid", "key text", "value text"),
    comment="Annotations of each mailbox (RFC 5464)",
    compaction=LEVELED,
)
SUBSCRIPTION = Table(
    "subscription",
    columns("user text", "mailbox text"),
    comment="Mailboxes that each user is subscribed to",
    options=cached(100),
)
THREAD = Table(
    "thread_2",
    columns("username text, mimeMessageId int", "messageId timeuuid", "threadId timeuuid, baseSubject int"),
    comment="Which thread a mail belongs to, found by the hashes of the mails that it answers",
)
THREAD_LOOKUP = Table(
    "thread_lookup_3",
    columns("threadId timeuuid", "messageId timeuuid", "username text, mimeMessageIds frozen<set<int>>"),
    comment="The messages of each thread, and where thread_2 holds them",
)
FAST_VIEW = Table(
    "message_fast_view_projection",
    columns("messageId uuid", regular="preview text, hasAttachment boolean"),
    comment="What a mail list shows of a message without opening it: a projection of its content",
    options=LZ4_8_KIB,
)
EMAIL_QUERY_VIEW = Table(
    "email_query_view_received_at",
    columns("mailboxId uuid", "receivedAt timestamp DESC, messageId uuid", "thread_id uuid"),
    comment="Messages of each mailbox, latest first: a projection for JMAP's Email/query",
)
EVENT_STORE = Table(
    "eventStore",
    columns("aggregateId text", "eventId int", "event text", static="snapshot int"),
    comment="Events of James's own settings and tasks, by aggregate",
    compaction=LEVELED,
    options=cached(10),
)
SCHEMA_VERSION = Table(
    "schemaversion", columns("key timeuuid", "value int"), comment="The schema versions that James has reached"
)
BLOBS = Table(
    "blobs",
    columns("id text", "position int", "metadata frozen<map<text,text>>"),
    comment="Blobs kept in Cassandra: the number of their chunks",
)
BLOB_PARTS = Table(
    "blobParts", columns("id text", "chunkNumber int", "data blob"), comment="The chunks of blobs kept in Cassandra"
)

BESIDE_TABLES = (
    ATTACHMENT,
    ACL,
    USER_MAILBOX_ACL,
    ANNOTATION,
    SUBSCRIPTION,
    THREAD,
    THREAD_LOOKUP,
    FAST_VIEW,
    EMAIL_QUERY_VIEW,
    EVENT_STORE,
    SCHEMA_VERSION,
    BLOBS,
    BLOB_PARTS,
)


_CONTENT_COLUMNS: Final = frozenset({"headercontent", "bodycontent"})
"""Columns of messageV3 with ids of blobs, whose names do not say so."""

_STORES: Final = frozenset({"blobs", "blobparts"})
"""Tables that are a store of blobs, and refer to none."""

TEXTS: Final = frozenset({"text", "varchar", "ascii"})


def may_name_blobs(column: str) -> bool:
    """Whether the name of a column says that it may hold ids of blobs."""
    return "blob" in column or column in _CONTENT_COLUMNS


def naming_blobs(table: Table) -> tuple[Column, ...]:
    """The table's text columns that may refer to blobs; empty for a table that stores blobs itself."""
    if table.name in _STORES:
        return ()
    found: list[Column] = []
    for column in table.columns:
        words = re.findall(r"\w+", column.type)
        if may_name_blobs(column.name) and not TEXTS.isdisjoint(words):
            found.append(column)
    return tuple(found)
