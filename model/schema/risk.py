"""What a schema statement may cost or break on a live cluster: rules as data, and the function that asks them all.

A plan shows this beside every statement, before anything runs. The live schema is the one before the plan begins: what
the plan itself creates is empty, so nothing of it can be lost and nothing of it takes long.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from model.schema.difference import compaction_option, pairs_of
from model.schema.keyspace import Schema
from model.schema.literals import text_of
from model.schema.names import name_of
from model.schema.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    Batch,
    Change,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateType,
    CreateView,
    Drop,
    DropColumns,
    DropKeyspace,
    Dropped,
    Name,
    Other,
    RenameColumns,
    RenameFields,
    SetOptions,
    Statement,
    Truncate,
    Use,
    Write,
)


class Risk(Enum):
    """What a statement may do to a live cluster, mildest first; the value is its name in reports."""

    NONE = "none"
    LONG = "long"  # every row that is there is read, in the background
    REWRITE = "rewrite"  # every SSTable of the table is written anew, sooner or later
    BREAKING = "breaking"  # running clients' statements begin to fail
    STALE = "stale"  # reads may miss what was written before
    RESURRECTION = "resurrection"  # what was deleted may come back
    DATA_LOSS = "data loss"  # rows, or cells of them, are gone for good


@dataclass(frozen=True, slots=True)
class Assessment:
    """The risks of one statement, mildest first (NONE stands alone), and why, in a sentence."""

    risks: tuple[Risk, ...]
    why: str

    @property
    def worst(self) -> Risk:
        """The gravest of them."""
        return self.risks[-1]


DroppedColumns = frozenset[tuple[str, str]]
"""Columns that were dropped once, as (table, column), as the server knows them."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a statement is judged against: the live schema, and the columns that were dropped from it once."""

    live: Schema
    dropped: DroppedColumns = frozenset()

    def holds(self, name: Name) -> bool:
        """Whether a table may hold rows: it is live, or of another keyspace, of which nothing is known."""
        return name.keyspace is not None or self.live.table(name.spelling) is not None

    def option(self, name: Name, option: str) -> str:
        """The live literal of an option, "" where it is not known."""
        table = None if name.keyspace else self.live.table(name.spelling)
        if table is None:
            return ""
        return {**_DEFAULTS, **table.options, **compaction_option(table.compaction)}.get(option, "")


@dataclass(frozen=True, slots=True)
class Rule:
    """One danger: which statements it is asked of, when it holds, and why it matters.

    Attributes:
        why: a sentence in which {name} stands for what the statement names.
    """

    risk: Risk
    kind: type
    why: str
    holds: Callable[[Any, Ground], bool]


def assess(statement: Statement, live: Schema, dropped: DroppedColumns = frozenset()) -> Assessment:
    """What the statement may do to a keyspace that is as `live` says.

    Args:
        statement: what would run.
        live: the keyspace before the plan begins; a table that is not in it is taken for one that the plan creates.
        dropped: columns that the plan itself drops before; what was dropped long ago is known to the live tables.
    """
    ground = Ground(live, dropped)
    parts: tuple[Statement, ...] = statement.writes if isinstance(statement, Batch) else (statement,)
    met = [
        (rule.risk, rule.why.format(name=named(part)))
        for part in parts
        for rule in RULES
        if isinstance(part, rule.kind) and rule.holds(part, ground)
    ]
    if not met:
        return Assessment((Risk.NONE,), HARMLESS[type(statement)])
    return Assessment(tuple(risk for risk in Risk if risk in {one for one, _ in met}), " ".join(dict(met).values()))


def columns_dropped_by(statement: Statement) -> DroppedColumns:
    """What the statement adds to the columns that were dropped once."""
    if not isinstance(statement, DropColumns):
        return frozenset()
    return frozenset((name_of(statement.name.spelling), name_of(column)) for column in statement.columns)


def named(statement: Statement) -> str:
    """What the statement is about, for people."""
    match statement:
        case CreateKeyspace() | AlterKeyspace() | DropKeyspace() | Use():
            return statement.keyspace
        case CreateIndex():
            return statement.index.spelling or f"the index on {statement.index.table}"
        case Batch():
            return ", ".join(dict.fromkeys(str(write.name) for write in statement.writes))
        case Other():
            return statement.words
        case _:
            return str(statement.name)


