"""The greatest and smallest values of groups, raised by the writer of a truth row (docs/adr/0068).

Such a value follows from all rows of its group. Two rows have two times: the value of the later one
would win under its stamp, although the other value is farther. So a value is changed on condition
that it is as it was read, and only where it is behind the row. It is never taken back: a value that
is farther than its group is right. An attempt without an answer is looked at again; once it is
done, the value is not behind any more.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mailmend.model.errors import DoubtfulWrite, MailmendError
from mailmend.model.operations import ChangeIf, Level, Read, cells_of
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.valued import Bounds
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row
from mailmend.repair.retries import Retries

ROUNDS_MAX: Final = 20
"""How often a value is tried that others keep changing, before it is a lag."""

_CONTENDED: Final = "the value of a group does not show, or others keep changing it"


@dataclass(frozen=True, slots=True)
class FarthestValues:
    """Raises the maxima and lowers the minima of the groups of one truth."""

    tables: Tables
    families: tuple[Family, ...]
    retries: Retries

    def follow(self, truth: Row) -> tuple[list[Suspect], str]:
        """Change the values that are behind a truth row.

        Returns:
            The groups whose value may still be behind, and why; "" without groups.
        """
        late: list[Suspect] = []
        cause = ""
        for bounds, key in self._groups_of(truth):
            problem = _CONTENDED
            try:
                is_settled = self._settled(bounds, key, truth)
            except MailmendError as error:
                is_settled = False
                problem = error.what
            if not is_settled:
                late.append(Suspect(bounds.name, key, Verdict.AMEND))
                cause = problem
        return late, cause

    def _groups_of(self, truth: Row) -> Iterator[tuple[Bounds, Key]]:
        for family in self.families:
            for bounds in family.bounds:
                key = bounds.key_demanded_by(truth)
                if key is not None:
                    yield bounds, key

    def _settled(self, bounds: Bounds, key: Key, truth: Row) -> bool:
        """Whether the value of the group is as far as the row demands, or is so now."""
        wanted = bounds.wanted_by(truth)

        def attempt() -> bool | None:
            there = self._read(bounds, key, Level.QUORUM)
            if not bounds.differing(wanted, there):
                return True
            there = self._read(bounds, key, Level.SERIAL)
            behind = bounds.differing(wanted, there)
            if not behind:
                return True
            expected = {name: there.get(name) for name in behind}
            change = ChangeIf(bounds.table, key, expected, {name: wanted[name] for name in behind})
            with suppress(DoubtfulWrite):
                self.tables.attempt(change)
            return None  # the next round reads whether it shows

        return self.retries.rounds(attempt, ROUNDS_MAX) or False

    def _read(self, bounds: Bounds, key: Key, level: Level) -> Row:
        rows = self.retries.call(lambda: self.tables.read(Read(bounds.table, key, level)))
        return cells_of(next(iter(rows), None))
