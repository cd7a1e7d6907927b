"""The collection of blobs that nothing refers to, and the search for those that are referred to and missing.

The store is listed, then every reference is read. After the delay the references are read again for the blobs that
nothing referred to. Only those that still have no reference are removed, as far as the rules of age in
`mailqueue.rules.blob_ids` allow. Each is on a list on the disk before it is removed. A process may end after any
step; the next run begins again with what is still there.

A writer refers to a blob soon after storing it, or never: blobs younger than a day stay. Storing the same bytes again
gives the same id only within one generation, and blobs of the present and the last generation stay. An id of bytes
without a generation may be stored again at any moment: its age is read right before it is removed, and the tables of
Cassandra remove only what is older than that.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

from mailmend.mailqueue.blobs.cassandra import CassandraStore
from mailmend.mailqueue.collection.references import ReferenceSource
from mailmend.mailqueue.collection.scan import BlobLines, BlobLook, BlobScanner, Wanted
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rules.blob_ids import BlobVerdict, CollectionRule, ListedBlob, MissingBlob
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.blobs import BlobStore
from mailmend.model.errors import MailmendError, StateUnwritable
from mailmend.model.ids import BlobId
from mailmend.model.ports import Clock, Progress
from mailmend.model.waiting import pause_visibly
from mailmend.repair.joins.records import Workshop
from mailmend.repair.synced_files import append_synced, make_own_folder

T = TypeVar("T")

GROUP: Final = 1_000
"""How many blobs are removed together: the number that one request of S3 deletes."""

ASKED_AT_ONCE: Final = 32
EXAMPLES: Final = 20
_PAGE: Final = 1_000
_LOG: Final = logging.getLogger("mailmend.queue")


class CollectableStore(Protocol):
    """A store of blobs as a collection uses it. Adapters: `ListedStore`, `TablesStore`."""

    async def listing(self, path: Path, progress: Progress) -> BlobLines | None:
        """Write every blob to the file at `path`; None where they are in tables, which the scanner reads itself."""
        ...

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        """When it was stored last; None where it is not there."""
        ...

    async def is_whole(self, blob_id: BlobId) -> bool: ...

    async def remove(self, blobs: Sequence[ListedBlob], rule: CollectionRule) -> int:
        """Remove the blobs, except those stored again since; return how many went. After an error some may be left."""
        ...


@dataclass(frozen=True, slots=True)
class ListedStore:
    """A store that lists its blobs: S3, files."""

    store: BlobStore

    async def listing(self, path: Path, progress: Progress) -> BlobLines:
        progress.stage("list blobs")
        lines = BlobLines(path)
        async for blob in self.store.scan():
            lines.add_blob(ListedBlob(blob.blob_id, blob.stored_at, blob.size_bytes))
            if lines.count % _PAGE == 0:
                progress.advance(_PAGE)
        lines.close()
        return lines

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        return await self.store.stored_at(blob_id)

    async def is_whole(self, blob_id: BlobId) -> bool:
        return await self.store.exists(blob_id)

    async def remove(self, blobs: Sequence[ListedBlob], rule: CollectionRule) -> int:
        """Remove the blobs; those that a writer may have stored again are looked at once more right before.

        A request to remove has no condition, so a blob that is stored between the look and the request goes too.
        """
        again = [blob.blob_id for blob in blobs if rule.may_come_again(blob)]
        times = await all_of(again, self.store.stored_at, ASKED_AT_ONCE)
        young = set()
        for blob_id, at in zip(again, times, strict=True):
            if at is None or at >= rule.stored_before:
                young.add(blob_id)
        old = [blob.blob_id for blob in blobs if blob.blob_id not in young]
        await self.store.remove_all(old)
        return len(old)


@dataclass(frozen=True, slots=True)
class TablesStore:
    """The blob tables of the keyspace. A removal there carries a timestamp, so whatever was written after it stays."""

    store: CassandraStore

    async def listing(self, path: Path, progress: Progress) -> None:  # noqa: ARG002 - the scanner reads the tables
        return None

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        return await self.store.stored_at(blob_id)

    async def is_whole(self, blob_id: BlobId) -> bool:
        return await self.store.is_whole(blob_id)

    async def remove(self, blobs: Sequence[ListedBlob], rule: CollectionRule) -> int:
        as_of = (rule.stored_before - EPOCH) // timedelta(microseconds=1)
        await self.store.remove_all([blob.blob_id for blob in blobs], as_of)
        return len(blobs)


class RemovedList:
    """A list of removed blobs, in a file that only its owner may read.

    Each blob is a line of JSON, on the disk before the blob goes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, blobs: Iterable[ListedBlob]) -> None:
        texts = [json.dumps(_removed_line(blob)) + "\n" for blob in blobs]
        lines = "".join(texts)
        try:
            make_own_folder(self.path.parent)
            append_synced(self.path, lines.encode())
        except OSError as error:
            raise StateUnwritable(
                f"{self.path} cannot be written: {error.strerror or error}; the blobs were left",
                mend="Make room, or name another file with --removed.",
            ) from error


