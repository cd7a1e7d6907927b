"""Rules about statements: writes, batches, and what a server would refuse."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mailmend.cql.schema.lint.refused_options import OptionTexts, speculation_is_known, unknown_options
from mailmend.cql.schema.lint.rule import COMPACTION, Hit, PlaceKey, Severity, rule
from mailmend.cql.schema.lint.servers import ServerRelease, lacking, version_problem
from mailmend.cql.schema.lint.subject import TWCS, Subject, strategy_of
from mailmend.cql.statements import Batch, WriteKind, WriteRows
from mailmend.cql.statements.literals import LiteralForm, native_values
from mailmend.model.keyspace import all_but, among
from mailmend.model.names import name_of, text_of
from mailmend.model.table import Column, Table, spellings, types_of

_MARKERS: Final = ("?", ":")


@rule(
    "T4",
    "Deletes on time windows",
    Severity.WARNING,
    "The tombstone lies in the window of today, what it deletes in an older one; windows never merge, so neither "
    "frees any space, and the tombstone keeps its own SSTable from expiring whole.",
    "Let rows expire instead of deleting them; where they must go at once, use UnifiedCompactionStrategy or "
    "LeveledCompactionStrategy, or run nodetool garbagecollect afterwards.",
    docs="managing/operating/compaction/twcs.html",
)
def _deletes(subject: Subject) -> Iterator[Hit]:
    """Each DELETE; without any, what is known of the table."""
    stated, others = _stated(
        subject, lambda write: write.change is WriteKind.DELETE, "this deletes from {}, which has time windows"
    )
    yield from stated
    for table in others:
        if table.name in subject.knowledge.deleted:
            yield Hit(f"rows of {table.spelling} are deleted one by one", points=COMPACTION, table=table.spelling)


@rule(
    "T5",
    "Updates on time windows",
    Severity.WARNING,
    "Each update of a row lies in the window of its day. A read of the row looks into all of those windows, for "
    "ever, and the parts of one row expire at different times. Flags or counters of which nothing more is known "
    "are a note.",
    "Use UnifiedCompactionStrategy with scaling_parameters L10 (5.0), or LeveledCompactionStrategy; keep time "
    "windows for rows that are written once.",
    docs="managing/operating/compaction/twcs.html",
)
def _updates(subject: Subject) -> Iterator[Hit]:
    """Each UPDATE; without any, what is known of the table, or what its columns suggest."""
    stated, others = _stated(
        subject, lambda write: write.change is WriteKind.UPDATE, "this updates {}, which has time windows"
    )
    yield from stated
    for table in others:
        yield from _changed_later(table, known=table.name in subject.knowledge.updated)


def _changed_later(table: Table, *, known: bool) -> Iterator[Hit]:
    flags = [column for column in table.regular if column.type == "boolean" or column.is_counter]
    names = spellings(flags)
    points = COMPACTION
    if flags:
        points = (("column", flags[0].name), *COMPACTION)
    if known:
        which = ""
        if names:
            which = f" ({names} among them)"
        text = f"columns of {table.spelling}{which} change long after the row was written"
        yield Hit(text, points=points, table=table.spelling)
    elif flags:
        text = f"{names} of {table.spelling}: flags and counters change after the row was written, as a rule"
        yield Hit(text, flags[0].spelling, Severity.NOTE, points, table=table.spelling)


@rule(
    "T6",
    "Timestamps of the writer's own on time windows",
    Severity.WARNING,
    "The newest write time in an SSTable decides its window. A row with an old timestamp lands in the window of "
    "today and is kept as long as that; one from the future keeps a whole SSTable from expiring.",
    "Let the driver stamp writes; for late fixes count on some SSTables that stay longer.",
    docs="managing/operating/compaction/twcs.html",
)
def _timestamps(subject: Subject) -> Iterator[Hit]:
    """Each USING TIMESTAMP; without any, what is known of the table."""
    text = "this writes to {} with a timestamp of its own"
    stated, others = _stated(subject, lambda write: write.timestamp is not None, text, ("option", "timestamp"))
    yield from stated
    for table in others:
        if table.name in subject.knowledge.stamped:
            text = f"rows of {table.spelling} are written with timestamps of the writer's choice"
            yield Hit(text, points=COMPACTION, table=table.spelling)


def _stated(
    subject: Subject, concerns: Callable[[WriteRows], bool], text: str, *first: PlaceKey
) -> tuple[list[Hit], tuple[Table, ...]]:
    """A hit for each write to time windows that the rule concerns; and the tables without such a statement.

    Only `Knowledge` can tell about those.
    """
    hits = []
    met = set()
    for written in subject.writes():
        table = subject.table_of(written.write)
        if table and strategy_of(table) == TWCS and concerns(written.write):
            met.add(table.name)
            points = (*first, *written.points)
            name = table.spelling
            hits.append(Hit(text.format(name), points=points, statement=written.number, table=name))
    return hits, all_but(subject.time_windowed(), met)


@rule(
    "T14",
    "Collections that are written whole",
    Severity.WARNING,
    "Writing a whole collection that is not frozen first deletes what it held, by a range tombstone, even where "
    "there was nothing. Reads of rows that are written again and again collect them.",
    "Freeze the collection, or add and remove elements (c = c + ...) instead of writing all of it.",
    docs="developing/cql/types.html",
)
def _rewritten_collections(subject: Subject) -> Iterator[Hit]:
    """Each INSERT of a collection that is not frozen; without any, what is known of the table."""
    seen = set()
    for number, write, points in subject.writes():
        table = subject.table_of(write)
        if table is None or write.change is not WriteKind.INSERT:
            continue
        for column in _collections(table):
            if column.name in write.columns:
                seen.add((table.name, column.name))
                yield Hit(_whole(column), column.spelling, points=points, statement=number, table=table.spelling)
    for table in subject.schema.tables:
        for column in _collections(table):
            if (table.name, column.name) in subject.knowledge.rewritten - seen:
                text = f"{_whole(column)} whenever its row is"
                yield Hit(text, column.spelling, table=table.spelling)


def _collections(table: Table) -> list[Column]:
    return [column for column in table.regular if column.is_collection]


def _whole(column: Column) -> str:
    return f"{column.spelling} {column.type} is written whole"


@rule(
    "T17",
    "A batch across partitions",
    Severity.WARNING,
    "A logged batch over several partitions is written to two other nodes first and replayed after failures: one "
    "coordinator pays for all of them. An unlogged one is neither atomic nor faster.",
    "Send the statements one by one, each with retries; keep batches to one partition.",
    docs="developing/cql/dml.html",
)
def _batches(subject: Subject) -> Iterator[Hit]:
    """Batches whose partitions are known to differ; silent where bind markers hide the keys."""
    for number, parsed in enumerate(subject.statements):
        statement = parsed.statement
        if isinstance(statement, Batch) and _partitions_differ(subject, statement.writes):
            kind = "an unlogged batch"
            if statement.logged:
                kind = "a logged batch"
            tables = ", ".join(dict.fromkeys(write.name.spelling for write in statement.writes))
            yield Hit(f"{kind} writes to more than one partition", statement=number, table=tables)


def _partitions_differ(subject: Subject, writes: Sequence[WriteRows]) -> bool:
    types = set()
    literals = set()
    for write in writes:
        table = subject.table_of(write)
        if table is None:
            continue
        types.add(types_of(table.partition))
        key = _key(table, write)
        if key is not None:
            literals.add(key)
    return len(types) > 1 or len(literals) > 1


def _key(table: Table, write: WriteRows) -> tuple[str, ...] | None:
    """The literals of the partition key; None where the statement does not hold them all."""
    literals = []
    for name in table.partition_names:
        literal = write.values.get(name)
        if literal is None or literal.startswith(_MARKERS):
            return None
        literals.append(literal)
    return tuple(literals)


@rule(
    "K1",
    "Writes with and without IF on one table",
    Severity.WARNING,
    "A write with IF is stamped by its ballot, a plain one by the driver's clock. Where the two clocks differ, a "
    "plain delete or update that came later can lose to an earlier one with IF, without a word.",
    "Write all columns of such a table with IF, or none.",
    docs="developing/cql/dml.html",
)
def _mixed_writes(subject: Subject) -> Iterator[Hit]:
    """The first plain write to a table that is also written with IF."""
    conditional = _written_with_if(subject)
    found = set()
    for number, write, points in subject.writes():
        name = name_of(write.name.spelling)
        if name in conditional and not write.conditional and name not in found:
            found.add(name)
            text = f"{write.name} is written with IF elsewhere, and without it here"
            yield Hit(text, points=points, statement=number, table=write.name.spelling)


def _written_with_if(subject: Subject) -> set[str]:
    """The names of the tables that a statement writes to with IF."""
    names = set()
    for _, write, _ in subject.writes():
        if write.conditional:
            names.add(name_of(write.name.spelling))
    return names


@rule(
    "T11",
    "A class, an option or a value that the server does not know",
    Severity.ERROR,
    "The server refuses the statement, often in the middle of an upgrade: names come and go with versions "
    "(DateTieredCompactionStrategy and chunk_length_kb went with 5.0, read_repair_chance with 4.0).",
    "Take the name from the documentation of that version.",
    docs="developing/cql/ddl.html",
)
def _unknown(subject: Subject) -> Iterator[Hit]:
    """Every statement that sets options; without any, what the tables have."""
    for table, number, options in _declared(subject):
        for option, text, fix in unknown_options(options, subject.release, named=number is not None):
            yield Hit(text, option, statement=number, fix=fix, table=table)


def _declared(subject: Subject) -> Iterator[tuple[str, int | None, OptionTexts]]:
    """Each table's options as written: (table, number of the statement or None, options)."""
    stated = set()
    for number, parsed in enumerate(subject.statements):
        table = parsed.statement.about
        options = parsed.statement.options_set
        if options is not None:
            stated.add(name_of(table))
            yield table, number, options
    for live in subject.schema.tables:
        if live.name not in stated:
            yield live.spelling, None, live.literals()


