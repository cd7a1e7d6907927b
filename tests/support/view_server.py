"""A twin of a server with materialised views, for tables in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mailmend.cql.row_statements import Operation
from mailmend.model.operations import Change, Put, Read
from mailmend.model.ports import Tables
from mailmend.model.projections.view_mirror import ViewMirror


@dataclass
class ViewServer:
    """Derives rows of views from changes of their base, as a server does: some time after its answer.

    Attributes:
        tables: of the views and their base; this server surrounds them.
        mirrors: the views, of one base.
        lag: how many of its answers come before what it derives.
    """

    tables: Tables
    mirrors: Sequence[ViewMirror]
    lag: int = 0
    waiting: list[Change] = field(default_factory=list)

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        answer = carry_out()
        if isinstance(operation, Change) and operation.table == self.mirrors[0].truth:
            self.waiting.append(operation)
        elif self.lag:
            self.lag -= 1
        else:
            for change in self._taken():
                for mirror in self.mirrors:
                    self._derive(mirror, change)
        return answer

    def _taken(self) -> list[Change]:
        taken = self.waiting
        self.waiting = []
        return taken

    def _derive(self, mirror: ViewMirror, change: Change) -> None:
        (base,) = self.tables.read(Read(change.table, change.key))
        key = mirror.key_of(base.row)
        if None in key:
            return
        row = mirror.row_of(base.row)
        touched = {name: row[name] for name, source in mirror.sources if source in change.assign}
        derived = {**mirror.table.key_row(key), **touched}
        self.tables.write(Put(mirror.table, derived, at=change.at, ttl_seconds=change.ttl_seconds))
