"""Numbers of truth rows that generators gave, each once in its group. Pure."""

from dataclasses import dataclass

from mailmend.model.table import Table


@dataclass(frozen=True, slots=True)
class Numbering:
    """Numbers of truth rows, and the generators that gave them.

    Attributes:
        group: the truth's columns that name a group, in the order of the generators' key.
        given: (generator, the truth's column that has its numbers).
        used_with: tables that have rows where generators are used; all generators are among them.
    """

    group: tuple[str, ...]
    given: tuple[tuple[Table, str], ...]
    used_with: tuple[Table, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The truth's columns with numbers, one for each generator."""
        return tuple(column for _, column in self.given)

    @property
    def generators(self) -> tuple[Table, ...]:
        return tuple(generator for generator, _ in self.given)