_DEFAULTS: Mapping[str, str] = {"gc_grace_seconds": "864000", "default_time_to_live": "0"}
"""What Cassandra takes where a table does not say."""

_LIGHT_COMPACTION = frozenset(
    {
        "enabled",
        "log_all",
        "max_threshold",
        "min_threshold",
        "only_purge_repaired_tombstones",
        "provide_overlapping_tombstones",
        "tombstone_compaction_interval",
        "tombstone_threshold",
        "unchecked_tombstone_compaction",
        "unsafe_aggressive_sstable_expiration",
    }
)
"""Compaction options that decide about compactions to come, and bring none about."""


def _always(_: Any, __: Ground) -> bool:
    return True


def _table_is_live(statement: Any, ground: Ground) -> bool:
    return ground.holds(statement.name)


def _drops(*kinds: Dropped) -> Callable[[Any, Ground], bool]:
    return lambda statement, _: statement.what in kinds


def _drops_live_table(statement: Drop, ground: Ground) -> bool:
    return statement.what is Dropped.TABLE and ground.holds(statement.name)


def _indexes_live_table(statement: CreateIndex, ground: Ground) -> bool:
    return ground.holds(Name(statement.index.table, statement.name.keyspace))


def _views_live_table(statement: CreateView, ground: Ground) -> bool:
    return ground.holds(Name(statement.view.base, statement.name.keyspace))


def _changes_replication(statement: AlterKeyspace, _: Ground) -> bool:
    return "replication" in statement.options


def _adds_again(statement: AddColumns, ground: Ground) -> bool:
    table = None if statement.name.keyspace else ground.live.table(statement.name.spelling)
    once = {column.name for column in table.dropped} if table else set()
    name = name_of(statement.name.spelling)
    return any(column.name in once or (name, column.name) in ground.dropped for column in statement.columns)


def _deletes(statement: Write, ground: Ground) -> bool:
    return statement.change is Change.DELETE and ground.holds(statement.name)


def _recompacts(statement: SetOptions, ground: Ground) -> bool:
    return bool(_changed_pairs(statement, ground, "compaction") - _LIGHT_COMPACTION)


def _recompresses(statement: SetOptions, ground: Ground) -> bool:
    return bool(_changed_pairs(statement, ground, "compression"))


def _changed_pairs(statement: SetOptions, ground: Ground, option: str) -> frozenset[str]:
    """Which pairs of a map would be others than they are: a map is replaced as a whole, so those left out count too."""
    if option not in statement.options or not ground.holds(statement.name):
        return frozenset()
    wanted, found = pairs_of(statement.options[option]), pairs_of(ground.option(statement.name, option))
    return frozenset(pair for pair, _ in wanted.items() ^ found.items())


def _lowers(option: str, *, endless: bool = False) -> Callable[[Any, Ground], bool]:
    """Whether a number is set below what it is; where it is unknown, whether it is set at all.

    Args:
        option: the option's name.
        endless: 0 means never, so it counts as the greatest.
    """

    def lowers(statement: SetOptions, ground: Ground) -> bool:
        if option not in statement.options or not ground.holds(statement.name):
            return False
        wanted, found = _seconds(statement.options[option]), _seconds(ground.option(statement.name, option))
        if endless:
            wanted, found = wanted or math.inf, found or math.inf
        return wanted < found

    return lowers


def _seconds(literal: str) -> float:
    """The number that a literal is; one that is unknown is taken for endless, so that anything is below it."""
    try:
        return float(text_of(literal))
    except ValueError:
        return math.inf


def _expires_unsafely(statement: SetOptions, _: Ground) -> bool:
    option = pairs_of(statement.options.get("compaction", "")).get("unsafe_aggressive_sstable_expiration", "")
    return option.lower() == "true"


def _stops_read_repair(statement: SetOptions, ground: Ground) -> bool:
    wanted = statement.options.get("read_repair", "").strip("'").upper()
    return wanted == "NONE" and ground.option(statement.name, "read_repair").strip("'").upper() != "NONE"


