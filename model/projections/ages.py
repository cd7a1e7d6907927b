"""How old a row is that a repair may remove: by the UUIDs of its key, and by its write times.

A program writes a row and its content one after the other. A row that was written more than a day
ago is no part of such a write any more (docs/adr/0080).
"""

from mailmend.model.operations import Seen
from mailmend.model.projections.verdicts import DAY_MICROS, Reason, Why, born_at
from mailmend.model.table import Key, Table


def last_sign(table: Table, key: Key, seen: Seen) -> int | None:
    """When a row was made or written last, in microseconds since 1970; None where it does not tell.

    A version-1 UUID of its key is as old as what it names, which may be older than the row: a user,
    not the user's order. So the newest cell counts too. Without such a UUID every cell has to show
    its write time: before Cassandra 5 a collection shows none, and a row of keys alone has no cell.
    """
    born = born_at(key)
    newest = seen.newest
    if born is None and not _shows_every_time(table, seen):
        return None
    instants = [instant for instant in (born, newest) if instant is not None]
    return max(instants, default=None)


def _shows_every_time(table: Table, seen: Seen) -> bool:
    for column in table.regular:
        cell = seen.row.get(column.name)
        is_there = cell is not None
        if column.is_collection:
            is_there = bool(cell)
        if is_there and column.name not in seen.written_at:
            return False
    return True


def is_old(since: int | None, now: int) -> bool:
    """Whether a day has passed since the last sign of a row; False where none is known."""
    return since is not None and since < now - DAY_MICROS


def why_kept(since: int | None, now: int, otherwise: Why = Why.NO_WHOLE_ROW) -> Reason:
    """Why a row that may be removed stays: by its age, or `otherwise` where it is old enough."""
    if since is None:
        return Reason(Why.AGE_UNKNOWN)
    if is_old(since, now):
        return Reason(otherwise)
    return Reason(Why.YOUNGER_THAN_A_DAY, again_at=since + DAY_MICROS)
