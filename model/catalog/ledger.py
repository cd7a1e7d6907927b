"""The tables of our own keyspace: what was run, what it found and replaced, what lags behind, who holds which lease.

They live beside the mail keyspace, never in it: an adopted keyspace is not altered silently (DESIGN section 4
"Ledger, lags, leases"). What is written row by row expires by itself, so whole SSTables drop and nobody has to clean
up; a lease is one conditional row that lives as long as its heartbeat; the history of schemas stays
(`model.catalog.schema_history`).
"""

from collections.abc import Mapping
from datetime import timedelta
from hashlib import blake2b
from uuid import UUID

from model.catalog.schema_history import HISTORY_TABLES
from model.ids import RunId, micros_of
from model.instants import instant_of
from model.schema.table import Column, Compaction, Kind, Table

_P, _C = Kind.PARTITION, Kind.CLUSTERING

KEEP = timedelta(days=30)
"""How long runs, findings and lags are kept unless `--keep` says otherwise."""

FINDING_BUCKETS = 256
"""Partitions that one run's findings spread over: a million findings leave about 4,000 rows in each."""

LAG_BUCKETS = 16
"""Partitions that one day's lags spread over."""

_TWCS_DAYS = Compaction(
    "TimeWindowCompactionStrategy", {"compaction_window_unit": "DAYS", "compaction_window_size": "1"}
)

_EXPIRES: Mapping[str, str] = {"default_time_to_live": str(int(KEEP.total_seconds()))}

REPAIR_RUN = Table(
    "repair_run",
    (
        Column("day", "text", _P),
        Column("run", "timeuuid", _C, descending=True),
        Column("keyspaceName", "text"),
        Column("command", "text"),
        Column("state", "text"),
        Column("asOf", "bigint"),
        Column("startedAt", "timestamp"),
        Column("endedAt", "timestamp"),
        Column("owner", "text"),
        Column("options", "text"),
        Column("summary", "text"),
        Column("undoes", "timeuuid"),
    ),
    comment="Runs of checks and repairs by the day they began (from the run's own time)",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
REPAIR_FINDING = Table(
    "repair_finding",
    (
        Column("day", "text", _P),
        Column("run", "timeuuid", _P),
        Column("bucket", "int", _P),
        Column("projection", "text", _C),
        Column("rowKey", "text", _C),
        Column("before", "text"),
        Column("result", "text"),
        Column("error", "text"),
    ),
    comment="What a run saw at each key before it wrote there, and what became of it",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
REPAIR_LAG = Table(
    "repair_lag",
    (
        Column("keyspaceName", "text", _P),
        Column("day", "text", _P),
        Column("bucket", "int", _P),
        Column("noticed", "timeuuid", _C),
        Column("projection", "text"),
        Column("rowKey", "text"),
        Column("suspect", "text"),
        Column("cause", "text"),
    ),
    comment="Projection writes that outlived their retries, by the day they were noticed",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
REPAIR_LEASE = Table(
    "repair_lease",
    (
        Column("name", "text", _P),
        Column("claim", "timeuuid"),
        Column("owner", "text"),
        Column("purpose", "text"),
        Column("acquiredAt", "timestamp"),
        Column("expiresAt", "timestamp"),
    ),
    comment="Who may work where: one conditional row per lease, alive as long as its heartbeat",
)

LEDGER_TABLES = (REPAIR_RUN, REPAIR_FINDING, REPAIR_LAG, REPAIR_LEASE, *HISTORY_TABLES)


def day_of(run: RunId | UUID) -> str:
    """The UTC day of a version-1 UUID in the tables' format: 2026-08-30."""
    return instant_of(micros_of(run)).date().isoformat()


def days_back(now_micros: int, keep: timedelta = KEEP) -> tuple[str, ...]:
    """The days that may still hold rows, newest first; tomorrow included, for writers whose clock runs ahead."""
    today = instant_of(now_micros).date()
    return tuple((today - timedelta(days=back)).isoformat() for back in range(-1, keep.days + 2))


def bucket_of(text: str, buckets: int) -> int:
    """The bucket of a key; the same in every process, unlike Python's own hash."""
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % buckets
