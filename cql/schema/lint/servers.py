"""What each server accepts: compaction classes, options, and newer words of CQL. Pure.

Read from the servers' own classes (Cassandra 4.1 and 5.0: tests ask real ones) and documentation (3.11, 4.0; ScyllaDB's
own list of table options; what its compaction options mean is not checked). A name that is not here is refused there.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    CreateIndex,
    CreateTable,
    CreateType,
    DropColumns,
    MaskColumn,
    Other,
    RenameColumns,
    RenameFields,
    SetOptions,
    Statement,
)
from mailmend.model.cql_types import names_in
from mailmend.model.errors import WrongUse
from mailmend.model.names import short_class
from mailmend.model.table import Column

_OWN_VERSION: Final = re.compile(r"(\d+\.\d+)(?:\.\d+)?(?:-.+)?")


class ServerRelease(Enum):
    """A server release that rules distinguish; the value is how people write it."""

    CASSANDRA_3_11 = "3.11"
    CASSANDRA_4_0 = "4.0"
    CASSANDRA_4_1 = "4.1"
    CASSANDRA_5_0 = "5.0"
    SCYLLA = "scylla"

    @property
    def is_cassandra(self) -> bool:
        return self is not ServerRelease.SCYLLA

    @property
    def title(self) -> str:
        if not self.is_cassandra:
            return "ScyllaDB"
        return f"Cassandra {self.value}"

    def at_least(self, other: "ServerRelease") -> bool:
        """Whether it is Cassandra of the other release or a later one."""
        order = list(ServerRelease)
        return self.is_cassandra and order.index(self) >= order.index(other)


def parse_release(text: str) -> ServerRelease:
    """The release that a version names: `4.1`, `5.0.9`, `4.1-rc1`, `scylla`.

    Raises:
        WrongUse: the options of that version are not known here.
    """
    word = text.strip().lower()
    if word in {"scylla", "scylladb"}:
        return ServerRelease.SCYLLA
    numbers = word.replace("-", ".").split(".")
    if not all(number.isascii() and number.isdigit() for number in numbers[:2]):
        raise _unknown(text)
    minor = 0
    if len(numbers) > 1:
        minor = int(numbers[1])
    version = (int(numbers[0]), minor)
    newest = None
    for release in ServerRelease:
        if release.is_cassandra and _pair(release) <= version:
            newest = release
    if newest is None:
        raise _unknown(text)
    return newest


def exact_release(version: str) -> ServerRelease | None:
    """The release of a server by its own version, if all its options are known here; else None.

    None for later versions, for ScyllaDB (which calls itself 3.0.8) and for other vendors' servers (whose versions have
    four numbers), as they may have options that are not listed here.
    """
    found = _OWN_VERSION.fullmatch(version)
    if not found:
        return None
    for release in ServerRelease:
        if release.value == found[1]:
            return release
    return None


def _pair(release: ServerRelease) -> tuple[int, int]:
    major, minor = release.value.split(".")
    return int(major), int(minor)


def _unknown(text: str) -> WrongUse:
    known = ", ".join(release.value for release in ServerRelease)
    return WrongUse(f"{text!r} is no server whose options are known", mend=f"Write one of: {known}.")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_C3, _C40, _C41, _C5, _SCYLLA = ServerRelease

_EVERYWHERE: Final = _words("""
    bloom_filter_fp_chance caching comment compaction compression crc_check_chance default_time_to_live extensions
    gc_grace_seconds id max_index_interval memtable_flush_period_in_ms min_index_interval speculative_retry cdc
""") | {"compact storage"}
_SINCE_4_0: Final = _EVERYWHERE | _words("additional_write_policy read_repair")
_SINCE_4_1: Final = _SINCE_4_0 | {"memtable"}
_OLD: Final = _EVERYWHERE | {"read_repair_chance", "dclocal_read_repair_chance"}

TABLE_OPTIONS: Final[Mapping[ServerRelease, frozenset[str]]] = {
    _C3: _OLD,
    _C40: _SINCE_4_0,
    _C41: _SINCE_4_1,
    _C5: _SINCE_4_1 | _words("allow_auto_snapshot incremental_backups auto_repair"),
    _SCYLLA: _OLD
    | _words("paxos_grace_seconds synchronous_updates tablets tombstone_gc per_partition_rate_limit in_memory"),
}
"""The options of tables, by server."""

_ANY: Final = _words("""
    enabled provide_overlapping_tombstones tombstone_threshold tombstone_compaction_interval
    unchecked_tombstone_compaction log_all only_purge_repaired_tombstones
