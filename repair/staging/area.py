"""A staging area: rows of a scan by token segment, kept until the run is complete, so that a next attempt continues it.

A file under its final name is complete, and names its area, table and segment; everything else is read again. So a kill
loses only the segments that are being read. All attempts repair as of a time before the first read of the first
attempt: for the rule of T (docs/adr/0035) they are one scan that takes hours.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from itertools import chain
from socket import gethostname
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from mailmend.cql.rows import decode, encode
from mailmend.model.cql_types import parse_type
from mailmend.model.errors import StagingRefused
from mailmend.model.instants import instant_of
from mailmend.model.operations import Scan
from mailmend.model.ports import Progress, Tables
from mailmend.model.sizes import TableSize, bytes_text
from mailmend.model.table import Column, Row, Table
from mailmend.repair.clock import SystemClock

FORMAT: Final = 2
"""The version of the format; it is increased when older versions of mailmend would read an area wrongly."""

MANIFEST: Final = "staging.json"
SEGMENTS_UNKNOWN: Final = 16
"""The number of segments of a table whose size is not known."""

SEGMENTS_MAX: Final = 10_000
SEGMENT_PARTITIONS: Final = 50_000
SEGMENT_BYTES: Final = 16 << 20
"""The size of a segment by the nodes' estimates (all columns, uncompressed): one or two seconds of scanning."""

_SEGMENT: Final = re.compile(r"(\w+)\.\d{5}\.parquet")
_TOKENS: Final = 1 << 64


class StagingStore(Protocol):
    """A store of files of staged rows. Adapters are in `repair.staging`; every method may raise `StateUnwritable`."""

    @property
    def place(self) -> str: ...

    def held(self) -> AbstractContextManager[None]:
        """Hold the store for one run while the body runs; raises `StagingRefused` where another run holds it."""
        ...

    def names(self) -> Mapping[str, int]:
        """The size in bytes of each complete file, by its name."""
        ...

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file: afterwards it is complete, or as it was before."""
        ...

    def remove(self, names: Iterable[str]) -> None: ...

    def free_bytes(self) -> int | None:
        """The free space in bytes; None where it is not known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedScope:
    """What a staging area is for; an area of another scope is refused.

    Attributes:
        tables: a digest that changes if the tables are altered, and differs for other clusters.
        columns: the columns that are read, by the table's spelling.
    """

    version: str
    keyspace: str
    columns: Mapping[str, Sequence[str]]
    level: str
    tables: str


_OTHER: Final = {
    "version": "made by version {0} of mailmend, and this is {1}",
    "keyspace": "of keyspace {0}, not of {1}",
    "columns": "of a scan of other tables or columns: `check` reads more than `check messages`, --without less",
    "level": "read at {0}, not at {1}",
    "tables": "of tables that were altered since, or made anew, or are of another cluster",
}


