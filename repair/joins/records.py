"""From rows to small records, spread over files by their key and read back one part at a time.

A place is the mirror's key for a truth row, in bytes, numbers and text. Of the truth a place needs
to know whether the row is whole, which conditions hold, and a fingerprint of the compared columns
in canonical form; of the mirror the same fingerprint; of a filter's row only that it exists. Names
are looked up once per scan, not once per row.

Records of one key are in the same part; a part that is still too large is spread once more. So
memory is bounded by the size of a part, whatever the number of rows. The files live as long as
their scan and are read only by the process that wrote them: hence Python's own fast serialisation.
"""

import gc
import marshal
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import UUID

from mailmend.model.errors import MailmendError
from mailmend.model.projections.claims import Claims
from mailmend.model.projections.conditions import RowCondition
from mailmend.model.projections.family import Counts, Family, Filter, Union
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.places import may_be_undemanded, places_of
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.valued import Bounds, Numbers
from mailmend.model.table import Key, Row, Table
from mailmend.repair.joins.fingerprints import cells_at, fingerprinting
from mailmend.repair.ledger.before_images import key_from, key_text, suspect_from, suspect_text

WHOLE = 1
"""The bit of a truth record that says that the row has all columns that an insert writes."""

STANDS = 2
"""The bit of a truth record that says that its content exists, once known. Conditions follow, one bit each."""

Packed = tuple[Any, ...]
"""A key in a record: UUIDs as bytes, other types that marshal does not take as a line of text."""

Record = tuple[Any, ...]
"""A key (a tuple of bytes, numbers and text), then further values, all of types that marshal takes."""

FAN_OUT = 32
"""Parts that a spill is spread over, at each level."""

PART_BYTES_MAX = 16 << 20
"""A part larger than this on disk is spread once more before it is read."""

_NEW_OBJECTS = 200_000
"""The number of new objects after which Python looks for cycles, instead of 700."""

_BATCH_RECORDS = 512
_LEVELS_MAX = 4
_LENGTH_BYTES = 4
_AS_THEY_ARE = frozenset({int, str, bool, type(None)})


class TruthRecord(NamedTuple):
    """What is kept of a truth row; the key of its content is the first field.

    `places` has the mirror's key first, then the keys of filters that are not keyed as it is. The
    key of a row that the truth row does not demand is the empty tuple: a part of it is null.
    """

    content: Packed
    places: tuple[Packed, ...]
    truth: Packed
    fingerprint: bytes
    bits: int
    groups: tuple[Packed, ...]
    elements: tuple[tuple[Any, ...], ...]


def packing(names: Iterable[str]) -> Callable[[Row], Packed]:
    """A function that packs a key of a row; `names` are the key's columns in the row."""
    wanted = tuple(names)
    return lambda row: tuple([_packed(row[name]) for name in wanted])


def packing_key(table: Table) -> Callable[[Row], Packed]:
    return packing(table.key_names)


def unpacked_key(key: Packed) -> Key:
    return tuple(map(_unpacked, key))


class PlaceForms:
    """Keys of projections that are keyed by the same columns of the truth.

    Attributes:
        mirror: the family's mirror where it is one of them; else None.
    """

    def __init__(self, projections: Sequence[Mirror | Filter]) -> None:
        first, *_ = projections
        self._columns = first.key_sources
        self.mirror: Mirror | None = None
        filters: list[Filter] = []
        for projection in projections:
            if isinstance(projection, Filter):
                filters.append(projection)
            else:
                self.mirror = projection
        self.filters = tuple(filters)

    def place_of(self, filtered: Filter) -> Callable[[Row], Packed]:
        """A function from a filter's row to its place."""
        own = {truth: column for column, truth in filtered.key}
        return packing(own[truth] for truth in self._columns)

    def row_key(self, projection: Projection, place: Packed) -> Key:
        by_truth = dict(zip(self._columns, place, strict=True))
        return unpacked_key(tuple(by_truth[truth] for truth in projection.key_sources))


