"""Every message table of Apache James and every projection, declared once.

Names keep James's spelling here and nowhere else. Source: James's own schema, newest generation (JAMES-4225,
September 2026); `cql.schema.generations` has what differs in older generations. The mail queue's
tables stand in `model.catalog.mail_queue`, those that mailmend creates and then never touches in
`model.catalog.james_tables`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from mailmend.model.catalog.james_tables import BESIDE_TABLES, BLOOM_1_PERCENT, LZ4_8_KIB, SIZE_TIERED, cached
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.keyspace import Schema
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Counts, Family, Filter, Union, projections_of
from mailmend.model.projections.filled_mirror import FilledMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, Compaction, OtherColumn, Table, UserType, columns

TWCS_MESSAGES = Compaction(
    "TimeWindowCompactionStrategy", {"compaction_window_unit": "DAYS", "compaction_window_size": "30"}
)
"""Time windows for the message tables, the design's default.

docs/concepts/guarantees.md and `schema advise` say what they cost where rows are updated late.
"""


class CompactionChoice(Enum):
    """How the big message tables are compacted: one choice for all of them (docs/adr/0012)."""

    TWCS = "twcs"  # the default, as the design card asks: wide windows, since old rows still change their flags
    UNIFIED = "unified"  # Cassandra 5.0 and later: few SSTables per read, also under late updates
    LEVELED = "leveled"  # the same for older servers


MESSAGE_COMPACTIONS: Mapping[CompactionChoice, Compaction] = {
    CompactionChoice.TWCS: TWCS_MESSAGES,
    CompactionChoice.UNIFIED: Compaction("UnifiedCompactionStrategy", {"scaling_parameters": "L10"}),
    CompactionChoice.LEVELED: Compaction("LeveledCompactionStrategy"),
}

_FLAGS = tuple(
    Column(f"flag{name}", "boolean", null_is=False)
    for name in ("Answered", "Deleted", "Draft", "Flagged", "Recent", "Seen")
)
_METADATA = (
    Column("threadId", "timeuuid", null_is=OtherColumn("messageid")),
    Column("modSeq", "bigint", null_is=0),
    *_FLAGS,
    Column("userFlags", "set<text>"),
    *columns(
        "",
        regular="internalDate timestamp, save_date timestamp, bodyStartOctet int, fullContentOctets bigint, "
        "headerContent text",
    ),
)

IMAP_UID = Table(
    "imapUidTable",
    (*columns("messageId timeuuid", "mailboxId timeuuid, uid bigint"), *_METADATA),
    comment="Mailbox and flags of each message, by message id: the source of truth",
    compaction=TWCS_MESSAGES,
    options=cached(100) | LZ4_8_KIB,
)
MESSAGE_ID = Table(
    "messageIdTable",
    (*columns("mailboxId timeuuid", "uid bigint", "messageId timeuuid"), *_METADATA),
    comment="Mailbox and flags of each message, by mailbox id and uid: a projection of imapUidTable",
    compaction=TWCS_MESSAGES,
    options=cached(1000),
)
MESSAGE_V3 = Table(
    "messageV3",
    columns(
        "messageId timeuuid",
        regular="internalDate timestamp, bodyStartOctet int, fullContentOctets bigint, bodyContent text, "
        "headerContent text, attachments list<frozen<attachments>>",
    ),
    comment="Message metadata and the ids of its blobs, whichever mailboxes hold it",
    compaction=TWCS_MESSAGES,
)
ATTACHMENTS = UserType("attachments", (("id", "text"), ("name", "text"), ("cid", "text"), ("isInline", "boolean")))
MAILBOX_BASE = UserType("mailboxbase", (("namespace", "text"), ("user", "text")))

MESSAGE_COUNTER = Table(
    "messageCounter",
    columns("mailboxId timeuuid", regular="nextUid bigint"),
    comment="Uid generator",
    compaction=SIZE_TIERED,
    options=cached(10) | BLOOM_1_PERCENT,
)
MODSEQ = Table(
    "modseq",
    columns("mailboxId timeuuid", regular="nextModseq bigint"),
    comment="Modseq generator",
    compaction=SIZE_TIERED,
    options=cached(10),
)
MAILBOX_COUNTERS = Table(
    "mailboxCounters",
    columns("mailboxId timeuuid", regular="count counter, unseen counter"),
    comment="Number of messages and of unseen messages of each mailbox",
    compaction=SIZE_TIERED,
    options=cached(10) | BLOOM_1_PERCENT,
)
FIRST_UNSEEN = Table(
    "firstUnseen",
    columns("mailboxId timeuuid", "uid bigint"),
    comment="Uids of the messages without \\Seen",
    compaction=SIZE_TIERED,
    options=cached(10) | BLOOM_1_PERCENT,
)
MAILBOX_RECENTS = Table(
    "mailboxRecents",
    columns("mailboxId timeuuid", "recent_mesage_uid bigint"),
    comment="Uids of the messages with \\Recent",
    compaction=SIZE_TIERED,
    options=cached(10) | {"gc_grace_seconds": "0"},
)
MESSAGE_DELETED = Table(
    "messageDeleted",
    columns("mailboxId timeuuid", "uid bigint"),
    comment="Uids of the messages with \\Deleted",
    compaction=SIZE_TIERED,
    options=cached(10),
)
APPLICABLE_FLAG = Table(
    "applicableFlag",
    columns("mailboxId timeuuid", regular="userFlags set<text>"),
    comment="User flags seen in each mailbox; append only",
    compaction=SIZE_TIERED,
    options=cached(10),
)
MAILBOX = Table(
    "mailbox",
    columns("id timeuuid", regular="mailboxbase frozen<mailboxbase>, name text, uidvalidity bigint"),
    comment="Path and uid validity of each mailbox",
    options=cached(10) | LZ4_8_KIB,
)
MAILBOX_PATH = Table(
    "mailboxPathV3",
    columns("namespace text, user text", "mailboxName text", "mailboxId timeuuid, uidvalidity bigint"),
    comment="The registry of mailbox paths: the truth of paths",
    options=cached(10),
)
PRIVATE = "#private"
"""The namespace of users' own mailboxes, as James spells it."""

