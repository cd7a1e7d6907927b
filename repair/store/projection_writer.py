"""Writing the rows of a declared truth, and all that follows from them (docs/adr/0068).

The truth is written first, then every projection under the time of the truth's own change, with
retries. A change counts as done once the truth has it. A projection that could not be written is
journalled as a lag, which `mailmend repair lags --projections FILE` mends.

A row has no version here, so a conditional write compares every cell with what was read. A row
that others change and change back between that read and a delete is deleted all the same, and one
of its projections may be left; a check finds that row.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from mailmend.model.errors import CannotReach, Contended, UnknownRow, WrongUse
from mailmend.model.operations import Seen
from mailmend.model.ports import Clock, Lags, Tables
from mailmend.model.projections.family import Family
from mailmend.model.table import Key, Row, rows_agree
from mailmend.model.texts import names_instead
from mailmend.repair.retries import Retries
from mailmend.repair.store.writes import (
    DEFAULTS,
    Committed,
    Projector,
    Propagation,
    WriterSettings,
    row_of,
    truth_by,
)

_SETS: Final = "set<"
_UNKEPT: Final = "What follows from it could not be journalled either: run mailmend check later."


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """The result of writing one row of a truth.

    Attributes:
        changed: whether the truth was changed; False where it was so already.
        lagged: some projection could not be written; `mailmend repair lags` mends it.
        journalled: False where neither the ledger nor the disk took the lag: only a check finds it.
    """

    changed: bool
    lagged: bool = False
    journalled: bool = True


UNCHANGED: Final = WrittenRow(changed=False)


class ProjectionWriter:
    """Writes the rows of one declared truth, and all that follows from them. Thread-safe.

    A row is a mapping from column names, in lower case, to values. Contents (`content` in a
    declaration) are not written: a row that refers to one has it already.

        users.put({"user_id": ann, "email": "ann@example.org", "name": "Ann"})
        users.change({"user_id": ann}, {"email": "ann@example.com"})
        users.delete({"user_id": ann})

    Args:
        tables: the keyspace.
        families: all of one truth.
        lags: where projections that could not be written are journalled.
        clock: the time of stamps and waits.
        settings: how to write; None: conditionally.

    Raises:
        WrongUse: the truth or a projection has a list or a map that is not frozen, or a projection
            has the number of rows of a group as a value.
    """

    def __init__(
        self,
        tables: Tables,
        families: Sequence[Family],
        lags: Lags,
        clock: Clock,
        *,
        settings: WriterSettings | None = None,
    ) -> None:
        if settings is None:
            settings = DEFAULTS
        self._computing = families[0].truth
        self.truth = self._computing.with_columns(
            column for column in self._computing.columns if column.computed is None
        )
        _refuse_lists_and_maps(families)
        _refuse_numbers(families)
        self._settings = settings
        self._retries = Retries(clock, settings.retries)
        self._truth = truth_by(settings, tables, self.truth, clock, self._retries, version=None)
        self._projector = Projector(
            tables,
            tuple(families),
            lags,
            self._retries,
            clock,
            settings.send_micros,
        )

    def read(self, key: Row) -> Row | None:
        """The row of truth under a key, as it is now; None where no row has it.

        Raises:
            WrongUse: it is not the whole key.
            CannotReach: the cluster does not answer.
        """
        seen = self._truth.read(self._key(key))
        return row_of(seen)

    def put(self, row: Row) -> WrittenRow:
        """Insert a row, or replace the row of this key; columns that it does not name become null.

        Raises:
            WrongUse: the row lacks a part of the key, or names a column that the truth has not.
            CannotReach: the truth could not be written, or the outcome of its write is unknown.
            Contended: others kept changing the same row.
        """
        key = self._key(row)
        self._refuse_unknown(row)
        whole = {**dict.fromkeys(self.truth.names), **row}
        return self._rounds(key, lambda _: whole)

    def change(self, key: Row, cells: Row) -> WrittenRow:
        """Change some cells of a row; None deletes a cell.

        Raises:
            UnknownRow: there is no such row.
            WrongUse: it is not the whole key, or a cell is in the key or not in the truth.
            CannotReach, Contended: as `put`.
        """
        self._refuse_unknown(cells)
        for name in cells:
            if name in self.truth.key_names:
                what = f"{name} is in the key of {self.truth.spelling}, which does not change"
                raise WrongUse(what, mend="Delete the row, and put one under the other key.")
        place = self._key(key)

        def changed(seen: Seen | None) -> Row:
            if seen is None:
                shown = _shown(self.truth.key_row(place))
                raise UnknownRow(f"{self.truth.spelling} has no row {shown}")
            return {**seen.row, **cells}

        return self._rounds(place, changed)

    def delete(self, key: Row) -> WrittenRow:
        """Delete a row; a row that is not there is deleted already.

        Raises:
            WrongUse: it is not the whole key.
            CannotReach, Contended: as `put`.
        """
        return self._rounds(self._key(key), lambda _: None)

    def _rounds(self, key: Key, wanted: Callable[[Seen | None], Row | None]) -> WrittenRow:
        """Write the row until it is as wanted: an overtaken conditional write is tried again."""

        def attempt() -> WrittenRow | None:
            seen = self._truth.read(key)
            after = wanted(seen)
            if self._is_so(seen, after):
                return UNCHANGED
            with self._looked_at(seen, after):
                made = self._written(seen, after)
            if made is None:
                return None
            (propagation,) = self._projector.project([self._computed(made)])
            if not made.sure:
                return None
            return _written_row(propagation)

        written = self._retries.rounds(attempt, self._settings.rounds_max)
        if written is None:
            shown = _shown(self.truth.key_row(key))
            raise Contended(f"others kept changing the row {shown} of {self.truth.spelling}")
        return written

    def _written(self, seen: Seen | None, after: Row | None) -> Committed | None:
        if seen is None:
            assert after is not None, "what is not there needs no delete"
            return self._truth.insert(after)
        if after is None:
            return self._truth.remove(seen)
        return self._truth.change(seen, after)

    def _computed(self, made: Committed) -> Committed:
        """The change with the cells that projections compute of its rows."""
        before = made.before
        if before is not None:
            before = replace(before, row=self._computing.completed(before.row))
        return replace(
            made,
            before=before,
            after=self._completed(made.after),
            current=self._completed(made.current),
        )

    def _completed(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        return self._computing.completed(row)

    def _is_so(self, seen: Seen | None, after: Row | None) -> bool:
        if seen is None or after is None:
            return seen is None and after is None
        return rows_agree(self.truth.columns, seen.row, after)

    @contextmanager
    def _looked_at(self, seen: Seen | None, after: Row | None) -> Iterator[None]:
        """Journal all that follows from both rows where the truth's write gets no answer."""
        try:
            yield
        except CannotReach as error:
            rows = []
            for row in (row_of(seen), after):
                if row is not None:
                    rows.append(self._computing.completed(row))
            if self._projector.suspect(rows, error.what) is Propagation.LOST:
                error.mend = f"{error.mend} {_UNKEPT}".strip()
            raise

    def _key(self, row: Row) -> Key:
        lacking = [column.spelling for column in self.truth.key if row.get(column.name) is None]
        if lacking:
            what = f"a row of {self.truth.spelling} needs its whole key: {', '.join(lacking)}"
            raise WrongUse(what, mend="Name every column of the key, with a value.")
        return self.truth.key_of(row)

    def _refuse_unknown(self, row: Row) -> None:
        for name in row:
            if name not in self.truth.names:
                what = f"{self.truth.spelling} has no column {name} that a row is written with"
                raise WrongUse(what, mend=names_instead(name, list(self.truth.names)))


