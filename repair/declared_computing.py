"""Declared transforms bound to a live schema: what computes a column, or what misfits. Pure."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from mailmend.model.cql_types import normal_type
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declared_transforms import (
    COLUMN_ITSELF,
    CONSTANT,
    CRC32_OF,
    DIGITS,
    FIELD_OF,
    FORM,
    JOINED_COLUMNS,
    JOINED_OF,
    JSON_OF,
    LOWER,
    PREFIX_OF,
    REST_OF,
    DeclaredTransform,
    Given,
)
from mailmend.model.projections.toml_values import Constant
from mailmend.model.table import Column, Kind, Table, spellings
from mailmend.model.texts import names_instead
from mailmend.model.transforms import (
    TEXT_TYPES,
    ConstantCell,
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

_RANGES: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_WHOLE: Final = "a whole number that the type holds"
CONSTANTS_OF: Final[Mapping[str, str]] = {
    "boolean": "true or false",
    **dict.fromkeys(_RANGES, _WHOLE),
    "text": "a text",
    "ascii": "a text",
    "uuid": "a UUID as a text",
    "timeuuid": "a UUID as a text",
}
"""How a constant is written, by the type of the column."""

_UNITS: Final = {f"{unit.value}_of": unit for unit in TimeUnit}
_TIME_RESULTS: Final = ("timestamp", "date", "text", "ascii", "varchar", "bigint", "int")
_ORDER: Final = ("timeuuid", *_TIME_RESULTS, "smallint", "tinyint", "uuid")
"""The order in which types are listed."""

_JOINED: Final = ("set<text>", "list<text>", "frozen<set<text>>", "frozen<list<text>>")
_HASHED: Final = TEXT_TYPES | _RANGES.keys() | {"uuid", "timeuuid"}


def constant_of(kind: str, value: Constant) -> CellConstant | None:
    """The constant of a declaration as a value of a column's type; None where it is not one."""
    match value:
        case bool():
            fits = kind == "boolean"
        case int():
            bits = _RANGES.get(kind, 0)
            fits = kind in _RANGES and -(2**bits) <= value < 2**bits
        case str() if kind in ("uuid", "timeuuid"):
            with suppress(ValueError):
                return UUID(value)
            fits = False
        case _:
            fits = kind in ("text", "ascii")
    if not fits:
        return None
    return value


def bound_transform(
    declared: DeclaredTransform,
    own: Column,
    truth: Table,
    live: Schema,
) -> Transform:
    """What computes a column of a projection, which is `own`.

    Raises:
        WrongUse: the truth has no such column, or a type does not go with the transform.
    """
    kind = normal_type(own.type)
    if declared.rule == CONSTANT:
        return ConstantCell(source=None, type=kind, value=_constant(declared.of, own))
    default = None
    if declared.default is not None:
        default = _constant(declared.default, own)
    if declared.rule == JOINED_COLUMNS:
        return _joined_columns(declared, own, truth, default)
    source = _source(declared.rule, str(declared.of), truth)
    asked = _Asked(declared, own, source, live, _Known(source.name, kind, default))
    return _MAKERS[declared.rule](asked)


