"""Sweeps and other maintenance of a queue, as documents."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import NOTHING_WRITTEN, first_ids, plain, shown
from mailmend.admin.queue.maintenance_service import (
    RedriveRequest,
    RepublishRequest,
    Sweep,
    SweepRequest,
    was_moved_back,
)
from mailmend.admin.queue.reconcile import ReconcileResult
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer
from mailmend.admin.queue.tend import TendedQueue, TendRequest
from mailmend.admin.queue.values import queue_document
from mailmend.mailqueue.comparison import MEANINGS, QueueFinding, Reconciled
from mailmend.mailqueue.queue import Delays
from mailmend.mailqueue.rabbitmq.sweep import Moved
from mailmend.mailqueue.upkeep import Redriven, Swept, TendedDeletions, Upkeep


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
    more = {"left-over blobs": swept.blobs, "mails listed again": swept.rescued, "mails renewed": swept.renewed}
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
        "mails listed again": swept.rescued,
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
    request = result.request
    if not (request.once or request.dry_run):
        return Document()
    queues = [
        {"queue": queue.queue, "moved_due": queue.moved_due, **_upkeep_json(queue.upkeep, dry_run=request.dry_run)}
        for queue in result.found
    ]
    json = {**request.home, "dry_run": request.dry_run, "queues": queues, "exit": 0}
    lines = [line for queue in result.found for line in _round_lines(queue, dry_run=request.dry_run)]
    return Document(json, [NOTHING_WRITTEN, *lines] if request.dry_run else lines)


def _upkeep_json(found: Upkeep, *, dry_run: bool) -> dict[str, Any]:
    match found:
        case Swept():
            return dict(plain(_sweep_json(found, dry_run=dry_run)))
        case TendedDeletions():
            return {"deletions": {"left": found.left, "expired": found.expired}, "removed_again": found.again}


def _round_lines(one: TendedQueue, *, dry_run: bool) -> list[str]:
    due = f"{one.moved_due:,} delayed mails of {one.queue} " + (
        "are due, and would be moved into it." if dry_run else "became due."
    )
    match one.upkeep:
        case Swept() if dry_run:
            return [due, *_would_sweep_lines(one.queue, one.upkeep)]
        case Swept():
            return [f"{due} {_swept_line(one.queue, one.upkeep)}"]
        case TendedDeletions():
            return [f"{due} {_deletions_line(one.upkeep, dry_run=dry_run)}"]


def _deletions_line(found: TendedDeletions, *, dry_run: bool) -> str:
    """What was done about messages that say which mails are deleted."""
    would = "would be " if dry_run else ""
    line = f"{found.expired:,} notes of deletions {would or 'are '}gone, {found.left:,} deletions {would or 'are '}kept"
    if found.again:
        line += f"; {found.again:,} deleted mails that the broker had forgotten {would or 'are '}gone again"
    return f"{line}."


def flush_document(result: QueueAnswer[DryRunRequest, Delays]) -> Document:
    request = result.request
    delays = result.found
    json = {
        "dry_run": request.dry_run,
        "flushed": 0 if request.dry_run else delays.count,
        "delayed": delays.count if request.dry_run else None,
        "earliest_due_at": delays.earliest_at if request.dry_run else None,
        "latest_due_at": delays.latest_at if request.dry_run else None,
    }
    line = f"{delays.count:,} delayed mails of {request.queue} are due now."
    if request.dry_run:
        line = f"{NOTHING_WRITTEN} {delays.count:,} delayed mails of {request.queue} would be due now."
    if request.dry_run and delays.earliest_at and delays.latest_at:
        line += f" The first of them is due at {shown(delays.earliest_at)}, the last at {shown(delays.latest_at)}."
    return queue_document(result, json, (line,))


def republish_document(result: QueueAnswer[RepublishRequest, int]) -> Document:
    request = result.request
    count = result.found
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
    counts = result.found
    dry_run = result.request.dry_run
    queue = result.request.queue
    lines = [f"{counts.redriven:,} dead letters {'would go back' if dry_run else 'are back'} into {queue}."]
    if counts.dropped:
        lines.append(f"{counts.dropped:,} were deleted meanwhile, and {'would be' if dry_run else 'are'} dropped.")
    if counts.delivered:
        lines.append(f"{counts.delivered:,} {'would be' if dry_run else 'are'} dropped: every recipient has the mail.")
    if counts.recipients_skipped:
        lines.append(
            f"{counts.recipients_skipped:,} recipients {'would be' if dry_run else 'were'} left out: the journal of "
            "attempts knows that they have their mail."
        )
    if counts.unreadable:
        lines.append(f"{counts.unreadable:,} cannot be read; they stay in the dead letter queue.")
    return queue_document(result, {"dry_run": dry_run, **plain(counts)}, lines)


def reconcile_document(result: ReconcileResult) -> Document:
    found = result.found
    request = result.request
    over_pulsar = request.settings.pulsar is not None
    body: list[Part] = [Grid(f"What {request.queue} holds", ("side", "what", "count"), _sides(found, over_pulsar))]
    if not found.clean:
        rows = [(kind.value, f"{count:,}", MEANINGS[kind]) for kind, count in found.counts.items() if count]
        body += [Grid("Found", ("finding", "count", "meaning"), rows), *_named_lines(found)]
    body += [*_notes(found), *_mended_lines(result)]
    if found.clean and found.lacking is not None:
        body.append("Nothing is lost, and nothing is left over.")
    elif result.left:
        body += _next_lines(result)
    return queue_document(result, _json(result), body, result.mended.failed)


def _json(result: ReconcileResult) -> dict[str, Any]:
    found = result.found
    mended = result.mended
    tables = found.tables
    missing = found.missing
    drained = found.drained
    return {
        "broker": found.depth,
        "table": {
            "live": len(tables.live),
            "marked": len(tables.marked),
            "delayed": tables.delayed_count,
            "delayed_beyond_ids_max": tables.delayed_beyond,
            "broken": [
                {"id": row.enqueue_id, "slice": row.slice_start, "bucket": row.bucket, "why": row.why}
                for row in tables.broken
            ],
        },
        "bad_messages": tables.bad,
        "blobs": None if missing is None else {"missing": missing},
        "lacking": found.lacking,
        "surplus": found.surplus,
        "drained": drained
        and {
            "messages": len(drained.ids),
            "bad": drained.bad,
            "dead": drained.dead,
            "only_in_table": found.without_message,
            "only_in_broker": found.only_in_broker,
        },
        "findings": {kind.value: count for kind, count in found.counts.items() if count},
        "dry_run": result.request.dry_run,
        "mended": mended,
        "left": result.left,
        "kept": [str(path) for path in result.kept],
        "kept_without_content": result.without_content,
    }


def _sides(found: Reconciled, over_pulsar: bool) -> list[tuple[str, str, str]]:  # noqa: FBT001 - of one caller
    tables = found.tables
    depth = found.depth
    side = "topics" if over_pulsar else "table"
    rows = [
        (side, "live", f"{len(tables.live):,}"),
        (
            side,
            "deleted, not yet acknowledged" if over_pulsar else "marked, waits for the sweep",
            f"{len(tables.marked):,}",
        ),
        (side, "delayed", f"{tables.delayed_count:,}"),
    ]
    if depth is not None:
        rows += [
            ("broker", "ready", f"{depth.ready:,}"),
            ("broker", "unacked", "unknown" if depth.unacked is None else f"{depth.unacked:,}"),
            ("broker", "consumers", f"{depth.consumers:,}"),
            ("broker", "dead letters", f"{depth.dead:,}"),
        ]
    return rows


def _named_lines(found: Reconciled) -> list[str]:
    kinds: dict[QueueFinding, list[str]] = {
        QueueFinding.BROKEN_ROW: [f"{row.enqueue_id} ({row.why})" for row in found.tables.broken],
        QueueFinding.BLOB_MISSING: plain(found.missing or frozenset()),
        QueueFinding.BAD_MESSAGE: [
            f"{message.place} of {message.topic} ({message.why})" for message in found.tables.bad or ()
        ],
        QueueFinding.LACKS_MESSAGE: plain(found.without_message),
        QueueFinding.ONLY_IN_BROKER: plain(found.only_in_broker),
    }
    named = (first_ids(f"{kind.value}:", ids, len(ids), ": --json names all") for kind, ids in kinds.items())
    return [line for lines in named for line in lines]


def _notes(found: Reconciled) -> list[str]:
    lines = []
    if found.lacking is None:
        lines.append(
            "The broker does not say how many messages are unacked: name --broker-management to compare counts."
        )
    if found.tables.delayed_beyond:
        lines.append(f"{found.tables.delayed_beyond:,} delayed mails beyond --ids-max are counted, and not named.")
    return lines


def _mended_lines(result: ReconcileResult) -> list[str]:
    request = result.request
    mended = result.mended
    lines = list[str]()
    if request.republish:
        lines.append(f"published {mended.republished:,} mails again.")
    if request.mark:
        lines.append(f"marked {len(mended.marked):,} mails.")
    lines = [f"Would have {line}" if request.dry_run else line.capitalize() for line in lines]
    if result.without_content:
        lines.append(f"Of {result.without_content:,} of them the envelope is kept, and no bytes.")
    if mended.unkept:
        lines.append(f"{len(mended.unkept):,} of them have neither row nor message, so nothing could be kept of those.")
    return [*lines, *(f"To put it back: mailmend queue restore {path}" for path in result.kept)]


def _next_lines(result: ReconcileResult) -> list[str]:
    command = f"mailmend queue reconcile --queue {result.request.queue}"
    lines = {
        QueueFinding.LACKS_MESSAGE: f"To deliver what lacks its message: {command} --drain --republish",
        QueueFinding.BLOB_MISSING: f"To take out what has lost its bytes: {command} --mark ID",
        QueueFinding.BROKEN_ROW: f"To take out what cannot be read: {command} --mark ID",
        QueueFinding.ONLY_IN_BROKER: f"To drop what has no row: {command} --drain --mark ID",
        QueueFinding.DEAD_LETTER: "Dead letters: mailmend runbook show queue-does-not-drain",
    }
    if result.request.settings.pulsar:
        lines[QueueFinding.DEAD_LETTER] = (
            f"Dead letters: mailmend queue redrive --queue {result.request.queue} --dry-run"
        )
        lines[QueueFinding.BAD_MESSAGE] = (
            "What is no mail is a dead letter once it is consumed; to look at it: pulsar-admin topics "
            "get-message-by-id -l LEDGER -e ENTRY TOPIC"
        )
    return [lines[kind] for kind in result.left if kind in lines]