class Forms:
    """Turns the rows of one family into records; built once per scan."""

    def __init__(self, family: Family, *, accept_torn: bool) -> None:
        mirror = family.mirror
        self.family = family
        self.groups: tuple[Union | Bounds | Counts | Numbers, ...] = (
            *family.unions,
            *family.bounds,
            *family.counts,
            *family.numbers,
        )
        self._conditions = family.conditions
        self._accept_torn = accept_torn
        self._place_of = packing(mirror.key_sources)
        self.places = tuple(map(PlaceForms, places_of(family)))
        placed = [projection for projection, *_ in places_of(family)]
        keyed: list[Projection] = [*placed, *self.groups]
        if family.content:
            keyed.append(family.content)
        keys = [projection.key_sources for projection in keyed]
        # The keys of a truth row have columns in common: each column is packed once.
        columns = tuple(dict.fromkeys((*family.truth.key_names, *chain.from_iterable(keys))))
        self._pack = packing(columns)
        self._pick_truth = cells_at(map(columns.index, family.truth.key_names))
        self._pick_content: Callable[[Packed], Packed] = _no_key
        picks = [_picking(projection, columns) for projection in keyed]
        if family.content:
            self._pick_content = picks.pop()
        self._pick_groups = picks[len(placed) :]
        self._pick_places = picks[: len(placed)]
        self._unions = [union.column for union in family.unions]
        self._bounds = family.bounds
        self._truth_mark = fingerprinting(mirror.compared, mirror.truth_names)
        self._claim = self._truth_mark
        if mirror.needs:
            self._claim = partial(_said, mirror.claims, self._truth_mark)
        self._mirror_mark = fingerprinting(mirror.compared, {})
        self._mirror_key = packing_key(mirror.table)

    def truth(self, row: Row) -> TruthRecord:
        packed = self._pack(row)
        return TruthRecord(
            self._pick_content(packed),
            tuple([pick(packed) for pick in self._pick_places]),
            self._pick_truth(packed),
            self._claim(row),
            self._bits(row),
            tuple([pick(packed) for pick in self._pick_groups]),
            self._elements(row),
        )

    def _elements(self, row: Row) -> tuple[tuple[Any, ...], ...]:
        """What a truth row demands of unions and bounds."""
        gathered: list[tuple[Any, ...]] = [tuple(row[column] or ()) for column in self._unions]
        gathered += [tuple(bounds.demands_of(row)) for bounds in self._bounds]
        return tuple(gathered)

    def compared(self, truth: Row) -> tuple[Packed, bytes]:
        """The key of a truth row's place, and the fingerprint that its mirror row should have."""
        return self._place_of(truth), self._truth_mark(truth)

    def mirror(self, row: Row) -> tuple[Packed, bytes]:
        return self._mirror_key(row), self._mirror_mark(row)

    def condition_bit(self, condition: RowCondition) -> int:
        return 4 << self._conditions.index(condition)

    def truth_keys(self, truths: Iterable[Packed]) -> tuple[Key, ...]:
        """The partition keys of truth rows, each once."""
        width = len(self.family.truth.partition)
        keys = {truth[:width] for truth in truths}
        return tuple(map(unpacked_key, sorted(keys)))

    def _bits(self, row: Row) -> int:
        bits = 0
        if self._accept_torn or self.family.mirror.whole(row):
            bits = WHOLE
        for place, condition in enumerate(self._conditions, start=2):
            bits |= condition.holds(row) << place
        return bits


def _said(claims: Claims, mark: Callable[[Row], bytes], truth: Row) -> bytes:
    """The fingerprint of what a truth row says of its mirror row; empty where it cannot say."""
    if not claims.says(truth):
        return b""
    return mark(truth)


def _picking(projection: Projection, columns: Sequence[str]) -> Callable[[Packed], Packed]:
    """A function from a truth row's packed columns to a packed key; () where it demands no row."""
    pick = cells_at(map(columns.index, projection.key_sources))
    if not may_be_undemanded(projection):
        return pick
    empty: frozenset[Any] = frozenset()
    if projection.table.lone_partition is not None:
        empty = frozenset({_packed(""), _packed(b"")})
    return partial(_whole_key, pick, empty)


def _whole_key(pick: Callable[[Packed], Packed], empty: frozenset[Any], packed: Packed) -> Packed:
    key = pick(packed)
    if None in key or key[0] in empty:
        return ()
    return key


def _no_key(_: Packed) -> Packed:
    return ()


