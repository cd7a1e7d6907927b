"""From rows to small records that can be spread over files and joined: what a scan keeps of each row.

A place is the mirror's key for a truth row, in bytes, numbers and text. Of the truth a place needs to know whether the
row is whole, which conditions hold, and a fingerprint of the compared columns in canonical form; of the mirror the same
fingerprint; of a filter's row only that it exists. Pure. Names are looked up once per scan, not once per row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from model.projections.family import Family
from model.projections.filters import Filter
from model.projections.groups import Counts, Union
from model.projections.projection import Condition
from model.schema.table import Canonical, Column, Key, Row, Table, canonical_value
from repair.ledger.before_images import key_from, key_text

WHOLE = 1
"""The bit of a truth record with all columns that an insert writes. Conditions follow, one bit each."""

_FINGERPRINT_BYTES = 16

Packed = tuple[Any, ...]
"""A key in a record: UUIDs as bytes, other types that marshal does not take as a line of text."""

_AS_THEY_ARE = frozenset({int, str, bool, type(None)})


class TruthRecord(NamedTuple):
    """What is kept of a truth row, its content's key first."""

    content: Packed
    place: Packed
    truth: Packed
    fingerprint: bytes
    bits: int
    groups: tuple[Packed, ...]
    elements: tuple[tuple[str, ...], ...]


def packing(names: Iterable[str]) -> Callable[[Row], Packed]:
    """A function that packs a key of a row; `names` are the key's columns in the row."""
    wanted = tuple(names)
    return lambda row: tuple([_packed(row[name]) for name in wanted])


def packing_key(table: Table) -> Callable[[Row], Packed]:
    return packing(column.name for column in table.key)


def unpacked_key(columns: Iterable[Column], key: Packed) -> Key:
    return tuple(_unpacked(column, part) for column, part in zip(columns, key, strict=True))


def fingerprinting(columns: Iterable[Column], sources: Mapping[str, str]) -> Callable[[Row], bytes]:
    """A function from a row to its fingerprint: equal for equal rows, else different except by chance.

    Args:
        columns: the compared columns.
        sources: the row's name for each column whose name differs.
    """
    forms = [_cell_form(column, sources) for column in columns]

    def of(row: Row) -> bytes:
        text = repr([form(row) for form in forms])
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_FINGERPRINT_BYTES).digest()

    return of


class Forms:
    """Turns the rows of one family into records; built once per scan."""

    def __init__(self, family: Family, *, accept_torn: bool) -> None:
        mirror = family.mirror
        self.family = family
        self.groups: tuple[Union | Counts, ...] = (*family.unions, *family.counts)
        self._conditions = family.conditions
        self._accept_torn = accept_torn
        self._place_columns = tuple(truth for _, truth in mirror.key)
        for one in family.filters:
            assert {truth for _, truth in one.key} == set(self._place_columns), "a filter is keyed as its mirror is"
        self._content = packing(truth for _, truth in family.content.key) if family.content else packing(())
        self._place = packing(self._place_columns)
        self._truth_key = packing_key(family.truth)
        self._groups = [packing(truth for _, truth in group.key) for group in self.groups]
        self._unions = [union.column for union in family.unions]
        self._truth_mark = fingerprinting(mirror.compared, mirror.truth_names)
        self._mirror_mark = fingerprinting(mirror.compared, {})
        self._mirror_key = packing_key(mirror.table)

    def truth(self, row: Row) -> TruthRecord:
        return TruthRecord(
            self._content(row),
            self._place(row),
            self._truth_key(row),
            self._truth_mark(row),
            self._bits(row),
            tuple([group(row) for group in self._groups]),
            tuple([tuple(row[column] or ()) for column in self._unions]),
        )

    def mirror(self, row: Row) -> tuple[Packed, bytes]:
        return self._mirror_key(row), self._mirror_mark(row)

    def place_of(self, filtered: Filter) -> Callable[[Row], Packed]:
        """A function from a filter's row to its place."""
        own = {truth: column for column, truth in filtered.key}
        return packing(own[truth] for truth in self._place_columns)

    def filter_key(self, filtered: Filter, place: Packed) -> Key:
        by_truth = dict(zip(self._place_columns, place, strict=True))
        return unpacked_key(filtered.table.key, tuple(by_truth[truth] for _, truth in filtered.key))

    def condition_bit(self, condition: Condition) -> int:
        return 2 << self._conditions.index(condition)

    def truth_ids(self, truths: Iterable[Packed]) -> tuple[UUID, ...]:
        """The partition keys of truth rows, where the key is one UUID; else empty, as other ways find the truth."""
        partition = self.family.truth.partition
        if len(partition) != 1 or not _is_uuid(partition[0]):
            return ()
        return tuple(UUID(bytes=one) for one in sorted({truth[0] for truth in truths}))

    def _bits(self, row: Row) -> int:
        bits = WHOLE if self._accept_torn or self.family.mirror.whole(row) else 0
        for place, condition in enumerate(self._conditions, start=1):
            bits |= condition.holds(row) << place
        return bits


def _is_uuid(column: Column) -> bool:
    return column.type in ("timeuuid", "uuid")


def _packed(part: Any) -> Any:
    kind = type(part)
    if kind is UUID:
        return part.bytes
    return part if kind in _AS_THEY_ARE else (key_text((part,)),)


def _unpacked(column: Column, part: Any) -> Any:
    match part:
        case bytes() if _is_uuid(column):
            return UUID(bytes=part)
        case (str(line),):
            return key_from(line)[0]
        case _:
            return part


def _cell_form(column: Column, sources: Mapping[str, str]) -> Callable[[Row], Any]:
    """A function to a cell's canonical form (`canonical_value`), with a distinct repr for each value."""
    name = sources.get(column.name, column.name)
    match column.canonical:
        case Canonical.FLAG:
            return lambda row: bool(row[name])
        case Canonical.NUMBER:
            return lambda row: row[name] or 0
        case Canonical.PLAIN if column.type in _SIMPLE:
            return lambda row: row[name]
        case Canonical.PLAIN | Canonical.SET | Canonical.THREAD:
            beside = sources.get("messageid", "messageid")
            return lambda row: _stable(canonical_value(column, {column.name: row[name], "messageid": row.get(beside)}))


_SIMPLE: Sequence[str] = ("text", "int", "bigint", "boolean", "smallint", "tinyint", "varchar", "ascii", "timestamp")


def _stable(value: Any) -> Any:
    """The value in a form whose repr is fast and always the same."""
    match value:
        case UUID():
            return value.int
        case frozenset():
            return sorted(map(repr, value))
        case Mapping():
            return sorted((repr(name), repr(item)) for name, item in value.items())
        case _:
            return value
