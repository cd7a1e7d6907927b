"""A Cassandra for trials, in memory: keyspaces that come and go by DDL, traces with as many SSTables as one says."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from mailmend.admin.schema.trial import TABLES
from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Read, Scan, Seen
from mailmend.model.table import Row

_STATEMENT = re.compile(r"(CREATE|DROP) KEYSPACE IF (?:NOT )?EXISTS (\w+)|(?:CREATE|ALTER) TABLE ")


class Noted(MemoryTables):
    """Tables that note each read in a list which all keyspaces share."""

    def __init__(self, name: str, reads: list[str]) -> None:
        super().__init__(lambda: 0)
        self._name = name
        self._reads = reads

    def read(self, read: Read) -> Sequence[Seen]:
        self._reads.append(self._name)
        return super().read(read)


@dataclass
class _Future:
    trace: UUID

    def result(self) -> None:
        """The rows are of no interest."""

    def get_query_trace_ids(self) -> list[UUID]:
        return [self.trace]


@dataclass
class TrialServer:
    """What a trial asks of `cql.driver.session.CassandraCluster`.

    Attributes:
        sstables: how many SSTables the traced read of a keyspace names.
        busy_looks: at so many looks something is still being merged.
        silent_traces: traces are never written down.
        fails_at: the DDL statement that fails, by its number.
        held: the rows that each keyspace held when it was dropped.
        reads: the keyspaces that were read, in order.
    """

    sstables: Callable[[str], int] = lambda _: 1
    busy_looks: int = 0
    silent_traces: bool = False
    fails_at: int | None = None
    keyspaces: dict[str, Noted] = field(default_factory=dict)
    held: dict[str, list[str]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    looks: int = 0
    _traces: dict[UUID, str] = field(default_factory=dict)

    def execute_ddl(self, text: str) -> None:
        self.statements.append(text)
        if len(self.statements) - 1 == self.fails_at:
            raise MailmendError("the node went away")
        found = _STATEMENT.match(text)
        assert found, text
        if found[1] == "CREATE":
            self.keyspaces[found[2]] = Noted(found[2], self.reads)
        elif found[1] == "DROP" and found[2] in self.keyspaces:
            place = self.keyspaces.pop(found[2])
            self.held[found[2]] = sorted(repr(row) for table in TABLES for row in place.scan(Scan(table, table.names)))

    def keyspace(self, name: str) -> Noted:
        return self.keyspaces[name]

    def query(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        if "sstable_tasks" in text:
            self.looks += 1
            return [{"keyspace_name": name} for name in self.keyspaces] if self.looks <= self.busy_looks else []
        if "system_traces" in text:
            return [] if self.silent_traces else self._steps(values[0])
        figure = "mebibytes" if "disk_usage" in text else "bytes_in"
        return [{"keyspace_name": name, figure: 7} for name in (*self.keyspaces, "other")]

    def _steps(self, trace: UUID) -> list[Row]:
        merged = f"Merged data from memtables and {self.sstables(self._traces[trace])} sstables"
        return [{"activity": merged}, {"activity": "Read 1 live rows and 0 tombstone cells"}]

    def prepare(self, text: str) -> "TrialServer":
        """A statement that is bound and sent at once; its keyspace is remembered for the trace."""
        self._last = text.partition(" FROM ")[2].partition(".")[0]
        return self

    def bind(self, _: Sequence[Any]) -> str:
        return self._last

    @property
    def session(self) -> "TrialServer":
        return self

    def execute_async(self, keyspace: str, *, trace: bool) -> _Future:
        assert trace
        one = uuid4()
        self._traces[one] = keyspace
        return _Future(one)
