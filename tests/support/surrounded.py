"""Tables whose operations pass through a function, as those of `MemoryTables` do: crashes, lost answers, other acts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mailmend.cql.memory import Surround
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.ports import Tables
from mailmend.model.table import Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SurroundedTables:
    """Tables behind a function that carries each operation out, or not; of many at once, one after the other."""

    tables: Tables
    surround: Surround

    def read(self, read: Read) -> Sequence[Seen]:
        found: Sequence[Seen] = self.surround(read, lambda: self.tables.read(read))
        return found

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        return [_caught(self.read, read) for read in reads]

    def scan(self, scan: Scan) -> Iterator[Row]:
        rows: Iterator[Row] = self.surround(scan, lambda: self.tables.scan(scan))
        return rows

    def write(self, write: Write) -> None:
        self.surround(write, lambda: self.tables.write(write))

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        return [_caught(self.write, write) for write in writes]

    def attempt(self, write: Conditional) -> Applied:
        applied: Applied = self.surround(write, lambda: self.tables.attempt(write))
        return applied


def _caught(carry_out: Callable[[Any], T], operation: Any) -> T | MailmendError:
    try:
        return carry_out(operation)
    except MailmendError as error:
        return error
