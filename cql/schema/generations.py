"""The generations of James's schema, and the recognition of a live keyspace's generation.

Each generation is declared by its differences from the newest. A keyspace is never altered to fit:
columns that its generation lacks are neither read nor written (`repair.binding`), and its
additional columns are left alone and kept in before-images.
Source: facts about James 3.8.1 (its own DDL), 3.9, August and September 2026 (JAMES-4198, JAMES-4225).
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mailmend.cql.schema.changes import Gap, Include
from mailmend.cql.schema.difference import Aspect, Difference, differences, endangers, with_lifetimes
from mailmend.model.catalog.james_tables import BESIDE_TABLES
from mailmend.model.catalog.mail import (
    IMAP_UID,
    MAIL_TABLES,
    MESSAGE_COMPACTIONS,
    MESSAGES,
    SCHEMA,
    CompactionChoice,
    compacted,
)
from mailmend.model.catalog.mail_queue import JAMES_QUEUE_TABLES, OWN_QUEUE_TABLES, QUEUE_TABLES
from mailmend.model.keyspace import Schema, all_but
from mailmend.model.names import name_of
from mailmend.model.table import Column, Table, columns, names_of


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of James's schema: its name for people, and all tables that James declares in it."""

    name: str
    schema: Schema = field(repr=False)


def _with(schema: Schema, besides: Mapping[str, tuple[Column, ...]]) -> Schema:
    tables = []
    for table in schema.tables:
        tables.append(table.with_columns(table.columns + besides.get(table.name, ())))
    return Schema(schema.types, tuple(tables))


def _without(schema: Schema, table: str, column: str) -> Schema:
    tables = []
    for declared in schema.tables:
        if declared.name == table:
            tables.append(declared.with_columns(all_but(declared.columns, {column})))
        else:
            tables.append(declared)
    return Schema(schema.types, tuple(tables))


def _instead(schema: Schema, gone: Container[str], tables: tuple[Table, ...]) -> Schema:
    return Schema(schema.types, (*all_but(schema.tables, gone), *tables))


FLAG_USER = Column("flagUser", "boolean", null_is=False)
"""Whether a message carries any user flag; gone since JAMES-4225."""

_MIME = columns(
    "",
    regular="textualLineCount bigint, contentDescription text, contentDispositionParameters frozen<map<text,text>>, "
    "contentDispositionType text, contentId text, contentLanguage frozen<list<text>>, contentLocation text, "
    "contentMd5 text, contentTransferEncoding text, contentTypeParameters frozen<map<text,text>>, mediaType text, "
    "subType text",
)
"""MIME properties of messageV3, gone since JAMES-4198."""

_OLD_THREADS = (
    Table(
        "threadTable",
        columns("username text, mimeMessageId text", "messageId timeuuid", "threadId timeuuid, baseSubject text"),
        comment="Which thread a mail belongs to, found by the mails that it answers",
    ),
    Table(
        "threadLookupTable",
        columns("messageId timeuuid", regular="username text, mimeMessageIds frozen<set<text>>"),
        comment="Where threadTable holds each message",
    ),
)

REBUILDABLE = frozenset(
    projection.table.spelling for projection in MESSAGES.projections if projection is not MESSAGES.content
)
"""The names of the tables that a repair can fill again from the truth."""

NEWEST = Generation("September 2026 (JAMES-4225)", _instead(SCHEMA, names_of(OWN_QUEUE_TABLES), ()))
AUGUST_2026 = Generation(
    "August 2026",
    _with(
        NEWEST.schema,
        {
            "imapuidtable": (FLAG_USER,),
            "messageidtable": (FLAG_USER,),
            "messagev3": (Column("bodyOctets", "bigint"),),
        },
    ),
)
JAMES_3_9 = Generation("3.9", _without(_with(AUGUST_2026.schema, {"messagev3": _MIME}), "blobs", "metadata"))
JAMES_3_8 = Generation("3.8.1", _instead(JAMES_3_9.schema, frozenset({"thread_2", "thread_lookup_3"}), _OLD_THREADS))

