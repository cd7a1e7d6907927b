"""What a declaration tests rows of a truth by: columns with constants, null, beginnings. Pure.

Names are kept as CQL spells them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mailmend.model.errors import WrongUse
from mailmend.model.projections.toml_values import Constant, cql_name, toml_constant, toml_pairs

NULL: Final = "null"
NOT: Final = "not"
STARTS: Final = "starts"
STARTS_NOT: Final = "starts_not"


def no_name_twice(names: Iterable[str], among: str) -> None:
    """Refuse a name that occurs twice.

    Raises:
        WrongUse: it names it.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WrongUse(f"{name} occurs twice among {among}", mend="Name it once.")
        seen.add(name)


@dataclass(frozen=True, slots=True)
class DeclaredTest:
    """What a column has to be: one of some values; or what the keys of a table say, all of them.

    Attributes:
        excluded: values to which it is not equal; null is never equal to a value.
        starts: texts; its text begins with one of them, and null begins with no text.
        starts_not: texts; its text begins with none of them.
        null: whether it has to be null; None: it may be.
    """

    column: str
    values: tuple[Constant, ...] = ()
    null: bool | None = None
    excluded: tuple[Constant, ...] = field(default=(), kw_only=True)
    starts: tuple[str, ...] = field(default=(), kw_only=True)
    starts_not: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", cql_name(self.column, "column name"))
        keys = [key for key, _ in self._pairs()]
        if bool(self.values) is bool(keys):
            what = f"the test of {self.column} has neither values nor keys, or both"
            raise WrongUse(what, mend=TEST_MEND)
        if self.null and len(keys) > 1:
            what = f"the test of {self.column} has {NULL} = true with other keys"
            raise WrongUse(what, mend=f"Write {{ {NULL} = true }} alone, or {NULL} = false.")
        for values in (self.values, self.excluded, self.starts, self.starts_not):
            if len({(type(value), value) for value in values}) < len(values):
                raise WrongUse(f"a value of {self.column} occurs twice", mend="Write it once.")
        if "" in (*self.starts, *self.starts_not):
            what = f"the test of {self.column} has an empty beginning, which every text has"
            raise WrongUse(what, mend=f"Leave it out; {{ {NULL} = false }} takes every text.")

    @property
    def text(self) -> str:
        """As TOML writes it behind the column."""
        if self.values:
            return _one_or_more(self.values)
        return toml_pairs(self._pairs())

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """The keys of its table, with what TOML writes there."""
        values = (self.excluded, self.starts, self.starts_not)
        for key, listed in zip((NOT, STARTS, STARTS_NOT), values, strict=True):
            if listed:
                yield key, _one_or_more(listed)
        if self.null is not None:
            yield NULL, toml_constant(self.null)


def _one_or_more(values: Iterable[Constant]) -> str:
    texts = [toml_constant(value) for value in values]
    if len(texts) == 1:
        return texts[0]
    return f"[{', '.join(texts)}]"


TEST_MEND: Final = (
    'Write column = "value", column = ["one", "other"], or a table of '
    f"{NOT}, {STARTS}, {STARTS_NOT} and {NULL}, like column = {{ {NULL} = true }}."
)


@dataclass(frozen=True, slots=True)
class DeclaredCondition:
    """Which rows of a truth count: where each test of at least one alternative holds.

    An alternative without tests holds for every row.
    """

    alternatives: tuple[tuple[DeclaredTest, ...], ...] = ((),)

    def __post_init__(self) -> None:
        if not self.alternatives:
            raise WrongUse("a condition without alternatives never holds", mend=TEST_MEND)
        for tests in self.alternatives:
            no_name_twice([test.column for test in tests], "the columns of a condition")

    @property
    def text(self) -> str:
        """As TOML writes it: one inline table, or a list of them."""
        tables = []
        for tests in self.alternatives:
            tables.append(toml_pairs((test.column, test.text) for test in tests))
        if len(tables) == 1:
            return tables[0]
        return f"[{', '.join(tables)}]"


EVERY_ROW: Final = DeclaredCondition()