""")
_THRESHOLDS: Final = _ANY | _words("min_threshold max_threshold")
_TIERED: Final = _THRESHOLDS | _words("min_sstable_size bucket_low bucket_high")
_LEVELED_3: Final = _TIERED | _words("sstable_size_in_mb fanout_size")
_LEVELED: Final = _LEVELED_3 | {"single_sstable_uplevel"}
_EXPIRY: Final = _words("expired_sstable_check_frequency_seconds unsafe_aggressive_sstable_expiration")
_WINDOWED: Final = _TIERED | _EXPIRY | _words("timestamp_resolution compaction_window_unit compaction_window_size")
_DATE_TIERED: Final = _THRESHOLDS | _words("""
    min_sstable_size timestamp_resolution max_sstable_age_days base_time_seconds max_window_size_seconds
    expired_sstable_check_frequency_seconds
""")
_UNIFIED: Final = (_ANY | _EXPIRY) | _words("""
    scaling_parameters flush_size_override max_sstables_to_compact base_shard_count target_sstable_size
    min_sstable_size sstable_growth overlap_inclusion_method
""")
_OF_5: Final[Mapping[str, frozenset[str]]] = {
    "SizeTieredCompactionStrategy": _TIERED,
    "LeveledCompactionStrategy": _LEVELED,
    "TimeWindowCompactionStrategy": _WINDOWED,
}
_OF_4: Final = {**_OF_5, "DateTieredCompactionStrategy": _DATE_TIERED}

COMPACTIONS: Final[Mapping[ServerRelease, Mapping[str, frozenset[str] | None]]] = {
    _C3: {**_OF_4, "LeveledCompactionStrategy": _LEVELED_3},
    _C40: _OF_4,
    _C41: _OF_4,
    _C5: {**_OF_5, "UnifiedCompactionStrategy": _UNIFIED},
    _SCYLLA: dict.fromkeys((*_OF_5, "IncrementalCompactionStrategy", "NullCompactionStrategy")),
}
"""The compaction classes by server, each with its options (None: not known)."""

COMPRESSION_NEW: Final[Mapping[str, str]] = {
    "sstable_compression": "class",
    "chunk_length_kb": "chunk_length_in_kb",
    "crc_check_chance": "the table's own option crc_check_chance",
}
"""Options of compression that were renamed in 3.0 and that Cassandra 5.0 refuses, each with its new name."""

CACHING: Final = frozenset({"keys", "rows_per_partition"})
"""The options of caching."""

VALUES: Final[Mapping[str, frozenset[str]]] = {
    "compaction_window_unit": frozenset({"MINUTES", "HOURS", "DAYS"}),
    "timestamp_resolution": frozenset(
        {"DAYS", "HOURS", "MINUTES", "SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"}
    ),
}
"""The allowed values of compaction options that take one of a few words; case matters."""

READ_REPAIR: Final = frozenset({"BLOCKING", "NONE"})
"""The allowed values of a table's read_repair, in any case."""


_4_1: Final = ServerRelease.CASSANDRA_4_1
_5_0: Final = ServerRelease.CASSANDRA_5_0
_ATTACHED: Final = frozenset({"sai", "storageattachedindex"})
_CALL: Final = re.compile(r"'(?:[^']|'')*'|(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]*)\s*\(")
_FUNCTIONS_OF_5: Final = frozenset(
    [
        "abs",
        "exp",
        "log",
        "log10",
        "round",
        "collection_avg",
        "collection_count",
        "collection_max",
        "collection_min",
        "collection_sum",
        "map_keys",
        "map_values",
        "mask_default",
        "mask_hash",
        "mask_inner",
        "mask_null",
        "mask_outer",
        "mask_replace",
        "maxwritetime",
        "similarity_cosine",
        "similarity_dot_product",
        "similarity_euclidean",
        "to_date",
        "to_timestamp",
        "to_unix_timestamp",
        "min_timeuuid",
        "max_timeuuid",
        "current_date",
        "current_time",
        "current_timestamp",
        "current_timeuuid",
        "to_json",
        "from_json",
        "format_bytes",
        "format_time",
    ]
)
"""Functions that Cassandra 5.0 brought, in lower case; functions of the form text_as_blob came with it too."""

_AS_BLOB: Final = re.compile(r"[a-z]+_as_blob|blob_as_[a-z]+")
_IN_NO_RELEASE: Final = ("BETWEEN", "NOT IN", "NOT CONTAINS", "NOT CONTAINS KEY")
"""Comparisons that came after Cassandra 5.0."""

