"""Keyspaces of James: what upgrade notes leave to the operator, and their adoption. Pure.

James creates missing tables at its start, and alters none. New columns and options of existing tables had to be altered
by hand, release by release, and often were not. An optional migration runs only when a person gives its name.
Source: upgrade-instructions.md of apache/james-project, reworded, and corrected where it is wrong.

Adopting alters nothing in the mail keyspace. It is refused where it would record something wrong: a keyspace of another
form is not James's, and in one that James has not finished creating, no migration can count as applied.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum

from mailmend.cql.schema.difference import Aspect, Difference, aspects_of
from mailmend.cql.schema.generations import (
    AUGUST_2026,
    JAMES_3_8,
    JAMES_3_9,
    NEWEST,
    Generation,
    Recognition,
    holds_mail,
    recognise,
    was_made_here,
)
from mailmend.cql.schema.migrations import LedgerRecord, MigrationState
from mailmend.cql.schema.risk import Risky
from mailmend.cql.statements import AddColumns, CreateTable, DropTable, Name, SetOptions, Statement
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.catalog.mail_queue import QUEUE_TABLES, time_to_live
from mailmend.model.errors import UnsafeRequest, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Kind


@dataclass(frozen=True, slots=True)
class OptionalMigration:
    """One upgrade note, or what mailmend itself would add to a keyspace of James.

    Attributes:
        source: the ticket in James's issue tracker; "" without a ticket.
        statements: all its statements; on a live keyspace only those that still change something are sent.
        caution: what the operator should know before, or what is wrong with the note; "" where nothing is.
        after: tables that must exist before it is due: without them, James still reads what it drops.
    """

    name: str
    since: date
    source: str
    why: str
    statements: tuple[Statement, ...]
    caution: str = ""
    after: tuple[str, ...] = ()
    undo_of_its_own: str = ""

    @property
    def undo(self) -> str:
        """How to undo the migration, as a sentence."""
        return self.undo_of_its_own or self.statements[0].undo

    def due(self, live: Schema) -> tuple[Statement, ...]:
        """The statements that would still change something in the live keyspace."""
        for name in self.after:
            if live.table(name) is None:
                return ()
        due = []
        for statement in self.statements:
            remaining = _remaining(statement, live)
            if remaining is not None:
                due.append(remaining)
        return tuple(due)

    def risky(self, live: Schema) -> tuple[Risky, ...]:
        """The risks that a person must agree to: the risks of the statements that are due."""
        risky = []
        for statement in self.due(live):
            assessment = statement.assess(live)
            if assessment.is_risky:
                risky.append((f"{self.name}, {statement.about}", assessment))
        return tuple(risky)


def due_migrations(live: Schema) -> tuple[OptionalMigration, ...]:
    """The optional migrations that would still change something, the oldest first."""
    return tuple(migration for migration in OPTIONAL if migration.due(live))


def optional_migration(name: str) -> OptionalMigration:
    """The optional migration of that name."""
    for migration in OPTIONAL:
        if migration.name == name:
            return migration
    names = ", ".join(migration.name for migration in OPTIONAL)
    raise WrongUse(f"there is no optional migration {name!r}", mend=f"There are: {names}.")


def note_adding(table: str, column: str) -> str | None:
    """The name of the upgrade note that adds the column; None where no note does."""
    return _ADDED.get((table.lower(), column.lower()))


def _remaining(statement: Statement, live: Schema) -> Statement | None:
    """What a statement still has to do; tables with expiring rows have their own windows and filters already."""
    table = live.table(statement.about)
    if statement.options_set is not None and table is not None and time_to_live(table):
        return None
    return statement.remaining(live)


def _add(table: str, columns: Mapping[str, str], kind: Kind = Kind.REGULAR) -> AddColumns:
    return AddColumns(Name(table), tuple(Column(name, cql_type, kind) for name, cql_type in columns.items()))


def _compact(table: str, strategy: str, **options: str) -> SetOptions:
    pairs = [f"'class': '{strategy}'"]
    for name, value in options.items():
        pairs.append(f"'{name}': '{value}'")
    literal = ", ".join(pairs)
    return SetOptions(Name(table), {"compaction": f"{{{literal}}}"})


def _windows(table: str, unit: str) -> SetOptions:
    """Time windows of one day or one hour."""
    return _compact(table, _TIME_WINDOWS, compaction_window_unit=unit, compaction_window_size="1")


def _drop(*tables: str) -> tuple[Statement, ...]:
    return tuple(DropTable(Name(table), if_exists=True) for table in tables)


_DENORMALISED = {
    "internalDate": "timestamp",
    "bodyStartOctet": "int",
    "fullContentOctets": "bigint",
    "headerContent": "text",
}
_SIZE_TIERED = "SizeTieredCompactionStrategy"
_TIME_WINDOWS = "TimeWindowCompactionStrategy"

_UPDATED_TABLES = """
    applicableFlag attachmentMessageId attachmentV2 firstUnseen mailboxCounters mailboxRecents
    messageCounter messageDeleted modseq imapUidTable messageIdTable
