"""What an operator reads of the upgrade notes, from the keyspace that an older James left."""

from collections.abc import Iterable

import pytest

from mailmend.cql.render import ddl_cql
from mailmend.cql.schema.generations import JAMES_3_8, JAMES_3_9
from mailmend.cql.schema.risk import Risk
from mailmend.cql.schema.upgrades import (
    MAIL_QUEUE,
    OptionalMigration,
    decide_version,
    due_migrations,
    optional_migration,
)
from mailmend.model.catalog.mail_queue import JAMES_QUEUE_TABLES
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Compaction, Kind, Table
from tests.support.schemas import served, without_tables

KEY = (Column("id", "timeuuid", Kind.PARTITION), Column("at", "timestamp", Kind.CLUSTERING))
SIZE_TIERED = Compaction("SizeTieredCompactionStrategy")
LEVELED = Compaction("LeveledCompactionStrategy")


def keyspace(tables: Iterable[str], compaction: Compaction) -> Schema:
    """A keyspace of these tables, which have a key and nothing that came later."""
    found = (Table(name.lower(), KEY, compaction=compaction) for name in tables)
    return Schema((), tuple(found))


def reading_of(migration: OptionalMigration, live: Schema) -> str:
    """All that a person reads of a migration before its run, with what would be sent."""
    sent = (ddl_cql(statement, None) for statement in migration.due(live))
    return " ".join(
        (f"{migration.since} {migration.source} {migration.name}:", migration.why, migration.caution, *sent)
    )


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("tables", "compaction", "text"),
    [
        pytest.param(
            "deletedMailsV2 enqueuedMailsV4",
            SIZE_TIERED,
            """
            2020-03-18 JAMES-3121 tune-queue-compaction: The queue's tables are time series: time windows keep each
            compaction small. The note names the class org.apache.cassandra.db.compaction.TimeWindowCompaction, which
            does not exist: every server refuses it. Here it is TimeWindowCompactionStrategy. Its read_repair_chance is
            left out, for it is gone since Cassandra 4.0. Without a time to live no whole SSTable is ever dropped.
            ALTER TABLE deletedMailsV2 WITH compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_unit': 'DAYS', 'compaction_window_size': '1'};
            ALTER TABLE enqueuedMailsV4 WITH compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_unit': 'HOURS', 'compaction_window_size': '1'};
            2020-03-18 JAMES-3121 tune-bloom-filters: Point reads of keys that are not there touch fewer SSTables.
            ALTER TABLE deletedMailsV2 WITH bloom_filter_fp_chance = 0.01;
            """,
            id="a queue that compacts by size",
        ),
        pytest.param(
            "enqueuedMailsV3 enqueuedMailsV4",
            SIZE_TIERED,
            """
            2020-03-18 JAMES-3121 tune-queue-compaction: The queue's tables are time series: time windows keep each
            compaction small. The note names the class org.apache.cassandra.db.compaction.TimeWindowCompaction, which
            does not exist: every server refuses it. Here it is TimeWindowCompactionStrategy. Its read_repair_chance is
            left out, for it is gone since Cassandra 4.0. Without a time to live no whole SSTable is ever dropped.
            ALTER TABLE enqueuedMailsV3 WITH compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_unit': 'HOURS', 'compaction_window_size': '1'};
            ALTER TABLE enqueuedMailsV4 WITH compaction = {'class': 'TimeWindowCompactionStrategy',
            'compaction_window_unit': 'HOURS', 'compaction_window_size': '1'};
            2021-08-06 JAMES-3629 drop-enqueued-mails-v3: James 3.7 and later list the queue from enqueuedMailsV4.
            Only once the queue was empty after the upgrade: mails listed only here can no longer be browsed.
            DROP TABLE IF EXISTS enqueuedMailsV3;
            """,
            id="a queue listed twice",
        ),
        pytest.param(
            "applicableFlag attachmentMessageId attachmentOwners attachmentV2 firstUnseen mailboxCounters "
            "mailboxRecents messageCounter messageDeleted modseq",
            LEVELED,
            """
            2020-03-18 JAMES-3121 tune-mail-compaction: Rows that are updated as long as they live compact best by
            size; a table of short rows, by level. See what mailmend schema advise says of your own rows before the two
            big tables are rewritten.
            ALTER TABLE applicableFlag WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE attachmentMessageId WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE attachmentV2 WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE firstUnseen WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE mailboxCounters WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE mailboxRecents WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE messageCounter WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE messageDeleted WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            ALTER TABLE modseq WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            2020-03-18 JAMES-3121 tune-bloom-filters: Point reads of keys that are not there touch fewer SSTables.
            ALTER TABLE attachmentOwners WITH bloom_filter_fp_chance = 0.01;
            ALTER TABLE firstUnseen WITH bloom_filter_fp_chance = 0.01;
            ALTER TABLE mailboxCounters WITH bloom_filter_fp_chance = 0.01;
            ALTER TABLE messageCounter WITH bloom_filter_fp_chance = 0.01;
            2021-08-09 JAMES-3544 attachment-message-id: An attachment knows its message; every James since 3.7 writes
            the column, and is refused without it. Rows from before stay null until James's own migration to schema
            version 12 fills them.
            ALTER TABLE attachmentV2 ADD message_id timeuuid;
            """,
            id="tables of one row for each mail or mailbox",
        ),
        pytest.param(
            "messageIdTable imapUidTable",
            SIZE_TIERED,
            """
            2021-05-02 JAMES-3576 message-denormalization: Mail lists are read without messageV3; every James since 3.7
            writes these columns. Rows from before stay null until James's own migration to schema version 11 fills
            them.
            ALTER TABLE messageIdTable
            ADD (internalDate timestamp, bodyStartOctet int, fullContentOctets bigint, headerContent text);
            ALTER TABLE imapUidTable
            ADD (internalDate timestamp, bodyStartOctet int, fullContentOctets bigint, headerContent text);
            2021-06-23 JAMES-3516 thread-id: Each message knows its thread; every James since 3.7 writes the column,
            and is refused without it.
            ALTER TABLE messageIdTable ADD threadId timeuuid;
            ALTER TABLE imapUidTable ADD threadId timeuuid;
            2022-12-01 JAMES-3754 save-date: IMAP's SAVEDATE; every James since 3.8 writes the column, and is refused
            without it.
            ALTER TABLE messageIdTable ADD save_date timestamp;
            ALTER TABLE imapUidTable ADD save_date timestamp;
            """,
            id="messages of 2020",
        ),
        pytest.param(
            "defaultMaxQuota defaultMaxQuota2",
            SIZE_TIERED,
            """
            2021-08-06 JAMES-3630 drop-default-max-quota: James 3.7 and later read the default quota from
            defaultMaxQuota2. Set the default quota anew first: James does not carry it over.
            DROP TABLE IF EXISTS defaultMaxQuota;
            """,
            id="two default quotas",
        ),
        pytest.param(
            "user custom_identity",
            SIZE_TIERED,
            """
            2022-05-26 JAMES-3756 user-authorized-users: Delegation: who may act for a user.
            ALTER TABLE user ADD authorized_users set<text>;
            2022-10-06 JAMES-3831 identity-sort-order: JMAP identities are shown in an order.
            ALTER TABLE custom_identity ADD sort_order int;
            2023-01-05 JAMES-3756 user-delegated-users: Delegation: for whom a user may act.
            ALTER TABLE user ADD delegated_users set<text>;
            """,
            id="users before delegation",
        ),
        pytest.param(
            "eventStore",
            SIZE_TIERED,
            """
            2020-03-18 JAMES-3121 tune-mail-compaction: Rows that are updated as long as they live compact best by
            size; a table of short rows, by level. See what mailmend schema advise says of your own rows before the two
            big tables are rewritten.
            ALTER TABLE eventStore WITH compaction = {'class': 'LeveledCompactionStrategy'};
            2023-04-19 JAMES-3777 event-store-snapshot: Long histories of events are read from their last snapshot on.
            While old and new James nodes run side by side, start the new ones with
            -Djames.jmap.filters.eventsource.increments.enabled=false.
            ALTER TABLE eventStore ADD snapshot int STATIC;
            """,
            id="events without snapshots",
        ),
        pytest.param(
            "uploads threadTable threadLookupTable thread_2 thread_lookup_3",
            SIZE_TIERED,
            """
            2023-08-24 drop-uploads: James 3.9 keeps JMAP uploads elsewhere.
            Only after every James is 3.9 or later; uploads under way are lost.
            DROP TABLE IF EXISTS uploads;
            2023-09-14 JAMES-3937 drop-old-threads: James 3.9 finds threads in thread_2 and thread_lookup_3.
            Only after every James is 3.9 or later.
            DROP TABLE IF EXISTS threadTable;
            DROP TABLE IF EXISTS threadLookupTable;
            """,
            id="tables that 3.9 left behind",
        ),
        pytest.param(
            "blob_cache blobs blobsInBucket email_query_view_received_at email_query_view_sent_at",
            LEVELED,
            """
            2023-09-18 blob-cache-compaction: The cache of small blobs compacts with less work by size.
            ALTER TABLE blob_cache WITH compaction = {'class': 'SizeTieredCompactionStrategy'};
            2025-12-01 JAMES-3340 email-query-view-thread-id: JMAP lists can collapse threads; every James built since
            then writes the column, and is refused without it.
            ALTER TABLE email_query_view_sent_at ADD thread_id uuid;
            ALTER TABLE email_query_view_received_at ADD thread_id uuid;
            2026-04-14 blob-metadata: Blobs carry metadata; every James built since then writes the column, and is
            refused without it.
            ALTER TABLE blobs ADD metadata frozen<map<text,text>>;
            ALTER TABLE blobsInBucket ADD metadata frozen<map<text,text>>;
            """,
            id="3.9",
        ),
    ],
)
def test_a_keyspace_shows_what_its_upgrades_left_undone(tables: str, compaction: Compaction, text: str) -> None:
    """The notes in the order of their dates, each with its reason, its warning and its statements."""
    live = keyspace(tables.split(), compaction)
    notes = [migration for migration in due_migrations(live) if migration is not MAIL_QUEUE]
    assert words(" ".join(reading_of(note, live) for note in notes)) == words(text)


