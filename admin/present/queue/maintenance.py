"""Sweeps and other maintenance of a queue, as documents."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from admin.present.document import Document
from admin.present.queue.values import NOTHING_WRITTEN, first_ids, plain, queue_document, shown
from admin.services.queue.maintenance import RedriveRequest, RepublishRequest, Sweep, SweepRequest, was_moved_back
from admin.services.queue.request import DryRunRequest, QueueAnswer
from admin.services.queue.tend import TendedQueue, TendRequest
from mailqueue.maintenance.browse_start import Moved
from mailqueue.maintenance.redrive import Redriven
from mailqueue.maintenance.sweep import Swept
from mailqueue.queue import Delays


def sweep_document(result: QueueAnswer[SweepRequest, Sweep]) -> Document:
    request = result.request
    json = {"dry_run": request.dry_run, **_sweep_json(result.found, dry_run=request.dry_run)}
    lines = _sweep_lines(request.queue, result.found, dry_run=request.dry_run)
    remarks = ["Somebody had moved the browse start back. James does so when it moves it without looking."]
    return queue_document(result, json, lines, remarks if was_moved_back(result.found) else ())


def _sweep_json(found: Sweep, *, dry_run: bool) -> dict[str, Any]:
    match found:
        case Moved():
            return {"before": found.before, "browse_start": found.after, "moved_back": found.back}
        case Swept():
            json: dict[str, Any] = dict(plain(found))
            before = {name: json.pop(name) for name in ("browse_start_before", "content_start_before")}
            rescued = json.pop("rescued_ids")
            return {**json, **before, "would_rescue": rescued} if dry_run else json


def _sweep_lines(queue: str, found: Sweep, *, dry_run: bool) -> list[str]:
    match found:
        case Moved() if dry_run:
            return [NOTHING_WRITTEN, _start_line(queue, "browse", found.before, found.after)]
        case Moved():
            return [_moved_line(queue, found)]
        case Swept() if dry_run:
            return [NOTHING_WRITTEN, *_would_sweep_lines(queue, found)]
        case Swept():
            return [_swept_line(queue, found)]


def _new(queue: str) -> str:
    return f"{queue} is new: nothing was ever enqueued."


def _swept_line(queue: str, swept: Swept) -> str:
    if swept.browse_start is None:
        return _new(queue)
    line = f"{queue} begins at {shown(swept.browse_start)}. Cleaned {swept.slices:,} slices, {swept.rows:,} rows"
    more = {"left-over blobs": swept.blobs, "mails put back in sight": swept.rescued, "mails renewed": swept.renewed}
    return line + "".join(f", {count:,} {what}" for what, count in more.items() if count) + "."


def _moved_line(queue: str, moved: Moved) -> str:
    if moved.before is None or moved.after is None:
        return _new(queue)
    if moved.before == moved.after:
        return f"{queue} begins at {shown(moved.after)}, as before."
    return f"{queue} begins at {shown(moved.after)}; it began at {shown(moved.before)}."


def _would_sweep_lines(queue: str, swept: Swept) -> list[str]:
    lines = [_start_line(queue, "browse", swept.browse_start_before, swept.browse_start)]
    if swept.browse_start_before is None:
        return lines
    lines.append(_start_line(queue, "content", swept.content_start_before, swept.content_start))
    what = {
        "slices cleaned": swept.slices,
        "rows removed": swept.rows,
        "left-over blobs looked for": swept.blobs,
        "mails put back in sight": swept.rescued,
        "mails renewed": swept.renewed,
    }
    lines.append(f"There would be {', '.join(f'{count:,} {each}' for each, count in what.items())}.")
    return [*lines, *first_ids("Without a mark, before the browse start:", swept.rescued_ids, swept.rescued)]


def _start_line(queue: str, which: str, before: datetime | None, after: datetime | None) -> str:
    if after is None:
        return _new(queue)
    if before is None:
        return f"The {which} start of {queue} would be put at {shown(after)}; it has none."
    if before == after:
        return f"The {which} start of {queue} would stay at {shown(after)}."
    return f"The {which} start of {queue} would move from {shown(before)} to {shown(after)}."


def tend_document(result: QueueAnswer[TendRequest, Sequence[TendedQueue]]) -> Document:
    """One round on each queue; empty for a service."""
    request = result.request
    if not (request.once or request.dry_run):
        return Document()
    queues = [
        {"queue": one.queue, "moved_due": one.moved_due, **plain(_sweep_json(one.sweep, dry_run=request.dry_run))}
        for one in result.found
    ]
    json = {"keyspace": request.keyspace, "dry_run": request.dry_run, "queues": queues, "exit": 0}
    lines = [line for one in result.found for line in _round_lines(one, dry_run=request.dry_run)]
    return Document(json, [NOTHING_WRITTEN, *lines] if request.dry_run else lines)


def _round_lines(one: TendedQueue, *, dry_run: bool) -> list[str]:
    if dry_run:
        due = f"{one.moved_due:,} delayed mails of {one.queue} are due, and would be moved into it."
        return [due, *_would_sweep_lines(one.queue, one.sweep)]
    return [f"{one.moved_due:,} delayed mails of {one.queue} became due. {_swept_line(one.queue, one.sweep)}"]


def flush_document(result: QueueAnswer[DryRunRequest, Delays]) -> Document:
    request, delays = result.request, result.found
    json = {
        "dry_run": request.dry_run,
        "flushed": 0 if request.dry_run else delays.count,
        "delayed": delays.count if request.dry_run else None,
        "earliest_due_at": delays.earliest_at,
        "latest_due_at": delays.latest_at,
    }
    line = f"{delays.count:,} delayed mails of {request.queue} are due now."
    if request.dry_run:
        line = f"{NOTHING_WRITTEN} {delays.count:,} delayed mails of {request.queue} would be due now."
    if delays.earliest_at and delays.latest_at:
        line += f" The first of them is due at {shown(delays.earliest_at)}, the last at {shown(delays.latest_at)}."
    return queue_document(result, json, (line,))


def republish_document(result: QueueAnswer[RepublishRequest, int]) -> Document:
    request, count = result.request, result.found
    json = {
        "dry_run": request.dry_run,
        "republished": 0 if request.dry_run else count,
        "would_republish": count if request.dry_run else None,
    }
    would = f"Nothing was published. {count:,} mails of {request.queue} would be."
    return queue_document(
        result, json, (would if request.dry_run else f"Published {count:,} mails of {request.queue} again.",)
    )


def redrive_document(result: QueueAnswer[RedriveRequest, Redriven]) -> Document:
    counts, dry_run, queue = result.found, result.request.dry_run, result.request.queue
    lines = [f"{counts.redriven:,} dead letters {'would go back' if dry_run else 'are back'} into {queue}."]
    if counts.dropped:
        lines.append(f"{counts.dropped:,} were deleted meanwhile, and {'would be' if dry_run else 'are'} dropped.")
    if counts.unreadable:
        lines.append(f"{counts.unreadable:,} cannot be read; they stay in the dead letter queue.")
    return queue_document(result, {"dry_run": dry_run, **plain(counts)}, lines)
