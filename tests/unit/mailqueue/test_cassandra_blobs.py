"""Blobs in James's tables: as James lays them out, whole or not there at all, whatever breaks off."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.blobs.cassandra import (
    PAGE_BLOBS,
    PART_BYTES,
    PARTS_AT_ONCE,
    CassandraStore,
    grouped,
    open_cassandra,
    parts_of,
)
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.model.blobs import BlobKind
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.errors import BlobMissing, BlobsUnreachable, SchemaMismatch, TimedOut
from mailmend.model.ids import BlobId
from mailmend.model.operations import Put, Read, Remove
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.james_queue import james_blobs, james_queue_rows
from tests.support.striking import Strike, of, passing

BODY = BlobKind.BODY
OWN = BlobId("1_692_0f9a3c1e-7b0d-4c55-9a51-2f60d4a8c7e1")
SHARED = BlobId("1_692_shared")


def tables_and_store() -> tuple[MemoryTables, CassandraStore]:
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    return tables, CassandraStore(InTurn(tables), clock)


def rows(tables: MemoryTables, blob_id: BlobId) -> tuple[list[int], list[int]]:
    """What the tables hold of a blob: the numbers of parts that are told, and the sizes of the parts that are there."""
    counts = [seen.row["position"] for seen in tables.read(Read(BLOBS, (blob_id,)))]
    return counts, [len(seen.row["data"]) for seen in tables.read(Read(BLOB_PARTS, (blob_id,)))]


class TestLayout:
    """Rows as James reads and writes them."""

    @pytest.mark.parametrize(
        ("size", "parts"),
        [
            (0, [0]),
            (1, [1]),
            (PART_BYTES, [PART_BYTES]),
            (PART_BYTES + 1, [PART_BYTES, 1]),
            (3 * PART_BYTES, [PART_BYTES] * 3),
        ],
    )
    async def test_a_blob_is_its_parts_and_their_number(self, size: int, parts: list[int]) -> None:
        """An empty one has one part too: James reads no number without one."""
        tables, store = tables_and_store()
        await store.keep(OWN, b"x" * size)
        assert rows(tables, OWN) == ([len(parts)], parts)
        assert await store.get(OWN) == b"x" * size

    async def test_what_james_wrote_is_read(self) -> None:
        """Every blob of a queue that James 3.8.1 filled, from its own rows."""
        tables, store = tables_and_store()
        older = BLOBS.with_columns(column for column in BLOBS.columns if column.name != "metadata")
        for table in (older, BLOB_PARTS):
            for row in james_queue_rows(table):
                tables.write(Put(table, row))
        for blob_id, content in james_blobs().items():
            assert await store.get(blob_id) == content
            assert await store.exists(blob_id)
        assert {blob.blob_id: blob.size_bytes async for blob in store.scan()} == {
            blob_id: len(content) for blob_id, content in james_blobs().items()
        }

    @given(st.binary(max_size=60), st.integers(1, 20))
    def test_parts_put_together_are_the_content(self, content: bytes, size: int) -> None:
        parts = parts_of(content, size)
        assert b"".join(parts) == content
        assert all(len(part) == size for part in parts[:-1])
        assert 0 < len(parts) <= len(content) // size + 1

    @given(st.lists(st.integers()), st.integers(1, 5))
    def test_groups_keep_the_order(self, items: list[int], most: int) -> None:
        groups = list(grouped(items, most))
        assert [item for group in groups for item in group] == items
        assert all(len(group) == most for group in groups[:-1])
        assert all(groups)


class TestBreakingOff:
    """A crash between two writes leaves no half of a blob that anybody could read."""

    async def test_a_put_that_breaks_off_is_not_there(self) -> None:
        """At each of its writes: parts without their number are listed, so that they can be collected."""
        content = b"x" * (2 * PART_BYTES + 1)
        for lasts in range(4):
            tables, store = tables_and_store()
            tables.surround = breaking_after(lasts)
            with pytest.raises(BlobsUnreachable):
                await store.keep(OWN, content)
            tables.surround = passing
            assert not await store.exists(OWN)
            with pytest.raises(BlobMissing, match="counts its parts"):
                await store.get(OWN)
            assert len(await _listed(store)) == min(lasts, 1)

    async def test_a_removal_that_breaks_off_is_gone_and_can_be_ended(self) -> None:
        tables, store = tables_and_store()
        await store.keep(OWN, b"x")
        tables.surround = breaking_after(1)
        with pytest.raises(BlobsUnreachable):
            await store.remove(OWN)
        tables.surround = passing
        assert not await store.exists(OWN)
        assert rows(tables, OWN) == ([], [1])
        await store.remove(OWN)
        assert rows(tables, OWN) == ([], [])

    @pytest.mark.parametrize("done", [False, True])
    async def test_a_removal_without_an_answer_is_made_again(self, done: bool) -> None:
        """Of one blob, and of many; whether it was done or not."""
        tables, store = tables_and_store()
        for blob_id, removal in ((OWN, store.remove(OWN)), (SHARED, store.remove_all([SHARED]))):
            tables.surround = passing
            await store.keep(blob_id, b"x")
            tables.surround = Strike(of(Remove), TimedOut("no answer"), done, times=5)
            await removal
            assert rows(tables, blob_id) == ([], [])

    async def test_a_part_that_is_lost_makes_the_blob_missing(self) -> None:
        tables, store = tables_and_store()
        await store.keep(OWN, b"x" * 3 * PART_BYTES)
        tables.write(Remove(BLOB_PARTS, (OWN, 1)))
        with pytest.raises(BlobMissing, match="part 1 of 3 is not there"):
            await store.get(OWN)

    async def test_a_blob_that_is_removed_while_it_is_listed_is_left_out(self) -> None:
        tables, store = tables_and_store()
        await store.keep(OWN, b"x")
        await store.keep(SHARED, b"yy")
        removal = Remove(BLOB_PARTS, (OWN,))
        tables.surround = Strike(of(object), then=lambda: tables.write(removal), times=1)
        assert [blob.blob_id for blob in await _listed(store)] == [SHARED]


class TestParts:
    """Parts of another size, that somebody's `chunk.size` made."""

    async def test_shared_bytes_in_other_parts_are_left_as_they_are(self) -> None:
        """James reads by the first number that it finds: parts of two sizes under one id would be another content."""
        tables, store = tables_and_store()
        content = b"0123456789"
        for number, part in enumerate(parts_of(content, 4)):
            tables.write(Put(BLOB_PARTS, {"id": SHARED, "chunknumber": number, "data": part}))
        tables.write(Put(BLOBS, {"id": SHARED, "position": 3}))
        await store.keep(SHARED, content)
        assert rows(tables, SHARED) == ([3], [4, 4, 2])
        assert await store.get(SHARED) == content

    async def test_shared_bytes_in_the_same_parts_are_put_again(self) -> None:
        """So that what a collector removes meanwhile is there afterwards."""
        tables, store = tables_and_store()
        await store.keep(SHARED, b"x")
        tables.write(Remove(BLOB_PARTS, (SHARED,)))
        await store.keep(SHARED, b"x")
        assert await store.get(SHARED) == b"x"

    async def test_many_parts_are_asked_for_in_groups(self) -> None:
        tables, store = tables_and_store()
        content = bytes(PART_BYTES) * (2 * PARTS_AT_ONCE) + b"end"
        most = [0]

        class Counting(InTurn):
            async def read_all(self, reads: Any) -> Any:
                most.append(len(reads))
                return await super().read_all(reads)

            async def write_all(self, writes: Any) -> Any:
                most.append(len(writes))
                return await super().write_all(writes)

        store = CassandraStore(Counting(tables), VirtualClock())
        await store.keep(OWN, content)
        assert await store.get(OWN) == content
        assert max(most) == PARTS_AT_ONCE


