"""Rows of a scan as Parquet files, and back, with the Arrow type of each CQL type.

A file is read completely and its checksums are verified before its first row is used, so that no part of a damaged file
counts.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from mailmend.cql.rows import decode, encode
from mailmend.model.table import Column, Row

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
    **dict.fromkeys(("text", "varchar", "ascii"), _TEXT),
    **dict.fromkeys(("timeuuid", "uuid"), _Form(pa.string(), str, UUID)),
    **dict.fromkeys(("bigint", "counter"), _Form(pa.int64())),
    "int": _Form(pa.int32()),
    "smallint": _Form(pa.int16()),
    "tinyint": _Form(pa.int8()),
    "boolean": _Form(pa.bool_()),
    "timestamp": _Form(pa.timestamp("us", tz="UTC")),
    "set<text>": _Form(pa.list_(pa.string()), sorted, frozenset),
}


def _form_of(column: Column) -> _Form:
    """Types that no mail table compares are kept as JSON."""
    known = _PLAIN.get(column.type)
    return known or _Form(
        pa.string(), lambda value: json.dumps(encode(value)), lambda text: decode(column.type, json.loads(text))
    )


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
    cells = [_cells(array.to_pylist(), form.back) for array, form in zip(batch.columns, forms, strict=True)]
    names = batch.schema.names
    for values in zip(*cells, strict=True):
        yield dict(zip(names, values, strict=True))


def _cells(values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]