def _removed_line(blob: ListedBlob) -> dict[str, object]:
    stored_at = blob.stored_at and blob.stored_at.isoformat()
    return {"blob_id": blob.blob_id, "stored_at": stored_at, "size_bytes": blob.size_bytes}


@dataclass(frozen=True, slots=True)
class Removing:
    """What a collection that removes needs: the list of what goes, and a check that it may still go on."""

    removed: RemovedList
    may_go_on: Callable[[], None]


@dataclass(slots=True)
class CollectedBlobs:
    """What was found, and what was done.

    Attributes:
        listed, bytes: how many blobs were listed, and their bytes; None where the store does not tell sizes.
        references: how many each source held.
        verdicts: how many blobs have each verdict; COLLECT and MISSING only where both looks agree.
        collect_bytes: the bytes of the blobs to collect; None where the store does not tell sizes.
        examples: some ids by verdict, of blobs that are not known or too young.
        missing: some of the missing blobs, each with what refers to it.
        removed: how many were removed.
        moved: how many were left after all: they were stored again, or something refers to what a plan names.
        failed: what could not be done, in sentences.
    """

    listed: int = 0
    bytes: int | None = None
    references: Mapping[str, int] = field(default_factory=dict)
    verdicts: Counter[BlobVerdict] = field(default_factory=Counter)
    collect_bytes: int | None = None
    examples: dict[BlobVerdict, list[BlobId]] = field(default_factory=dict)
    missing: list[MissingBlob] = field(default_factory=list)
    last_missing: BlobId | None = None
    removed: int = 0
    moved: int = 0
    failed: list[str] = field(default_factory=list)

    def judge(self, blob: ListedBlob, verdict: BlobVerdict) -> None:
        self.verdicts[verdict] += 1
        some = self.examples.setdefault(verdict, [])
        if len(some) < EXAMPLES:
            some.append(blob.blob_id)


Sources = Callable[[], Awaitable[Sequence[ReferenceSource]]]


