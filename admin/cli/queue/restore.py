"""`mailmend queue restore`: the mails that a delete or purge kept go back into their queue."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import click

from admin.cli.queue.browse import content_found
from admin.cli.queue.shared import dry_run_option, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.kept_mails import KeptMail, Restored, read_kept, was_delayed
from admin.present.presenter import stderr_console, write_json
from admin.progress import progress_on
from admin.wiring_queue import Sides, on_sides
from mailqueue.blobs.files import FileStore
from mailqueue.blobs.stores import NamedBlobs
from mailqueue.maintenance.restore import RemovedMail, RestoreResult, Restoring, restoring
from model.errors import CannotReach, ExitCode, MailmendError, UnsafeRequest, WrongUse
from model.ids import EnqueueId, QueueName, restored_id
from model.queue.mails import Listed
from repair.clock import SystemClock


@dataclass(slots=True)
class Back:
    """What became of the mails of a file.

    Attributes:
        already: put back by an earlier restore of the same file.
        stays: they never left: whoever took them out was killed before that.
        without_content: their bytes were missing when they were kept, and are.
    """

    restored: int = 0
    already: int = 0
    stays: list[str] = field(default_factory=list)
    without_content: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@click.command(
    epilog="""\b
Examples:
  mailmend queue restore ~/.local/share/mailmend/queue/spool-purge-20260501T120000.000000Z-77.jsonl.gz
  mailmend queue restore FILE --dry-run

\b
Exit codes: 0 all of them are back, 2 wrong use (no such file; restored already), 3 some are not (each is named),
4 cannot reach: the same command goes on from there. After a kill too: each mail is back once."""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--again", is_flag=True, help="Put back once more what an earlier restore put back: second copies.")
@dry_run_option
@json_option
@queue_options(broker=unless("dry_run"), blobs=unless("dry_run"), named=False)
def restore(settings: QueueSettings, file: Path, *, again: bool, dry_run: bool, as_json: bool) -> int:
    """Put the mails that a delete, purge or mark kept back into the queue that they were in.

    Each is enqueued anew, under a new id that follows from its old one; one whose time is still to come is delayed
    again. What is back is noted beside the file, so a restore that was interrupted goes on where it stopped. One that
    is still listed under its old id, because its removal was interrupted, stays as it is. A folder is one of orphan
    blobs that `queue reconcile` removed: each goes back under its old id.
    """
    if file.is_dir():
        return _restore_blobs(settings, file, dry_run=dry_run, as_json=as_json)
    restored = Restored(file)
    plan = Plan.of(file, frozenset() if again else restored.known())
    if plan.total and not plan.left:
        raise UnsafeRequest(
            f"all {plan.total:,} mails of {file} were put back before", mend="For second copies of them say --again."
        )
    back = Back(already=plan.total - plan.count)
    if not dry_run and plan.left:
        on_sides(settings, lambda sides: _put_back(sides, file, plan, Means(restored, back, again=again)))
    code = ExitCode.PARTLY_FAILED if back.failed or back.without_content else ExitCode.FINE
    if as_json:
        found = _json(file, plan, back, dry_run=dry_run)
        write_json({"keyspace": settings.connection.keyspace, **found, "exit": int(code)})
    else:
        _show(file, plan, back, dry_run=dry_run)
    return int(code)


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom a file holds and who of them is not back yet; the bytes are read again when it is their turn.

    Attributes:
        torn: whether the end of the file is missing; what stood there was not removed.
    """

    total: int
    left: Mapping[QueueName, frozenset[EnqueueId]]
    torn: bool = False

    @property
    def count(self) -> int:
        """How many are not back yet."""
        return sum(map(len, self.left.values()))

    @classmethod
    def of(cls, file: Path, known: frozenset[EnqueueId]) -> Self:
        """The plan for a file.

        Raises:
            WrongUse: it is no file of kept mails.
        """
        torn: list[bool] = []
        mails = {one.queued.enqueue_id: one.queue for one in read_kept(file, lambda: torn.append(True))}
        left: dict[QueueName, set[EnqueueId]] = {}
        for enqueue_id, queue in mails.items():
            if enqueue_id not in known:
                left.setdefault(queue, set()).add(enqueue_id)
        return cls(len(mails), {queue: frozenset(ids) for queue, ids in left.items()}, bool(torn))


@dataclass(frozen=True, slots=True)
class Means:
    """Where it is noted what is back; whether second copies are wanted."""

    restored: Restored
    back: Back
    again: bool


