"""Migrations for tests: folders as values, and as files."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from mailmend.admin.frame.kinds import RISK_NAMES
from mailmend.cql.language.parser import parse
from mailmend.cql.schema.migrations import Entry, Migration, MigrationState, file_name, head_of, in_order

EVERYTHING_ALLOWED: Mapping[str, str] = {"MAILMEND_SCHEMA_APPLY_ALLOW": RISK_NAMES}
"""Of a shell whose tests are not about risks."""

HEAD = "-- Why: a test wants it.\n-- Effect: what the statements say.\n-- Undo: drop the keyspace.\n\n"

SHOP: Mapping[str, str] = {
    "0001_pre_orders.cql": "CREATE TYPE place (street text, town text);\n"
    "CREATE TABLE orders (id uuid PRIMARY KEY, customer text, total int);\n"
    "CREATE TABLE by_customer (customer text, id uuid, PRIMARY KEY (customer, id));\n",
    "0002_pre_labels.cql": "ALTER TABLE orders ADD label text;\n"
    "CREATE INDEX by_label ON orders (label);\n"
    "INSERT INTO orders (id, customer, total) VALUES (5ac1a1ba-65d2-4a26-b4e6-8f0a3c0c0a01, 'first', 1);\n",
    "0003_post_no_totals.cql": "ALTER TABLE orders DROP total;\n"
    "ALTER TABLE by_customer WITH gc_grace_seconds = 3600;\n",
    "0004_pre_places.cql": "CREATE TABLE places (id uuid PRIMARY KEY, at frozen<place>);\nDROP TABLE by_customer;\n",
}
"""Somebody's own migrations: every kind of statement that leaves its mark in another way."""


def migration(name: str, cql: str, head: str = HEAD) -> Migration:
    text = head + cql
    return Migration(file_name(name), text, head_of(name, text), parse(text))


def folder(files: Mapping[str, str] = SHOP) -> tuple[Migration, ...]:
    return in_order(migration(name, cql) for name, cql in files.items())


def written(path: Path, files: Mapping[str, str] = SHOP, head: str = HEAD) -> Path:
    path.mkdir(exist_ok=True)
    for name, cql in files.items():
        path.joinpath(name).write_text(head + cql, encoding="utf-8")
    return path


def applied(migrations: Iterable[Migration], state: MigrationState = MigrationState.APPLIED) -> tuple[Entry, ...]:
    at = datetime(2026, 9, 1, tzinfo=UTC)
    return tuple(
        Entry(
            one.file,
            one.checksum,
            one.chain,
            state,
            len(one.statements),
            len(one.statements),
            "alice@ops pid 7",
            at,
            "0.1.0",
            UUID(int=7),
            at,
        )
        for one in migrations
    )