@dataclass(frozen=True, slots=True)
class BlobCollection:
    """Collects the blobs of one store.

    Attributes:
        sources: opens every source of references, for each look anew.
        on_missing: receives every blob that is missing, once for each that refers to it.
        on_planned: receives every blob that would go, with its age, where nothing is removed; None: no plan is made.
    """

    store: CollectableStore
    scanner: BlobScanner
    sources: Sources
    rule: CollectionRule
    clock: Clock
    progress: Progress
    delay_seconds: float
    on_missing: Callable[[MissingBlob], None] = lambda _: None
    on_planned: Callable[[ListedBlob], None] | None = None

    async def run(self, removing: Removing | None = None) -> CollectedBlobs:
        """Look, wait, look again; remove, unless that is None."""
        with Workshop() as workshop:
            found = CollectedBlobs()
            listing = await self.store.listing(workshop.path / "listing", self.progress)
            sources = await self.sources()
            look = await self._looked(lambda: self.scanner.first(listing, sources, self.progress))
            try:
                wanted = await self._judged(look, workshop.path, found)
            finally:
                look.close()
            if not (wanted.candidates.count or wanted.missing.count):
                return found
            what = "waiting before the second look at blobs"
            await pause_visibly(self.clock, self.progress, what, self.delay_seconds)
            await self._looked_again(wanted, found, removing)
            found.verdicts[BlobVerdict.KEEP] += wanted.candidates.count - found.verdicts[BlobVerdict.COLLECT]
            return found

    async def apply(self, planned: Iterator[ListedBlob], removing: Removing | None = None) -> CollectedBlobs:
        """Remove what a plan names, if nothing refers to it now either and it is still what was planned.

        The plan is the first look: its blobs were found twice, and long ago.
        """
        with Workshop() as workshop:
            found = CollectedBlobs()
            wanted = Wanted(BlobLines(workshop.path / "candidates"), BlobLines(workshop.path / "missing"))
            self.progress.stage("ask the store")
            while some := await asyncio.to_thread(_next, planned):
                found.listed += len(some)
                times = await all_of([blob.blob_id for blob in some], self.store.stored_at, ASKED_AT_ONCE)
                for blob, stored_at in zip(some, times, strict=True):
                    if stored_at is not None and self.rule.is_as_planned(blob, stored_at):
                        wanted.candidates.add_blob(blob)
                    found.moved += stored_at is not None
            wanted.candidates.close()
            wanted.missing.close()
            if wanted.candidates.count:
                await self._looked_again(wanted, found, removing)
            found.moved -= found.verdicts[BlobVerdict.COLLECT]
            return found

    async def _looked_again(self, wanted: Wanted, found: CollectedBlobs, removing: Removing | None) -> None:
        sources = await self.sources()
        look = await self._looked(lambda: self.scanner.second(wanted, sources, self.progress))
        try:
            found.references = found.references or dict(look.references)
            await self._missing(look, found)
            await self._collected(look, found, removing)
        finally:
            look.close()

    async def _looked(self, look: Callable[[], BlobLook]) -> BlobLook:
        try:
            return await asyncio.to_thread(look)
        except asyncio.CancelledError:
            self.scanner.interrupt()
            raise

    async def _judged(self, look: BlobLook, folder: Path, found: CollectedBlobs) -> Wanted:
        """Keep on disk what the second look is about."""
        found.listed = look.listed
        found.bytes = look.bytes
        found.references = dict(look.references)
        wanted = Wanted(BlobLines(folder / "candidates"), BlobLines(folder / "missing"))
        unreferenced = look.unreferenced()
        count = 0
        while some := await asyncio.to_thread(_next, unreferenced):
            count += len(some)
            for blob in await self._dated(some):
                verdict = self.rule.verdict(blob)
                if verdict is BlobVerdict.COLLECT:
                    wanted.candidates.add_blob(blob)
                else:
                    found.judge(blob, verdict)
        found.verdicts[BlobVerdict.KEEP] = look.listed - count
        for blob_id in look.missing_ids():
            wanted.missing.add(blob_id)
        wanted.candidates.close()
        wanted.missing.close()
        return wanted

    async def _dated(self, blobs: list[ListedBlob]) -> list[ListedBlob]:
        """Ask the store for the age of those whose age decides, where the listing did not say."""
        asked = [blob.blob_id for blob in blobs if self.rule.depends_on_age(blob)]
        times = dict(zip(asked, await all_of(asked, self.store.stored_at, ASKED_AT_ONCE), strict=True))
        return [blob._replace(stored_at=times.get(blob.blob_id, blob.stored_at)) for blob in blobs]

    async def _missing(self, look: BlobLook, found: CollectedBlobs) -> None:
        """Ask the store itself for what is not in its listing: one that lies is not gone by."""
        left_out = 0
        missing = look.missing()
        while some := await asyncio.to_thread(_next, missing):
            ids = list(dict.fromkeys(blob.blob_id for blob in some))
            there = dict(zip(ids, await all_of(ids, self._since_when, ASKED_AT_ONCE), strict=True))
            for at in there.values():
                if at is not None and at < self.rule.now:
                    left_out += 1
            for blob in some:
                if there[blob.blob_id] is None:
                    self._note_missing(blob, found)
        if left_out:
            found.failed.append(
                f"the listing left out {left_out:,} blobs that are there, so it was not whole: nothing was removed"
            )

    def _note_missing(self, one: MissingBlob, found: CollectedBlobs) -> None:
        self.on_missing(one)
        found.verdicts[BlobVerdict.MISSING] += found.last_missing != one.blob_id
        found.last_missing = one.blob_id
        if len(found.missing) < EXAMPLES:
            found.missing.append(one)

    async def _since_when(self, blob_id: BlobId) -> datetime | None:
        """When it was stored; None where it is not there, or not whole."""
        if not await self.store.is_whole(blob_id):
            return None
        return await self.store.stored_at(blob_id)

    async def _collected(self, look: BlobLook, found: CollectedBlobs, removing: Removing | None) -> None:
        """What nothing refers to at this look either: count it, or remove it."""
        if removing and not found.failed:
            self.progress.stage("remove")
        else:
            self.progress.stage("count")
        candidates = look.unreferenced()
        while some := await asyncio.to_thread(_next, candidates):
            found.verdicts[BlobVerdict.COLLECT] += len(some)
            sizes = [blob.size_bytes for blob in some if blob.size_bytes is not None]
            if sizes:
                found.collect_bytes = (found.collect_bytes or 0) + sum(sizes)
            if removing and not found.failed:
                await self._removed(some, found, removing)
            if self.on_planned and not found.failed:
                for blob in await self._aged(some):
                    self.on_planned(blob)
            self.progress.advance(len(some))

    async def _aged(self, blobs: Sequence[ListedBlob]) -> list[ListedBlob]:
        """Those that are there, with when they were stored, where neither listing nor id needed to say."""
        unknown = [blob.blob_id for blob in blobs if blob.stored_at is None]
        times = dict(zip(unknown, await all_of(unknown, self.store.stored_at, ASKED_AT_ONCE), strict=True))
        aged = []
        for blob in blobs:
            stored_at = times.get(blob.blob_id, blob.stored_at)
            if stored_at is not None:
                aged.append(blob._replace(stored_at=stored_at))
        return aged

    async def _removed(self, some: list[ListedBlob], found: CollectedBlobs, removing: Removing) -> None:
        await asyncio.to_thread(removing.may_go_on)
        await asyncio.to_thread(removing.removed.add, some)
        try:
            removed = await self.store.remove(some, self.rule)
            found.removed += removed
            found.moved += len(some) - removed
            _LOG.info("a batch of blobs was removed", extra={"blobs": removed})
        except MailmendError as error:
            found.failed.append(f"up to {len(some):,} blobs could not be removed: {error}")


def _next(items: Iterator[T]) -> list[T]:
    return list(islice(items, GROUP))
