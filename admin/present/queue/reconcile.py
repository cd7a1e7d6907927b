"""The comparison of broker, tables and blobs, as a document."""

from typing import Any

from admin.present.document import Document, Part, Table
from admin.present.queue.values import first_ids, plain, queue_document
from admin.services.queue.reconcile import ReconcileResult
from mailqueue.maintenance.comparison import MEANINGS, QueueFinding, Reconciled


def reconcile_document(result: ReconcileResult) -> Document:
    """What each side holds, what was found, what was mended and what is left."""
    found, request = result.found, result.request
    body: list[Part] = [Table(f"What {request.queue} holds", ("side", "what", "count"), _sides(found))]
    if not found.clean:
        rows = [(kind.value, f"{count:,}", MEANINGS[kind]) for kind, count in found.counts.items() if count]
        body += [Table("Found", ("finding", "count", "meaning"), rows), *_named_lines(found)]
    body += [*_notes(found), *_mended_lines(result)]
    if found.clean and found.lacking is not None:
        body.append("Nothing is lost, and nothing is left over.")
    elif result.left:
        body += _next_lines(result)
    return queue_document(result, _json(result), body, result.mended.failed)


def _json(result: ReconcileResult) -> dict[str, Any]:
    found, mended = result.found, result.mended
    tables, blobs, drained = found.tables, found.blobs, found.drained
    orphans = (
        [{"id": one.blob_id, "bytes": one.size_bytes, "stored_at": one.stored_at} for one in blobs.orphans]
        if blobs
        else []
    )
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
        "blobs": blobs and {"missing": blobs.missing, "orphans": orphans, "orphans_kept_because": blobs.unsure},
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


def _sides(found: Reconciled) -> list[tuple[str, str, str]]:
    tables, depth = found.tables, found.depth
    rows = [
        ("table", "live", f"{len(tables.live):,}"),
        ("table", "marked, waits for the sweep", f"{len(tables.marked):,}"),
        ("table", "delayed", f"{tables.delayed_count:,}"),
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
    """The first ids of each kind that has any."""
    blobs = found.blobs
    kinds: dict[QueueFinding, list[str]] = {
        QueueFinding.BROKEN_ROW: [f"{row.enqueue_id} ({row.why})" for row in found.tables.broken],
        QueueFinding.BLOB_MISSING: plain(blobs.missing) if blobs else [],
        QueueFinding.ORPHAN_BLOB: [one.blob_id for one in blobs.orphans] if blobs else [],
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
    if found.blobs and found.blobs.orphans and found.blobs.unsure:
        lines.append(f"Orphan blobs are left where they are: {found.blobs.unsure}.")
    return lines


def _mended_lines(result: ReconcileResult) -> list[str]:
    request, mended, lines = result.request, result.mended, list[str]()
    if request.republish:
        lines.append(f"published {mended.republished:,} mails again.")
    if request.mark:
        lines.append(f"marked {len(mended.marked):,} mails.")
    if request.remove_orphan_blobs:
        lines.append(f"removed {mended.removed_blobs:,} orphan blobs.")
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
        QueueFinding.ORPHAN_BLOB: f"To remove orphans: {command} --remove-orphan-blobs --dry-run",
        QueueFinding.ONLY_IN_BROKER: f"To drop what has no row: {command} --drain --mark ID",
        QueueFinding.DEAD_LETTER: "Dead letters: mailmend runbook show queue-does-not-drain",
    }
    return [lines[kind] for kind in result.left if kind in lines]