TooNew = tuple[str, ServerRelease | None, tuple[str, str]]
"""What a statement needs, the first release that has it (None: none that is known), and the place of it."""


def lacking(statement: Statement, release: ServerRelease) -> Iterator[TooNew]:
    """What the statement needs and a server of that release does not have."""
    if not release.is_cassandra:
        return
    for what, since, place in _needs(statement):
        if since is None or not release.at_least(since):
            yield what, since, place


def refused_by_version(statement: Statement, release: ServerRelease) -> tuple[str, ...]:
    """Why a server of that release refuses the statement, one sentence for each thing it lacks."""
    return tuple(version_problem(what, since, release) for what, since, _ in lacking(statement, release))


def version_problem(what: str, since: ServerRelease | None, release: ServerRelease) -> str:
    problem = f"{release.title} has no {what}"
    if since:
        problem += f", which came with {since.value}"
    return problem


def _needs(statement: Statement) -> Iterator[TooNew]:  # noqa: C901, PLR0912 - one case for each kind
    """Everything that some release lacks."""
    match statement:
        case CreateTable(_, table):
            yield from _of_columns(table.columns)
        case AddColumns(_, columns, only, unless):
            yield from _words_of_4_1(("IF EXISTS in ALTER TABLE", only), ("IF NOT EXISTS for a column", unless))
            yield from _of_columns(columns)
        case MaskColumn(_, column):
            yield "masked columns", _5_0, ("column", column)
        case DropColumns(_, _, only, columns_only) | RenameColumns(_, _, only, columns_only):
            yield from _words_of_4_1(("IF EXISTS in ALTER TABLE", only), ("IF EXISTS for a column", columns_only))
        case SetOptions(_, _, only):
            yield from _words_of_4_1(("IF EXISTS in ALTER", only))
        case CreateType(_, user_type):
            for name, kind in user_type.fields:
                yield from _of_type(kind, ("field", name))
        case AddField(_, name, kind, only, unless):
            yield from _words_of_4_1(("IF EXISTS in ALTER TYPE", only), ("IF NOT EXISTS for a field", unless))
            yield from _of_type(kind, ("field", name))
        case RenameFields(_, _, only, fields_only):
            yield from _words_of_4_1(("IF EXISTS in ALTER TYPE", only), ("IF EXISTS for a field", fields_only))
        case AlterKeyspace(_, _, only):
            yield from _words_of_4_1(("IF EXISTS in ALTER KEYSPACE", only))
        case CreateIndex(_, index, _, is_custom):
            using = short_class(index.using).lower()
            if index.using and is_custom is False:
                yield "USING in CREATE INDEX without CUSTOM", _5_0, ("column", index.target)
            if using in _ATTACHED or using == "legacy_local_table":
                yield f"indexes of class {index.using}", _5_0, ("column", index.target)
        case Other(words, calls, parts):
            for part in parts:
                yield part, _5_0, ("option", "")
            if words.endswith("IDENTITY"):
                yield words, _5_0, ("option", "")
            yield from _of_functions(calls)
        case _:
            yield from _of_writes(statement)


def _words_of_4_1(*flags: tuple[str, bool]) -> Iterator[TooNew]:
    for what, is_there in flags:
        if is_there:
            yield what, _4_1, ("option", "")


def _of_columns(columns: tuple[Column, ...]) -> Iterator[TooNew]:
    for column in columns:
        place = ("column", column.name)
        yield from _of_type(column.type, place)
        if column.mask:
            yield "masked columns", _5_0, place


def _of_type(kind: str, place: tuple[str, str]) -> Iterator[TooNew]:
    if "vector" in names_in(kind):
        yield "type vector", _5_0, place


def _of_writes(statement: Statement) -> Iterator[TooNew]:
    for write in statement.row_writes:
        if write.timeout:
            yield "USING TIMEOUT", None, ("option", "timeout")
        for relation in (*write.where, *write.only_if):
            if relation.operator in _IN_NO_RELEASE:
                yield f"{relation.operator} in conditions", None, ("column", relation.columns[0])
        for name, text in write.values.items():
            calls = tuple(found.lower() for found in _CALL.findall(text) if found)
            for what, since, _ in _of_functions(calls):
                yield what, since, ("column", name)


def _of_functions(calls: tuple[str, ...]) -> Iterator[TooNew]:
    for name in dict.fromkeys(calls):
        if name in _FUNCTIONS_OF_5 or _AS_BLOB.fullmatch(name):
            yield f"function {name}", _5_0, ("option", "")