def test_a_james_without_a_queue_learns_what_the_queue_costs() -> None:
    live = without_tables(served(JAMES_3_8.schema), *(table.name for table in JAMES_QUEUE_TABLES))
    assert MAIL_QUEUE in due_migrations(live)
    assert words(reading_of(MAIL_QUEUE, live).partition(" CREATE TABLE")[0]) == words(
        """
        2026-11-21 mail-queue: Mails of the queue can be delayed, and are counted without reading them all; a sub-queue
        that does not move holds up no other; where this James has no queue in Cassandra, its four tables come too.
        James neither lists nor touches dueMails, sliceTallies, queueState, backlogs and backlogMails. Its own four stay
        as they are where they are there, and nothing in them expires; made here their rows do, so mailmend queue sweep
        must run.
        """
    )
    assert MAIL_QUEUE.undo == (
        "Run mailmend queue flush, then drop dueMails, sliceTallies, queueState, backlogs and backlogMails: "
        "the queue goes on without delays and backlogs."
    )


def test_an_unknown_name_is_answered_with_every_name_in_order() -> None:
    with pytest.raises(WrongUse) as refused:
        optional_migration("save-data")
    assert str(refused.value).startswith("there is no optional migration 'save-data'")
    assert refused.value.mend == (
        "There are: tune-queue-compaction, tune-mail-compaction, tune-bloom-filters, message-denormalization, "
        "thread-id, drop-default-max-quota, drop-enqueued-mails-v3, attachment-message-id, user-authorized-users, "
        "identity-sort-order, save-date, user-delegated-users, event-store-snapshot, drop-uploads, drop-old-threads, "
        "blob-cache-compaction, email-query-view-thread-id, blob-metadata, mail-queue."
    )


