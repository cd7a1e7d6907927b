"""What was found of all mail queues and done about it: the parts of a document next to the messages' parts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mailmend.admin.frame.document import Grid
from mailmend.admin.frame.values import NOTHING_WRITTEN, counts_json, first_ids, plain, shown
from mailmend.admin.messages.mending import CheckedTopics, MendingResult
from mailmend.model.projections.verdicts import HARMLESS, QUEUE_VERDICTS, Verdict
from mailmend.model.sizes import MIB

if TYPE_CHECKING:  # their libraries come with an extra of their own
    from mailmend.admin.queue.garbage_collection import CollectedNode, GarbageCollection
    from mailmend.mailqueue.cleanup.writes import CleanedQueue
    from mailmend.repair.mending.runner import RepairResult


def queues_json(result: MendingResult) -> dict[str, Any]:
    return {
        "queues": None if result.queues is None else list(map(_queue_json, result.queues)),
        "topics": result.topics and _topics_json(result.topics),
        "garbagecollect": _garbage_json(result.garbage) if result.garbage else None,
    }


def _topics_json(topics: CheckedTopics) -> dict[str, Any]:
    lost = [{"topic": topic, "place": place, "id": mail} for topic, place, mail in topics.without_blobs]
    return {"namespace": topics.namespace, "mails": topics.mails, "without_blobs": lost}


def _queue_json(one: "CleanedQueue") -> dict[str, Any]:
    scanned = one.judged.scanned
    return {
        "queue": one.queue,
        "findings": counts_json(one.found),
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
        "marks_due": one.marks_due,
        "marks_moved": one.marks_moved,
        "marks_stay": one.marks_stay,
        "failed": [found.error for found in one.findings.values() if found.error],
    }


def _garbage_json(garbage: "GarbageCollection") -> dict[str, Any]:
    return {
        "seconds_about": plain(garbage.seconds_about),
        "nodes": [
            {
                "node": node.node,
                "bytes_before": node.before.bytes,
                "bytes": node.after and node.after.bytes,
                "sstables_before": node.before.sstables,
                "sstables": node.after and node.after.sstables,
                "seconds": round(node.seconds, 3),
                "failed": node.failed,
            }
            for node in garbage.nodes
        ],
        "nodes_down": list(garbage.down),
    }


def queues_grid(queues: "Sequence[CleanedQueue]", *, removed: bool) -> Grid:
    columns = ["queue", "begins at", "waiting", "finished", "marks"]
    rows = []
    for queue in queues:
        scanned = queue.judged.scanned
        begins = queue.judged.browse_start
        numbers = [scanned.waiting, scanned.rows - scanned.waiting, scanned.marks]
        numbers += [queue.rows, queue.blobs, queue.marks] if removed else []
        rows.append((queue.queue, shown(begins) if begins else "nowhere", *(f"{number:,}" for number in numbers)))
    return Grid("Queues", (*columns, *(("rows gone", "blobs gone", "marks gone") if removed else ())), rows)


def queue_lines(result: MendingResult) -> Iterator[str]:
    for queue in result.queues or ():
        if queue.marks_stay:
            marks = queue.judged.scanned.marks
            yield f"The {marks:,} marks of {queue.queue} never expire, and stay: {queue.marks_stay}."
    if topics := result.topics:
        gone = len(topics.without_blobs)
        yield f"{topics.mails:,} mails are in topics of {topics.namespace}, {gone:,} of them without their bytes."
        named = [f"{mail} ({topic} {place})" for topic, place, mail in topics.without_blobs]
        yield from first_ids("Their bytes are gone:", named, gone, ": --json names all")
    yield from map(_collected, result.garbage.nodes if result.garbage else ())


def _collected(one: "CollectedNode") -> str:
    before = f"{one.node}: rows and marks take {one.before.bytes / MIB:,.1f} MiB in {one.before.sstables:,} SSTables"
    if one.failed:
        return f"{before}, whose garbage was not collected: {one.failed}"
    if one.after is None:
        return f"{before}."
    return f"{before} before, {one.after.bytes / MIB:,.1f} MiB after garbage collection, in {one.seconds:,.1f} s."


def after_a_plan(summary: "RepairResult", asked: str, file: str, done_by: str) -> list[str]:
    """What to do next with a plan that was made, or applied."""
    if summary.run is None:
        due = summary.due.total()
        return (
            [f"Nothing was written. A repair would remove or mend {due:,}.", f"Next: {done_by}"]
            if due
            else [NOTHING_WRITTEN]
        )
    return [f"Next: mailmend repair queues{asked} --plan {file} (for what moved)"] if summary.moved else []


def about_queues(found: Mapping[Verdict, int], keyspace: str, *, again: bool) -> list[str]:
    """The commands that mend what was found in queues; `again`: also those that this one is a dry run of."""
    names = (
        queue_verdict.mended
        for verdict, queue_verdict in QUEUE_VERDICTS.items()
        if found.get(verdict) and verdict not in HARMLESS
    )
    return [f"Next: mailmend {name}{keyspace}" for name in dict.fromkeys(names) if again or name != "repair queues"]
