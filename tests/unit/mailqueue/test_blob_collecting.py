"""The collection of blobs: what goes, in which order, and that writers and deaths may come in between anywhere."""

import base64
import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.blobs.cassandra import CassandraStore
from mailmend.mailqueue.collection.collecting import (
    GROUP,
    BlobCollection,
    CollectableStore,
    ListedStore,
    RemovedList,
    Removing,
    TablesStore,
)
from mailmend.mailqueue.collection.references import KnownReferences, Reference, ReferenceSource
from mailmend.mailqueue.collection.scan import LocalBlobScanner
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, BlobVerdict, CollectionRule, ListedBlob
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.errors import BlobsUnreachable, LeaseLost, SourceUnread
from mailmend.model.ids import BlobId
from mailmend.model.instants import instant_of
from mailmend.model.operations import Remove, Scan
from mailmend.model.ports import Silent
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.memory_blobs import MemoryStore
from tests.support.stored_forms import CHUNK, packed

DAY = timedelta(days=1)
MONTH_SECONDS = 30 * 86400
RANDOM = "4c1e8a44-3c1b-4d0b-9f0e-6a3f2a1b0c"


def of_content(content: str) -> BlobId:
    """An id as James made them before generations: it may come again at any time."""
    return BlobId(base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode())


def numbered(number: int) -> BlobId:
    return BlobId(f"1_1_{RANDOM}{number:02x}") if number < 256 else BlobId(f"1_1_{RANDOM[:-4]}{number:06x}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A source that does something each time that it is read."""

    now: Callable[[], Sequence[Reference]]
    name: str = "rows"

    def references(self) -> Iterator[Reference]:
        return iter(self.now())


@dataclass(slots=True)
class Scene:
    """A store, and what refers to its blobs."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    referred: list[Reference] = field(default_factory=list)
    sources: list[ReferenceSource] = field(default_factory=list)
    objects: MemoryStore = field(init=False)
    tables: MemoryTables = field(init=False)

    def __post_init__(self) -> None:
        self.objects, self.tables = MemoryStore(self.clock), MemoryTables(self.clock.micros)

    async def stored(self, *ids: BlobId) -> None:
        for one in ids:
            await self.objects.keep(one, b"bytes")
        for one in ids[:9]:
            await CassandraStore(InTurn(self.tables), self.clock).keep(one, b"bytes")

    def collection(self, store: CollectableStore | None = None, **changed: Any) -> BlobCollection:
        async def sources() -> Sequence[ReferenceSource]:
            return [*self.sources, KnownReferences("known", self.referred)]

        given = {
            "store": store or ListedStore(self.objects),
            "scanner": LocalBlobScanner(self.tables),
            "sources": sources,
            "rule": CollectionRule(instant_of(self.clock.micros())),
            "clock": self.clock,
            "progress": Silent(),
            "delay_seconds": 60.0,
            **changed,
        }
        return BlobCollection(**given)


@pytest.fixture
def removing(tmp_path: Path) -> Removing:
    return Removing(RemovedList(tmp_path / "went"), lambda: None)


def went(removing: Removing) -> set[str]:
    path = removing.removed.path
    return {json.loads(line)["blob_id"] for line in path.read_text().splitlines()} if path.exists() else set()


@pytest.mark.parametrize("ids_max", [0, 3 * GROUP])
async def test_more_than_one_group_goes_and_each_is_on_the_list(ids_max: int, removing: Removing) -> None:
    scene, ids = Scene(), [numbered(one) for one in range(300, 300 + 2 * GROUP + 7)]
    await scene.stored(*ids)
    scene.clock.advance(MONTH_SECONDS)
    scanner = LocalBlobScanner(scene.tables, part_bytes_max=1_000, ids_max=ids_max)

    found = await scene.collection(scanner=scanner).run(removing)

    assert (found.removed, scene.objects.ids, went(removing)) == (len(ids), set(), set(ids))


@pytest.mark.parametrize("ids_max", [0, 9])
@pytest.mark.parametrize("looks", [1, 2])
async def test_what_is_referred_to_at_either_look_stays(looks: int, ids_max: int, removing: Removing) -> None:
    scene, one = Scene(), numbered(1)
    reads = iter(range(1, 9))
    scene.sources = [Asked(lambda: [Reference(one, "row")] if next(reads) == looks else [])]
    await scene.stored(one)
    scene.clock.advance(MONTH_SECONDS)

    found = await scene.collection(scanner=LocalBlobScanner(scene.tables, ids_max=ids_max)).run(removing)

    assert scene.objects.ids == {one}
    assert +found.verdicts == {BlobVerdict.KEEP: 1}


@pytest.mark.parametrize("ids_max", [0, 9])
async def test_a_reference_to_a_slot_keeps_its_chunk_and_misses_nothing(ids_max: int, removing: Removing) -> None:
    scene = Scene()
    chunk, references = packed([b"header", b"body"])
    await scene.objects.keep(CHUNK, chunk)
    await scene.stored(numbered(1))
    scene.referred = [Reference(slot, "row", needed=True) for slot in references]
    scene.clock.advance(MONTH_SECONDS)

    found = await scene.collection(scanner=LocalBlobScanner(scene.tables, ids_max=ids_max)).run(removing)

    assert scene.objects.ids == {CHUNK}
    assert +found.verdicts == {BlobVerdict.KEEP: 1, BlobVerdict.COLLECT: 1}


@pytest.mark.parametrize("ids_max", [0, 9])
async def test_a_chunk_that_is_gone_is_missing_once_for_all_its_slots(ids_max: int) -> None:
    scene = Scene()
    _, references = packed([b"header", b"body"])
    scene.referred = [Reference(slot, f"row {number}", needed=True) for number, slot in enumerate(references)]

    found = await scene.collection(scanner=LocalBlobScanner(scene.tables, ids_max=ids_max)).run()

    assert +found.verdicts == {BlobVerdict.MISSING: 1}
    assert [(blob.blob_id, blob.referrer) for blob in found.missing] == [(CHUNK, "row 0"), (CHUNK, "row 1")]


async def test_a_chunk_that_nothing_refers_to_is_left_to_the_compaction(removing: Removing) -> None:
    scene = Scene()
    await scene.objects.keep(CHUNK, packed([b"body"])[0])
    scene.clock.advance(MONTH_SECONDS)

    found = await scene.collection().run(removing)

    assert scene.objects.ids == {CHUNK}
    assert (found.verdicts[BlobVerdict.PACKED], found.examples[BlobVerdict.PACKED]) == (1, [CHUNK])


@pytest.mark.parametrize("looks", [1, 2])
async def test_a_source_that_cannot_be_read_whole_stops_all(looks: int, removing: Removing) -> None:
    scene, reads = Scene(), iter(range(1, 9))

    def read() -> list[Reference]:
        if next(reads) == looks:
            raise SourceUnread("rows", "the disk is gone")
        return []

    scene.sources = [Asked(read)]
    await scene.stored(numbered(1))
    scene.clock.advance(MONTH_SECONDS)

    with pytest.raises(SourceUnread, match="nothing was removed"):
        await scene.collection().run(removing)
    assert scene.objects.ids == {numbered(1)}
    assert not went(removing)


@pytest.mark.parametrize("in_tables", [False, True])
async def test_bytes_that_are_stored_again_before_they_go_stay(in_tables: bool, removing: Removing) -> None:
    """An id of bytes alone: somebody stores the same bytes while the second look is under way, and then refers."""
    scene, one = Scene(), of_content("mail")
    await scene.stored(one)
    scene.clock.advance(3 * MONTH_SECONDS)
    store = _StoredAgain(
        scene, one, TablesStore(CassandraStore(InTurn(scene.tables), scene.clock)) if in_tables else None
    )

    await scene.collection(store).run(removing)

    assert await store.is_whole(one)


@dataclass(slots=True)
class _StoredAgain:
    """A store into which a writer puts a blob just before it is to go."""

    scene: Scene
    blob_id: BlobId
    tables: TablesStore | None

    @property
    def beneath(self) -> CollectableStore:
        return self.tables or ListedStore(self.scene.objects)

    async def listing(self, path: Path, progress: Any) -> Any:
        return await self.beneath.listing(path, progress)

    async def stored_at(self, blob_id: BlobId) -> Any:
        return await self.beneath.stored_at(blob_id)

    async def is_whole(self, blob_id: BlobId) -> bool:
        return await self.beneath.is_whole(blob_id)

    async def remove(self, blobs: Sequence[ListedBlob], rule: CollectionRule) -> int:
        await self.scene.stored(self.blob_id)
        return await self.beneath.remove(blobs, rule)


async def test_a_listing_that_leaves_blobs_out_removes_nothing(removing: Removing) -> None:
    """Nor does a plan of it name anything."""
    scene, left_out, free, plan = Scene(), numbered(1), numbered(2), list[ListedBlob]()
    scene.referred = [Reference(left_out, "row", needed=True)]
    await scene.stored(left_out, free)
    scene.clock.advance(MONTH_SECONDS)
    scene.objects.surround = lambda call, carry_out: (
        [pair for pair in carry_out() if pair[1].blob_id != left_out] if call.blob_id is None else carry_out()
    )

    found = await scene.collection().run(removing)

    assert scene.objects.ids == {left_out, free}
    assert "left out 1 blobs" in found.failed[0]
    assert not found.missing
    await scene.collection(on_planned=plan.append).run()
    assert not plan


@pytest.mark.parametrize("strike", ["list", "lease", "remove"])
async def test_a_death_leaves_nothing_gone_that_is_not_listed(strike: str, removing: Removing) -> None:
    """And the next run takes the rest."""
    scene, ids = Scene(), {numbered(one) for one in range(5)}
    await scene.stored(*ids)
    scene.clock.advance(MONTH_SECONDS)
    deleted = iter(range(99))

    def surround(call: Any, carry_out: Callable[[], Any]) -> Any:
        if strike == "remove" and call.verb.value == "delete" and next(deleted) == 2:
            raise BlobsUnreachable("the store is gone")
        return carry_out()

    def lost() -> None:
        raise LeaseLost("the lease is another's")

    scene.objects.surround = surround
    if strike == "lease":
        with pytest.raises(LeaseLost):
            await scene.collection().run(Removing(removing.removed, lost))
        assert scene.objects.ids == ids
    else:
        found = await scene.collection().run(removing)
        assert bool(found.failed) is (strike == "remove")
    assert ids - scene.objects.ids <= went(removing)

    scene.objects.surround = lambda _, carry_out: carry_out()
    found = await scene.collection().run(removing)
    assert (scene.objects.ids, found.failed) == (set(), [])


class TestTables:
    """Blobs in James's tables: parts and the row that counts them."""

    @pytest.mark.parametrize("lacks", ["count", "part"])
    async def test_a_blob_that_lacks_a_part_is_missing(self, lacks: str) -> None:
        scene, one = Scene(), numbered(1)
        await scene.stored(one)
        scene.tables.write(Remove(BLOBS if lacks == "count" else BLOB_PARTS, (one,)))
        scene.referred = [Reference(one, "row", needed=True)]

        found = await scene.collection(TablesStore(CassandraStore(InTurn(scene.tables), scene.clock))).run()

        assert [(one.blob_id, one.referrer) for one in found.missing] == [(one, "row")]

    @pytest.mark.parametrize("planned", [False, True])
    async def test_what_a_crash_left_of_a_blob_goes_too(self, removing: Removing, *, planned: bool) -> None:
        scene, one, plan = Scene(), numbered(1), list[ListedBlob]()
        await scene.stored(one)
        scene.tables.write(Remove(BLOBS, (one,)))
        scene.clock.advance(MONTH_SECONDS)
        store, on_planned = TablesStore(CassandraStore(InTurn(scene.tables), scene.clock)), plan.append
        collection = scene.collection(store, on_planned=on_planned if planned else None)

        await collection.run(None if planned else removing)
        if planned:
            await collection.apply(iter(plan), removing)

        assert not list(scene.tables.scan(Scan(BLOB_PARTS, ("id",))))


def driven(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that only gives others their turn, in whatever thread."""
    with suppress(StopIteration):
        while True:
            work.send(None)


@dataclass(slots=True)
class World:
    """Writers who store, refer and forget; time passes, and nobody waits for an hour before he refers."""

    scene: Scene
    naming: BlobNaming
    choices: Iterator[int]
    pending: list[BlobId] = field(default_factory=list)

    def live(self) -> None:
        """Some steps of others."""
        for _ in range(self._pick(4)):
            self._step(("store", "refer", "forget", "wait", "long")[self._pick(5)])

    def _pick(self, among: int) -> int:
        return next(self.choices, 0) % among

    def _step(self, step: str) -> None:
        referred, clock = self.scene.referred, self.scene.clock
        match step:
            case "store":
                content = "abc"[self._pick(3)]
                one = self.naming.name(content.encode(), clock.micros(), clock.random_uuid())
                self.pending.append(BlobId(one))
                driven(self.scene.objects.keep(BlobId(one), b"bytes"))
            case "refer" if self.pending:
                referred.append(Reference(self.pending.pop(), "row", needed=True))
            case "forget" if referred:
                referred.pop(self._pick(len(referred)))
            case "wait":
                clock.advance(60)
            case "long":
                referred += [Reference(one, "row", needed=True) for one in self.pending]
                self.pending.clear()
                clock.advance((3600, 86400, MONTH_SECONDS, 2 * MONTH_SECONDS)[self._pick(4)])
            case _:
                pass  # nothing to refer to, or to forget


@given(choices=st.lists(st.integers(0, 59), max_size=80), mode=st.sampled_from(BlobsMode), planned=st.booleans())
async def test_no_writer_loses_a_blob_that_it_refers_to(
    choices: list[int], mode: BlobsMode, tmp_path_factory: pytest.TempPathFactory, *, planned: bool
) -> None:
    """A plan of it may be applied months later, and once more."""
    scene = Scene()
    world = World(scene, BlobNaming(mode), iter(choices))
    removing = Removing(RemovedList(tmp_path_factory.mktemp("c") / "went"), world.live)

    def rows() -> list[Reference]:
        world.live()
        found = list(scene.referred)
        world.live()
        return found

    scene.sources = [Asked(rows)]
    for _ in range(3):
        world.live()
        rule = CollectionRule(instant_of(scene.clock.micros()))

        async def sources() -> Sequence[ReferenceSource]:
            return scene.sources

        if planned:
            plan = list[ListedBlob]()
            await scene.collection(rule=rule, sources=sources, on_planned=plan.append).run()
            world.live()
            await scene.collection(rule=rule, sources=sources).apply(iter(plan), removing)
            world.live()
            await scene.collection(rule=rule, sources=sources).apply(iter(plan), removing)
        else:
            await scene.collection(rule=rule, sources=sources).run(removing)
        assert {one.blob_id for one in scene.referred} <= scene.objects.ids
        assert set(world.pending) <= scene.objects.ids
