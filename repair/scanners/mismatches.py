"""Rows of James that contradict each other, and that no repair mends: values, and how to look.

Writers need not stop: a mismatch is confirmed where a second look, some time later, sees it too.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mailmend.model.errors import MailmendError
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level, Read, Scan, Seen
from mailmend.model.ports import Tables
from mailmend.model.table import Key, Row, Table


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two rows, or two columns, that contradict each other.

    Attributes:
        table: the table that is wrong, in James's spelling.
        key: of its row, with as much more as tells two mismatches of one row apart.
        by: of numbers, how much the table has too many; negative: too few.
        what: what is seen, as a sentence.
        mend: what a person asks James for.
    """

    table: str
    key: tuple[str, ...]
    by: int = 0
    what: str = field(default="", compare=False)
    mend: str = field(default="", compare=False)


class MismatchLook(NamedTuple):
    """What one look saw.

    Attributes:
        found: the mismatches, each once.
        scanned: the number of rows that were read, by table.
    """

    found: frozenset[Mismatch]
    scanned: Mapping[str, int]


def confirmed(before: MismatchLook, after: MismatchLook) -> tuple[Mismatch, ...]:
    """The mismatches of two looks, as the second one saw them."""
    both = [mismatch for mismatch in after.found if mismatch in before.found]
    return tuple(sorted(both, key=_place))


def unsettled(before: MismatchLook, after: MismatchLook) -> MismatchLook:
    """The mismatches of the second look that the first one saw with another number.

    A first look at a large table takes long: messages come meanwhile.
    """
    places = {_place(mismatch) for mismatch in before.found}
    changed = [mismatch for mismatch in after.found - before.found if _place(mismatch) in places]
    return MismatchLook(frozenset(changed), {})


def _place(mismatch: Mismatch) -> tuple[str, tuple[str, ...]]:
    return mismatch.table, mismatch.key


class RowReader:
    """Reads whole tables and counts their rows."""

    def __init__(self, mail: Tables, level: Level) -> None:
        self._mail = mail
        self._level = level
        self.scanned: Counter[str] = Counter()

    def rows(self, table: Table, *names: str, under: Key = ()) -> Iterator[Row]:
        """The rows of a table, or of one of its partitions, with these columns alone."""
        self.scanned[table.name] += 0
        for row in self._mail.scan(Scan(table, names, self._level, under=under)):
            self.scanned[table.name] += 1
            yield row

    def under(self, table: Table, keys: Sequence[Key], *names: str) -> list[Seen | None]:
        """The row of each whole key, with these columns alone and the TTLs of its cells.

        Raises:
            CannotReach: a row could not be read; also its kinds.
        """
        reads = [Read(table, key, times=True, level=self._level, columns=names) for key in keys]
        found: list[Seen | None] = []
        for answer in self._mail.read_all(reads):
            if isinstance(answer, MailmendError):
                raise answer
            self.scanned[table.name] += len(answer)
            found.append(next(iter(answer), None))
        return found


ColumnsRead = tuple[str, ...]

Find = Callable[[RowReader, Collection[Mismatch] | None], Iterator[Mismatch]]
"""Finds mismatches. A second look gets what the first one found, and may leave out the rest."""


@dataclass(frozen=True, slots=True)
class TableRule:
    """A rule of its own for one table of James.

    Attributes:
        table: the table that may be wrong.
        reads: the tables that it reads, with the columns of each.
        is_large: whether it reads a table with a row for each message.
    """

    table: Table
    reads: tuple[tuple[Table, ColumnsRead], ...]
    find: Find
    is_large: bool = False

    def lacking(self, live: Schema) -> tuple[str, ...]:
        """The tables and columns that it reads and a keyspace does not have."""
        found = []
        for needed, names in self.reads:
            table = live.table(needed.name)
            if table is None:
                found.append(needed.spelling)
                continue
            for name in names:
                if name not in table:
                    found.append(f"{needed.spelling}.{needed.column(name).spelling}")
        return tuple(found)

    def look(
        self,
        mail: Tables,
        level: Level,
        first: MismatchLook | None = None,
    ) -> MismatchLook:
        """One look; with `first` a second one, which may see less than the whole table."""
        reader = RowReader(mail, level)
        known = None
        if first is not None:
            known = first.found
        found = frozenset(self.find(reader, known))
        return MismatchLook(found, dict(reader.scanned))
