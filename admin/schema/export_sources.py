"""What the page and the drawing show: the model as it is declared, or a live keyspace in the model's words."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mailmend.admin.schema.export_page import Page, Section
from mailmend.cql.schema.generations import GENERATIONS, recognise
from mailmend.model.catalog.james_tables import BESIDE_TABLES
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import FAMILIES, MAIL_TABLES, SCHEMA
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Table
from mailmend.repair.binding import bind

_ABOUT_MAIL = "What mailmend reads, writes and keeps true."
_ABOUT_BESIDE = "Created so that James can take the keyspace over; never read or written."
_ABOUT_LEDGER = (
    "Our own keyspace: runs with their before-images, lags, leases and the history of schemas. Whatever is not needed "
    "for ever expires automatically."
)
_ABOUT_QUEUE = (
    "The distributed mail queue. Four tables are James's own, column for column; dueMails, sliceTallies and queueState "
    "are ours, and James neither lists nor touches them. Where mailmend makes them, what was enqueued expires "
    "automatically, and the sweep renews what stays."
)
_ABOUT_OTHERS = "Not known to mailmend: neither read nor written."

_SERVER_DEFAULTS = {
    "additional_write_policy": "'99p'",
    "allow_auto_snapshot": "true",
    "bloom_filter_fp_chance": "0.01",
    "caching": "{'keys': 'ALL', 'rows_per_partition': 'NONE'}",
    "cdc": "false",
    "compression": "{'chunk_length_in_kb': '16', 'class': 'LZ4Compressor'}",
    "crc_check_chance": "1.0",
    "dclocal_read_repair_chance": "0.0",
    "default_time_to_live": "0",
    "gc_grace_seconds": "864000",
    "incremental_backups": "true",
    "max_index_interval": "2048",
    "memtable": "'default'",
    "memtable_flush_period_in_ms": "0",
    "min_index_interval": "128",
    "read_repair": "'BLOCKING'",
    "read_repair_chance": "0.0",
    "speculative_retry": "'99p'",
}
"""What a server has where nothing was asked for, from 4.0 to 5.0: on a page about one's own tables it is noise."""

_KNOWN = {
    table.name: table
    for table in (
        *LEDGER_TABLES,
        *(table for generation in reversed(GENERATIONS) for table in generation.schema.tables),
        *QUEUE_TABLES,
    )
}
"""Every table that mailmend knows, the newest form of each."""


def declared(keyspace: str, made: str, drawing: str = "") -> Page:
    sections = (
        Section("Mail", _ABOUT_MAIL, MAIL_TABLES),
        Section("James's other tables", _ABOUT_BESIDE, BESIDE_TABLES),
        Section("Queue", _ABOUT_QUEUE, QUEUE_TABLES),
        Section("Ledger", _ABOUT_LEDGER, LEDGER_TABLES),
    )
    return Page(f"The schema of {keyspace}", made, FAMILIES, SCHEMA.types, sections, drawing)


def found(keyspace: str, live: Schema, ledger: Schema, made: str, drawing: str = "") -> Page:
    """The page of a live keyspace, with names and canonical forms from the model where it knows the table.

    Raises:
        SchemaMismatch: the keyspace holds mail, and lacks a table without which nothing can be described.
    """
    mail, queue = ({table.name for table in tables} for tables in (MAIL_TABLES, QUEUE_TABLES))
    tables = [_described(table) for table in live.tables]
    known = [table for table in tables if table.name in _KNOWN]
    sections = (
        Section("Mail", _ABOUT_MAIL, tuple(table for table in known if table.name in mail)),
        Section(
            "James's other tables", _ABOUT_BESIDE, tuple(table for table in known if table.name not in mail | queue)
        ),
        Section("Queue", _ABOUT_QUEUE, tuple(table for table in known if table.name in queue)),
        Section("Other tables", _ABOUT_OTHERS, tuple(table for table in tables if table.name not in _KNOWN)),
        Section("Ledger", _ABOUT_LEDGER, tuple(_described(table) for table in ledger.tables)),
    )
    recognised = f"Generation: {recognise(live).generation.name}." if known else "No mail was found in it."
    shown = tuple(section for section in sections if section.tables)
    return Page(
        f"The keyspace {keyspace}", f"{made} {recognised}", families_in(keyspace, live), live.types, shown, drawing
    )


def families_in(keyspace: str, live: Schema) -> tuple[Family, ...]:
    there = tuple(family for family in FAMILIES if live.table(family.truth.name) is not None)
    return bind(keyspace, live, there)


def _described(table: Table) -> Table:
    """The live table in the model's spelling and column order; unknown columns come last."""
    known = _KNOWN.get(table.name)
    options = {name: value for name, value in table.options.items() if _SERVER_DEFAULTS.get(name) != value}
    if known is None:
        return replace(table, options=options)
    columns = tuple(_ordered(known.columns, table.columns))
    return replace(
        table, spelling=known.spelling, columns=columns, comment=table.comment or known.comment, options=options
    )


def _ordered(known: Iterable[Column], live: Iterable[Column]) -> Iterator[Column]:
    there = {name_of(column.spelling): column for column in live}
    for column in known:
        if one := there.pop(column.name, None):
            yield replace(one, spelling=column.spelling, canonical=column.canonical)
    yield from there.values()