@rule(
    "T24",
    "Speculation or Paxos in a variant that costs",
    Severity.WARNING,
    "ALWAYS asks one replica more than needed every time, which is load without end; a value that the version does "
    "not understand is refused; the first variant of Paxos takes twice the round trips of the second.",
    "Leave speculative_retry at its default, '99p'.",
    docs="developing/cql/ddl.html",
)
def _speculation(subject: Subject) -> Iterator[Hit]:
    """What the options say, then the variant of Paxos where it is known."""
    yield from _odd_speculation(subject)
    if subject.knowledge.paxos_variant != "v1" or not subject.release.at_least(ServerRelease.CASSANDRA_4_1):
        return
    with_if = subject.knowledge.conditional | _written_with_if(subject)
    tables = spellings(among(subject.schema.tables, with_if))
    if tables:
        text = f"the server uses the first variant of Paxos, and these are written with IF: {tables}"
        yield Hit(text, "paxos_variant", Severity.NOTE, fix=_PAXOS_FIX)


_PAXOS_FIX: Final = (
    "Read the upgrade notes of Cassandra 4.1, then set paxos_variant: v2 on every node: half the round trips."
)


def _odd_speculation(subject: Subject) -> Iterator[Hit]:
    for table, number, options in _declared(subject):
        for option in ("speculative_retry", "additional_write_policy"):
            value = text_of(options.get(option, "")).strip()
            if value.upper() == "ALWAYS":
                text = f"{option} = 'ALWAYS' sends every request once more"
                yield Hit(text, option, statement=number, table=table)
            elif value and not speculation_is_known(value, subject.release):
                text = f"{subject.release.title} does not understand {option} = '{value}'"
                yield Hit(text, option, Severity.ERROR, statement=number, fix=_SPECULATION_FIX, table=table)