class AsyncProjectionWriter:
    """`ProjectionWriter` for programs in an event loop; what blocks runs in a thread of its own."""

    def __init__(self, blocking: ProjectionWriter) -> None:
        self._blocking = blocking

    async def read(self, key: Row) -> Row | None:
        """As `ProjectionWriter.read`."""
        return await asyncio.to_thread(self._blocking.read, key)

    async def put(self, row: Row) -> WrittenRow:
        """As `ProjectionWriter.put`."""
        return await asyncio.to_thread(self._blocking.put, row)

    async def change(self, key: Row, cells: Row) -> WrittenRow:
        """As `ProjectionWriter.change`."""
        return await asyncio.to_thread(self._blocking.change, key, cells)

    async def delete(self, key: Row) -> WrittenRow:
        """As `ProjectionWriter.delete`."""
        return await asyncio.to_thread(self._blocking.delete, key)


def _refuse_lists_and_maps(families: Sequence[Family]) -> None:
    tables = [families[0].truth]
    for family in families:
        tables.append(family.mirror.table)
    for table in tables:
        for column in table.columns:
            if column.is_collection and not column.type.startswith(_SETS):
                name = f"{table.spelling}.{column.spelling}"
                raise WrongUse(
                    f"{name} ({column.type}) cannot be written cell by cell",
                    mend="Freeze it, or write this table without a ProjectionWriter.",
                )


def _refuse_numbers(families: Sequence[Family]) -> None:
    for family in families:
        for group in family.numbers:
            raise WrongUse(
                f"{group.name} has a number that follows from all rows of a group",
                mend="Make it a counter, or declare it in a file of its own, which a repair mends.",
            )


def _written_row(propagation: Propagation) -> WrittenRow:
    lagged = propagation is not Propagation.COMPLETE
    journalled = propagation is not Propagation.LOST
    return WrittenRow(changed=True, lagged=lagged, journalled=journalled)


def _shown(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in row.items())
