"""Every message table of Apache James and every projection, declared once.

Names keep James's spelling here and nowhere else. Source: James's own schema, newest generation (JAMES-4225,
September 2026); what older generations have besides or instead stands in `model.generations`.
"""

from model.projections import Condition, Content, Counts, Family, Filter, Mirror, Union
from model.table import Canonical, Column, Compaction, Kind, Table, UserType

_P, _C = Kind.PARTITION, Kind.CLUSTERING

TWCS_MESSAGES = Compaction(
    "TimeWindowCompactionStrategy", {"compaction_window_unit": "DAYS", "compaction_window_size": "30"}
)
"""Asked for by the design card; the README and `schema advise` say what it costs on rows that are updated late."""

_FLAGS = tuple(
    Column(f"flag{name}", "boolean", canonical=Canonical.FLAG)
    for name in ("Answered", "Deleted", "Draft", "Flagged", "Recent", "Seen")
)
_METADATA = (
    Column("threadId", "timeuuid", canonical=Canonical.THREAD),
    Column("modSeq", "bigint", canonical=Canonical.NUMBER),
    *_FLAGS,
    Column("userFlags", "set<text>", canonical=Canonical.SET),
    Column("internalDate", "timestamp"),
    Column("save_date", "timestamp"),
    Column("bodyStartOctet", "int"),
    Column("fullContentOctets", "bigint"),
    Column("headerContent", "text"),
)

IMAP_UID = Table(
    "imapUidTable",
    (
        Column("messageId", "timeuuid", _P),
        Column("mailboxId", "timeuuid", _C),
        Column("uid", "bigint", _C),
        *_METADATA,
    ),
    comment="Mailbox and flags of each message, by message id: the source of truth",
    compaction=TWCS_MESSAGES,
    options={"compression": "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 8}"},
)
MESSAGE_ID = Table(
    "messageIdTable",
    (
        Column("mailboxId", "timeuuid", _P),
        Column("uid", "bigint", _C),
        Column("messageId", "timeuuid"),
        *_METADATA,
    ),
    comment="Mailbox and flags of each message, by mailbox id and uid: a projection of imapUidTable",
    compaction=TWCS_MESSAGES,
)
MESSAGE_V3 = Table(
    "messageV3",
    (
        Column("messageId", "timeuuid", _P),
        Column("internalDate", "timestamp"),
        Column("bodyStartOctet", "int"),
        Column("fullContentOctets", "bigint"),
        Column("bodyContent", "text"),
        Column("headerContent", "text"),
        Column("attachments", "list<frozen<attachments>>"),
    ),
    comment="Message metadata and the ids of its blobs, whichever mailboxes hold it",
    compaction=TWCS_MESSAGES,
)
ATTACHMENTS = UserType("attachments", (("id", "text"), ("name", "text"), ("cid", "text"), ("isInline", "boolean")))
MAILBOX_BASE = UserType("mailboxbase", (("namespace", "text"), ("user", "text")))

MESSAGE_COUNTER = Table(
    "messageCounter", (Column("mailboxId", "timeuuid", _P), Column("nextUid", "bigint")), comment="Uid generator"
)
MODSEQ = Table(
    "modseq", (Column("mailboxId", "timeuuid", _P), Column("nextModseq", "bigint")), comment="Modseq generator"
)
MAILBOX_COUNTERS = Table(
    "mailboxCounters",
    (Column("mailboxId", "timeuuid", _P), Column("count", "counter"), Column("unseen", "counter")),
    comment="Number of messages and of unseen messages of each mailbox",
)
FIRST_UNSEEN = Table(
    "firstUnseen",
    (Column("mailboxId", "timeuuid", _P), Column("uid", "bigint", _C)),
    comment="Uids of the messages without \\Seen",
)
MAILBOX_RECENTS = Table(
    "mailboxRecents",
    (Column("mailboxId", "timeuuid", _P), Column("recent_mesage_uid", "bigint", _C)),
    comment="Uids of the messages with \\Recent",
    options={"gc_grace_seconds": "0"},
)
MESSAGE_DELETED = Table(
    "messageDeleted",
    (Column("mailboxId", "timeuuid", _P), Column("uid", "bigint", _C)),
    comment="Uids of the messages with \\Deleted",
)
APPLICABLE_FLAG = Table(
    "applicableFlag",
    (Column("mailboxId", "timeuuid", _P), Column("userFlags", "set<text>", canonical=Canonical.SET)),
    comment="User flags seen in each mailbox; append only",
)
MAILBOX = Table(
    "mailbox",
    (
        Column("id", "timeuuid", _P),
        Column("mailboxbase", "frozen<mailboxbase>"),
        Column("name", "text"),
        Column("uidvalidity", "bigint"),
    ),
    comment="Path and uid validity of each mailbox",
    options={"compression": "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 8}"},
)
MAILBOX_PATH = Table(
    "mailboxPathV3",
    (
        Column("namespace", "text", _P),
        Column("user", "text", _P),
        Column("mailboxName", "text", _C),
        Column("mailboxId", "timeuuid"),
        Column("uidvalidity", "bigint"),
    ),
    comment="The registry of mailbox paths: the truth of paths",
)

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

_BY_MAILBOX = (("mailboxid", "mailboxid"),)
_BY_UID = (("mailboxid", "mailboxid"), ("uid", "uid"))

MESSAGES = Family(
    mirror=Mirror(
        truth=IMAP_UID,
        table=MESSAGE_ID,
        key=_BY_UID,
        compared=(Column("messageId", "timeuuid"), *_METADATA),
        required=("modseq", "internaldate", "bodystartoctet", "fullcontentoctets", "headercontent"),
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
        ),
    ),
    content=Content(IMAP_UID, MESSAGE_V3, (("messageid", "messageid"),)),
)
"""All that follows from imapUidTable."""

_MAILBOX_READ = MAILBOX.with_columns(
    (
        Column("id", "timeuuid", _P),
        Column("mailboxbase.namespace", "text"),
        Column("mailboxbase.user", "text"),
        Column("name", "text"),
        Column("uidvalidity", "bigint"),
    )
)
"""`mailbox` as it is compared: the fields of its path read one by one, which CQL and Spark both take."""

PATHS = Family(
    mirror=Mirror(
        truth=MAILBOX_PATH,
        table=_MAILBOX_READ,
        key=(("id", "mailboxid"),),
        compared=_MAILBOX_READ.regular,
        renamed=(("mailboxbase.namespace", "namespace"), ("mailboxbase.user", "user"), ("name", "mailboxname")),
        report_only=True,
    ),
)
"""The paths of mailboxes: reported only, for now."""

FAMILIES = (MESSAGES, PATHS)
