"""`mailmend queue restore`: the mails that a delete or purge kept go back into their queue."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import click

from admin.cli.queue.shared import dry_run_option, json_option, remark, say
from admin.cli.queue_options import QueueSettings, queue_options, unless
from admin.kept_mails import KeptMail, Restored, read_kept, was_delayed
from admin.output import stderr_console, write_json
from admin.progress import progress_on
from admin.wiring_queue import Sides, on_sides
from mailqueue.blobs.files import FileStore
from mailqueue.blobs.stores import NamedBlobs
from mailqueue.mail_queue import MailQueue
from model.errors import CannotReach, ExitCode, MailmendError, UnsafeRequest, WrongUse
from model.ids import EnqueueId, QueueName
from repair.clock import SystemClock


@dataclass(slots=True)
class Back:
    """What became of the mails of a file.

    Attributes:
        already: put back by an earlier restore of the same file.
        without_content: their bytes were missing when they were kept.
    """

    restored: int = 0
    already: int = 0
    without_content: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@click.command(
    epilog="""\b
Examples:
  mailmend queue restore ~/.local/share/mailmend/queue/spool-purge-20260501T120000.000000Z-77.jsonl.gz
  mailmend queue restore FILE --dry-run

\b
Exit codes: 0 all of them are back, 2 wrong use (no such file; restored already), 3 some are not (each is named),
4 cannot reach: the same command goes on from there."""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--again", is_flag=True, help="Put back once more what an earlier restore put back: second copies.")
@dry_run_option
@json_option
@queue_options(broker=unless("dry_run"), blobs=unless("dry_run"), named=False)
def restore(settings: QueueSettings, file: Path, *, again: bool, dry_run: bool, as_json: bool) -> int:
    """Put the mails that a delete, purge or mark kept back into the queue that they were in.

    Each is enqueued anew, under a new id; one whose time is still to come is delayed again. What is back is noted
    beside the file, so a restore that was interrupted goes on where it stopped. A folder is one of orphan blobs that
    `queue reconcile` removed: each goes back under its old id.
    """
    if file.is_dir():
        return _restore_blobs(settings, file, dry_run=dry_run, as_json=as_json)
    restored = Restored(file)
    plan = Plan.of(file, frozenset() if again else restored.known())
    if plan.total and not plan.left:
        raise UnsafeRequest(
            f"all {plan.total:,} mails of {file} were put back before", mend="For second copies of them say --again."
        )
    back = Back(already=plan.total - len(plan.left))
    if not dry_run and plan.left:
        on_sides(settings, lambda sides: _put_back(sides, file, plan, Means(restored, back)))
    code = ExitCode.PARTLY_FAILED if back.failed or back.without_content else ExitCode.FINE
    if as_json:
        found = _json(file, plan, back, dry_run=dry_run)
        write_json({"keyspace": settings.connection.keyspace, **found, "exit": int(code)})
    else:
        _show(file, plan, back, dry_run=dry_run)
    return int(code)


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom a file holds and who of them is not back yet; the bytes are read again when it is their turn."""

    total: int
    left: frozenset[EnqueueId]
    queues: tuple[QueueName, ...]

    @classmethod
    def of(cls, file: Path, known: frozenset[EnqueueId]) -> Self:
        """The plan for a file.

        Raises:
            WrongUse: it is no file of kept mails.
        """
        mails = [(one.queued.enqueue_id, one.queue) for one in read_kept(file)]
        left = [(enqueue_id, queue) for enqueue_id, queue in mails if enqueue_id not in known]
        return cls(len(mails), frozenset(one for one, _ in left), tuple(dict.fromkeys(queue for _, queue in left)))


@dataclass(frozen=True, slots=True)
class Means:
    """Where it is noted what is back."""

    restored: Restored
    back: Back


async def _put_back(sides: Sides, file: Path, plan: Plan, means: Means) -> None:
    with progress_on(stderr_console(), SystemClock()) as progress:
        progress.stage("restore", len(plan.left))
        for name in plan.queues:
            async with sides.queue(name) as queue:
                for kept in read_kept(file):
                    if kept.queue == name and kept.queued.enqueue_id in plan.left:
                        await _one(sides, queue, kept, means)
                        progress.advance(1)


async def _one(sides: Sides, queue: MailQueue, kept: KeptMail, means: Means) -> None:
    was = kept.queued.enqueue_id
    if kept.content is None:
        means.back.without_content.append(str(was))
        return
    at = kept.due_at if was_delayed(kept, sides.now) else None
    mail = replace(kept.queued.mail, last_updated=sides.now)
    try:
        now = await queue.enqueue(mail, kept.content, at=at)
    except (CannotReach, WrongUse):
        raise
    except MailmendError as error:
        means.back.failed[str(was)] = error.what
        return
    means.restored.note(was, now)
    means.back.restored += 1


def _json(file: Path, plan: Plan, back: Back, *, dry_run: bool) -> dict[str, Any]:
    return {
        "file": str(file),
        "queues": sorted(plan.queues),
        "dry_run": dry_run,
        "restored": back.restored,
        "would_restore": len(plan.left) if dry_run else None,
        "already": back.already,
        "without_content": back.without_content,
        "failed": [{"id": enqueue_id, "why": why} for enqueue_id, why in back.failed.items()],
    }


def _show(file: Path, plan: Plan, back: Back, *, dry_run: bool) -> None:
    queues = ", ".join(sorted(plan.queues)) or "any queue"
    if dry_run:
        say(f"Nothing was written. {len(plan.left):,} mails of {file} would go back into {queues}.")
    else:
        say(f"Put {back.restored:,} mails back into {queues}.")
    if back.already:
        say(f"{back.already:,} had been put back by an earlier restore.")
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