MAIL_TABLES = (
    IMAP_UID,
    MESSAGE_ID,
    MESSAGE_V3,
    MESSAGE_COUNTER,
    MODSEQ,
    MAILBOX_COUNTERS,
    FIRST_UNSEEN,
    MAILBOX_RECENTS,
    MESSAGE_DELETED,
    APPLICABLE_FLAG,
    MAILBOX,
    MAILBOX_PATH,
)
"""The messages and their mailboxes: what is checked, repaired and written."""

MAIL_TYPES = (ATTACHMENTS, MAILBOX_BASE)

SCHEMA = Schema(MAIL_TYPES, MAIL_TABLES + BESIDE_TABLES + QUEUE_TABLES)
"""Everything that `schema apply` creates."""


def compacted(tables: Iterable[Table], choice: CompactionChoice) -> tuple[Table, ...]:
    """The tables with the chosen compaction wherever the choice is open."""
    chosen = MESSAGE_COMPACTIONS[choice]
    compacted_tables = []
    for table in tables:
        if table.compaction == TWCS_MESSAGES:
            compacted_tables.append(replace(table, compaction=chosen))
        else:
            compacted_tables.append(table)
    return tuple(compacted_tables)


_FILLED = ("internaldate", "bodystartoctet", "fullcontentoctets", "headercontent")
"""What messageV3 has of each row of a message too (JAMES-4225)."""

_BY_MAILBOX = (("mailboxid", "mailboxid"),)
_BY_UID = (("mailboxid", "mailboxid"), ("uid", "uid"))

MESSAGES = Family(
    mirror=FilledMirror(
        truth=IMAP_UID,
        table=MESSAGE_ID,
        key=_BY_UID,
        compared=(Column("messageId", "timeuuid"), *_METADATA),
        required=("modseq", *_FILLED),
        fills=tuple((name, name) for name in _FILLED),
    ),
    filters=(
        Filter(IMAP_UID, FIRST_UNSEEN, _BY_UID, Condition("flagseen", value=False)),
        Filter(IMAP_UID, MESSAGE_DELETED, _BY_UID, Condition("flagdeleted", value=True)),
        Filter(
            IMAP_UID,
            MAILBOX_RECENTS,
            (("mailboxid", "mailboxid"), ("recent_mesage_uid", "uid")),
            Condition("flagrecent", value=True),
        ),
    ),
    unions=(Union(IMAP_UID, APPLICABLE_FLAG, _BY_MAILBOX, "userflags"),),
    counts=(
        Counts(
            IMAP_UID,
            MAILBOX_COUNTERS,
            _BY_MAILBOX,
            (("count", None), ("unseen", Condition("flagseen", value=False))),
            generators=(MESSAGE_COUNTER, MODSEQ),
            numbered_by=(("uid", MESSAGE_COUNTER.name), ("modseq", MODSEQ.name)),
            used_with=(MAILBOX_PATH, MAILBOX),
        ),
    ),
    content=Content(IMAP_UID, MESSAGE_V3, (("messageid", "messageid"),)),
)
"""The truth `imapUidTable` with all its projections; `model.catalog.mail_projections` as values."""

_MAILBOX_READ = MAILBOX.with_columns(
    columns("id timeuuid", regular="mailboxbase.namespace text, mailboxbase.user text, name text, uidvalidity bigint")
)
"""`mailbox` as it is compared: the fields of its path read one by one, which CQL and Spark both take."""

PATHS = Family(
    mirror=Mirror(
        truth=MAILBOX_PATH,
        table=_MAILBOX_READ,
        key=(("id", "mailboxid"),),
        compared=_MAILBOX_READ.regular,
        renamed=(("mailboxbase.namespace", "namespace"), ("mailboxbase.user", "user"), ("name", "mailboxname")),
        required=("uidvalidity",),
        kept=((Verdict.WITHDRAW, "no path is registered for this mailbox"),),
    )
)
"""The truth `mailboxPathV3` with its projection `mailbox`.

A row of `mailbox` without a path is kept: its messages may be all that is left of a mailbox. A
path without a uid validity is TORN: no other value is made up for it (docs/adr/0073).
"""

FAMILIES = (MESSAGES, PATHS)

PROJECTIONS: Mapping[str, Projection] = projections_of(FAMILIES)
"""Every projection by its name in findings."""