_SPECULATION_FIX: Final = "Write '99p' ('99PERCENTILE' before 4.0), '50ms', 'NONE', or from 4.0 on 'MIN(99p,50ms)'."


@rule(
    "K2",
    "A statement that cannot be carried out",
    Severity.ERROR,
    "With everything before it carried out, the server would refuse this statement.",
    "Mend the statement; in a folder of migrations, look at what an earlier one has done.",
    docs="developing/cql/ddl.html",
)
def _refused(subject: Subject) -> Iterator[Hit]:
    for number, reason in subject.refused.items():
        yield Hit(reason, statement=number, table=subject.statements[number].statement.about)


@rule(
    "T25",
    "What a later version brought",
    Severity.ERROR,
    "The server refuses the statement: vectors, masks and storage-attached indexes came with Cassandra 5.0, IF EXISTS "
    "in ALTER with 4.1.",
    "Upgrade the servers first, or write it as the older version has it.",
    docs="developing/cql/changes.html",
)
def _too_new(subject: Subject) -> Iterator[Hit]:
    for number, parsed in enumerate(subject.statements):
        for what, since, place in lacking(parsed.statement, subject.release):
            text = version_problem(what, since, subject.release)
            yield Hit(text, place[1], points=(place,), statement=number, table=parsed.statement.about)
    if not subject.release.at_least(ServerRelease.CASSANDRA_5_0) and subject.release.is_cassandra:
        yield from _blobs_as_numbers(subject)


def _blobs_as_numbers(subject: Subject) -> Iterator[Hit]:
    """A blob in place of a tinyint."""
    for number, write, points in subject.writes():
        table = subject.table_of(write)
        if table is None:
            continue
        texts = list(write.values.items())
        for compared in write.only_if:
            if compared.compares_column:
                texts.append((compared.columns[0], compared.value))
        for name, text in texts:
            if name not in table:
                continue
            natives = native_values(subject.schema, table.column(name).type, text)
            if any(kind == "tinyint" and value.form is LiteralForm.BLOB for kind, value in natives):
                what = version_problem("blobs in place of a tinyint", ServerRelease.CASSANDRA_5_0, subject.release)
                yield Hit(what, name, points=points, statement=number, table=write.name.spelling)
