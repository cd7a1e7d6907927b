"""Transforms as expressions of Spark: each gives the cell that `model.transforms` gives.

Instants are numbers of milliseconds here, so that no time zone has an effect.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final
from uuid import UUID

from pyspark.sql import Column as Expression
from pyspark.sql import functions as sf

from mailmend.model.ids import UUID_EPOCH_100NS
from mailmend.model.transforms import (
    SIGMA,
    TEXT_LENGTHS,
    ConstantCell,
    ElementCell,
    FieldCell,
    HashBucket,
    JoinedCell,
    JoinedColumns,
    JsonCell,
    LowerCase,
    PrefixCell,
    RestCell,
    SameCell,
    TimeBucket,
    TimeUnit,
    Transform,
)
from mailmend.model.values import CellConstant

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_TICKS_OF_MILLI: Final = 10_000
_SPARK_TYPES: Final = {
    "bigint": "bigint",
    "boolean": "boolean",
    "int": "int",
    "smallint": "smallint",
    "tinyint": "tinyint",
}
"""The types of numbers; every other constant is a text."""


def rendered(transform: Transform, *sources: Expression) -> Expression:
    """The computed cell; `sources` are the cells of the transform's sources."""
    match transform:
        case ConstantCell():
            return _literal(transform.value, transform.type)
        case ElementCell():
            return sf.lit(None).cast("string")
        case JoinedColumns():
            found = _joined(sources, transform.separator)
        case JsonCell():
            found = _of_json(transform, *sources)
        case _:
            (source,) = sources
            found = _of(transform, source)
    if transform.default is not None:
        return sf.coalesce(found, _literal(transform.default, transform.type))
    return found


def rendered_each(transform: ElementCell, elements: Expression) -> Expression:
    """The cells of all elements of a set or a list, in the same order."""
    rule = transform.rule
    match rule:
        case None:
            return elements
        case JsonCell():
            return _each_of_json(transform, elements)
        case _:
            return sf.transform(elements, lambda element: rendered(rule, element))


def _of(transform: Transform, cell: Expression) -> Expression:  # noqa: PLR0911 - one for each kind
    match transform:
        case SameCell():
            return cell
        case LowerCase():
            return _lower(cell)
        case TimeBucket():
            return _bucket(transform, cell)
        case HashBucket(buckets=buckets):
            number = sf.pmod(sf.crc32(cell.cast("string")), sf.lit(buckets).cast("long"))
            return number.cast(_SPARK_TYPES[transform.type])
        case FieldCell(field=field):
            return cell.getField(field)
        case RestCell(prefixes=prefixes):
            length = sf.length(_prefix(cell, prefixes))
            return cell.substr(length + 1, sf.length(cell))
        case PrefixCell(prefixes=prefixes):
            return _prefix(cell, prefixes)
        case JoinedCell(of_set=of_set, separator=separator):
            texts = cell
            if of_set:
                texts = sf.sort_array(cell)
            return sf.when(sf.size(cell) > 0, sf.array_join(texts, separator))
        case _:
            raise NotImplementedError(type(transform).__name__)


def _of_json(transform: JsonCell, cell: Expression) -> Expression:
    """Python reads the documents: Spark's functions find other texts, and take what is not JSON.

    Spark 4 is told how it calls the function: it cannot read our type hints.
    """

    def text_of(document: str | None) -> str | None:
        if document is None:
            return None
        found: str | None = transform.of(document)
        return found

    return sf.udf(text_of, "string", useArrow=False)(cell)


def _each_of_json(transform: ElementCell, elements: Expression) -> Expression:
    """All elements at once: within an array, Spark calls no Python."""

    def texts_of(documents: list[str] | None) -> list[str | None] | None:
        if documents is None:
            return None
        return [transform.of_element(document, None) for document in documents]

    return sf.udf(texts_of, "array<string>", useArrow=False)(elements)


def _joined(texts: Iterable[Expression], separator: str) -> Expression:
    """Null where a text is null, as `concat` has it."""
    first, *others = texts
    between = sf.lit(separator)
    parts = [first]
    for text in others:
        parts += [between, text]
    return sf.concat(*parts)


