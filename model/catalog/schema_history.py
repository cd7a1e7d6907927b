"""The tables in which the history of each keyspace's schema is kept: in our own keyspace, and never expiring."""

from model.schema.table import Column, Kind, Table

_P, _C = Kind.PARTITION, Kind.CLUSTERING

SCHEMA_MIGRATION = Table(
    "schema_migration",
    (
        Column("keyspaceName", "text", _P),
        Column("number", "int", _C),
        Column("name", "text"),
        Column("phase", "text"),
        Column("checksum", "text"),
        Column("chain", "text"),
        Column("state", "text"),
        Column("statements", "int"),
        Column("doneStatements", "int"),
        Column("claim", "timeuuid"),
        Column("owner", "text"),
        Column("startedAt", "timestamp"),
        Column("endedAt", "timestamp"),
        Column("toolVersion", "text"),
        Column("note", "text"),
    ),
    comment="What was applied to the schema of each keyspace, by whom and when",
)
SCHEMA_STATEMENT = Table(
    "schema_statement",
    (
        Column("keyspaceName", "text", _P),
        Column("number", "int", _P),
        Column("position", "int", _C),
        Column("checksum", "text"),
        Column("state", "text"),
        Column("attempt", "timeuuid"),
        Column("cql", "text"),
        Column("startedAt", "timestamp"),
        Column("endedAt", "timestamp"),
        Column("error", "text"),
    ),
    comment="The statements of each migration: begun, done or failed, so that a killed apply resumes inside a file",
)
SCHEMA_UNLOCK = Table(
    "schema_unlock",
    (
        Column("keyspaceName", "text", _P),
        Column("at", "timeuuid", _C, descending=True),
        Column("holder", "text"),
        Column("unlockedBy", "text"),
        Column("reason", "text"),
    ),
    comment="Leases of schema changes that a person ended by force, and why",
)
SCHEMA_BASELINE = Table(
    "schema_baseline",
    (
        Column("keyspaceName", "text", _P),
        Column("generation", "text"),
        Column("fingerprint", "text"),
        Column("objects", "frozen<map<text,text>>"),
        Column("migrations", "frozen<list<text>>"),
        Column("adoptedAt", "timestamp"),
        Column("owner", "text"),
        Column("toolVersion", "text"),
    ),
    comment="Keyspaces that mailmend did not make and has taken over: what each was at that moment",
)

HISTORY_TABLES = (SCHEMA_MIGRATION, SCHEMA_STATEMENT, SCHEMA_UNLOCK, SCHEMA_BASELINE)
