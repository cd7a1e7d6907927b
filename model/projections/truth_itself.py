"""A truth that has no mirror: its own rows lead from filters, groups and contents to it."""

from dataclasses import dataclass
from typing import ClassVar, Self

from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Table


@dataclass(frozen=True, slots=True)
class TruthItself(Mirror):
    """The truth as its own mirror. It is no projection: no scan reads it a second time."""

    is_copy: ClassVar[bool] = False

    @classmethod
    def of(cls, truth: Table) -> Self:
        """Of a truth, which may have computed columns."""
        stored = [column for column in truth.columns if column.computed is None]
        key = tuple((name, name) for name in truth.key_names)
        return cls(truth, truth.with_columns(tuple(stored)), key, compared=())
