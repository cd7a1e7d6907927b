"""Compare the broker, the tables and the blobs of a queue, without stopping traffic; and mend what is asked for."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from admin.services.caller import Caller
from admin.services.queue.removed_mails import RemovedMailsFile, removed_mails_path
from admin.services.queue.request import DryRunRequest, confirm
from admin.wiring.cluster import state_folder
from admin.wiring.queues import QueueConnections, with_queues
from mailqueue.blobs.files import FileStore
from mailqueue.maintenance.comparison import (
    DRAIN_MAX,
    IDS_MAX,
    BlobsSide,
    Drained,
    Mended,
    QueueFinding,
    Reconciled,
    TablesSide,
    compared,
    left_after,
    refuse_drain,
    why_unsure,
)
from mailqueue.maintenance.reconcile import (
    blobs_stored_before,
    drained,
    missing_among,
    tables_side,
    with_lookups,
    without_references,
)
from mailqueue.maintenance.reconcile_mend import Keeping, MendRequest, would_mend
from model.errors import BadPayload, BlobMissing, ExitCode, WrongUse
from model.ids import BlobId, EnqueueId, QueueName
from model.queue.mails import Listed
from model.queue.messages import Depth, StoredBlob
from model.schema.table import Row

_BLOB_COLUMNS: Final = ("headerblobid", "bodyblobid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileRequest(DryRunRequest):
    """Compare the sides of one queue."""

    drain: bool = False
    force: bool = False
    republish: bool = False
    older_than: timedelta = timedelta(hours=1)
    mark: tuple[UUID, ...] = ()
    remove_orphan_blobs: bool = False
    min_age: timedelta = timedelta(hours=1)
    no_blobs: bool = False
    ids_max: int = IDS_MAX
    yes: bool = False

    @property
    def mending(self) -> MendRequest:
        return MendRequest(
            self.republish, self.older_than, frozenset(map(EnqueueId, self.mark)), self.remove_orphan_blobs
        )


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """What was found and what was mended (or would be, in a dry run).

    Attributes:
        left: how many findings of each kind are left.
        kept: files and folders with what was removed.
        without_content: how many mails were kept without their bytes, which are missing.
    """

    request: ReconcileRequest
    found: Reconciled
    mended: Mended
    left: Mapping[QueueFinding, int]
    kept: tuple[Path, ...] = ()
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        if self.mended.failed:
            return ExitCode.PARTLY_FAILED
        return ExitCode.DRIFT if self.left else ExitCode.FINE


def reconcile(request: ReconcileRequest, caller: Caller) -> ReconcileResult:
    """Compare the sides, then mend; a dry run only says what would be mended.

    Raises:
        WrongUse: options that contradict each other.
        UnsafeRequest: no person agreed, or a guard refused.
    """
    if request.remove_orphan_blobs and request.no_blobs:
        raise WrongUse("--remove-orphan-blobs needs the blobs", mend="Leave --no-blobs out.")
    if request.force and not request.drain:
        raise WrongUse("--force is for --drain", mend="Say both, or neither.")
    if request.drain:
        which = "every queue" if request.remove_orphan_blobs else request.queue
        question = f"Take every message of {which} unacked for a moment? Consumers must be paused."
        confirm(question, caller, yes=request.yes)
    if request.remove_orphan_blobs and not request.dry_run:
        confirm("Remove blobs that nothing in the keyspace refers to?", caller, yes=request.yes)
    return with_queues(request.settings, lambda connections: _reconciled(connections, request, caller))


async def _reconciled(connections: QueueConnections, request: ReconcileRequest, caller: Caller) -> ReconcileResult:
    caller.progress.stage("looking at broker and tables")
    found = await _compared(connections, request)
    if request.dry_run or request.mending.nothing:
        return ReconcileResult(request, found, would_mend(found, request.mending), left_after(found, Mended()))
    caller.progress.stage("mending")
    removed = _Removed.of(connections, request)
    try:
        async with connections.open() as queue:
            keeping = Keeping(removed.keep_mail, removed.keep_row, removed.keep_blob)
            done = await queue.mend(found, request.mending, keeping)
    except BaseException:
        for path in removed.paths:
            caller.remark(f"Kept in {path}")
        raise
    return ReconcileResult(request, found, done, left_after(found, done), removed.paths, removed.without_content)


async def _compared(connections: QueueConnections, request: ReconcileRequest) -> Reconciled:
    view, name = connections.view, request.queue
    depth = await connections.broker.depth(name)
    named = await _drained(connections, name, depth, request) if request.drain else None
    tables = await tables_side(view, name, request.ids_max)
    blobs = None if request.no_blobs else await _blobs_side(connections, tables, named, request)
    if named is not None:
        named = await with_lookups(view, name, named, tables)
    return compared(name, connections.now, tables, depth=depth, blobs=blobs, drained=named)


async def _drained(connections: QueueConnections, queue: QueueName, depth: Depth, request: ReconcileRequest) -> Drained:
    refuse_drain(queue, depth, forced=request.force)
    return await drained(connections.broker, connections.clock, queue, depth, DRAIN_MAX, request.mending.mark)


async def _blobs_side(
    connections: QueueConnections, tables: TablesSide, named: Drained | None, request: ReconcileRequest
) -> BlobsSide:
    """Blobs are listed first, references read after that: a blob stored meanwhile is no orphan."""
    missing = await missing_among(connections.blobs, tables.live)
    candidates = await blobs_stored_before(connections.blobs, connections.now - request.min_age, request.ids_max)
    unsure, needed = None, frozenset[BlobId]()
    if candidates:
        unsure, needed = await _needed_by_messages(connections, named, request)
    candidates = {one: blob for one, blob in candidates.items() if one not in needed}
    return BlobsSide(missing, await without_references(candidates, connections.tables, connections.schema), unsure)


async def _needed_by_messages(
    connections: QueueConnections, named: Drained | None, request: ReconcileRequest
) -> tuple[str | None, frozenset[BlobId]]:
    """A reason why other blobs may be needed too, and the blobs that messages of any queue refer to.

    The blob store is one for all queues.
    """
    own = request.queue
    depths = {name: await connections.broker.depth(name) for name in {own, *await connections.view.starts.queues()}}
    drains = {own: named} if named else {}
    if request.drain and request.remove_orphan_blobs:
        for name, depth in depths.items():
            if name != own:
                drains[name] = await _drained(connections, name, depth, request)
    return why_unsure(depths, drains), frozenset().union(*(one.blobs for one in drains.values()))


@dataclass(slots=True)
class _Removed:
    """Keeps a copy before anything is removed: mails and unreadable rows in a file, blobs in a folder."""

    connections: QueueConnections
    with_content: bool
    mails: RemovedMailsFile
    blobs: FileStore
    folder: Path
    without_content: int = 0

    @classmethod
    def of(cls, connections: QueueConnections, request: ReconcileRequest) -> "_Removed":
        state, now = state_folder("queue"), connections.now
        mails = RemovedMailsFile(removed_mails_path(state, request.queue, now, "mark"), request.queue)
        folder = removed_mails_path(state, request.queue, now, "orphan-blobs").with_suffix("").with_suffix("")
        return cls(connections, not request.no_blobs, mails, FileStore(folder, connections.clock), folder)

    @property
    def paths(self) -> tuple[Path, ...]:
        kept = ((self.mails.path, self.mails.count), (self.folder, self.folder.exists()))
        return tuple(path for path, something in kept if something)

    async def keep_mail(self, listed: Listed) -> None:
        content = (await self.connections.content_of(listed)).content if self.with_content else None
        self.without_content += content is None
        await self.mails.keep(listed, content)

    async def keep_row(self, row: Row) -> None:
        """A row that cannot be decoded as a mail, with those of its blobs that exist."""
        blobs = {}
        for column in _BLOB_COLUMNS if self.with_content else ():
            with suppress(BlobMissing, BadPayload):
                blobs[column] = await self.connections.blobs.get(BlobId(row[column] or ""))
        await self.mails.keep_row(row, blobs)

    async def keep_blob(self, orphan: StoredBlob) -> None:
        self.blobs.create()
        await self.blobs.keep(orphan.blob_id, await self.connections.blobs.get(orphan.blob_id))
