"""Transforms: how a cell of a copy follows from cells of its truth. A small closed list. Pure.

Spark renders the same transforms in `spark_repair.transforms`; `tests/equivalence` proves that both
give the same cells. Times are in UTC. A null cell gives null, unless the transform has a default.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, ClassVar, Final

from mailmend.model.ids import micros_of
from mailmend.model.values import CellConstant, constant_text, in_utc

TEXT_TYPES: Final = frozenset({"ascii", "text", "varchar"})

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = _EPOCH.toordinal()
_MILLI: Final = timedelta(milliseconds=1)
_MICROS_OF_MILLI: Final = 1_000

SIGMA: Final = ("\u03a3", "\u03c3")
"""The letter whose lower case depends on its neighbours in Python and Java; here it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A cell that follows from one cell of the truth, or from several.

    Attributes:
        source: the truth's column; None for a constant, and where there are several.
        type: the CQL type of the result.
        default: what stands for null; None: null stays null.
    """

    source: str | None
    type: str
    default: CellConstant | None = None

    is_total: ClassVar[bool] = True
    """Whether sources that are not null give a cell that is not null."""

    def of(self, cell: Any) -> Any:
        """The result for a cell that is not null; may be null."""
        raise NotImplementedError

    @property
    def sources(self) -> tuple[str, ...]:
        """The truth's columns that it follows from; none for a constant."""
        if self.source is None:
            return ()
        return (self.source,)

    @property
    def said(self) -> str:
        """The transform in words, without its default; other transforms have other words."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The computed column's name, which no plain column has, without dots and backticks."""
        text = self.said
        if self.default is not None:
            text = f"{text} or {constant_text(self.default)}"
        return _UNSAFE.sub(_safe, text)

    def cell(self, row: Mapping[str, Any]) -> Any:
        """The computed cell of a row of the truth."""
        found = None
        if self.source is not None:
            found = row.get(self.source)
        if found is not None or self.source is None:
            found = self.of(found)
        if found is None:
            return self.default
        return found


_UNSAFE: Final = re.compile(r"[^\w(), :=+-]")


def _safe(found: re.Match[str]) -> str:
    if found[0] == ".":
        return "/"
    return f"%{ord(found[0]):x};"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantCell(Transform):
    """The same value in every row."""

    value: CellConstant

    def of(self, cell: Any) -> Any:  # noqa: ARG002 - it depends on no cell
        return self.value

    @property
    def said(self) -> str:
        return f"constant({self.type} {constant_text(self.value)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SameCell(Transform):
    """The cell as it is; with a default, which is what it is for."""

    def of(self, cell: Any) -> Any:
        return cell

    @property
    def said(self) -> str:
        return f"column({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerCase(Transform):
    """A text in lower case, each letter without regard to its neighbours."""

    def of(self, cell: Any) -> Any:
        text: str = cell
        return text.replace(*SIGMA).lower()

    @property
    def said(self) -> str:
        return f"lower({self.source})"


