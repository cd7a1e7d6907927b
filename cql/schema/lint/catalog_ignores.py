"""The findings of lint in our own tables (catalog and ledger), each with the reason why it stays.

`schema lint` shows them next to its findings, with the reason; a test says that nothing else is found.
"""

from typing import Final

from mailmend.cql.schema.lint.ignores import Ignore
from mailmend.cql.schema.lint.subject import window_of
from mailmend.model.catalog.james_tables import EMAIL_QUERY_VIEW
from mailmend.model.catalog.ledger import (
    ADMIN_TASK,
    DELIVERY_ATTEMPT,
    DELIVERY_ORDER_HISTORY,
    JOB_RUN,
    JOB_TURN,
    LEDGER_TABLES,
    REPAIR_FINDING,
    REPAIR_LAG,
    REPAIR_RUN,
    RUN_LIMIT,
)
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MAILBOX_RECENTS, MESSAGE_ID, MESSAGE_V3, SCHEMA
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, SLICE_TALLIES
from mailmend.model.keyspace import Schema
from mailmend.model.table import Table

_BIG: Final = tuple(table.spelling for table in (IMAP_UID, MESSAGE_ID, MESSAGE_V3))
_LEDGER: Final = tuple(
    table.spelling
    for table in (
        REPAIR_RUN,
        REPAIR_FINDING,
        REPAIR_LAG,
        JOB_RUN,
        JOB_TURN,
        RUN_LIMIT,
        ADMIN_TASK,
        DELIVERY_ATTEMPT,
        DELIVERY_ORDER_HISTORY,
    )
)

_NO_TTL: Final = (
    "mail stays until its owner deletes it; the design asks for time windows here, and 30 days leave a dozen SSTables "
    "a year; `schema advise` measures what that costs, and --compaction chooses otherwise"
)
_DELETED: Final = (
    "an expunge deletes; its space comes back with a major compaction or nodetool garbagecollect; `schema advise` "
    "measures what that costs, and --compaction chooses otherwise"
)
_UPDATED: Final = (
    "flags of old messages do change; windows of 30 days keep a row within few of them; `schema advise` measures the "
    "SSTables per read, and --compaction chooses otherwise"
)
_MONOTONIC: Final = "flags and uids must never be read older than before, which blocking read repair sees to"
_LOOKED_UP: Final = "30 days leave a dozen filters a year to ask: one false positive in eight lookups after a year"
_LEDGER_READS: Final = "a run that was recorded must be read back so, also after a failed write; the tables are small"

CATALOG_IGNORES: Final[tuple[Ignore, ...]] = (
    *(Ignore("T1", table, _NO_TTL) for table in _BIG),
    *(Ignore("T4", table, _DELETED) for table in _BIG),
    *(Ignore("T5", table, _UPDATED) for table in (IMAP_UID.spelling, MESSAGE_ID.spelling)),
    Ignore(
        "T6",
        MESSAGE_ID.spelling,
        "the stamp of a projection is the truth's own, or the beginning of the repair: hours old, windows take 30 days",
    ),
    *(Ignore("T7", table, _MONOTONIC) for table in _BIG),
    *(Ignore("T13", table, _LOOKED_UP) for table in (IMAP_UID.spelling, MESSAGE_V3.spelling)),
    Ignore(
        "T14",
        MESSAGE_ID.spelling,
        "a row is written whole once when the message comes, and again only by a repair of just that row",
    ),
    Ignore("T20", MESSAGE_V3.spelling, "the list is content: it is written once, and no repair ever writes it"),
    Ignore(
        "T21",
        MAILBOX_COUNTERS.spelling,
        "counters are mended by one difference under a lease, after two looks that agree, and it is never sent again",
    ),
    Ignore(
        "T8",
        MAILBOX_RECENTS.spelling,
        "James has it so; whatever is lost or comes back is drift of a projection, which check finds and repair mends",
    ),
    Ignore(
        "T15", EMAIL_QUERY_VIEW.spelling, "James's own key; a partition grows as its mailbox does, as the mail does"
    ),
    Ignore(
        "T4",
        ENQUEUED_MAILS.spelling,
        "a finished slice is deleted by partition, so its mails are not read any more; the space "
        "comes back when its window expires",
    ),
    Ignore(
        "T4",
        DELETED_MAILS.spelling,
        "mailmend leaves marks to expire; a James on the same queue removes some, and those tombstones expire too",
    ),
    Ignore("T4", SLICE_TALLIES.spelling, "one tombstone for each slice that is swept, and everything here expires"),
    Ignore(
        "T5",
        SLICE_TALLIES.spelling,
        "a tally changes while its slice is worked off, mostly within one window; each change writes the row whole",
    ),
    Ignore(
        "T6",
        SLICE_TALLIES.spelling,
        "a tally is renewed as of its last change, so that a newer one stays; that may hold back what expired for some "
        "days more, in a table of a few rows for each slice",
    ),
    *(Ignore("T7", table, _LEDGER_READS) for table in _LEDGER),
    Ignore("T5", REPAIR_RUN.spelling, "a run is written again while it goes on: hours, and windows take a day"),
    Ignore("T5", REPAIR_FINDING.spelling, "what became of a finding is written minutes after it, mostly the same day"),
    Ignore("T6", REPAIR_FINDING.spelling, "the stamps lie around the beginning of the run: hours, and it all expires"),
    Ignore("T2", DELIVERY_ATTEMPT.spelling, "a day is the stretch that is replayed, and a week of it is kept"),
    Ignore("T5", DELIVERY_ATTEMPT.spelling, "urgent is as the mail was then: a row is written with it, and it stays"),
    Ignore("T4", REPAIR_LAG.spelling, "lags are few and mended soon; row and tombstone expire within the same 30 days"),
)
"""The findings in our own tables that are ignored, each with its reason."""

_OURS: Final = {table.name: table for table in (*SCHEMA.tables, *LEDGER_TABLES)}


def ignores_for(schema: Schema) -> tuple[Ignore, ...]:
    """The ignores for a schema; reasons that count windows are left out for tables with other windows."""
    return tuple(
        ignore for ignore in CATALOG_IGNORES if _holds(schema.table(ignore.table), _OURS[ignore.table.lower()])
    )


def _holds(found: Table | None, ours: Table) -> bool:
    return found is not None and window_of(found) in (None, window_of(ours))