async def _put_back(sides: Sides, file: Path, plan: Plan, means: Means) -> None:
    with progress_on(stderr_console(), SystemClock()) as progress:
        progress.stage("restore", plan.count)
        for name, left in plan.left.items():
            async with sides.queue(name) as queue:
                found, waiting = await restoring(queue, () if means.again else left), set(left)
                for kept in read_kept(file, lambda: None):
                    if kept.queued.enqueue_id in waiting:
                        waiting.discard(kept.queued.enqueue_id)
                        await _one(sides, found, kept, means)
                        progress.advance(1)


async def _one(sides: Sides, found: Restoring, kept: KeptMail, means: Means) -> None:
    was, back = kept.queued.enqueue_id, means.back
    content = kept.content
    if content is None:
        content = (await content_found(sides, Listed(kept.queued, kept.enqueued_at))).content
    if content is None:
        back.without_content.append(str(was))
        return
    at = kept.due_at if was_delayed(kept, sides.now) else None
    leaver = RemovedMail(was, replace(kept.queued.mail, last_updated=sides.now), content, at)
    try:
        now, what = await _returned(found, leaver, again=means.again)
    except (CannotReach, WrongUse):
        raise
    except MailmendError as error:
        back.failed[str(was)] = error.what
        return
    _tell(means, was, now, what)


async def _returned(found: Restoring, leaver: RemovedMail, *, again: bool) -> tuple[EnqueueId, RestoreResult]:
    """Under which id it is back, and what that took."""
    if again:
        return await found.queue.enqueue(leaver.mail, leaver.content, at=leaver.due_at), RestoreResult.PUT
    return restored_id(leaver.was, found.queue.name), await found.restore(leaver)


def _tell(means: Means, was: EnqueueId, now: EnqueueId, what: RestoreResult) -> None:
    if what is RestoreResult.STAYS:
        means.back.stays.append(str(was))
        return
    means.restored.note(was, now)
    means.back.restored += what is not RestoreResult.NOTHING
    means.back.already += what is RestoreResult.NOTHING


def _json(file: Path, plan: Plan, back: Back, *, dry_run: bool) -> dict[str, Any]:
    return {
        "file": str(file),
        "queues": sorted(plan.left),
        "dry_run": dry_run,
        "restored": back.restored,
        "would_restore": plan.count if dry_run else None,
        "already": back.already,
        "never_left": back.stays,
        "torn": plan.torn,
        "without_content": back.without_content,
        "failed": [{"id": enqueue_id, "why": why} for enqueue_id, why in back.failed.items()],
    }


def _show(file: Path, plan: Plan, back: Back, *, dry_run: bool) -> None:
    queues = ", ".join(sorted(plan.left)) or "any queue"
    if dry_run:
        say(f"Nothing was written. {plan.count:,} mails of {file} would go back into {queues}.")
    else:
        say(f"Put {back.restored:,} mails back into {queues}.")
    if back.already:
        say(f"{back.already:,} had been put back by an earlier restore.")
    if back.stays:
        say(f"{len(back.stays):,} never left their queue: their removal was interrupted.")
    if plan.torn:
        remark("The end of the file is missing; what stood there was not removed from its queue.")
    for enqueue_id in back.without_content:
        remark(f"not restored: {enqueue_id}: its bytes were missing when it was removed")
    for enqueue_id, why in back.failed.items():
        remark(f"not restored: {enqueue_id}: {why}")


def _restore_blobs(settings: QueueSettings, folder: Path, *, dry_run: bool, as_json: bool) -> int:
    count = on_sides(settings, lambda sides: _blobs_back(sides, folder, dry_run=dry_run))
    if as_json:
        found = {"file": str(folder), "dry_run": dry_run, "restored_blobs": 0 if dry_run else count}
        write_json({"keyspace": settings.connection.keyspace, **found, "exit": 0})
    else:
        say(f"Nothing was written. {count:,} blobs would go back." if dry_run else f"Put {count:,} blobs back.")
    return int(ExitCode.FINE)


async def _blobs_back(sides: Sides, folder: Path, *, dry_run: bool) -> int:
    kept, count = FileStore(folder, sides.clock), 0
    async for blob in kept.scan():
        count += 1
        if not dry_run:
            content = await kept.get(blob.blob_id)
            await cast("NamedBlobs", sides.blobs).store.keep(blob.blob_id, content)
    return count
