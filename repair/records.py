"""From rows to small records that can be spread over files and joined: what a scan keeps of each row, and no more.

A place is the mirror's key for a truth row, in bytes, numbers and text. Of the truth a place needs to know whether the
row is whole, which conditions hold, and a fingerprint of the compared columns in canonical form; of the mirror the same
fingerprint; of a filter's row only that it is there. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import UUID

from model.projections import Condition, Counts, Family, Filter, Mirror, Projection, Union
from model.table import Column, Key, Row, Table, canonical_value
from repair.images import key_from, key_text

WHOLE = 1
"""The bit of a truth record that says: it has every column that an insert writes. Conditions follow, one bit each."""

_FINGERPRINT_BYTES = 16

Packed = tuple[Any, ...]
"""A key as records keep it: UUIDs as their bytes, everything else that marshal does not take as a line of text."""


def packed_key(key: Iterable[Any]) -> Packed:
    """The key as records keep it."""
    return tuple(_packed(part) for part in key)


def unpacked_key(columns: Iterable[Column], key: Packed) -> Key:
    """The key as its columns have it."""
    return tuple(_unpacked(column, part) for column, part in zip(columns, key, strict=True))


def fingerprint(columns: Iterable[Column], row: Row) -> bytes:
    """Equal for rows that agree in every one of the columns, in canonical form; else different, but for chance."""
    text = "\n".join([_text(canonical_value(column, row)) for column in columns])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_FINGERPRINT_BYTES).digest()


def truth_columns(family: Family) -> tuple[str, ...]:
    """The columns of the truth that a check reads: keys, compared ones, required ones, and those of every condition."""
    theirs = dict(family.mirror.renamed) | dict(family.mirror.key)
    wanted = {theirs.get(column.name, column.name) for column in family.mirror.compared}
    wanted |= {column for projection in family.projections for _, column in projection.key}
    wanted |= {column.name for column in family.truth.key} | set(family.mirror.required)
    wanted |= {condition.column for condition in conditions_of(family)} | {union.column for union in family.unions}
    return tuple(name for name in family.truth.names if name in wanted)


def projection_columns(projection: Projection) -> tuple[str, ...]:
    """The columns of a projection that a check reads."""
    wanted = {column.name for column in projection.table.key}
    match projection:
        case Mirror(compared=compared):
            wanted |= {column.name for column in compared}
        case Union(column=column):
            wanted |= {column}
        case Counts(counters=counters):
            wanted |= {name for name, _ in counters}
        case _:
            pass
    return tuple(name for name in projection.table.names if name in wanted)


def conditions_of(family: Family) -> tuple[Condition, ...]:
    """Every condition that some projection of the family asks of a truth row, once each."""
    asked = [one.when for one in family.filters]
    asked += [when for counts in family.counts for _, when in counts.counters if when is not None]
    return tuple(dict.fromkeys(asked))


@dataclass(frozen=True, slots=True)
class TruthRecord:
    """What is kept of a truth row; a plain tuple on disk, in the order of the fields."""

    content: Packed
    place: Packed
    truth: Packed
    fingerprint: bytes
    bits: int
    groups: tuple[Packed, ...]
    elements: tuple[tuple[str, ...], ...]

    def as_tuple(self) -> tuple[Any, ...]:
        """The record as a spill takes it, its content key first."""
        return (self.content, self.place, self.truth, self.fingerprint, self.bits, self.groups, self.elements)


class Forms:
    """How the rows of one family become records; built once for a scan."""

    def __init__(self, family: Family, *, accept_torn: bool) -> None:
        self.family = family
        self.conditions = conditions_of(family)
        self.groups: tuple[Union | Counts, ...] = (*family.unions, *family.counts)
        self._accept_torn = accept_torn
        self._place_columns = tuple(truth for _, truth in family.mirror.key)
        for one in family.filters:
            assert {truth for _, truth in one.key} == set(self._place_columns), "a filter is keyed as its mirror is"

    def truth(self, row: Row) -> TruthRecord:
        """What is kept of a truth row."""
        family = self.family
        return TruthRecord(
            content=packed_key(family.content.key_of(row)) if family.content else (),
            place=packed_key(row[column] for column in self._place_columns),
            truth=packed_key(family.truth.key_of(row)),
            fingerprint=fingerprint(family.mirror.compared, family.mirror.row_of(row)),
            bits=self._bits(row),
            groups=tuple(packed_key(group.key_of(row)) for group in self.groups),
            elements=tuple(tuple(row.get(union.column) or ()) for union in family.unions),
        )

    def mirror(self, row: Row) -> tuple[Packed, bytes]:
        """The place and fingerprint of a mirror's row."""
        return packed_key(self.family.mirror.table.key_of(row)), fingerprint(self.family.mirror.compared, row)

    def place_of(self, filtered: Filter) -> Callable[[Row], Packed]:
        """How a filter's row tells its place."""
        own = {truth: column for column, truth in filtered.key}
        columns = tuple(own[truth] for truth in self._place_columns)
        return lambda row: packed_key(row[column] for column in columns)

    def filter_key(self, filtered: Filter, place: Packed) -> Key:
        """The filter's key at a place."""
        by_truth = dict(zip(self._place_columns, place, strict=True))
        return unpacked_key(filtered.table.key, tuple(by_truth[truth] for _, truth in filtered.key))

    def condition_bit(self, condition: Condition) -> int:
        """The bit that says whether a condition holds."""
        return 2 << self.conditions.index(condition)

    def deltas(self, counts: Counts, bits: int) -> tuple[int, ...]:
        """What a truth row with those bits adds to each counter."""
        return tuple(int(when is None or bool(bits & self.condition_bit(when))) for _, when in counts.counters)

    def truth_ids(self, truths: Iterable[Packed]) -> tuple[UUID, ...]:
        """The partition keys of truth rows, where one UUID is all of it: else the truth is found by other ways."""
        partition = self.family.truth.partition
        if len(partition) != 1 or not _is_uuid(partition[0]):
            return ()
        return tuple(UUID(bytes=one) for one in sorted({truth[0] for truth in truths}))

    def _bits(self, row: Row) -> int:
        bits = WHOLE if self._accept_torn or self.family.mirror.whole(row) else 0
        for place, condition in enumerate(self.conditions, start=1):
            bits |= condition.holds(row) << place
        return bits


def _is_uuid(column: Column) -> bool:
    return column.type in ("timeuuid", "uuid")


def _packed(part: Any) -> Any:
    match part:
        case UUID():
            return part.bytes
        case None | int() | str():
            return part
        case _:
            return (key_text((part,)),)


def _unpacked(column: Column, part: Any) -> Any:
    match part:
        case bytes() if _is_uuid(column):
            return UUID(bytes=part)
        case (str(line),):
            return key_from(line)[0]
        case _:
            return part


def _text(value: Any) -> str:
    """A canonical value as text: no two values of one column give the same, and none holds a line break."""
    match value:
        case UUID():
            return value.hex
        case frozenset():
            return repr(sorted(map(repr, value)))
        case Mapping():
            return repr(sorted((repr(name), repr(item)) for name, item in value.items()))
        case _:
            return repr(value)


def table_names(tables: Iterable[Table]) -> tuple[str, ...]:
    """The tables' names in James's spelling, once each."""
    return tuple(dict.fromkeys(table.spelling for table in tables))
