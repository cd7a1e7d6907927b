"""Transforms as a file of projections declares them: values and their TOML, without a schema."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mailmend.model.errors import WrongUse
from mailmend.model.projections.toml_values import (
    Constant,
    cql_name,
    toml_constant,
    toml_pairs,
    toml_text,
)

CONSTANT: Final = "constant"
COLUMN_ITSELF: Final = "column"
LOWER: Final = "lower"
HOUR_OF: Final = "hour_of"
DAY_OF: Final = "day_of"
MONTH_OF: Final = "month_of"
YEAR_OF: Final = "year_of"
CRC32_OF: Final = "crc32_of"
JSON_OF: Final = "json_of"
FIELD_OF: Final = "field_of"
JOINED_OF: Final = "joined_of"
JOINED_COLUMNS: Final = "joined_columns"
PREFIX_OF: Final = "prefix_of"
REST_OF: Final = "rest_of"
BUCKETS: Final = "buckets"
PATH: Final = "path"
FIELD: Final = "field"
FORM: Final = "form"
DIGITS: Final = "digits"
SEPARATOR: Final = "separator"
PREFIXES: Final = "prefixes"
DEFAULT: Final = "default"

BUCKETS_MAX: Final = 2**31


class TransformRule(NamedTuple):
    """A word of the closed list.

    Attributes:
        needs: the part that it needs next to it; "" where it needs none.
        may_have: the part that it may have next to it, other than a default.
    """

    word: str
    needs: str
    meaning: str
    may_have: str = ""

    @property
    def part(self) -> str:
        """The part next to it, needed or not, other than a default; "" without one."""
        return self.may_have or self.needs


_TIMES: Final = "of a timestamp or timeuuid, in UTC"
RULES: Final = (
    TransformRule(CONSTANT, "", "The same value in every row."),
    TransformRule(COLUMN_ITSELF, DEFAULT, "The column, and the default where it is null."),
    TransformRule(LOWER, "", "The text in lower case, letter by letter."),
    TransformRule(HOUR_OF, "", f"The hour {_TIMES}.", FORM),
    TransformRule(DAY_OF, "", f"The day {_TIMES}.", FORM),
    TransformRule(MONTH_OF, "", f"The month {_TIMES}.", FORM),
    TransformRule(YEAR_OF, "", f"The year {_TIMES}.", FORM),
    TransformRule(CRC32_OF, BUCKETS, "CRC-32 of the column's text in UTF-8, modulo `buckets`."),
    TransformRule(JSON_OF, PATH, "What is under the dotted keys of `path` in a JSON text."),
    TransformRule(FIELD_OF, FIELD, "The field of that name of a user type."),
    TransformRule(JOINED_OF, "", "The texts of a set or list, joined to one text.", SEPARATOR),
    TransformRule(JOINED_COLUMNS, SEPARATOR, "The texts of two or more columns, joined to one."),
    TransformRule(PREFIX_OF, PREFIXES, 'The one of `prefixes` that the text begins with, or "".'),
    TransformRule(REST_OF, PREFIXES, "The text behind that prefix."),
)
"""The closed list of transforms."""

LISTED: Final = frozenset({JOINED_COLUMNS, PREFIXES})
"""The words and parts that have a list of texts."""

Given = Constant | tuple[str, ...]
"""What is written behind a word or a part."""

RULE_OF: Final[Mapping[str, TransformRule]] = {rule.word: rule for rule in RULES}
WORDS: Final = tuple(RULE_OF)
COMPUTED_MEND: Final = 'Write it like { day = { day_of = "at" }, region = { constant = "eu" } }.'

_PATH_MEND: Final = 'Write keys with dots between them, like path = "customer.city".'


@dataclass(frozen=True, slots=True)
class DeclaredTransform:
    """What a column of a projection is computed by.

    Attributes:
        rule: a word of the closed list.
        of: the truth's column, or columns; for `constant` the value.
        part: the value of the part that the rule needs or may have, other than a default.
        default: what stands for null; None: null stays null.
    """

    rule: str
    of: Given
    part: Given | None = None
    default: Constant | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULE_OF:
            mend = f"Transforms: {', '.join(WORDS)}."
            raise WrongUse(f"there is no transform {self.rule!r}", mend=mend)
        if self.rule == JOINED_COLUMNS:
            object.__setattr__(self, "of", _columns(self.of))
        elif self.rule != CONSTANT:
            object.__setattr__(self, "of", _column(self.rule, self.of))
        self._check_part()

    def _check_part(self) -> None:
        match self.rule, self.part:
            case "constant", None if self.default is not None:
                raise WrongUse("a constant is never null", mend="Leave the default out.")
            case "column", None if self.default is None:
                mend = f"Name a default; a column as it is needs no transform, see {'renamed'!r}."
                raise WrongUse("a column is computed by nothing", mend=mend)
            case "crc32_of", int(buckets) if buckets is not True and 0 < buckets <= BUCKETS_MAX:
                pass
            case "crc32_of", _:
                mend = f"Write a whole number from 1 to {BUCKETS_MAX:,}."
                raise WrongUse(f"{BUCKETS} is no number of buckets: {self.part!r}", mend=mend)
            case "json_of", str(path) if path and all(path.split(".")):
                pass
            case "json_of", _:
                raise WrongUse(f"{PATH} has no keys: {self.part!r}", mend=_PATH_MEND)
            case "hour_of" | "day_of" | "month_of" | "year_of", part if part not in (None, DIGITS):
                mend = f'Write {FORM} = "{DIGITS}", or leave it out.'
                raise WrongUse(f"{FORM} is no form of a time: {part!r}", mend=mend)
            case "field_of", _:
                object.__setattr__(self, "part", _column(FIELD, self.part))
            case _:
                self._check_texts()

    def _check_texts(self) -> None:
        """Refuse a separator that is no text, and prefixes that are no texts."""
        match self.rule, self.part:
            case "joined_of", int(separator):
                mend = f'Write {SEPARATOR} = ",", or leave it out.'
                raise WrongUse(f"{SEPARATOR} is not a text: {separator!r}", mend=mend)
            case "joined_columns", str(separator) if separator:
                pass
            case "joined_columns", _:
                mend = f'Write {SEPARATOR} = "@": without it two pairs of texts would be one text.'
                raise WrongUse(f"{SEPARATOR} is not a text: {self.part!r}", mend=mend)
            case "prefix_of" | "rest_of", _:
                _check_prefixes(self.part)
            case _:
                pass

    @property
    def columns(self) -> tuple[str, ...]:
        """The truth's columns, as the file spells them; none for a constant."""
        if self.rule == CONSTANT:
            return ()
        if isinstance(self.of, tuple):
            return self.of
        return (str(self.of),)

    @property
    def texts(self) -> tuple[str, ...]:
        """The part where it is a list of texts; else none."""
        if isinstance(self.part, tuple):
            return self.part
        return ()

    @property
    def text(self) -> str:
        """As TOML writes it behind the column."""
        return toml_pairs(self._pairs())

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield self.rule, _toml(self.of)
        if self.part is not None:
            yield RULE_OF[self.rule].part, _toml(self.part)
        if self.default is not None:
            yield DEFAULT, toml_constant(self.default)


