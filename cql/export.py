"""Whole keyspaces as files of CQL: the catalog's own (`cql/schema.cql`, for people and for review), and live ones.

`python -m mailmend.cql.export` writes the catalog's file; with `--check` it exits 1 when the file is not up to date.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mailmend.cql.generated import write_or_check
from mailmend.cql.render import Replication, in_every_data_centre, keyspace_cql, parse_version, schema_cql
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Schema
from mailmend.model.table import Table

SCHEMA_FILE = Path(__file__).with_name("schema.cql")
KEYSPACE = "apache_james"
"""The name that James gives its keyspace by default."""

_ONLY_READ = frozenset({"dclocal_read_repair_chance", "read_repair_chance"})
"""Options that servers from 4.0 on list but refuse to set."""


def schema_file_text(keyspace: str = KEYSPACE) -> str:
    head = (
        "-- The tables of the mail keyspace, rendered from model/catalog/mail.py: change the catalog, not this file.\n"
        "-- `mailmend schema apply` creates them, with your own keyspace, replication and compaction."
    )
    statements = (keyspace_cql(keyspace, in_every_data_centre(1)), *schema_cql(keyspace, SCHEMA))
    return "\n\n".join((head, *statements)) + "\n"


def live_file_text(
    keyspace: str, live: Schema, replication: Replication, release: str, beside: Sequence[str] = ()
) -> str:
    """A live keyspace as CQL that creates it again on a server of the same version.

    What the keyspace has `beside` (functions, aggregates, triggers) is named in a comment only.
    """
    tables = tuple(map(_as_given, live.tables))
    views = tuple(replace(view, table=_as_given(view.table)) for view in live.views)
    given = replace(live, tables=tables, views=views)
    head = f"-- Keyspace {keyspace} as Cassandra {release} has it."
    if beside:
        names = "".join(f"\n--   {name}" for name in beside)
        head += f"\n-- This file does not create these; DESCRIBE KEYSPACE {keyspace} shows them:{names}"
    blocks = (head, keyspace_cql(keyspace, replication), *schema_cql(keyspace, given, parse_version(release)))
    return "\n\n".join(blocks) + "\n"


def _as_given(table: Table) -> Table:
    given = dict(table.options)
    for name in _ONLY_READ:
        given.pop(name, None)
    return replace(table, options=given)


def main(arguments: list[str]) -> int:
    otherwise = "is not what the catalog says: python -m mailmend.cql.export writes it anew"
    return write_or_check(arguments, SCHEMA_FILE, schema_file_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
