"""Truth rows that claim one row of a mirror: which of them say what that row is. Pure.

Several truth rows may claim one row where the mirror does not hold the truth's whole key. Claims
that agree demand the row together; claims that differ are a CLASH. A truth row that lacks a cell
that the mirror needs cannot say what its row is: it demands none, and its row is no orphan.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

from mailmend.model.operations import Seen
from mailmend.model.table import Key, Row, Table


@dataclass(frozen=True, slots=True)
class Claims:
    """How the truth rows that claim a row of a mirror are found.

    Attributes:
        sources: the truth's columns that the mirror's key is made of, in the key's order.
        needs: the truth's columns without which a truth row cannot say what its row is.
        may_share: whether several truth rows can demand the same row.
        follow: of each source, whether it follows from a column of `needs`.
    """

    sources: tuple[str, ...]
    needs: tuple[str, ...]
    may_share: bool
    follow: tuple[bool, ...]

    @classmethod
    def of(
        cls,
        truth: Table,
        sources: tuple[str, ...],
        held: set[str],
        needs: tuple[str, ...],
    ) -> Self:
        """Of a mirror whose compared columns hold these columns of the truth."""
        may_share = not held.union(sources).issuperset(truth.key_names)
        follow = tuple(_follows(truth, source, needs) for source in sources)
        return cls(sources, needs, may_share, follow)

    @property
    def are_compared(self) -> bool:
        """Whether claims of a row are compared with each other; else two of them are a CLASH."""
        return self.may_share or bool(self.needs)

    def says(self, truth: Row) -> bool:
        """Whether a truth row says what its row is."""
        return None not in map(truth.get, self.needs)

    def at_key(self, truths: Iterable[Seen], key: Key) -> tuple[Seen, ...]:
        """The truth rows that claim a key and say what its row is; else those that cannot say."""
        saying = []
        silent = []
        for seen in truths:
            own = tuple(seen.row[name] for name in self.sources)
            if self.says(seen.row):
                if own == key:
                    saying.append(seen)
            elif self.may_claim(own, key):
                silent.append(seen)
        return tuple(saying or silent)

    def may_claim(self, own: Key, key: Key) -> bool:
        """Whether a truth row that cannot say what its row is may claim a key.

        Args:
            own: the key by its own cells; a part that follows from a column of `needs` may be null.
            key: of a row that is there.
        """
        for part, known, follows in zip(own, key, self.follow, strict=True):
            if part != known and not (follows and part is None):
                return False
        return True


def _follows(truth: Table, source: str, needs: Container[str]) -> bool:
    """Whether a column of the truth is in `needs`, or is computed from one that is."""
    if source in truth:
        rule = truth.column(source).computed
        if rule is not None:
            return any(_follows(truth, behind, needs) for behind in rule.sources)
    return source in needs


def last_to_end(lives: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """By column, when the cells of several truth rows have all expired; none for one that stays."""
    return reduce(_later, lives)


def _later(some: Mapping[str, int], others: Mapping[str, int]) -> Mapping[str, int]:
    return {name: max(some[name], others[name]) for name in some if name in others}


def partition_parts(truth: Table, rows: Iterable[Seen]) -> Key:
    """The parts of the partition keys of truth rows; time-based UUIDs tell when these were made."""
    parts: list[Any] = []
    for seen in rows:
        parts.extend(truth.partition_of(seen.row))
    return tuple(parts)