class TimeUnit(Enum):
    """The size of a bucket of time."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


TEXT_LENGTHS: Final = {TimeUnit.DAY: 10, TimeUnit.MONTH: 7, TimeUnit.YEAR: 4}
"""The number of characters of an ISO date that name a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBucket(Transform):
    """The hour, day, month or year of an instant, in UTC, in a form that follows from the type.

    A timestamp or date is the bucket's beginning; a text is the beginning of its ISO form; a bigint
    has the milliseconds from 1970 to the beginning; an int has its digits (20240501).

    Attributes:
        of_uuid: whether the source is a time-based UUID, else it is a timestamp.
        digits: whether a text has the digits only (20240501, 2024050113).
    """

    unit: TimeUnit
    of_uuid: bool
    digits: bool = False

    def of(self, cell: Any) -> Any:
        millis = self._millis(cell)
        day = date.fromordinal(_EPOCH_ORDINAL + millis // _DAY)
        hour = 0
        match self.unit:
            case TimeUnit.HOUR:
                hour = millis % _DAY // _HOUR
            case TimeUnit.MONTH:
                day = day.replace(day=1)
            case TimeUnit.YEAR:
                day = day.replace(month=1, day=1)
            case TimeUnit.DAY:
                pass
        return self._formed(day, hour)

    def _millis(self, cell: Any) -> int:
        if self.of_uuid:
            return micros_of(cell) // _MICROS_OF_MILLI
        return (in_utc(cell) - _EPOCH) // _MILLI

    def _formed(self, day: date, hour: int) -> Any:
        start = (day.toordinal() - _EPOCH_ORDINAL) * _DAY + hour * _HOUR
        match self.type:
            case "timestamp":
                return _EPOCH + start * _MILLI
            case "date":
                return day
            case "bigint":
                return start
            case "int":
                return int(_digits(self._text(day, hour)))
            case _ if self.digits:
                return _digits(self._text(day, hour))
            case _:
                return self._text(day, hour)

    def _text(self, day: date, hour: int) -> str:
        if self.unit is TimeUnit.HOUR:
            return f"{day.isoformat()}T{hour:02}"
        return day.isoformat()[: TEXT_LENGTHS[self.unit]]

    @property
    def said(self) -> str:
        words = f"{self.unit.value}_of({self.source}) as {self.type}"
        if self.digits:
            return f"{words} in digits"
        return words


def _digits(text: str) -> str:
    return text.replace("-", "").replace("T", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashBucket(Transform):
    """A number from 0 to below `buckets`: CRC-32 of the UTF-8 bytes of the cell's text.

    The text of a number has its decimal digits, the text of a UUID its 36 characters in lower case.
    """

    buckets: int

    def of(self, cell: Any) -> Any:
        return zlib.crc32(str(cell).encode()) % self.buckets

    @property
    def said(self) -> str:
        return f"crc32_of({self.source}) into {self.buckets} as {self.type}"


NESTING_MAX: Final = 500
"""The largest number of arrays and objects within each other that a JSON document is read with.

Python's own limit differs between versions, and depends on the calls that are under way.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCell(Transform):
    """A text within a JSON document, as text: a text, a whole number, true or false; else null."""

    path: tuple[str, ...]

    is_total: ClassVar[bool] = False

    def of(self, cell: Any) -> Any:
        if _is_too_deep(cell):
            return None
        try:
            part = json.loads(cell, parse_int=_whole_text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
        for key in self.path:
            if not isinstance(part, dict):
                return None
            part = part.get(key)
        match part:
            case bool():
                return str(part).lower()
            case str() if not _HALVES.search(part):
                return part
            case _:
                return None

    @property
    def said(self) -> str:
        return f"json_of({self.source}, {'.'.join(self.path)})"


_HALVES: Final = re.compile("[\ud800-\udfff]")
"""Halves of a pair, which JSON can spell and no text of Cassandra holds."""

_NESTING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""The texts of a JSON document, and its brackets outside of them."""


def _is_too_deep(document: str) -> bool:
    """Whether a JSON document is nested too deep; of other documents it may say either."""
    if document.count("[") + document.count("{") <= NESTING_MAX:
        return False
    depth = 0
    for found in _NESTING.finditer(document):
        if found[0] in "[{":
            depth += 1
        elif found[0] in "]}":
            depth -= 1
        if depth > NESTING_MAX:
            return True
    return False


def _whole_text(digits: str) -> str:
    """A whole number as it is written; Python's own limit of digits is a setting of its process."""
    if digits == "-0":
        return "0"
    return digits


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCell(Transform):
    """A field of a value of a user type."""

    field: str

    is_total: ClassVar[bool] = False

    def of(self, cell: Any) -> Any:
        return cell.get(self.field)

    @property
    def said(self) -> str:
        return f"field_of({self.source}, {self.field})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedCell(Transform):
    """The texts of a collection as one text; null where it has no elements.

    Attributes:
        of_set: whether the source is a set, whose elements are in the order of their UTF-8 bytes,
            as the server has them; the elements of a list keep their order.
        separator: what is between two elements.
    """

    of_set: bool
    separator: str = ""

    is_total: ClassVar[bool] = False

    def of(self, cell: Any) -> Any:
        if not cell:
            return None
        texts = cell
        if self.of_set:
            texts = sorted(cell, key=str.encode)
        return self.separator.join(texts)

    @property
    def said(self) -> str:
        if self.separator:
            return f"joined_of({self.source}, {self.separator!r})"
        return f"joined_of({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedColumns(Transform):
    """The texts of several columns as one text; null where one of them is null.

    Attributes:
        columns: the truth's columns, in the order of their texts.
        separator: what is between two texts; never empty.
    """

    source: None = None
    columns: tuple[str, ...]
    separator: str

    @property
    def sources(self) -> tuple[str, ...]:
        return self.columns

    def cell(self, row: Mapping[str, Any]) -> Any:
        texts: list[str] = []
        for name in self.columns:
            text = row.get(name)
            if text is None:
                return self.default
            texts.append(text)
        return self.separator.join(texts)

    def columns_of(self, text: str | None) -> dict[str, str]:
        """The columns' texts behind a joined text; empty unless there is one way back."""
        joined = text or ""
        places = [at for at in range(len(joined)) if joined.startswith(self.separator, at)]
        texts = joined.split(self.separator)
        if len(places) != len(self.columns) - 1 or len(texts) != len(self.columns):
            return {}
        return dict(zip(self.columns, texts, strict=True))

    @property
    def said(self) -> str:
        return f"joined_columns({', '.join(self.columns)}, {self.separator!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCell(Transform):
    """The one of some prefixes that a text begins with, else an empty text.

    Attributes:
        prefixes: no prefix begins with another one.
    """

    prefixes: tuple[str, ...]

    def of(self, cell: Any) -> Any:
        return self.prefix_of(cell)

    def prefix_of(self, text: str) -> str:
        return next(filter(text.startswith, self.prefixes), "")

    @property
    def said(self) -> str:
        return f"prefix_of({self.source}, {self.prefixes!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCell(PrefixCell):
    """The text behind its prefix; the whole text where it has none of them."""

    def of(self, cell: Any) -> Any:
        return cell.removeprefix(self.prefix_of(cell))

    @property
    def said(self) -> str:
        return f"rest_of({self.source}, {self.prefixes!r})"


class ElementPart(Enum):
    """The part of an element of a collection."""

    ELEMENT = "element"
    """An element of a set or list, or a key of a map."""
    VALUE = "value"
    """The value under a key of a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementCell(Transform):
    """A part of one element of a collection; null in a row that was not split into its elements.

    Attributes:
        source: the collection.
        part: what it takes of the element.
        rule: what follows from that part; None: the part itself.
    """

    part: ElementPart = ElementPart.ELEMENT
    rule: Transform | None = None

    is_total: ClassVar[bool] = False

    def cell(self, row: Mapping[str, Any]) -> Any:  # noqa: ARG002 - a row has many elements
        """Null: a row of the truth has no single element."""
        return None

    def of_element(self, element: Any, value: Any) -> Any:
        """The cell of one element. In a map `element` is the key; elsewhere `value` is None."""
        found = element
        if self.part is ElementPart.VALUE:
            found = value
        if self.rule is None or self.source is None:
            return found
        return self.rule.cell({self.source: found})

    @property
    def said(self) -> str:
        if self.rule is not None:
            return f"{self.part.value} by {self.rule.name}"
        return f"{self.part.value}({self.source})"
