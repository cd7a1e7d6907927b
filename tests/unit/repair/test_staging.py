"""What a staging area is made of: rows as files and back, segments that together are the table, sizes."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.messages.mending import ROW_BYTES
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.sizes import TableSize
from mailmend.model.table import Column, Row
from mailmend.repair.staging.area import (
    BATCH_ROWS,
    SEGMENTS_MAX,
    SEGMENTS_UNKNOWN,
    SegmentWriter,
    batches_in,
    bounds,
    rows_of,
    schema_of,
    segments_for,
)

ABOUT = {"area": "a", "table": "t", "segment": 3}
VALUES = {
    "timeuuid": st.uuids(),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "tinyint": st.integers(-128, 127),
    "boolean": st.booleans(),
    "text": st.text(),
    "set<text>": st.frozensets(st.text(), min_size=1),
    "timestamp": st.integers(-(10**12), 10**13).map(
        lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    ),
    "set<int>": st.frozensets(st.integers(-(2**31), 2**31 - 1), min_size=1),
    "frozen<list<uuid>>": st.lists(st.uuids(), min_size=1).map(tuple),
    "varint": st.integers(),
    "blob": st.binary(),
    "map<text, timeuuid>": st.dictionaries(st.text(), st.uuids(), min_size=1),
}
COLUMNS = [Column(f"c{at}", kind) for at, kind in enumerate(VALUES)]
ROWS = st.lists(st.fixed_dictionaries({one.name: st.none() | VALUES[one.type] for one in COLUMNS}), max_size=4)


def staged(rows: list[Row]) -> bytes:
    writer = SegmentWriter(COLUMNS, ABOUT)
    for row in rows:
        writer.add(row)
    return writer.whole()


class TestRows:
    """Rows become a file and come back as they were."""

    @given(ROWS)
    def test_every_value_comes_back_of_its_own_kind(self, rows: list[Row]) -> None:
        found = batches_in(staged(rows), COLUMNS, ABOUT)

        assert found is not None
        again = list(rows_of(found, COLUMNS))
        assert again == rows
        assert [{name: type(one) for name, one in row.items()} for row in again] == [
            {name: type(one) for name, one in row.items()} for row in rows
        ]

    @given(ROWS, st.data())
    def test_a_file_that_is_cut_off_is_none(self, rows: list[Row], data: st.DataObject) -> None:
        content = staged(rows)

        assert batches_in(content[: data.draw(st.integers(0, len(content) - 1))], COLUMNS, ABOUT) is None

    def test_of_another_segment_or_with_other_columns_it_is_none(self) -> None:
        assert batches_in(staged([]), COLUMNS, {**ABOUT, "segment": 4}) is None
        assert batches_in(staged([]), COLUMNS[1:], ABOUT) is None

    def test_many_rows_are_written_in_parts_and_any_tool_reads_them(self) -> None:
        number, writer = 2 * BATCH_ROWS + 1, SegmentWriter([Column("id", "uuid")], ABOUT)
        for at in range(number):
            writer.add({"id": UUID(int=at)})

        assert pq.read_metadata(BytesIO(writer.whole())).num_row_groups == 3


def test_a_row_that_nothing_can_shorten_takes_no_more_than_is_reckoned_with() -> None:
    """Ids, numbers, dates and flags at random; each batch is compressed alone, so more of them take as much each."""
    table, names = MESSAGES.columns_read[MESSAGES.truth.spelling]
    columns, draw = [table.column(name) for name in names], Random(1)
    drawn: Mapping[str, Callable[[], Any]] = {
        "timeuuid": lambda: UUID(int=draw.getrandbits(128)),
        "bigint": lambda: draw.getrandbits(20),
        "int": lambda: draw.getrandbits(12),
        "boolean": lambda: draw.random() < 0.5,
        "set<text>": lambda: frozenset(draw.sample(("$Forwarded", "Junk", "NonJunk", "$label1"), draw.randrange(1, 4))),
        "timestamp": lambda: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(milliseconds=draw.getrandbits(37)),
        "text": lambda: f"1_1_{urlsafe_b64encode(draw.randbytes(32)).decode()}",
    }
    writer = SegmentWriter(columns, ABOUT)
    for _ in range(BATCH_ROWS):
        writer.add({column.name: drawn[column.type]() for column in columns})

    assert 0.9 * ROW_BYTES < len(writer.whole()) / BATCH_ROWS <= ROW_BYTES


class TestSegments:
    """Token ranges, and how many of them."""

    @given(st.integers(1, SEGMENTS_MAX))
    def test_together_they_hold_every_token_once(self, number: int) -> None:
        """The least token is no partition's: none is after it and up to itself."""
        edges = [bounds(at, number) for at in range(number)]

        assert (edges[0][0], edges[-1][1]) == (-(2**63), 2**63 - 1)
        assert all(one[1] == other[0] for one, other in pairwise(edges))
        assert all(after < up_to for after, up_to in edges)

    @pytest.mark.parametrize(
        ("partitions", "octets", "disk", "number"),
        [
            (None, None, None, SEGMENTS_UNKNOWN),
            (0, 0, 0, SEGMENTS_UNKNOWN),
            (1, 1, None, 1),
            (50_000, 1, None, 1),
            (50_001, 1, None, 2),
            (30, 160 << 20, None, 10),
            (None, None, 160 << 20, 10),
            (10**10, 1, None, SEGMENTS_MAX),
        ],
    )
    def test_their_number_follows_the_size(
        self, partitions: int | None, octets: int | None, disk: int | None, number: int
    ) -> None:
        assert segments_for(TableSize(partitions, octets, disk, 1, 1)) == number

    def test_of_a_table_that_nobody_knows(self) -> None:
        assert segments_for(None) == SEGMENTS_UNKNOWN


def test_no_column_that_a_check_reads_takes_the_way_round_by_json() -> None:
    """It would be slow, and Spark would not understand it."""
    for family in FAMILIES:
        for table, names in family.columns_read.values():
            columns = [table.column(name) for name in names]
            schema = schema_of(columns)
            texts = {one.name for one in columns if one.type in {"text", "timeuuid", "uuid"}}
            assert {name for name in names if str(schema.field(name).type) == "string"} == texts, table.spelling