def test_a_person_agrees_to_each_statement_that_is_risky_and_due() -> None:
    live = keyspace(["modseq", "messageDeleted", "threadTable", "thread_2", "thread_lookup_3", "user"], LEVELED)

    rewrites = optional_migration("tune-mail-compaction").risky(live)
    drops = optional_migration("drop-old-threads").risky(live)

    assert [(place, assessment.worst) for place, assessment in rewrites] == [
        ("tune-mail-compaction, messageDeleted", Risk.REWRITE),
        ("tune-mail-compaction, modseq", Risk.REWRITE),
    ]
    assert [place for place, _ in drops] == ["drop-old-threads, threadTable"]
    assert optional_migration("user-authorized-users").risky(live) == ()


def test_how_a_note_is_undone_follows_from_its_statements() -> None:
    assert optional_migration("drop-uploads").undo == (
        "Only a snapshot (auto_snapshot takes one at the drop) brings a dropped table back."
    )
    assert optional_migration("save-date").undo == (
        "Nothing has to: rows that lack the columns read as before. Dropping them again loses what they hold."
    )


def test_a_version_that_claims_work_of_james_warns_of_it() -> None:
    assert decide_version((), JAMES_3_8, 10).caution == (
        "James will take its own data migrations (8 to 9, 9 to 10) for done and never run them. Write it only when "
        "they are, or have nothing to do."
    )


def test_a_version_of_another_james_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(WrongUse) as refused:
        decide_version((13,), JAMES_3_9, 16)
    sentence = "a James of the generation 3.9 knows the schema versions 12 to 15, not 16"
    assert str(refused.value).startswith(sentence)