@dataclass(frozen=True, slots=True)
class StagingArea:
    """A staging area that one attempt has open.

    Attributes:
        id: the id of the area, which all its files contain.
        began: the earliest clock, in microseconds, before the first read of the first attempt.
        attempt: the number of this attempt, from 1.
        segments: the number of segments, by the table's spelling.
        kept: the number of segments that were complete when this attempt began.
    """

    store: StagingStore
    id: str
    began: int
    attempt: int
    segments: Mapping[str, int]
    kept: int = field(default=0, compare=False)

    @property
    def number(self) -> int:
        return sum(self.segments.values())

    def scan(self, tables: Tables, scan: Scan, progress: Progress) -> Iterator[Row]:
        """Yield every row of a table, in token order; segments that are staged are not read from the cluster again."""
        number = self.segments[scan.table.spelling]
        rows = 0
        stood = 0
        for at in range(number):
            found = self.stands(scan, at)
            if found is None:
                if stood == at > 0:
                    text = f"read {scan.table.spelling} ({stood} of {number} segments stood)"
                    progress.stage(text, rows * (number - stood) // stood)
                staged = SegmentWriter(columns_of(scan), self._about(scan, at))
                for row in tables.scan(self._part(scan, at)):
                    staged.add(row)
                    yield row
                self.store.write(_name(scan.table, at), staged.whole())
                continue
            stood += 1
            for row in rows_of(found, columns_of(scan)):
                rows += 1
                yield row

    def batches(self, tables: Tables, scan: Scan, at: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of segment `at` in batches; it is staged once the last batch was taken."""
        found = self.stands(scan, at)
        if found is not None:
            yield from found
            return
        staged = SegmentWriter(columns_of(scan), self._about(scan, at))
        for row in tables.scan(self._part(scan, at)):
            if (batch := staged.add(row)) is not None:
                yield batch
        yield staged.batch()
        self.store.write(_name(scan.table, at), staged.whole())

    def stands(self, scan: Scan, at: int) -> list[pa.RecordBatch] | None:
        """The rows of segment `at`; None where it is not staged."""
        content = self.store.read(_name(scan.table, at))
        if content is None:
            return None
        return batches_in(content, columns_of(scan), self._about(scan, at))

    def refuse_another(self) -> None:
        """Refuse to go on where this host sees another area, or none, in the store; raises `StagingRefused`."""
        said = self.store.read(MANIFEST)
        if said is None or self.id not in said.decode("utf-8", "replace"):
            raise StagingRefused(
                f"the staging area {self.store.place} is another one on the executor {gethostname()}",
                mend="Name a folder that all executors share.",
            )

    def standing(self) -> int:
        """The number of segments that are staged now."""
        return sum(name != MANIFEST for name in self.store.names())

    def as_json(self) -> dict[str, Any]:
        """The area's state for reports and JSON."""
        return {
            "place": self.store.place,
            "began_at": f"{instant_of(self.began):%Y-%m-%dT%H:%M:%SZ}",
            "attempt": self.attempt,
            "segments": self.number,
            "kept": self.kept,
            "bytes": sum(self.store.names().values()),
        }

    def clear(self) -> None:
        """Remove the area, its manifest first, without which other files do not count."""
        self.store.remove([MANIFEST])
        self.store.remove(self.store.names())

    def _part(self, scan: Scan, at: int) -> Scan:
        tokens = bounds(at, self.segments[scan.table.spelling])
        return Scan(scan.table, scan.columns, scan.level, tokens=tokens)

    def _about(self, scan: Scan, at: int) -> dict[str, Any]:
        return {"area": self.id, "table": scan.table.spelling, "segment": at}


def opened_area(
    store: StagingStore, scope: StagedScope, segments: Mapping[str, int], needed: int | None, began: Callable[[], int]
) -> StagingArea:
    """Open the area in the store, or make a new one; call it while the store is held.

    Args:
        store: the store of the area.
        scope: what is to be scanned.
        segments: how many each table has in a new area.
        needed: an estimate of the bytes that a complete area takes; None where it is not known.
        began: reads the clocks, for a new area.

    Raises:
        StagingRefused: the area has another scope, the store has other files, or there is too little space.
    """
    names = store.names()
    said = store.read(MANIFEST)
    for name in names:
        if name != MANIFEST and not _SEGMENT.fullmatch(name):
            raise StagingRefused(
                f"{store.place} holds a file that does not belong to a staging area: {name}",
                mend="Name an empty folder, or one that is not there yet.",
            )
    if said is None:
        store.remove(names)  # of an area that was cleared, and not to its end
        found: dict[str, Any] = {
            "area": str(SystemClock().new_uuid()),
            "began": began(),
            "segments": dict(segments),
            "attempt": 0,
        }
        names = {}
    else:
        found = _known(store, said, scope)
    wanted = set()
    for table, number in found["segments"].items():
        for at in range(number):
            wanted.add(_name_of(table, at))
    area = StagingArea(
        store,
        found["area"],
        found["began"],
        found["attempt"] + 1,
        found["segments"],
        len(wanted & names.keys()),
    )
    _refuse_full(area, needed)
    store.write(MANIFEST, _manifest(area, scope))
    return area


def _manifest(area: StagingArea, scope: StagedScope) -> bytes:
    fields = {"area": area.id, "began": area.began, "attempt": area.attempt, "segments": dict(area.segments)}
    return json.dumps({"staging": "mailmend", "format": FORMAT, **fields, "scope": asdict(scope)}, indent=1).encode()


def _known(store: StagingStore, said: bytes, scope: StagedScope) -> dict[str, Any]:
    mend = f"Name another place, or give up what is staged there: rm -r {store.place}"
    try:
        found: dict[str, Any] = json.loads(said)
        was = found["scope"]
        now = json.loads(json.dumps(asdict(scope)))
        if (found["staging"], found["format"]) != ("mailmend", FORMAT):
            was = {"version": f"{was['version']} (format {found['format']})"}
    except (ValueError, KeyError, TypeError) as error:
        raise StagingRefused(f"{MANIFEST} in {store.place} is not as it was written", mend=mend) from error
    for name, text in _OTHER.items():
        if was.get(name) != now[name]:
            raise StagingRefused(
                f"the staging area {store.place} is {text.format(was.get(name), now[name])}", mend=mend
            )
    return found


def _refuse_full(area: StagingArea, needed: int | None) -> None:
    free = area.store.free_bytes()
    if free is None or needed is None:
        return
    left = needed * (area.number - area.kept) // max(1, area.number)
    if left > free:
        raise StagingRefused(
            f"staging takes about {bytes_text(left)}, and {area.store.place} has {bytes_text(free)} left",
            mend="Name a place with more room. An area is cleared at the end of its run.",
        )


def segments_for(size: TableSize | None) -> int:
    """The number of segments in which a table of this size is read."""
    if size is None:
        return SEGMENTS_UNKNOWN
    partitions = size.partitions or 0
    held = size.bytes or size.disk_bytes or 0
    if not (partitions or held):
        return SEGMENTS_UNKNOWN
    return max(1, min(SEGMENTS_MAX, max(-(-partitions // SEGMENT_PARTITIONS), -(-held // SEGMENT_BYTES))))


def bounds(at: int, number: int) -> tuple[int, int]:
    """The token range (after, up to] of segment `at` of `number`; together they cover all tokens."""
    first = -(_TOKENS >> 1)
    return first + _TOKENS * at // number, min(first + _TOKENS * (at + 1) // number, -first - 1)


def columns_of(scan: Scan) -> list[Column]:
    return [scan.table.column(name) for name in scan.columns]


def _name(table: Table, at: int) -> str:
    return _name_of(table.spelling, at)


def _name_of(spelling: str, at: int) -> str:
    return f"{spelling}.{at:05}.parquet"


BATCH_ROWS: Final = 5_000
"""The number of rows in a batch, which are held as Python objects until they are added to the file."""

_ABOUT: Final = b"mailmend"


class _Form(NamedTuple):
    """An Arrow type, and the conversions of a value that is not null; None where it stays as it is."""

    arrow: pa.DataType
    out: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None


_TEXT: Final = _Form(pa.string())
_PLAIN: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(("text", "varchar", "ascii", "inet"), _TEXT),
    **dict.fromkeys(("timeuuid", "uuid"), _Form(pa.string(), str, UUID)),
    **dict.fromkeys(("bigint", "counter"), _Form(pa.int64())),
    "int": _Form(pa.int32()),
    "smallint": _Form(pa.int16()),
    "tinyint": _Form(pa.int8()),
    "boolean": _Form(pa.bool_()),
    "blob": _Form(pa.binary()),
    "date": _Form(pa.date32()),
    "double": _Form(pa.float64()),
    "float": _Form(pa.float32()),
    "timestamp": _Form(pa.timestamp("us", tz="UTC")),
    "set<text>": _Form(pa.list_(pa.string()), sorted, frozenset),
}


def _form_of(column: Column) -> _Form:
    """Cells of other types than these, and collections of them, are kept as JSON."""
    known = _PLAIN.get(column.type) or _form_of_elements(column)
    return known or _Form(
        pa.string(), lambda value: json.dumps(encode(value)), lambda text: decode(column.type, json.loads(text))
    )


def _form_of_elements(column: Column) -> _Form | None:
    """The form of a set or list whose elements are plain cells; None for other types."""
    parsed = parse_type(column.type)
    if parsed.name == "frozen":
        (parsed,) = parsed.arguments
    if parsed.name not in _MAKERS:
        return None
    (argument,) = parsed.arguments
    inner = _PLAIN.get(str(argument))
    if inner is None:
        return None
    make = _MAKERS[parsed.name]
    out = inner.out or _as_it_is
    back = inner.back or _as_it_is
    return _Form(
        pa.list_(inner.arrow),
        lambda value: list(map(out, value)),
        lambda value: make(map(back, value)),
    )


_MAKERS: Final[Mapping[str, Callable[[Iterable[Any]], Any]]] = {"list": tuple, "set": frozenset}


def _as_it_is(value: Any) -> Any:
    return value


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([(column.name, _form_of(column).arrow) for column in columns])


class SegmentWriter:
    """Makes a file of rows, held in memory: compressed, except for the last batch."""

    def __init__(self, columns: Sequence[Column], about: Mapping[str, Any]) -> None:
        self._forms = [(column.name, _form_of(column)) for column in columns]
        self.schema = schema_of(columns)
        self._file = BytesIO()
        self._waiting = list[Row]()
        kept = self.schema.with_metadata({_ABOUT: json.dumps(dict(about)).encode()})
        self._writer = pq.ParquetWriter(self._file, kept, compression="zstd", write_page_checksum=True)

    def add(self, row: Row) -> pa.RecordBatch | None:
        """Add a row; returns the batch where the row completes one, else None."""
        self._waiting.append(row)
        if len(self._waiting) < BATCH_ROWS:
            return None
        return self.batch()

    def batch(self) -> pa.RecordBatch:
        """Add the rows since the last batch to the file, and return them as a batch."""
        arrays = []
        for name, form in self._forms:
            cells = _cells([row[name] for row in self._waiting], form.out)
            arrays.append(pa.array(cells, form.arrow))
        batch = pa.record_batch(arrays, schema=self.schema)
        self._writer.write_batch(batch)
        self._waiting = []
        return batch

    def whole(self) -> bytes:
        """Complete the file and return its bytes; nothing can be added any more."""
        self.batch()
        self._writer.close()
        return self._file.getvalue()


def rows_of(batches: Iterable[pa.RecordBatch], columns: Sequence[Column]) -> Iterator[Row]:
    forms = [_form_of(column) for column in columns]
    return chain.from_iterable(_rows(batch, forms) for batch in batches)


def batches_in(content: bytes, columns: Sequence[Column], about: Mapping[str, Any]) -> list[pa.RecordBatch] | None:
    """The rows of a file in batches; None where it is damaged, or its columns or `about` differ."""
    try:
        table = pq.read_table(BytesIO(content), page_checksum_verification=True)
        said = json.loads((table.schema.metadata or {}).get(_ABOUT, b"{}"))
    except (pa.ArrowException, OSError, ValueError):
        return None
    if said != dict(about) or not table.schema.equals(schema_of(columns)):
        return None
    found: list[pa.RecordBatch] = table.replace_schema_metadata(None).to_batches(BATCH_ROWS)
    return found


def _rows(batch: pa.RecordBatch, forms: Sequence[_Form]) -> Iterator[Row]:
    cells = []
    for array, form in zip(batch.columns, forms, strict=True):
        cells.append(_cells(array.to_pylist(), form.back))
    names = batch.schema.names
    for values in zip(*cells, strict=True):
        yield dict(zip(names, values, strict=True))


def _cells(values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]