def _prefix(cell: Expression, prefixes: Iterable[str]) -> Expression:
    found = sf.lit("")
    for prefix in prefixes:
        found = sf.when(cell.startswith(prefix), sf.lit(prefix)).otherwise(found)
    return sf.when(cell.isNotNull(), found)


def _literal(value: CellConstant, cql_type: str) -> Expression:
    if isinstance(value, UUID):
        return sf.lit(str(value))
    return sf.lit(value).cast(_SPARK_TYPES.get(cql_type, "string"))


def _lower(cell: Expression) -> Expression:
    """Letter by letter, by Python's own table: Spark's `lower` knows another version of Unicode."""
    capitals, small, longer = _letters()
    lowered = sf.translate(cell, capitals, small)
    for letter, letters in longer:
        lowered = sf.replace(lowered, sf.lit(letter), sf.lit(letters))
    return lowered


@cache
def _letters() -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Letters with one small letter, those small letters, and letters that become several."""
    capitals = []
    small = []
    longer = []
    for letter, lowered in _changed():
        if len(lowered) == 1:
            capitals.append(letter)
            small.append(lowered)
        else:
            longer.append((letter, lowered))
    return "".join(capitals), "".join(small), tuple(longer)


def _changed() -> Iterator[tuple[str, str]]:
    for number in range(sys.maxunicode + 1):
        letter = chr(number)
        lowered = letter.replace(*SIGMA).lower()
        if lowered != letter:
            yield letter, lowered


def _bucket(transform: TimeBucket, cell: Expression) -> Expression:
    millis = sf.unix_millis(cell)
    if transform.of_uuid:
        millis = _millis_of_uuid(cell)
    days = _whole(millis, _DAY).cast("int")
    day = sf.date_from_unix_date(days)
    hour = sf.lit(0)
    match transform.unit:
        case TimeUnit.HOUR:
            hour = _whole(sf.pmod(millis, _long(_DAY)), _HOUR)
        case TimeUnit.MONTH:
            day = sf.trunc(day, "month")
        case TimeUnit.YEAR:
            day = sf.trunc(day, "year")
        case TimeUnit.DAY:
            pass
    return _formed(transform, day, hour)


def _formed(transform: TimeBucket, day: Expression, hour: Expression) -> Expression:
    start = sf.unix_date(day).cast("long") * _long(_DAY) + hour.cast("long") * _long(_HOUR)
    match transform.type:
        case "timestamp":
            return sf.timestamp_millis(start)
        case "date":
            return day
        case "bigint":
            return start
        case "int":
            return _digits(_text(transform.unit, day, hour)).cast("int")
        case _ if transform.digits:
            return _digits(_text(transform.unit, day, hour))
        case _:
            return _text(transform.unit, day, hour)


def _digits(text: Expression) -> Expression:
    return sf.regexp_replace(text, "[-T]", "")


def _text(unit: TimeUnit, day: Expression, hour: Expression) -> Expression:
    text = day.cast("string")
    if unit is TimeUnit.HOUR:
        return sf.concat(text, sf.lit("T"), sf.lpad(hour.cast("string"), 2, "0"))
    return sf.substring(text, 1, TEXT_LENGTHS[unit])


def _millis_of_uuid(cell: Expression) -> Expression:
    """The time of a UUID of version 1, whose 60 bits are in three groups, the last group first."""
    low = sf.substring(cell, 1, 8)
    middle = sf.substring(cell, 10, 4)
    high = sf.substring(cell, 16, 3)
    ticks = sf.conv(sf.concat(high, middle, low), 16, 10).cast("long")
    return _whole(ticks - _long(UUID_EPOCH_100NS), _TICKS_OF_MILLI)


def _whole(number: Expression, divisor: int) -> Expression:
    """The number divided and rounded down. Its quotients are exact: they are below 2**53."""
    return sf.round((number - sf.pmod(number, _long(divisor))) / _long(divisor)).cast("long")


def _long(number: int) -> Expression:
    return sf.lit(number).cast("long")