GENERATIONS = (NEWEST, AUGUST_2026, JAMES_3_9, JAMES_3_8)
"""Newest first: a keyspace that fits several equally well counts as the newest of them."""

MAIL_TABLE_NAMES = frozenset(names_of(MAIL_TABLES))
"""The names of the tables that mailmend reads and writes."""

_BESIDE = frozenset(table.spelling for table in (*BESIDE_TABLES, *JAMES_QUEUE_TABLES, *_OLD_THREADS))
_OF_THE_QUEUE = frozenset(names_of(QUEUE_TABLES))


def _columns_declared() -> Iterator[tuple[str, str]]:
    """(spelling of the table, name of the column) of every column that a generation declares."""
    for generation in GENERATIONS:
        for table in generation.schema.tables:
            for name in table.names:
                yield table.spelling, name


_LEFT_BEHIND = frozenset(_columns_declared())


@dataclass(frozen=True, slots=True)
class Recognition:
    """The generation that a live keyspace was recognised as, and its differences from it.

    Attributes:
        made_here: its tables carry this catalog's comments, so they were made by `schema apply`, not by James.
        notes: differences that are no drift: options, tables of other modules, columns of older generations.
        others: the tables, where the keyspace is another application's.
    """

    generation: Generation
    made_here: bool
    drift: tuple[Difference, ...] = ()
    notes: tuple[Difference, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return not self.drift


def recognise(live: Schema) -> Recognition:
    """Find the generation that differs least from the live schema, and the differences."""
    made_here = was_made_here(live)
    recognitions = []
    for generation in GENERATIONS:
        found = _judged(generation, live, made_here=made_here)
        if not any(_distance(found)):
            # No other generation is nearer, and an older one that is as near does not count.
            return found
        recognitions.append(found)
    return min(recognitions, key=_distance)


def judge(expected: Schema, live: Schema, *, made_here: bool) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """The differences as (drift, notes)."""
    drift = []
    notes = []
    for difference in differences(with_lifetimes(expected, live), live):
        if _is_note(difference, made_here=made_here):
            notes.append(difference)
        else:
            drift.append(difference)
    return tuple(drift), tuple(notes)


def holds_mail(live: Schema) -> bool:
    """Whether the keyspace holds any table that mailmend reads or writes."""
    return any(live.table(table.name) for table in MAIL_TABLES)


def tables_of_others(live: Schema) -> tuple[str, ...]:
    """The tables of another application in a keyspace without mail; empty where the keyspace holds mail."""
    if any(_keyed_alike(table, live.table(table.name)) for table in MAIL_TABLES):
        return ()
    known = set(_OF_THE_QUEUE)
    for generation in GENERATIONS:
        known.update(names_of(generation.schema.tables))
    return tables_besides(live, known)


def tables_besides(live: Schema, known: Container[str]) -> tuple[str, ...]:
    """The spellings of the live tables whose names are not among the known ones."""
    return tuple(table.spelling for table in all_but(live.tables, known))


def _keyed_alike(table: Table, found: Table | None) -> bool:
    """Whether it is the table, and not another of the same name."""
    return found is not None and _key_shapes(found) == _key_shapes(table)


def _key_shapes(table: Table) -> list[tuple[str, str]]:
    return [(column.name, column.shape) for column in table.key]


def was_made_here(live: Schema) -> bool:
    """Whether every table of the catalog that is there has the catalog's own comment; James words his differently.

    This distinguishes an interrupted apply from a keyspace of James that lacks some tables. The queue's tables do not
    count: James makes its own in a keyspace of ours, and a keyspace of James may have been given ours.
    """
    for table in SCHEMA.tables:
        found = live.table(table.name)
        if found is None or table.name in _OF_THE_QUEUE:
            continue
        if found.comment != table.comment:
            return False
    return True


def declared(generation: Generation, live: Schema, *, made_here: bool) -> Schema:
    """All that a keyspace of that generation should hold; James's keyspaces need not have our own queue tables."""
    tables = list(generation.schema.tables)
    for table in OWN_QUEUE_TABLES:
        if made_here or live.table(table.name) is not None:
            tables.append(table)
    return Schema(generation.schema.types, tuple(tables))


def _judged(generation: Generation, live: Schema, *, made_here: bool) -> Recognition:
    wanted = declared(generation, live, made_here=made_here)
    tables = compacted(wanted.tables, chosen_compaction(live))
    drift, notes = judge(Schema(wanted.types, tables), live, made_here=made_here)
    return Recognition(generation, made_here, drift, notes, tables_of_others(live))


def chosen_compaction(live: Schema) -> CompactionChoice:
    """The compaction choice of the live truth table; the default where it is not one of ours."""
    found = live.table(IMAP_UID.name)
    if found and found.compaction:
        for choice, compaction in MESSAGE_COMPACTIONS.items():
            if compaction.strategy == found.compaction.strategy:
                return choice
    return CompactionChoice.TWCS


def _distance(recognition: Recognition) -> tuple[int, int]:
    """Drift counts first, then what a nearer generation would expect; options do not tell generations apart."""
    return _number_of(recognition.drift), _number_of(recognition.notes)


def _number_of(found: Iterable[Difference]) -> int:
    return sum(difference.aspect is not Aspect.DIFFERENT_OPTION for difference in found)


def _is_note(difference: Difference, *, made_here: bool) -> bool:
    match difference.aspect:
        case Aspect.DIFFERENT_OPTION:
            return not endangers(difference) or _chosen_for_the_queue(difference)
        case Aspect.UNEXPECTED_TABLE | Aspect.UNEXPECTED_TYPE:
            return True
        case Aspect.UNEXPECTED_INDEX | Aspect.UNEXPECTED_VIEW:
            return not made_here
        case Aspect.UNEXPECTED_COLUMN:
            return (difference.owner, difference.subject) in _LEFT_BEHIND
        case Aspect.MISSING_TABLE:
            return not made_here and difference.owner in _BESIDE
        case _:
            return False


def _chosen_for_the_queue(difference: Difference) -> bool:
    """A shorter life of the queue's rows is chosen to fit the traffic: the sweep renews what expires too soon."""
    ttl = difference.subject == "default_time_to_live" and difference.expected != "0"
    return ttl and name_of(difference.owner) in _OF_THE_QUEUE


def gap_to_catalog(
    live: Schema, include: frozenset[Include], *, newest: bool = False, choice: CompactionChoice | None = None
) -> Gap:
    """The differences between a mail keyspace and the catalog, ready to be turned into changes.

    In a keyspace of James, tables of modules that it runs without are not missed, and unknown tables and columns stay.

    Args:
        live: the keyspace.
        include: what is proposed in addition to new objects; removals are proposed of columns,
            indexes and views only.
        newest: compare with the newest generation instead of the keyspace's own.
        choice: how the big message tables should be compacted; None leaves our tables as they were created.
    """
    recognition = recognise(live)
    whole = recognition.made_here or newest
    generation = recognition.generation
    if newest:
        generation = NEWEST
    schema = declared(generation, live, made_here=whole)
    wanted = [table for table in schema.tables if whole or _asked_for(table.name, live)]
    tables = compacted(wanted, choice or chosen_compaction(live))
    known = Schema(schema.types, tables)
    return Gap(_with_others(known, live), live, include, REBUILDABLE)


def _with_others(known: Schema, live: Schema) -> Schema:
    """The known schema with those live types and tables that it does not have."""
    types = list(known.types)
    for user_type in live.types:
        if known.user_type(user_type.name) is None:
            types.append(user_type)
    tables = list(known.tables)
    for table in live.tables:
        if known.table(table.name) is None:
            tables.append(table)
    return replace(known, types=tuple(types), tables=tuple(tables))


def _asked_for(name: str, live: Schema) -> bool:
    return name in MAIL_TABLE_NAMES or live.table(name) is not None
