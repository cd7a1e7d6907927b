"""Generators that are behind the numbers of the rows that they number, as after a restored backup.

A program takes the next number of a group from a generator, and writes over the row that has it
already: James gives uids and modseqs of a mailbox from `messageCounter` and `modseq`. What a scan
shows of each group is compared with the last number of its generators, which are read after the
rows: a generator is moved before a row is written, so none is called behind by accident. A
generator only ever grows: raising one to the numbers in use is safe at any time, and is never
undone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final
from uuid import UUID

from mailmend.model.errors import AccessDenied, DoubtfulWrite, MailmendError, SchemaMismatch
from mailmend.model.ids import MailboxId
from mailmend.model.names import text_literal
from mailmend.model.operations import ChangeIf, Level, PutIfAbsent, Read, Scan, Seen
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.numbering import Numbering
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Key, Row, Table
from mailmend.repair.joins.records import Packed, Spill, packing, unpacked_key
from mailmend.repair.retries import Retries

SHOWN_MAX = 1000
"""The largest number of generators that a result names."""

_READS_AT_ONCE = 500
PENDING_MAX = 100_000
"""The largest number of groups whose numbers are in memory: some 30 MB; more go to files."""
_ROUNDS = 5


_MAILBOX: Final = "mailboxid"
_OF_A_MAILBOX: Final = ("mailboxId",)

HighestNumbers = tuple[int, ...]
"""The highest numbers in use of a group, one for each generator; 0 without any."""


@dataclass(frozen=True, slots=True)
class BehindGenerator:
    """A generator whose next number is in use.

    Attributes:
        table: its table, as it is spelled.
        key: of its row, which names the group whose numbers it gives.
        last: the last number that it gave; 0 where it has no row.
        in_use: the highest number that a row of the truth has, or the key of a copy without truth.
        statement: the CQL that mends it.
        raised: whether a repair has raised it.
        columns: the columns of its key, as they are spelled.
    """

    table: str
    key: Key
    last: int
    in_use: int
    statement: str
    raised: bool = False
    columns: tuple[str, ...] = _OF_A_MAILBOX

    @property
    def mailbox(self) -> MailboxId | None:
        """The mailbox whose numbers it gives; None for a generator of other groups."""
        names = [column.lower() for column in self.columns]
        if names != [_MAILBOX] or not isinstance(self.key[0], UUID):
            return None
        return MailboxId(self.key[0])

    @property
    def group(self) -> dict[str, str]:
        """The columns of its key with their values, as text."""
        return dict(zip(self.columns, map(_shown, self.key), strict=True))

    @property
    def kept(self) -> dict[str, Any]:
        """What a run keeps of it in the ledger: the number before it was raised, too."""
        named: dict[str, Any] = {"group": self.group}
        if self.mailbox is not None:
            named = {"mailbox": str(self.mailbox)}
        return {
            "table": self.table,
            **named,
            "last": self.last,
            "in_use": self.in_use,
            "raised": self.raised,
        }

    @property
    def shown(self) -> dict[str, Any]:
        """What the JSON of a result has of it."""
        return {**self.kept, "statement": self.statement}


def raised_by(summary: Mapping[str, Any]) -> list[BehindGenerator]:
    """The generators that a run raised, by the sums that the ledger keeps of it."""
    found = []
    for kept in summary.get("generators", ()):
        if not kept["raised"]:
            continue
        numbers = (kept["last"], kept["in_use"])
        if "mailbox" in kept:
            key: Key = (UUID(kept["mailbox"]),)
            columns = _OF_A_MAILBOX
        else:
            key = tuple(kept["group"].values())
            columns = tuple(kept["group"])
        raised = BehindGenerator(kept["table"], key, *numbers, "", raised=True, columns=columns)
        found.append(raised)
    return found


@dataclass(frozen=True, slots=True)
class Generators:
    """The generators of one numbering.

    Args:
        mail: the keyspace.
        numbering: what the live schema has of it.
        clock: the time of waits between retries.
        keyspace: its name, for statements.
    """

    mail: Tables
    numbering: Numbering
    clock: Clock
    keyspace: str

    def behind(self, in_use: Mapping[Key, HighestNumbers]) -> Iterator[BehindGenerator]:
        """The generators whose last number is below the one in use.

        A generator without a row is behind as well, except in a keyspace where nothing gives numbers.

        Args:
            in_use: the groups, with the numbers of their rows.
        """
        used: bool | None = None  # asked for the first generator without a row
        takes_key = self.numbering.generators[0].takes_key
        waiting = filter(takes_key, in_use)  # no row can have an empty key
        while some := list(islice(waiting, _READS_AT_ONCE)):
            for place, table in enumerate(self.numbering.generators):
                answers = self.mail.read_all([Read(table, key) for key in some])
                for key, answer in zip(some, answers, strict=True):
                    if isinstance(answer, MailmendError):
                        raise answer
                    last = _number(table, answer)
                    highest = in_use[key][place]
                    if last >= highest:
                        continue
                    if not last and used is None:
                        used = self.used()
                    if last or used:
                        yield from self._confirmed(table, key, highest)

    def used(self) -> bool:
        """Whether something gives numbers here: a generator has a row, or what is used with them.

        No program adds a message to a mailbox without a name, so rows of messages alone need no
        generator.
        """
        return any(map(self._has_rows, self.numbering.used_with))

    def raised(self, found: BehindGenerator) -> BehindGenerator:
        """Raise a generator to the numbers in use; unchanged where the role may not write it."""
        tables = {table.spelling: table for table in self.numbering.generators}
        table = tables[found.table]
        with suppress(AccessDenied):
            for _ in range(_ROUNDS):
                last = self._last(table, found.key, Level.SERIAL)
                if last >= found.in_use:
                    return replace(found, raised=True)
                with suppress(DoubtfulWrite):  # the next SERIAL read decides
                    self.mail.attempt(_raise(table, found.key, last, found.in_use))
        return found

    def _has_rows(self, table: Table) -> bool:
        try:
            return any(True for _ in self.mail.scan(Scan(table, table.partition_names, limit=1)))
        except SchemaMismatch:  # the keyspace lacks the table
            return False
        except AccessDenied:  # a needless report costs less than a message that is overwritten
            return True

    def _confirmed(self, table: Table, key: Key, in_use: int) -> Iterator[BehindGenerator]:
        """The generator, where a second look still shows it behind; at QUORUM, so that a check leaves no promise."""
        last = self._last(table, key, Level.QUORUM)
        if last < in_use:
            statement = self._statement(table, key, last, in_use)
            columns = tuple(column.spelling for column in table.key)
            yield BehindGenerator(table.spelling, key, last, in_use, statement, columns=columns)

    def _last(self, table: Table, key: Key, level: Level) -> int:
        read = Read(table, key, level)
        return _number(table, Retries(self.clock).call(lambda: self.mail.read(read)))

    def _statement(self, table: Table, key: Key, last: int, in_use: int) -> str:
        number = table.regular[0].spelling
        place = f"{self.keyspace}.{table.spelling}"
        literals = {}
        for column, value in zip(table.key, key, strict=True):
            literals[column.spelling] = _literal(value)
        if last:
            where = " AND ".join(f"{name} = {literal}" for name, literal in literals.items())
            return f"UPDATE {place} SET {number} = {in_use} WHERE {where} IF {number} = {last};"  # noqa: S608
        names = ", ".join((*literals, number))
        values = ", ".join((*literals.values(), str(in_use)))
        return f"INSERT INTO {place} ({names}) VALUES ({values}) IF NOT EXISTS;"  # noqa: S608


def generators_of(
    family: Family,
    mail: Tables,
    clock: Clock,
    keyspace: str,
) -> list[Generators]:
    """The generators of a family, one for each numbering."""
    return [Generators(mail, numbering, clock, keyspace) for numbering in family.numberings]


@dataclass(slots=True)
class GeneratorWatch:
    """Looks at rows as a scan reads them, in any order and in bounded memory.

    Args:
        mirror: whose rows may have numbers that no row of the truth has.
        spill: where the numbers of groups go that are too many for memory; None for a few groups.
    """

    generators: Generators
    mirror: Mirror
    spill: Spill | None = None
    _group_of: Callable[[Row], Packed] = field(init=False)
    _group_of_copy: Callable[[Row], Packed] | None = field(init=False)
    _columns: tuple[str, ...] = field(init=False)
    _columns_of_copy: tuple[str, ...] = field(init=False)
    _group: Packed = ()
    _numbers: HighestNumbers = field(init=False)
    _pending: dict[Packed, HighestNumbers] = field(default_factory=dict)
    _spilled: bool = False

    def __post_init__(self) -> None:
        numbering = self.generators.numbering
        self._group_of = packing(numbering.group)
        self._columns = numbering.columns
        own = {source: name for name, source in self.mirror.key}
        self._group_of_copy = None
        if own.keys() >= set(numbering.group):
            self._group_of_copy = packing(own[source] for source in numbering.group)
        self._columns_of_copy = tuple(own.get(column, "") for column in numbering.columns)
        self._numbers = self._none

    def add(self, row: Row) -> None:
        """The numbers of a row of the truth; rows of one group that come together cost least."""
        self._add(self._group_of(row), row, self._columns)

    def add_copy(self, row: Row) -> None:
        """The numbers in the key of a mirror's row, which may have no truth.

        A repair withdraws such a row with its other cells.
        """
        if self._group_of_copy is not None:
            self._add(self._group_of_copy(row), row, self._columns_of_copy)

    def end(self) -> list[BehindGenerator]:
        """The generators behind, at most `SHOWN_MAX`; call it once, after all rows. The generators are read now."""
        self._close()
        found: list[BehindGenerator] = []
        for numbers in self._parts():
            in_use = {unpacked_key(group): highest for group, highest in numbers.items()}
            found += islice(self.generators.behind(in_use), SHOWN_MAX - len(found))
        return in_order(found)

    @property
    def _none(self) -> HighestNumbers:
        return (0,) * len(self._columns)

    def _add(self, group: Packed, row: Row, columns: Sequence[str]) -> None:
        if group != self._group:
            self._close()
            self._group = group
        numbers = [row.get(column) or 0 for column in columns]
        self._numbers = tuple(map(max, self._numbers, numbers))

    def _close(self) -> None:
        group = self._group
        if group and None not in group:  # a row without a group has no generator
            self._pending[group] = _higher(self._numbers, self._pending.get(group, self._none))
        self._numbers = self._none
        if self.spill is not None and len(self._pending) >= PENDING_MAX:
            self._put_away(self.spill)

    def _put_away(self, spill: Spill) -> None:
        for group, numbers in self._pending.items():
            spill.add((group, *numbers))
        self._pending = {}
        self._spilled = True

    def _parts(self) -> Iterator[dict[Packed, HighestNumbers]]:
        if self.spill is None or not self._spilled:
            yield self._pending
            return
        self._put_away(self.spill)
        for part in self.spill.parts():
            highest: dict[Packed, HighestNumbers] = {}
            for group, *numbers in part:
                highest[group] = _higher(numbers, highest.get(group, self._none))
            yield highest


def in_order(found: Sequence[BehindGenerator]) -> list[BehindGenerator]:
    """The generators of one numbering by their groups, whichever engine found them."""
    return sorted(found, key=lambda generator: (generator.key, generator.table))


def _higher(some: Sequence[int], others: Sequence[int]) -> HighestNumbers:
    return tuple(map(max, some, others))


def _literal(value: Any) -> str:
    """A value of a key in CQL."""
    match value:
        case bool() | int() | UUID() | bytes():
            return _shown(value)
        case _:
            return text_literal(_shown(value))


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return f"0x{value.hex()}"
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case _:
            return str(value)


def _number(table: Table, rows: Sequence[Seen]) -> int:
    return max((seen.row.get(table.regular[0].name) or 0 for seen in rows), default=0)


def _raise(table: Table, key: Key, last: int, number: int) -> ChangeIf | PutIfAbsent:
    column = table.regular[0].name
    if last:
        return ChangeIf(table, key, {column: last}, {column: number})
    return PutIfAbsent(table, {**table.key_row(key), column: number})