def _packed(part: Any) -> Any:
    kind = type(part)
    if kind is UUID:
        return part.int.to_bytes(16)  # `bytes`, without a further call: there are millions
    if kind in _AS_THEY_ARE:
        return part
    return (key_text((part,)),)


def _unpacked(part: Any) -> Any:
    match part:
        case bytes():
            return UUID(bytes=part)
        case (str(line),):
            return key_from(line)[0]
        case _:
            return part


@contextmanager
def few_collections() -> Iterator[None]:
    """Let Python look for cycles less often: millions of records come and go, and none of them is in a cycle.

    Looking through them again and again took a third of a scan's time.
    """
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Workshop:
    """A temporary folder for the files of one scan; it is removed when the scan's result is closed."""

    def __init__(self, folder: Path | None = None) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="mailmend-", dir=folder))
        except OSError as error:
            raise _no_room(folder or Path(tempfile.gettempdir()), error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Spill:
    """Records on disk, spread over files by their key."""

    def __init__(self, workshop: Workshop, name: str, *, level: int = 0, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._workshop = workshop
        self._name = name
        self._level = level
        self._part_bytes_max = part_bytes_max
        self._waiting: list[list[Record]] = [[] for _ in range(FAN_OUT)]

    def add(self, record: Record) -> None:
        """Add a record; its first field is its key."""
        key, *_ = record
        part = (hash(key) // FAN_OUT**self._level) % FAN_OUT
        waiting = self._waiting[part]
        waiting.append(record)
        if len(waiting) >= _BATCH_RECORDS:
            self._flush(part)

    def parts(self) -> Iterator[list[Record]]:
        """The records in parts, all of one key in the same part; each part is removed after it was read."""
        for part in range(FAN_OUT):
            self._flush(part)
        for part in range(FAN_OUT):
            yield from self._read(part)

    def _read(self, part: int) -> Iterator[list[Record]]:
        path = self._path(part)
        if not path.exists():
            return
        if path.stat().st_size <= self._part_bytes_max or self._level + 1 >= _LEVELS_MAX:
            yield list(chain.from_iterable(_batches(path)))
        else:
            yield from self._spread(part).parts()
        path.unlink(missing_ok=True)

    def _spread(self, part: int) -> "Spill":
        """A large part's records, spread by the next digits of their keys' hashes."""
        name = f"{self._name}.{part}"
        level = self._level + 1
        finer = Spill(self._workshop, name, level=level, part_bytes_max=self._part_bytes_max)
        for batch in _batches(self._path(part)):
            for record in batch:
                finer.add(record)
        return finer

    def _flush(self, part: int) -> None:
        if not self._waiting[part]:
            return
        path = self._path(part)
        try:
            with path.open("ab") as file:
                batch = marshal.dumps(self._waiting[part])
                file.write(len(batch).to_bytes(_LENGTH_BYTES) + batch)
        except OSError as error:
            raise _no_room(path.parent, error) from error
        self._waiting[part] = []

    def _path(self, part: int) -> Path:
        return self._workshop.path / f"{self._name}.{part}"


class SuspectFile:
    """Suspects on disk, in the order in which they were found."""

    def __init__(self, workshop: Workshop) -> None:
        self._path = workshop.path / "suspects"
        self._file = self._path.open("w", encoding="utf-8")

    def add(self, suspect: Suspect) -> None:
        try:
            self._file.write(suspect_text(suspect) + "\n")
        except OSError as error:
            raise _no_room(self._path.parent, error) from error

    def __iter__(self) -> Iterator[Suspect]:
        try:
            self._file.flush()
        except OSError as error:
            raise _no_room(self._path.parent, error) from error
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                yield suspect_from(line)

    def close(self) -> None:
        """Close the file; unflushed data on a full disk is dropped, because it is not needed any more."""
        with suppress(OSError):
            self._file.close()


def _batches(path: Path) -> Iterator[list[Record]]:
    with path.open("rb") as file:
        while length := file.read(_LENGTH_BYTES):
            yield marshal.loads(file.read(int.from_bytes(length)))  # noqa: S302 our own file, of this very scan


def _no_room(folder: Path, error: OSError) -> MailmendError:
    return MailmendError(
        f"cannot write to the temporary folder {folder}: {error.strerror}",
        mend="Free some space, or name another folder in the environment variable TMPDIR.",
    )
