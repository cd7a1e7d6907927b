"""What a live mail keyspace is taken to: the generation that it is nearest to, or the newest.

A keyspace of James is respected: tables of modules that it runs without are not asked for, and what the model does not
know is somebody's, and stays.
"""

from dataclasses import replace

from model.catalog.generations import NEWEST, REBUILDABLE, chosen_compaction, declared, recognise
from model.catalog.mail import MAIL_TABLES, CompactionChoice, compacted
from model.schema.changes import Gap, Include
from model.schema.keyspace import Schema

_MAIL = frozenset(table.name for table in MAIL_TABLES)


def gap_to_catalog(
    live: Schema, include: frozenset[Include], *, newest: bool = False, choice: CompactionChoice | None = None
) -> Gap:
    """The differences between a mail keyspace and the catalog.

    Args:
        live: the keyspace.
        include: what is proposed beyond what is missing; of removals columns, indexes and views only.
        newest: take it to the newest generation instead of its own.
        choice: how the big message tables should be compacted; None leaves those of ours as they were created.
    """
    recognition = recognise(live)
    whole = recognition.made_here or newest
    schema = declared(NEWEST if newest else recognition.generation, live, made_here=whole)
    wanted = [table for table in schema.tables if whole or _asked_for(table.name, live)]
    tables = compacted(wanted, choice or chosen_compaction(live))
    known = Schema(schema.types, tables)
    others = tuple(table for table in live.tables if known.table(table.name) is None)
    types = tuple(one for one in live.types if known.user_type(one.name) is None)
    expected = replace(known, types=(*known.types, *types), tables=(*known.tables, *others))
    return Gap(expected, live, include, REBUILDABLE)


def _asked_for(name: str, live: Schema) -> bool:
    return name in _MAIL or live.table(name) is not None
