"""The tables of our own keyspace: what was run, what it found and replaced, what lags behind, who holds which lease.

They are outside the mail keyspace: an adopted keyspace is not altered silently (docs/design.md,
"Ledger"). Tables that are written row by row have a time to live, so whole SSTables are dropped and
need no cleanup; a lease is one conditional row that lives as long as its heartbeat; the history of
schemas stays.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from hashlib import blake2b
from uuid import UUID

from mailmend.model.ids import RunId, micros_of
from mailmend.model.instants import instant_of
from mailmend.model.table import Compaction, Table, columns

KEEP = timedelta(days=30)
"""How long runs, findings and lags are kept unless `--keep` says otherwise."""

ATTEMPTS_KEEP = timedelta(days=7)
"""How long attempts to deliver are kept: longer than a mail is tried."""

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
    columns(
        "day text",
        "run timeuuid DESC",
        "keyspaceName text, command text, state text, asOf bigint, startedAt timestamp, endedAt timestamp, "
        "owner text, options text, summary text, undoes timeuuid",
    ),
    comment="Runs of checks and repairs by the day they began (from the run's own time)",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
REPAIR_FINDING = Table(
    "repair_finding",
    columns(
        "day text, run timeuuid, bucket int", "projection text, rowKey text", "before text, result text, error text"
    ),
    comment="What a run saw at each key before it wrote there, and what became of it",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
REPAIR_LAG = Table(
    "repair_lag",
    columns(
        "keyspaceName text, day text, bucket int",
        "noticed timeuuid",
        "projection text, rowKey text, suspect text, cause text",
    ),
    comment="Projection writes that outlived their retries, by the day they were noticed",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
REPAIR_LEASE = Table(
    "repair_lease",
    columns("name text", regular="claim timeuuid, owner text, purpose text, acquiredAt timestamp, expiresAt timestamp"),
    comment="Who may work where: one conditional row per lease, alive as long as its heartbeat",
)


class KeyspaceLease(Enum):
    """Work that only one process at a time may do in a mail keyspace; the value is its name for people."""

    REPAIR = "repair"
    QUEUES = "repair queues"
    BLOBS = "repair blobs"
    SCHEMA = "schema"
    SERVE = "serve"

    def of(self, keyspace: str) -> str:
        return f"{self.value} {keyspace}"


JOB_RUN = Table(
    "job_run",
    columns(
        "keyspaceName text, job text",
        "run timeuuid DESC",
        "command text, state text, startedAt timestamp, endsBy timestamp, endedAt timestamp, exitCode int, "
        "owner text, reason text",
    ),
    comment="Runs of declared jobs, newest first (what they mended is in the runs that name the job)",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
JOB_TURN = Table(
    "job_turn",
    columns("keyspaceName text, job text", "dueAt timestamp DESC", "claim timeuuid, owner text, begunAt timestamp"),
    comment="Planned runs of jobs that were begun: each of them once, whoever begins it",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
JOB_PAUSE = Table(
    "job_pause",
    columns("keyspaceName text, job text", regular="pausedAt timestamp, owner text, reason text"),
    comment="Jobs that are not to run until somebody resumes them",
)
RUN_LIMIT = Table(
    "run_limit",
    columns("run timeuuid", "at timeuuid DESC", "rowsPerSecond int, maxFixes int, owner text"),
    comment="Limits that were set for a run while it was at work, newest first",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
ADMIN_TASK = Table(
    "admin_task",
    columns(
        "keyspaceName text",
        "task timeuuid DESC",
        "type text, options text, status text, submittedAt timestamp, submittedFrom text, submittedBy text, "
        "startedAt timestamp, executedOn text, endedAt timestamp, cancelledFrom text, cancelledBy text, "
        "information text",
    ),
    comment="Administrative tasks that were asked for over HTTP, newest first: what, by whom, what became of them",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
DELIVERY_SUSPENSION = Table(
    "delivery_suspension",
    columns(
        "keyspaceName text, queueName text",
        "suspension timeuuid",
        "fields text, owner text, reason text, endsAt timestamp",
    ),
    comment="Mails of a queue that are not to be delivered, until it ends (each row expires then) or is removed",
)
DELIVERY_CONDITION = Table(
    "delivery_condition",
    columns(
        "keyspaceName text, queueName text",
        "condition uuid",
        "fields text, matches text, limits text, owner text, reason text, madeAt timestamp, endsAt timestamp",
    ),
    comment="Limits of a queue's deliveries before those of the policy files, until it ends or is removed",
)
DELIVERY_ORDER_HISTORY = Table(
    "delivery_order_history",
    columns(
        "keyspaceName text, queueName text, kind text, day text",
        "at timeuuid DESC",
        "event text, changedBy text, orderId uuid, fields text, matches text, limits text, owner text, reason text, "
        "madeAt timestamp, endsAt timestamp",
    ),
    comment="What was done to suspensions and conditions, newest first: made, renewed or removed, by whom and why",
    compaction=_TWCS_DAYS,
    options=_EXPIRES,
)
DELIVERY_INTENT = Table(
    "delivery_intent",
    columns(
        "keyspaceName text, queueName text, mail uuid",
        "number int",
        "action text, owner text, reason text, madeAt timestamp, untilAt timestamp",
    ),
    comment="Changes of active recipients that wait for a server, and under the nil id whether there are any",
)
DELIVERY_POLICIES = Table(
    "delivery_policies",
    columns("keyspaceName text, queueName text", "server text", "algorithm text, policies text, saidAt timestamp"),
    comment="What the policies of each server of a queue count by: said again and again, and gone soon after its end",
)
DELIVERY_ATTEMPT = Table(
    "delivery_attempt",
    columns(
        "keyspaceName text, queueName text, firstMail uuid",
        "number int, attempt timeuuid",
        "mail uuid, fields text, sources text, readyAt timestamp, startedAt timestamp, endedAt timestamp, "
        "outcome text, stage text, status text, host text, bytes bigint, urgent boolean, server text",
    ),
    comment="Attempts to deliver a mail: with which server, counted as what, from where, and what came of each",
    compaction=_TWCS_DAYS,
    options={"default_time_to_live": str(int(ATTEMPTS_KEEP.total_seconds()))},
)
DELIVERY_VIEW = Table(
    "delivery_view",
    columns(
        "keyspaceName text, queueName text",
        regular="epoch bigint, members frozen<list<text>>, since frozen<list<bigint>>, before frozen<list<text>>",
    ),
    comment="Which servers share the limits of a queue's deliveries: one conditional row per queue",
)
DELIVERY_SERVER = Table(
    "delivery_server",
    columns(
        "keyspaceName text, queueName text",
        "server text",
        "claim uuid, owner text, process text, adopted bigint, state text, since timestamp, seenAt timestamp",
    ),
    comment="Servers that deliver a queue: one conditional row each, alive as long as its heartbeat",
)
DELIVERY_LIFE = Table(
    "delivery_life",
    columns(
        "keyspaceName text, queueName text",
        "server text",
        "claim uuid, span uuid, epoch bigint, changes text, number bigint, stamp bigint, seenMicros bigint",
    ),
    comment="What the next process of a server takes up: one conditional row each, changed by the process at work",
)
DELIVERY_RATE = Table(
    "delivery_rate",
    columns(
        "keyspaceName text, queueName text, server text, span uuid",
        "policy text, counter text",
        "state text, seenMicros bigint",
    ),
    comment="What began under rates of a minute or more, per server and counter: never deleted, each row expires",
)

SCHEMA_MIGRATION = Table(
    "schema_migration",
    columns(
        "keyspaceName text",
        "number int",
        "name text, phase text, checksum text, chain text, state text, statements int, doneStatements int, "
        "claim timeuuid, owner text, startedAt timestamp, endedAt timestamp, toolVersion text, note text",
    ),
    comment="What was applied to the schema of each keyspace, by whom and when",
)
SCHEMA_STATEMENT = Table(
    "schema_statement",
    columns(
        "keyspaceName text, number int",
        "position int",
        "checksum text, state text, attempt timeuuid, cql text, startedAt timestamp, endedAt timestamp, error text",
    ),
    comment="The statements of each migration: begun, done or failed, so that a killed apply resumes inside a file",
)
SCHEMA_UNLOCK = Table(
    "schema_unlock",
    columns("keyspaceName text", "at timeuuid DESC", "holder text, unlockedBy text, reason text"),
    comment="Leases of schema changes that a person ended by force, and why",
)
SCHEMA_BASELINE = Table(
    "schema_baseline",
    columns(
        "keyspaceName text",
        regular="generation text, fingerprint text, objects frozen<map<text,text>>, migrations frozen<list<text>>, "
        "adoptedAt timestamp, owner text, toolVersion text",
    ),
    comment="Keyspaces that mailmend did not make and has taken over: what each was at that moment",
)

HISTORY_TABLES = (SCHEMA_MIGRATION, SCHEMA_STATEMENT, SCHEMA_UNLOCK, SCHEMA_BASELINE)
"""The history of each keyspace's schema, which never expires."""

DELIVERY_TABLES = (
    DELIVERY_SUSPENSION,
    DELIVERY_CONDITION,
    DELIVERY_ORDER_HISTORY,
    DELIVERY_INTENT,
    DELIVERY_POLICIES,
    DELIVERY_ATTEMPT,
    DELIVERY_VIEW,
    DELIVERY_SERVER,
    DELIVERY_LIFE,
    DELIVERY_RATE,
)
"""What servers of deliveries read and write."""

LEDGER_TABLES = (
    REPAIR_RUN,
    REPAIR_FINDING,
    REPAIR_LAG,
    REPAIR_LEASE,
    JOB_RUN,
    JOB_TURN,
    JOB_PAUSE,
    RUN_LIMIT,
    ADMIN_TASK,
    *DELIVERY_TABLES,
    *HISTORY_TABLES,
)


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
