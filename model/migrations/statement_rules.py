"""What may stand in a migration, and what may not, with the reason: rules as data.

A migration is run on any keyspace, by several people, and again after a crash: so it names no keyspace, and every
statement of it can be told from the live schema, or be sent twice without harm.
"""

from collections.abc import Mapping

from model.schema.statements import (
    AlterKeyspace,
    Batch,
    Change,
    CreateKeyspace,
    DropKeyspace,
    Other,
    Statement,
    Truncate,
    Use,
    Write,
)

_KEYSPACE = "the keyspace is an argument of the command, and its replication belongs to the cluster"

REFUSED: Mapping[type, str] = {
    CreateKeyspace: f"{_KEYSPACE}: `mailmend schema apply --replication` creates it",
    AlterKeyspace: f"{_KEYSPACE}: change it by hand, and repair afterwards",
    DropKeyspace: f"{_KEYSPACE}: drop it by hand, where nobody can do it by merging a branch",
    Use: f"{_KEYSPACE}: write names without a keyspace",
    Truncate: "sent again after a crash, it would remove what was written meanwhile: drop the table and create it anew",
    Batch: "its statements cannot be resumed one by one: write them one by one",
    Other: "whether it took effect cannot be told from the schema (roles: see `mailmend schema grants`)",
}
"""Kinds of statements that no migration may hold, and why."""


def refusal(statement: Statement, keyspace: str = "") -> str:
    """Why the statement may not stand in a migration (of that keyspace, where one is named); "" where it may."""
    refused = REFUSED.get(type(statement), "")
    if refused:
        return refused
    named = getattr(statement, "name", None)
    if named is not None and named.keyspace is not None and keyspace and named.keyspace.lower() != keyspace.lower():
        return f"it names the keyspace {named.keyspace}, the migrations are applied to {keyspace}"
    if isinstance(statement, Write) and statement.conditional and statement.change is not Change.INSERT:
        return "nobody would see whether its condition held; only INSERT ... IF NOT EXISTS may have one"
    return ""


REPEATED_OTHERWISE = frozenset({"now", "uuid", "currenttimestamp", "currentdate", "currenttime", "currenttimeuuid"})
"""Functions that give another value each time they are called; 5.0 spells them with underscores as well."""

NOT_IDEMPOTENT = "sent again after a crash, it would not leave the same rows: write plain values"
"""Why a data statement that counts, appends or calls the clock is refused."""

UNBOUND = "nobody binds its values: write them out"
"""Why a statement with bind marks is refused."""