class TestTelling:
    """What the tables' errors mean to whoever asks for blobs."""

    async def test_tables_that_do_not_answer_are_a_store_that_does_not(self) -> None:
        tables, store = tables_and_store()
        tables.surround = breaking_after(0)
        for asked in (store.get(OWN), store.exists(OWN), store.remove(OWN), store.keep(OWN, b""), _listed(store)):
            with pytest.raises(BlobsUnreachable, match="blobs in Cassandra cannot be used: it broke off") as caught:
                await asked
            assert caught.value.mend == "Wait."

    async def test_other_errors_stay_what_they_are(self) -> None:
        tables, store = tables_and_store()
        tables.surround = Strike(of(object), SchemaMismatch("d_james", ("blobs",)))
        with pytest.raises(SchemaMismatch, match="lacks blobs"):
            await store.get(OWN)

    async def test_a_compressed_blob_waits(self) -> None:
        """Newer Jameses can be told to compress: that is no mail's beginning, and no missing blob."""
        _, store = tables_and_store()
        await store.keep(OWN, b"\x28\xb5\x2f\xfd\x24\x00")
        with pytest.raises(BlobsUnreachable, match="compressed"):
            await store.get(OWN)


async def test_more_than_a_page_is_listed_with_times_and_sizes() -> None:
    """Blobs of one part and of several, the last of them being the newest."""
    clock = VirtualClock()
    blobs = open_cassandra(InTurn(MemoryTables(clock.micros)), clock, BlobNaming(BlobsMode.RANDOM))
    sizes = {}
    for number in range(PAGE_BLOBS * 2 + 1):
        size = number * PART_BYTES // 20
        sizes[await blobs.put(b"x" * size, BODY)] = size
        clock.advance(1)
    found = await _listed(blobs.store)
    assert {blob.blob_id: blob.size_bytes for blob in found} == sizes
    in_time = sorted(found, key=lambda blob: blob.stored_at)
    assert [blob.blob_id for blob in in_time] == list(sizes)


def breaking_after(writes_and_reads: int) -> Strike:
    return Strike(of(object), TimedOut("it broke off", mend="Wait."), skip=writes_and_reads)


async def _listed(store: Any) -> list[Any]:
    return [blob async for blob in store.scan()]