class _Known(NamedTuple):
    """The attributes that every transform of a column has."""

    source: str
    type: str
    default: CellConstant | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A transform that is asked for, with the columns that it is between."""

    declared: DeclaredTransform
    own: Column
    source: Column
    live: Schema
    known: _Known

    @property
    def rule(self) -> str:
        return self.declared.rule

    @property
    def source_type(self) -> str:
        return normal_type(self.source.type)

    def takes(self, kinds: Collection[str]) -> None:
        """Refuse a source of another type."""
        _expect(self.source, self.rule, kinds)

    def gives(self, kinds: Collection[str], what: str = "") -> None:
        """Refuse a result of another type."""
        _expect(self.own, what or f"the result of {self.rule}", kinds)

    def same(self) -> Transform:
        self.gives({self.source_type})
        return SameCell(**self.known._asdict())

    def lower(self) -> Transform:
        self.takes(TEXT_TYPES)
        self.gives({self.source_type})
        return LowerCase(**self.known._asdict())

    def time(self) -> Transform:
        unit = _UNITS[self.rule]
        self.takes(("timestamp", "timeuuid"))
        in_digits = self.declared.part == DIGITS
        if in_digits:
            self.gives(TEXT_TYPES, f"{FORM} = {DIGITS!r}")
        else:
            self.gives(_time_results(unit))
        is_uuid = self.source_type == "timeuuid"
        return TimeBucket(**self.known._asdict(), unit=unit, of_uuid=is_uuid, digits=in_digits)

    def crc32(self) -> Transform:
        buckets = int(str(self.declared.part))
        self.takes(_HASHED)
        wide = [number for number, bits in _RANGES.items() if buckets <= 2**bits]
        self.gives(wide, f"a number below {buckets:,}")
        return HashBucket(**self.known._asdict(), buckets=buckets)

    def json(self) -> Transform:
        self.takes(TEXT_TYPES)
        self.gives(TEXT_TYPES - {"ascii"})
        return JsonCell(**self.known._asdict(), path=tuple(str(self.declared.part).split(".")))

    def field(self) -> Transform:
        """A field of a user type whose value is one cell."""
        spelling = str(self.declared.part)
        inner = self.source_type.removeprefix("frozen<").removesuffix(">")
        user_type = self.live.user_type(inner)
        if user_type is None or inner == self.source_type:
            types = spellings(self.live.types) or "none"
            shown = f"{self.source.spelling} is of type {self.source.type}"
            mend = f"{FIELD_OF} takes frozen<TYPE>. Types: {types}."
            raise WrongUse(f"{shown}, which is no frozen user type", mend=mend)
        fields = dict(user_type.normal_fields)
        name = name_of(spelling)
        if name not in fields:
            mend = names_instead(spelling, list(fields))
            raise WrongUse(f"{user_type.spelling} has no field {spelling}", mend=mend)
        self.gives({fields[name]}, f"{user_type.spelling}.{spelling}")
        return FieldCell(**self.known._asdict(), field=name)

    def prefix(self) -> Transform:
        self.takes(TEXT_TYPES)
        self.gives({self.source_type})
        kind = PrefixCell
        if self.rule == REST_OF:
            kind = RestCell
        return kind(**self.known._asdict(), prefixes=self.declared.texts)

    def joined(self) -> Transform:
        self.takes(_JOINED)
        self.gives(("text",))
        of_set = "set<" in self.source_type
        separator = str(self.declared.part or "")
        return JoinedCell(**self.known._asdict(), of_set=of_set, separator=separator)


_MAKERS: Final[Mapping[str, Callable[[_Asked], Transform]]] = {
    COLUMN_ITSELF: _Asked.same,
    LOWER: _Asked.lower,
    **dict.fromkeys(_UNITS, _Asked.time),
    CRC32_OF: _Asked.crc32,
    JSON_OF: _Asked.json,
    FIELD_OF: _Asked.field,
    JOINED_OF: _Asked.joined,
    PREFIX_OF: _Asked.prefix,
    REST_OF: _Asked.prefix,
}


def _time_results(unit: TimeUnit) -> list[str]:
    """The types that hold a bucket of time: no date has hours, no int the digits of all hours."""
    if unit is TimeUnit.HOUR:
        return [kind for kind in _TIME_RESULTS if kind not in {"date", "int"}]
    return list(_TIME_RESULTS)


def _joined_columns(
    declared: DeclaredTransform,
    own: Column,
    truth: Table,
    default: CellConstant | None,
) -> Transform:
    _expect(own, f"the result of {declared.rule}", ("text",))
    names = []
    for spelling in declared.columns:
        source = _source(declared.rule, spelling, truth)
        _expect(source, declared.rule, TEXT_TYPES)
        names.append(source.name)
    separator = str(declared.part)
    return JoinedColumns(type="text", columns=tuple(names), separator=separator, default=default)


def _source(rule: str, spelling: str, truth: Table) -> Column:
    if name_of(spelling) not in truth:
        mend = names_instead(spelling, [column.spelling for column in truth.columns])
        raise WrongUse(f"{truth.spelling} has no column {spelling}", mend=mend)
    column = truth.column(name_of(spelling))
    is_refused = column.is_collection and rule != JOINED_OF
    if column.kind is Kind.STATIC or is_refused:
        shown = f"{truth.spelling}.{column.spelling}"
        problem = f"{shown} computes nothing: it is static, or a collection of several cells"
        mend = f"Name a column that is one cell of the row. Texts of a set or list: {JOINED_OF}."
        raise WrongUse(problem, mend=mend)
    return column


def _expect(column: Column, what: str, kinds: Collection[str]) -> None:
    if normal_type(column.type) not in kinds:
        problem = f"{column.spelling} is of type {column.type}, and {what} needs another one"
        listed = ", ".join(kind for kind in _ORDER if kind in kinds) or ", ".join(kinds)
        raise WrongUse(problem, mend=f"It takes: {listed}.")


def _constant(value: Given, own: Column) -> CellConstant:
    found = None
    if not isinstance(value, tuple):
        found = constant_of(normal_type(own.type), value)
    if found is None:
        mend = f"Write {CONSTANTS_OF.get(own.type, 'no constant for this type')}."
        raise WrongUse(f"{value!r} is not a value of {own.spelling} ({own.type})", mend=mend)
    return found
