"""Limits that a person sets for a run while it is at work; the newest counts, all stay in the ledger."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.model.catalog.ledger import RUN_LIMIT
from mailmend.model.ids import later_uuid, micros_of
from mailmend.model.instants import instant_of
from mailmend.model.operations import Level, Put, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Row
from mailmend.model.texts import noted

TO_END: Final = 0
"""The rows per second that tell a job's run to end."""


@dataclass(frozen=True, slots=True)
class RunLimit:
    """Limits that a person set for a run; None: the limit with which it was started. `set_at` is the row's time."""

    rows_per_second: int | None = None
    max_fixes: int | None = None
    set_at: datetime | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits in the ledger keyspace, by the id of a job's run, or of a repair that no job began.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the ledger keyspace, for executors on other hosts.
    """

    tables: Tables
    clock: Clock
    keyspace: str = ""

    def put(self, run: UUID, limit: RunLimit) -> RunLimit:
        cells = {"rowspersecond": limit.rows_per_second, "maxfixes": limit.max_fixes, "owner": noted(limit.owner)}
        at = self.clock.new_uuid()
        before = self._newest_row(run)
        if before is not None:
            at = later_uuid(at, before["at"])  # the clock of another host may be ahead
        row = RUN_LIMIT.key_row((run, at)) | cells
        self.tables.write(Put(RUN_LIMIT, row))
        return _limit_of(row)

    def newest(self, run: UUID) -> RunLimit | None:
        row = self._newest_row(run)
        return None if row is None else _limit_of(row)

    def _newest_row(self, run: UUID) -> Row | None:
        rows = self.tables.scan(Scan(RUN_LIMIT, RUN_LIMIT.names, Level.QUORUM, under=(run,), limit=1))
        return next(iter(rows), None)


def _limit_of(row: Row) -> RunLimit:
    return RunLimit(row["rowspersecond"], row["maxfixes"], instant_of(micros_of(row["at"])), row["owner"] or "")
