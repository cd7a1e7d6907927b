"""Facts about tables that their schema does not tell: which are updated, deleted from, or follow from others.

The facts about mail tables come from the catalog's declarations, those about the queue's tables from what `mailqueue`
and James write, and those about our ledger from what `repair` writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from mailmend.model.catalog.ledger import REPAIR_FINDING, REPAIR_LAG, REPAIR_RUN
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    QUEUE_STATE,
    SLICE_TALLIES,
)
from mailmend.model.keyspace import Schema
from mailmend.model.projections.family import Family
from mailmend.model.table import Table

HINT_WINDOW_DEFAULT: Final = timedelta(hours=3)
"""The default of `max_hint_window` in cassandra.yaml."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Facts that a schema does not tell. Tables are named as the server knows them.

    Attributes:
        repair_interval: how often every range is repaired (nodetool, Reaper); None where it is not known.
        slack: how much longer marks must live than the rows that they hide.
        marks: (table of marks, table whose rows they hide).
        projections: (truth, projection).
        updated, deleted, stamped, conditional: tables whose rows are changed later, are deleted, are written USING
            TIMESTAMP, or with IF.
        looked_up: tables that are read by a unique partition key although they have clustering columns.
        rewritten: (table, column) of collections that are written whole.
        paxos_variant: the server's setting, "" where it is not known.
    """

    repair_interval: timedelta | None = None
    hint_window: timedelta = HINT_WINDOW_DEFAULT
    slack: timedelta = timedelta(days=1)
    sstables_max: int = 100
    rows_max: int = 100_000
    rows_per_partition: Mapping[str, int] = field(default_factory=dict)
    marks: tuple[tuple[str, str], ...] = ()
    projections: tuple[tuple[str, str], ...] = ()
    updated: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    stamped: frozenset[str] = frozenset()
    conditional: frozenset[str] = frozenset()
    looked_up: frozenset[str] = frozenset()
    rewritten: frozenset[tuple[str, str]] = frozenset()
    paxos_variant: str = ""

    def with_facts_of(self, other: "Knowledge") -> "Knowledge":
        """The same, with the other's facts about tables added."""
        return replace(
            self,
            marks=tuple(dict.fromkeys(self.marks + other.marks)),
            projections=tuple(dict.fromkeys(self.projections + other.projections)),
            updated=self.updated | other.updated,
            deleted=self.deleted | other.deleted,
            stamped=self.stamped | other.stamped,
            conditional=self.conditional | other.conditional,
            looked_up=self.looked_up | other.looked_up,
            rewritten=self.rewritten | other.rewritten,
        )


def _names(*tables: Table) -> frozenset[str]:
    return frozenset(table.name for table in tables)


_MARKS: Final = (DELETED_MAILS.name, ENQUEUED_MAILS.name)
"""The marks of the queue, and the table whose rows they hide."""

_QUEUE: Final = Knowledge(
    marks=(_MARKS,),
    updated=_names(BROWSE_START, CONTENT_START),
    deleted=frozenset(_MARKS),
    conditional=_names(BROWSE_START, CONTENT_START),
)
"""James's four: slices are deleted by partition, marks by James alone, starts move."""

_BESIDE_QUEUE: Final = Knowledge(
    updated=_names(SLICE_TALLIES, QUEUE_STATE, DUE_MAILS),
    deleted=_names(DUE_MAILS, SLICE_TALLIES),
    stamped=_names(SLICE_TALLIES),
    conditional=_names(QUEUE_STATE, DUE_MAILS),
)
"""Ours: a mail that is due moves away under a lease; tallies grow with their slice, are renewed, and go with it."""

_LEDGER: Final = Knowledge(
    updated=_names(REPAIR_RUN, REPAIR_FINDING), deleted=_names(REPAIR_LAG), stamped=_names(REPAIR_FINDING)
)
"""A run and its findings are written again as they go on; a lag that was mended is removed."""


def known_of(schema: Schema) -> Knowledge:
    """The facts about those mail, queue and ledger tables that are in the schema."""
    known = Knowledge()
    for family in FAMILIES:
        if schema.table(family.truth.name) is not None and schema.table(family.mirror.table.name) is not None:
            known = known.with_facts_of(_of_family(family))
    if all(schema.table(name) is not None for name in _MARKS):
        known = known.with_facts_of(_QUEUE)
    if schema.table(SLICE_TALLIES.name) is not None:
        known = known.with_facts_of(_BESIDE_QUEUE)
    if schema.table(REPAIR_RUN.name) is not None:
        known = known.with_facts_of(_LEDGER)
    return known


def _of_family(family: Family) -> Knowledge:
    mirror = family.mirror.table
    filters = [projection.table for projection in family.filters]
    unions = [union.table for union in family.unions]
    counts = [count.table for count in family.counts]
    generators: list[Table] = []
    for count in family.counts:
        generators.extend(count.generators)
    contents = []
    if family.content:
        contents.append(family.content.table)
    known = Knowledge(
        projections=tuple((family.truth.name, projection.table.name) for projection in family.projections),
        updated=_names(family.truth, mirror, *unions, *counts, *generators),
        deleted=_names(family.truth, mirror, *filters, *contents),
        conditional=_names(family.truth, *generators),
    )
    if family is not MESSAGES:
        return known
    return replace(
        known,
        stamped=_names(mirror, *filters, *unions),
        looked_up=_names(family.truth),
        rewritten=frozenset((mirror.name, column.name) for column in mirror.regular if column.is_collection),
    )
