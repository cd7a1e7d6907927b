"""What every store of blobs must do: one suite, run on memory, files, a real S3, James's tables, and an exact S3.

The real S3 of these tests takes `a//b` for `a/b`, as it lays objects out as files; so what S3 itself must do with such
keys is held against a small server that takes keys as they are.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.blobs.cassandra import PART_BYTES, CassandraStore
from mailmend.mailqueue.blobs.files import FileStore
from mailmend.mailqueue.blobs.object_storage import BULK_MIN, S3Bucket
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, HashSpelling, is_deduplicated
from mailmend.model.blobs import BlobKind, BlobStore, StoredBlob
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.errors import BadPayload, BlobMissing
from mailmend.model.ids import BlobId
from mailmend.model.keyspace import Schema
from mailmend.repair.clock import SystemClock
from tests.support.blobs import BAD_IDS, RANDOM_IDS, SHARED_IDS, UUID_TEXT
from tests.support.in_turn import InTurn
from tests.support.james_queue import james_blobs
from tests.support.keyspaces import created, dropped
from tests.support.memory_blobs import MemoryStore
from tests.support.object_stores import S3
from tests.support.s3_twin import s3_twin
from tests.support.stored_forms import packed

CLOCK = SystemClock()
BODY = BlobKind.BODY
CONTENTS = [b"", b"\0", b"From: a@b.c\r\n\r\n", bytes(range(256)) * 40, b"x" * (PART_BYTES + 1)]
FIVE_MB = bytes(range(251)) * (5 * 1024 * 1024 // 251)


@dataclass(frozen=True, slots=True)
class Kept:
    """A store under test; `exact` where it keeps `a//b` beside `a/b`."""

    store: BlobStore
    exact: bool = True

    def blobs(self, mode: BlobsMode = BlobsMode.RANDOM) -> NamedBlobs:
        return NamedBlobs(self.store, CLOCK, BlobNaming(mode))


@pytest.fixture(scope="session")
def s3_bucket(s3: S3) -> BlobStore:
    return S3Bucket(s3.bucket())


@pytest.fixture(scope="session")
def twin_bucket() -> Iterator[BlobStore]:
    with s3_twin() as twin:
        yield S3Bucket(twin.settings())


@pytest.fixture(scope="session")
def blob_tables(cluster: CassandraCluster) -> Iterator[BlobStore]:
    """James's tables of blobs, as older ones have them, in a keyspace of these tests' own."""
    name = f"b_conformance_{uuid4().hex[:8]}"
    older = BLOBS.with_columns(column for column in BLOBS.columns if column.name != "metadata")
    yield CassandraStore(AsyncKeyspace(created(cluster, name, Schema((), (older, BLOB_PARTS)))), CLOCK)
    dropped(cluster, (name,))


@pytest.fixture(
    params=[
        "memory",
        "files",
        "exact_s3",
        "memory_tables",
        pytest.param("s3", marks=pytest.mark.object_store),
        pytest.param("cassandra", marks=pytest.mark.cassandra),
    ]
)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    match request.param:
        case "memory":
            return Kept(MemoryStore(CLOCK))
        case "files":
            files = FileStore(tmp_path / "blobs", CLOCK)
            files.create()
            return Kept(files)
        case "memory_tables":
            return Kept(CassandraStore(InTurn(MemoryTables(CLOCK.micros)), CLOCK))
        case "exact_s3":
            return Kept(request.getfixturevalue("twin_bucket"))
        case "s3":
            return Kept(request.getfixturevalue("s3_bucket"), exact=False)
        case _:
            return Kept(request.getfixturevalue("blob_tables"))


@pytest.fixture
def blobs(kept: Kept) -> NamedBlobs:
    return kept.blobs()


async def listed(store: BlobStore) -> dict[BlobId, StoredBlob]:
    found = [blob async for blob in store.scan()]
    assert len({blob.blob_id for blob in found}) == len(found)
    return {blob.blob_id: blob for blob in found}


async def missing(blobs: NamedBlobs, blob_id: BlobId) -> bool:
    with pytest.raises(BlobMissing, match="is missing") as caught:
        await blobs.get(blob_id)
    assert caught.value.blob_id == blob_id
    return not await blobs.exists(blob_id)


class TestKeeping:
    """What is put is there, whole, until it is deleted."""

    @pytest.mark.parametrize("content", CONTENTS, ids=len)
    async def test_bytes_come_back_as_they_were_put(self, blobs: NamedBlobs, content: bytes) -> None:
        blob_id = await blobs.put(content, BODY)
        assert await blobs.get(blob_id) == content
        assert await blobs.exists(blob_id)

    async def test_a_blob_of_five_megabytes_comes_back(self, blobs: NamedBlobs) -> None:
        assert await blobs.get(await blobs.put(FIVE_MB, BODY)) == FIVE_MB

    async def test_what_is_deleted_is_gone_and_may_be_deleted_again(self, blobs: NamedBlobs) -> None:
        blob_id, other = await blobs.put(b"x", BODY), await blobs.put(b"x", BODY)
        await blobs.delete(blob_id)
        assert await missing(blobs, blob_id)
        await blobs.delete(blob_id)
        assert await missing(blobs, blob_id)
        assert await blobs.get(other) == b"x"

    @pytest.mark.parametrize("number", [0, 1, BULK_MIN, 40])
    async def test_many_are_deleted_together(self, blobs: NamedBlobs, number: int) -> None:
        ids = await asyncio.gather(*(blobs.put(b"x", BODY) for _ in range(number)))
        other, never = await blobs.put(b"y", BODY), BlobId(f"1_1_{uuid4()}")
        await blobs.delete_all([*ids, never, *ids])
        assert not any([await blobs.exists(one) for one in ids])
        assert await blobs.get(other) == b"y"
        await blobs.delete_all(ids)

    @pytest.mark.parametrize("others", [0, BULK_MIN])
    async def test_of_many_what_others_may_refer_to_stays_and_what_is_no_id_is_reported(
        self, kept: Kept, others: int
    ) -> None:
        blobs, shared = kept.blobs(), kept.blobs(BlobsMode.DEDUPLICATED)
        content = uuid4().bytes
        forms = [BlobId(text) for text in RANDOM_IDS] + [BlobId(f"1_1_{uuid4()}") for _ in range(others)]
        for form in forms:
            await kept.store.keep(form, b"x")
        stays = await shared.put(content, BODY)
        with pytest.raises(BadPayload, match="is not the id of a blob"):
            await blobs.delete_all([stays, BlobId(BAD_IDS[0]), *forms])
        assert not any([await blobs.exists(form) for form in forms])
        assert await blobs.get(stays) == content

    async def test_of_many_stores_know_ids_of_every_form(self, kept: Kept) -> None:
        """Whoever knows every reference removes what is made of bytes too: slashes, two of them, plus signs."""
        ids = [
            BlobId(text) for text in (*RANDOM_IDS, *SHARED_IDS) if kept.exact or ("//" not in text and text[-1] != "/")
        ]
        for blob_id in ids:
            await kept.store.keep(blob_id, b"x")
        await kept.store.remove_all(ids)
        assert not any([await kept.store.exists(blob_id) for blob_id in ids])

    @pytest.mark.parametrize("form", [RANDOM_IDS[0], SHARED_IDS[0], SHARED_IDS[2]])
    async def test_what_never_was_is_missing(self, blobs: NamedBlobs, form: str) -> None:
        blob_id = BlobId(form.replace("692", f"{CLOCK.micros()}"))
        assert await missing(blobs, blob_id)

    async def test_a_put_in_place_of_another_wins(self, kept: Kept) -> None:
        blob_id = BlobId(f"1_1_{uuid4()}")
        await kept.store.keep(blob_id, b"the first and longer one")
        await kept.store.keep(blob_id, b"the second")
        assert await kept.store.get(blob_id) == b"the second"

    @pytest.mark.parametrize(("offset", "length"), [(0, 3), (4, 5), (8, 9), (10, 1), (99, 7)])
    async def test_some_of_the_bytes_are_read_as_far_as_they_go(self, kept: Kept, offset: int, length: int) -> None:
        content = b"0123456789"
        for blob_id in (BlobId(f"1_1_{uuid4()}"), BlobId(f"1_1_a//{uuid4()}")):
            await kept.store.keep(blob_id, content)
            assert await kept.store.part(blob_id, offset, length) == content[offset : offset + length]

    async def test_a_part_of_what_never_was_is_missing(self, kept: Kept) -> None:
        with pytest.raises(BlobMissing, match="is missing"):
            await kept.store.part(BlobId(f"1_1_{uuid4()}"), 0, 5)

    async def test_a_packed_mail_is_read_from_its_chunk(self, kept: Kept) -> None:
        chunk = BlobId(f"1_600_chunk{uuid4().hex}")
        contents = [b"Subject: one\r\n\r\n", b"", b"Hello.\r\n" * 500]
        written, references = packed(contents, chunk)
        with pytest.raises(BlobMissing, match=f"{chunk} is missing"):
            await kept.blobs().get(references[0])
        assert not await kept.blobs().exists(references[0])

        await kept.store.keep(chunk, written)

        assert [await kept.blobs().get(reference) for reference in references] == contents
        assert await kept.blobs().exists(references[0])
        await kept.blobs().delete_all(references)
        assert await kept.store.get(chunk) == written

    async def test_a_put_that_is_cancelled_leaves_nothing(self, kept: Kept, blobs: NamedBlobs) -> None:
        before = set(await listed(kept.store))
        for turns in range(4):
            putting = asyncio.create_task(blobs.put(b"x" * 1000, BODY))
            for _ in range(turns):
                await asyncio.sleep(0)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
        assert set(await listed(kept.store)) == before


class TestIds:
    """Ids of every form that James makes are kept apart; what is no id is refused before anything is asked."""

    @pytest.mark.parametrize("text", [text for text in (*RANDOM_IDS, *SHARED_IDS) if not text.endswith("/")])
    async def test_every_form_is_kept_and_listed_under_its_own_name(self, kept: Kept, text: str) -> None:
        """Slashes, two of them, plus and equals signs; what a listing shows is what was put."""
        blob_id = BlobId(text)
        await kept.store.keep(blob_id, text.encode())
        assert await kept.store.get(blob_id) == text.encode()
        assert await kept.store.exists(blob_id)
        if kept.exact or "//" not in text:
            assert (await listed(kept.store))[blob_id].size_bytes == len(text)
        await kept.store.remove(blob_id)
        assert not await kept.store.exists(blob_id)

    async def test_forms_are_not_taken_for_each_other(self, kept: Kept) -> None:
        texts = [text for text in (*RANDOM_IDS, *SHARED_IDS) if kept.exact or ("//" not in text and text[-1] != "/")]
        for text in texts:
            await kept.store.keep(BlobId(text), text.encode())
        for text in texts:
            assert await kept.store.get(BlobId(text)) == text.encode()
        assert set(texts) <= set(await listed(kept.store))

    async def test_all_that_james_wrote_is_kept_under_its_ids(self, kept: Kept) -> None:
        async with asyncio.TaskGroup() as group:
            for blob_id, content in james_blobs().items():
                group.create_task(kept.store.keep(blob_id, content))
        for blob_id, content in james_blobs().items():
            assert await kept.blobs().get(blob_id) == content
        sizes = {blob_id: blob.size_bytes for blob_id, blob in (await listed(kept.store)).items()}
        assert {blob_id: sizes[blob_id] for blob_id in james_blobs()} == {
            blob_id: len(content) for blob_id, content in james_blobs().items()
        }

    @pytest.mark.parametrize("text", BAD_IDS)
    async def test_what_is_no_id_is_refused(self, blobs: NamedBlobs, text: str) -> None:
        bad = BlobId(text)
        for asked in (blobs.get, blobs.exists, blobs.delete):
            with pytest.raises(BadPayload, match="is not the id of a blob"):
                await asked(bad)


class TestNaming:
    """What `put` makes ids of."""

    async def test_random_ids_differ_for_the_same_bytes(self, blobs: NamedBlobs) -> None:
        one, other = await blobs.put(b"same", BODY), await blobs.put(b"same", BODY)
        assert one != other
        assert not is_deduplicated(one)
        await blobs.delete(one)
        assert await blobs.get(other) == b"same"

    async def test_the_same_bytes_have_one_id_which_no_mail_deletes(self, kept: Kept) -> None:
        """Others may refer to it; only what knows every reference removes it, and then it can be put again."""
        blobs, content = kept.blobs(BlobsMode.DEDUPLICATED), uuid4().bytes
        blob_id = await blobs.put(content, BODY)
        assert await blobs.put(content, BlobKind.HEADER) == blob_id
        await blobs.delete(blob_id)
        assert await blobs.get(blob_id) == content
        await blobs.store.remove(blob_id)
        assert await missing(blobs, blob_id)
        assert await blobs.put(content, BODY) == blob_id
        assert await blobs.get(blob_id) == content

    async def test_the_same_bytes_at_once_are_kept_once(self, kept: Kept) -> None:
        blobs, content = kept.blobs(BlobsMode.DEDUPLICATED), uuid4().bytes * 1000
        ids = set(await asyncio.gather(*(blobs.put(content, BODY) for _ in range(16))))
        [blob_id] = ids
        assert await blobs.get(blob_id) == content
        assert (await listed(kept.store))[blob_id].size_bytes == len(content)

    async def test_ids_made_of_bytes_are_those_of_james(self, kept: Kept) -> None:
        """A James that reads the row finds the blob, and does not keep the same bytes under another name."""
        [blob_id, content] = next(iter(james_blobs().items()))
        blobs = NamedBlobs(kept.store, CLOCK, BlobNaming(BlobsMode.DEDUPLICATED, HashSpelling.BASE64))
        made = await blobs.put(content, BODY)
        assert made.split("_", 2)[2] == blob_id.split("_", 2)[2]


class TestListing:
    """A scan shows what is there: each blob once, its size, when it was put."""

    async def test_more_than_a_page_is_listed(self, kept: Kept, blobs: NamedBlobs) -> None:
        began = datetime.now(UTC)
        ids = await asyncio.gather(*(blobs.put(b"x" * size, BODY) for size in range(40)))
        found = await listed(kept.store)
        assert [found[blob_id].size_bytes for blob_id in ids] == list(range(40))
        if kept.store.__class__ is not S3Bucket or not kept.exact:  # the small server has one time for all
            slack = timedelta(seconds=2)  # listings of S3 know no more than seconds
            assert all(abs(found[blob_id].stored_at - began) < slack + (datetime.now(UTC) - began) for blob_id in ids)
        await asyncio.gather(*(blobs.delete(blob_id) for blob_id in ids))
        assert not set(ids) & set(await listed(kept.store))

    async def test_a_hundred_at_once_are_all_kept(self, blobs: NamedBlobs) -> None:
        contents = [sha256(str(number).encode()).digest() for number in range(100)]
        ids = await asyncio.gather(*(blobs.put(content, BODY) for content in contents))
        assert await asyncio.gather(*map(blobs.get, ids)) == contents


def test_an_id_of_a_uuid_alone_is_ones_own() -> None:
    assert not is_deduplicated(BlobId(UUID_TEXT))