"""

UPGRADE_NOTES = (
    OptionalMigration(
        "tune-queue-compaction",
        date(2020, 3, 18),
        "JAMES-3121",
        "The queue's tables are time series: time windows keep each compaction small.",
        (
            _windows("deletedMailsV2", "DAYS"),
            _windows("enqueuedMailsV3", "HOURS"),
            _windows("enqueuedMailsV4", "HOURS"),
        ),
        "The note names the class org.apache.cassandra.db.compaction.TimeWindowCompaction, which does not exist: every "
        "server refuses it. Here it is TimeWindowCompactionStrategy. Its read_repair_chance is left out, for it is "
        "gone since Cassandra 4.0. Without a time to live no whole SSTable is ever dropped.",
    ),
    OptionalMigration(
        "tune-mail-compaction",
        date(2020, 3, 18),
        "JAMES-3121",
        "Rows that are updated as long as they live compact best by size; a table of short rows, by level.",
        (
            *(_compact(table, _SIZE_TIERED) for table in _UPDATED_TABLES.split()),
            _compact("eventStore", "LeveledCompactionStrategy"),
        ),
        "See what mailmend schema advise says of your own rows before the two big tables are rewritten.",
    ),
    OptionalMigration(
        "tune-bloom-filters",
        date(2020, 3, 18),
        "JAMES-3121",
        "Point reads of keys that are not there touch fewer SSTables.",
        tuple(
            SetOptions(Name(table), {"bloom_filter_fp_chance": "0.01"})
            for table in ("attachmentOwners", "deletedMailsV2", "firstUnseen", "mailboxCounters", "messageCounter")
        ),
    ),
    OptionalMigration(
        "message-denormalization",
        date(2021, 5, 2),
        "JAMES-3576",
        "Mail lists are read without messageV3; every James since 3.7 writes these columns.",
        (_add("messageIdTable", _DENORMALISED), _add("imapUidTable", _DENORMALISED)),
        "Rows from before stay null until James's own migration to schema version 11 fills them.",
    ),
    OptionalMigration(
        "thread-id",
        date(2021, 6, 23),
        "JAMES-3516",
        "Each message knows its thread; every James since 3.7 writes the column, and is refused without it.",
        (_add("messageIdTable", {"threadId": "timeuuid"}), _add("imapUidTable", {"threadId": "timeuuid"})),
    ),
    OptionalMigration(
        "drop-default-max-quota",
        date(2021, 8, 6),
        "JAMES-3630",
        "James 3.7 and later read the default quota from defaultMaxQuota2.",
        _drop("defaultMaxQuota"),
        "Set the default quota anew first: James does not carry it over.",
        after=("defaultMaxQuota2",),
    ),
    OptionalMigration(
        "drop-enqueued-mails-v3",
        date(2021, 8, 6),
        "JAMES-3629",
        "James 3.7 and later list the queue from enqueuedMailsV4.",
        _drop("enqueuedMailsV3"),
        "Only once the queue was empty after the upgrade: mails listed only here can no longer be browsed.",
        after=("enqueuedMailsV4",),
    ),
    OptionalMigration(
        "attachment-message-id",
        date(2021, 8, 9),
        "JAMES-3544",
        "An attachment knows its message; every James since 3.7 writes the column, and is refused without it.",
        (_add("attachmentV2", {"message_id": "timeuuid"}),),
        "Rows from before stay null until James's own migration to schema version 12 fills them.",
    ),
    OptionalMigration(
        "user-authorized-users",
        date(2022, 5, 26),
        "JAMES-3756",
        "Delegation: who may act for a user.",
        (_add("user", {"authorized_users": "set<text>"}),),
    ),
    OptionalMigration(
        "identity-sort-order",
        date(2022, 10, 6),
        "JAMES-3831",
        "JMAP identities are shown in an order.",
        (_add("custom_identity", {"sort_order": "int"}),),
    ),
    OptionalMigration(
        "save-date",
        date(2022, 12, 1),
        "JAMES-3754",
        "IMAP's SAVEDATE; every James since 3.8 writes the column, and is refused without it.",
        (_add("messageIdTable", {"save_date": "timestamp"}), _add("imapUidTable", {"save_date": "timestamp"})),
    ),
    OptionalMigration(
        "user-delegated-users",
        date(2023, 1, 5),
        "JAMES-3756",
        "Delegation: for whom a user may act.",
        (_add("user", {"delegated_users": "set<text>"}),),
    ),
    OptionalMigration(
        "event-store-snapshot",
        date(2023, 4, 19),
        "JAMES-3777",
        "Long histories of events are read from their last snapshot on.",
        (_add("eventStore", {"snapshot": "int"}, Kind.STATIC),),
        "While old and new James nodes run side by side, start the new ones with "
        "-Djames.jmap.filters.eventsource.increments.enabled=false.",
    ),
    OptionalMigration(
        "drop-uploads",
        date(2023, 8, 24),
        "",
        "James 3.9 keeps JMAP uploads elsewhere.",
        _drop("uploads"),
        "Only after every James is 3.9 or later; uploads under way are lost.",
    ),
    OptionalMigration(
        "drop-old-threads",
        date(2023, 9, 14),
        "JAMES-3937",
        "James 3.9 finds threads in thread_2 and thread_lookup_3.",
        _drop("threadTable", "threadLookupTable"),
        "Only after every James is 3.9 or later.",
        after=("thread_2", "thread_lookup_3"),
    ),
    OptionalMigration(
        "blob-cache-compaction",
        date(2023, 9, 18),
        "",
        "The cache of small blobs compacts with less work by size.",
        (_compact("blob_cache", _SIZE_TIERED),),
    ),
    OptionalMigration(
        "email-query-view-thread-id",
        date(2025, 12, 1),
        "JAMES-3340",
        "JMAP lists can collapse threads; every James built since then writes the column, and is refused without it.",
        (
            _add("email_query_view_sent_at", {"thread_id": "uuid"}),
            _add("email_query_view_received_at", {"thread_id": "uuid"}),
        ),
    ),
    OptionalMigration(
        "blob-metadata",
        date(2026, 4, 14),
        "",
        "Blobs carry metadata; every James built since then writes the column, and is refused without it.",
        (
            _add("blobs", {"metadata": "frozen<map<text,text>>"}),
            _add("blobsInBucket", {"metadata": "frozen<map<text,text>>"}),
        ),
    ),
)
"""Every note about tables, oldest first."""

MAIL_QUEUE = OptionalMigration(
    "mail-queue",
    date(2026, 11, 21),
    "",
    "Mails of the queue can be delayed, and are counted without reading them all; a sub-queue that "
    "does not move holds up no other; where this James has no queue in Cassandra, its four tables "
    "come too.",
    tuple(CreateTable(Name(table.spelling), table, if_not_exists=True) for table in QUEUE_TABLES),
    "James neither lists nor touches dueMails, sliceTallies, queueState, backlogs and backlogMails. "
    "Its own four stay as they are where they are there, and nothing in them expires; made here "
    "their rows do, so mailmend queue sweep must run.",
    after=(IMAP_UID.spelling,),
    undo_of_its_own="Run mailmend queue flush, then drop dueMails, sliceTallies, queueState, "
    "backlogs and backlogMails: the queue goes on without delays and backlogs.",
)
"""Our own optional migration: tables that the mail queue needs and a keyspace of James lacks."""

OPTIONAL = (*UPGRADE_NOTES, MAIL_QUEUE)
"""All optional migrations: the upgrade notes and our own."""


def _additions() -> Iterator[tuple[tuple[str, str], str]]:
    """((table, column), name of the note) of every column that an upgrade note adds."""
    for note in UPGRADE_NOTES:
        for statement in note.statements:
            for column in statement.columns_added:
                yield (statement.about.lower(), column.name), note.name


_ADDED: Mapping[tuple[str, str], str] = dict(_additions())


class Standing(Enum):
    """Whether a keyspace is adopted, can be, or why it cannot be; the value is its name in reports."""

    ADOPTABLE = "adoptable"
    ADOPTED = "adopted"  # before now: nothing is left to do
    OURS = "made by mailmend"  # its history says how it came about; no baseline is needed
    EMPTY = "no mail"  # it holds none of the tables that mailmend reads
    HALF_MADE = "half made"  # tables are missing that every James creates at its start
    UNKNOWN = "unknown shape"  # it differs from every generation in what no upgrade explains


@dataclass(frozen=True, slots=True)
class Adoption:
    """What adopting a keyspace would do, or why it would not.

    Attributes:
        optional: the optional migrations (James's upgrade notes) that would still change something.
    """

    standing: Standing
    recognition: Recognition
    against: tuple[Difference, ...]
    optional: tuple[OptionalMigration, ...]


def decide_adoption(live: Schema, record: LedgerRecord) -> Adoption:
    recognition = recognise(live)
    against = tuple(difference for difference in recognition.drift if not _adoptable(difference))
    return Adoption(_standing(live, record, against), recognition, against, due_migrations(live))


def _standing(live: Schema, record: LedgerRecord, against: tuple[Difference, ...]) -> Standing:
    standing = Standing.UNKNOWN
    if record.baseline is not None:
        standing = Standing.ADOPTED
    elif any(entry.state is not MigrationState.BASELINE for entry in record.entries):
        standing = Standing.OURS
    elif not holds_mail(live):
        standing = Standing.EMPTY
    elif was_made_here(live):
        standing = Standing.OURS
    elif not against:
        standing = Standing.ADOPTABLE
    elif aspects_of(against) <= {Aspect.MISSING_TABLE, Aspect.MISSING_TYPE}:
        standing = Standing.HALF_MADE
    return standing


def _adoptable(difference: Difference) -> bool:
    """Whether it does not block adoption: options, a foreign column, a column that an upgrade note would have added."""
    if difference.aspect is Aspect.MISSING_COLUMN:
        return note_adding(difference.owner, difference.subject) is not None
    return difference.aspect in (Aspect.UNEXPECTED_COLUMN, Aspect.DIFFERENT_OPTION)


SUPPORTED: Mapping[str, tuple[int, int]] = {
    JAMES_3_8.name: (8, 12),
    JAMES_3_9.name: (12, 15),
    AUGUST_2026.name: (12, 15),
    NEWEST.name: (12, 16),
}
"""The oldest and the newest version that a James of each generation knows."""


@dataclass(frozen=True, slots=True)
class VersionStep:
    """A planned write of James's schema version.

    Attributes:
        before: the greatest version in the table; None where there is no row.
        assumed: the version that James assumes where there is no row.
        after: the version to be written.
    """

    before: int | None
    assumed: int
    after: int

    @property
    def changes(self) -> bool:
        return self.before != self.after

    @property
    def caution(self) -> str:
        """A warning about what the new version claims; "" where it claims no more than the present one."""
        if self.after <= self.assumed:
            return ""
        steps = ", ".join(f"{step} to {step + 1}" for step in range(self.assumed, self.after))
        return (
            f"James will take its own data migrations ({steps}) for done and never run them. Write it only when they "
            f"are, or have nothing to do."
        )


def decide_version(values: Iterable[int], generation: Generation, wanted: int) -> VersionStep:
    """Plan the write of a version.

    Raises:
        WrongUse: no James of this generation knows such a version.
        UnsafeRequest: the table has a greater version, so James would never read this one.
    """
    oldest, newest = SUPPORTED[generation.name]
    before = max(values, default=None)
    if not oldest <= wanted <= newest:
        raise WrongUse(
            f"a James of the generation {generation.name} knows the schema versions {oldest} to {newest}, not {wanted}",
            mend="Ask James itself: GET /cassandra/version/latest of its webadmin.",
        )
    if before is not None and wanted < before:
        raise UnsafeRequest(
            f"the keyspace has schema version {before}, and James reads the greatest: {wanted} would change nothing",
            mend="Leave it. A version that was written by mistake goes with its row: DELETE FROM schemaversion.",
        )
    assumed = oldest
    if before is not None:
        assumed = before
    return VersionStep(before, assumed, wanted)
