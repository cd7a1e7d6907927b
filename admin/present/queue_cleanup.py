"""What a cleanup of all queues found and did, as a document."""

from collections.abc import Iterator, Mapping
from typing import Any

from admin.present import mending
from admin.present.document import Document, Grid, Part
from admin.present.values import NOTHING_WRITTEN, plain, shown
from admin.services.mending import MendingResult
from admin.services.queue.cleanup import CleanupResult, summary_of
from admin.services.queue.garbage_collection import CollectedNode, GarbageCollection
from mailqueue.maintenance.cleanup import CleanedQueue
from model.advice.queue_settings import MIB
from model.queue.cleanup import QueueDrift

MEANINGS: Mapping[QueueDrift, str] = {
    QueueDrift.OVER: "rows of finished mails in slices that nobody browses",
    QueueDrift.STRANDED: "mails that wait before the browse start: no listing shows them",
    QueueDrift.ORPHAN_MARK: "marks without a row, which never expire (does not fail a check)",
    QueueDrift.START_BEHIND: "the browse start may move on: every listing reads what is finished",
    QueueDrift.START_MOVED_BACK: "somebody put the browse start back",
    QueueDrift.NO_BROWSE_START: "rows, and no browse start: listings show none of them",
    QueueDrift.NO_CONTENT_START: "no content start: nothing says up to where it was cleaned",
}


def check_document(result: MendingResult | CleanupResult) -> Document:
    return cleanup_document(result) if isinstance(result, CleanupResult) else mending.document_of(result)


def cleanup_document(result: CleanupResult) -> Document:
    json = {
        "keyspace": result.keyspace,
        "run": plain(result.run),
        **summary_of(result),
        "findings": {one.queue: plain(one.found) for one in result.queues if one.found},
        "queues": [_queue_json(one) for one in result.queues],
        "garbagecollect": _garbage_json(result.garbage) if result.garbage else None,
        "seconds": round(result.seconds, 3),
        "exit": int(result.exit),
    }
    return Document(json, tuple(_body(result)), result.exit)


def _queue_json(one: CleanedQueue) -> dict[str, Any]:
    scanned = one.judged.scanned
    return {
        "queue": one.queue,
        "rows": scanned.rows,
        "waiting": scanned.waiting,
        "marks": scanned.marks,
        "orphan_marks": scanned.orphan_marks,
        "browse_start_before": plain(scanned.starts.browse),
        "browse_start": plain(one.judged.browse_start),
        "content_start_before": plain(scanned.starts.content),
        "partitions_over": len(one.over),
        "removed_rows": one.rows,
        "removed_blobs": one.blobs,
        "removed_marks": one.marks,
        "marks_stay": one.marks_stay,
        "failed": list(one.failed),
    }


def _garbage_json(garbage: GarbageCollection) -> dict[str, Any]:
    return {
        "seconds_about": plain(garbage.seconds_about),
        "nodes": [
            {
                "node": one.node,
                "bytes_before": one.before.bytes,
                "bytes": one.after and one.after.bytes,
                "sstables_before": one.before.sstables,
                "sstables": one.after and one.after.sstables,
                "seconds": round(one.seconds, 3),
                "failed": one.failed,
            }
            for one in garbage.nodes
        ],
        "nodes_down": list(garbage.down),
    }


def _body(result: CleanupResult) -> Iterator[Part]:
    rows = [
        (one.queue, kind.value, f"{number:,}", MEANINGS[kind])
        for one in result.queues
        for kind, number in one.found.items()
    ]
    if rows:
        yield Grid(f"Findings in the queues of {result.keyspace}", ("queue", "finding", "count", "meaning"), rows)
    if result.run is None:
        yield NOTHING_WRITTEN
    for one in result.queues:
        yield _line(one, wrote=result.run is not None)
        if one.marks_stay:
            yield f"The {one.judged.scanned.marks:,} marks of {one.queue} never expire, and stay: {one.marks_stay}."
        yield from one.failed
    yield from map(_collected, result.garbage.nodes if result.garbage else ())
    yield from _next(result)


def _line(one: CleanedQueue, *, wrote: bool) -> str:
    scanned = one.judged.scanned
    begins = f"begins at {shown(one.judged.browse_start)}" if one.judged.browse_start else "has no beginning"
    holds = (
        f"{one.queue} {begins}: {scanned.waiting:,} mails wait, {scanned.rows - scanned.waiting:,} rows are finished"
    )
    if not wrote:
        return f"{holds}, {scanned.marks:,} marks."
    return f"{holds}. Removed {one.rows:,} rows, {one.blobs:,} blobs, {one.marks:,} marks."


def _collected(one: CollectedNode) -> str:
    before = f"{one.node}: rows and marks take {one.before.bytes / MIB:,.1f} MiB in {one.before.sstables:,} SSTables"
    if one.failed:
        return f"{before}, whose garbage was not collected: {one.failed}"
    if one.after is None:
        return f"{before}."
    return f"{before} before, {one.after.bytes / MIB:,.1f} MiB after garbage collection, in {one.seconds:,.1f} s."


def _next(result: CleanupResult) -> Iterator[str]:
    keyspace = f" --keyspace {result.keyspace}"
    found = {kind for one in result.queues for kind in one.found}
    if QueueDrift.STRANDED in found:
        yield f"Next: mailmend queue sweep QUEUE{keyspace} (it puts mails back where listings show them)"
    if result.run is None and found - {QueueDrift.STRANDED, QueueDrift.NO_BROWSE_START}:
        yield f"Next: mailmend repair queues{keyspace}"
    if not found:
        yield "No drift."