RULES = (
    Rule(Risk.DATA_LOSS, DropKeyspace, "Every table of {name} is gone; only a snapshot brings it back.", _always),
    Rule(
        Risk.DATA_LOSS,
        Drop,
        "Every row of {name} is gone; only the snapshot that Cassandra takes by itself (auto_snapshot) brings it back.",
        _drops_live_table,
    ),
    Rule(Risk.DATA_LOSS, Drop, "What reads cells of type {name} can read them no more.", _drops(Dropped.TYPE)),
    Rule(
        Risk.BREAKING, Drop, "Queries that need {name} are refused from then on.", _drops(Dropped.INDEX, Dropped.VIEW)
    ),
    Rule(
        Risk.DATA_LOSS,
        DropColumns,
        "What the columns of {name} held is gone at once, and adding them again does not bring it back.",
        _table_is_live,
    ),
    Rule(
        Risk.DATA_LOSS,
        Truncate,
        "Every row of {name} is gone; only the snapshot that Cassandra takes by itself (auto_snapshot) brings it back.",
        _table_is_live,
    ),
    Rule(Risk.DATA_LOSS, Write, "It deletes rows or cells of {name}; nothing keeps a copy of them.", _deletes),
    Rule(
        Risk.DATA_LOSS,
        AddColumns,
        "A column of {name} is added again after it was dropped: cells with stamps before the drop, repairs among "
        "them, stay invisible or vanish; another type is refused.",
        _adds_again,
    ),
    Rule(
        Risk.DATA_LOSS,
        SetOptions,
        "What is written to {name} from then on expires sooner than before; what is there keeps its own time.",
        _lowers("default_time_to_live", endless=True),
    ),
    Rule(
        Risk.RESURRECTION,
        SetOptions,
        "Deletions from {name} are forgotten sooner: a row that was deleted comes back when a replica missed the "
        "deletion and no repair ran within the new gc_grace_seconds.",
        _lowers("gc_grace_seconds"),
    ),
    Rule(
        Risk.RESURRECTION,
        SetOptions,
        "SSTables of {name} are dropped without looking at what overlaps them: deleted and overwritten rows come back.",
        _expires_unsafely,
    ),
    Rule(
        Risk.STALE,
        AlterKeyspace,
        "Replicas change at once and rows do not move by themselves: reads of {name} may miss rows until every node "
        "has run nodetool repair (or rebuild, for a new data centre).",
        _changes_replication,
    ),
    Rule(
        Risk.STALE,
        SetOptions,
        "Without blocking read repair two reads of {name} at QUORUM may answer the newer value first and the older "
        "one after it.",
        _stops_read_repair,
    ),
    Rule(
        Risk.REWRITE,
        SetOptions,
        "Every SSTable of {name} is compacted anew under the new strategy, on every node: disk and I/O for the size of "
        "the table.",
        _recompacts,
    ),
    Rule(
        Risk.REWRITE,
        SetOptions,
        "New SSTables of {name} are compressed the new way; the old ones when they are compacted, or all at once by "
        "nodetool upgradesstables -a, which writes the whole table anew.",
        _recompresses,
    ),
    Rule(Risk.LONG, CreateIndex, "Every node reads all its rows to build {name}.", _indexes_live_table),
    Rule(
        Risk.LONG,
        CreateView,
        "Every node reads all rows of the base table to build {name}; views are experimental and have no check of "
        "their own.",
        _views_live_table,
    ),
    Rule(Risk.BREAKING, RenameColumns, "Clients that know the old names in {name} fail from then on.", _table_is_live),
    Rule(Risk.BREAKING, RenameFields, "Clients that know the old field names of {name} fail from then on.", _always),
)
"""Every danger that is known; a statement has all those that hold of it."""

HARMLESS: Mapping[type, str] = {
    CreateKeyspace: "A new keyspace is empty.",
    AlterKeyspace: "Only how commits are logged changes.",
    CreateType: "A new type has no cells yet.",
    AddField: "Cells of the type that are there read the new field as null.",
    CreateTable: "A new table is empty.",
    AddColumns: "Rows that are there read the new columns as null; nothing is written anew.",
    DropColumns: "The table is not there yet.",
    RenameColumns: "The table is not there yet.",
    SetOptions: "It counts for what comes; no SSTable is written anew.",
    Drop: "The table is not there yet.",
    Truncate: "The table is not there yet.",
    CreateIndex: "The table is not there yet, or empty.",
    CreateView: "The base table is not there yet, or empty.",
    Write: "It writes rows: what stood in the same cells before is overwritten.",
    Batch: "It writes rows: what stood in the same cells before is overwritten.",
    Use: "It names the keyspace of what follows.",
    Other: "It changes no table.",
}
"""Why nothing is risked when no rule holds; one sentence for each kind that no rule always holds of."""