def _toml(value: Given) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    return toml_constant(value)


def _check_prefixes(prefixes: Given | None) -> None:
    """Refuse what is no list of texts, and texts of which one begins with another."""
    mend = f'Write {PREFIXES} = ["a:", "b:"]; no prefix begins with another one.'
    if not isinstance(prefixes, tuple) or not prefixes or not all(prefixes):
        raise WrongUse(f"{PREFIXES} is no list of texts: {prefixes!r}", mend=mend)
    for number, prefix in enumerate(prefixes):
        others = (*prefixes[:number], *prefixes[number + 1 :])
        if prefix.startswith(others):
            raise WrongUse(f"the prefix {prefix!r} begins with another one", mend=mend)


def _columns(value: Given) -> tuple[str, ...]:
    names: tuple[str, ...] = ()
    if isinstance(value, tuple):
        names = tuple(cql_name(name, "column name") for name in value)
    if len(set(names)) < 2 or len(set(names)) < len(names):  # noqa: PLR2004 - two columns
        mend = f'Write two columns or more, each once: {JOINED_COLUMNS} = ["name", "domain"].'
        raise WrongUse(f"{JOINED_COLUMNS} does not name several columns: {value!r}", mend=mend)
    return names


def _column(word: str, value: Given | None) -> str:
    if not isinstance(value, str):
        mend = 'Write its name between quotes: "email".'
        raise WrongUse(f"{word} names no column: {value!r}", mend=mend)
    return cql_name(value, "column name")
