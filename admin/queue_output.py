"""What the commands of the queue say, for people and for scripts. The names in the JSON are a contract.

Addresses are shown, for an operator looks for them; contents only where somebody asks for them.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from admin.present.presenter import rows_grid, stdout_console
from mailqueue.health import HealthReason, QueueFigures, days
from mailqueue.maintenance.comparison import MEANINGS, QueueFinding, Reconciled
from mailqueue.rabbitmq.codec import priority_of
from model.ids import BlobId
from model.ports import Depth
from model.queue.filters import NULL_SENDER
from model.queue.mails import Listed
from model.queue.size import Size

MAIL_COLUMNS: Final = ("id", "enqueued", "age", "state", "sender", "recipients", "name", "where")
MAIL_WRAPPED: Final = ("sender", "recipients", "name", "where")
MAILS_PAPER_COLUMNS: Final = 200
RECIPIENTS_SHOWN: Final = 3
IDS_SHOWN: Final = 20
"""How many of each kind a table names; `--json` names all."""


@dataclass(frozen=True, slots=True)
class Content:
    """A mail's bytes as they were found; None and the id of what is missing where they were not."""

    content: bytes | None
    missing: BlobId | None = None


def instant_text(at: datetime | None) -> str | None:
    """An instant in JSON: UTC, in milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else None


def shown(at: datetime) -> str:
    """An instant in a table."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def mail_json(listed: Listed, now: datetime, content: Content | None = None) -> dict[str, Any]:
    """A mail of a queue."""
    queued, mail = listed.queued, listed.queued.mail
    document = {
        "id": str(queued.enqueue_id),
        "name": mail.name,
        "sender": mail.sender,
        "recipients": list(mail.recipients),
        "state": mail.state,
        "error_message": mail.error_message,
        "priority": priority_of(mail),
        "enqueued_at": instant_text(listed.enqueued_at),
        "age_seconds": round((now - listed.enqueued_at).total_seconds(), 3),
        "where": listed.whereabouts.value,
        "due_at": instant_text(listed.due_at),
        "attempts": listed.attempts,
        "slice": instant_text(listed.slice_start),
        "header_blob": queued.blobs.header,
        "body_blob": queued.blobs.body,
    }
    return document if content is None else {**document, **_content_json(content)}


def _content_json(found: Content) -> dict[str, Any]:
    encoded = b64encode(found.content).decode() if found.content is not None else None
    return {"content_base64": encoded, "content_missing": found.missing}


def mail_cells(listed: Listed, now: datetime) -> Sequence[str]:
    """A mail as a row of a table, under `MAIL_COLUMNS`."""
    mail = listed.queued.mail
    due = f", due {shown(listed.due_at)}" if listed.due_at else ""
    return (
        str(listed.queued.enqueue_id),
        listed.enqueued_at.astimezone(UTC).strftime("%m-%d %H:%M:%S"),
        days(now - listed.enqueued_at),
        printable(mail.state),
        printable(mail.sender or NULL_SENDER),
        printable(addresses(mail.recipients)),
        printable(mail.name),
        listed.whereabouts.value + due,
    )


def printable(text: str, kept: str = "") -> str:
    """The text without what would command a terminal: whoever sent a mail has written it."""
    return "".join(one if one.isprintable() or one in kept else "\N{REPLACEMENT CHARACTER}" for one in text)


def show_mails(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Mails as a table, of what `mail_cells` makes of each."""
    stdout_console(MAILS_PAPER_COLUMNS).print(rows_grid(title, MAIL_COLUMNS, rows, MAIL_WRAPPED))


def addresses(recipients: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(recipients) - RECIPIENTS_SHOWN
    return ", ".join(recipients[:RECIPIENTS_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def size_json(size: Size) -> dict[str, Any]:
    """A size."""
    return {
        "mails": size.mails,
        "delayed": size.delayed,
        "kind": size.kind.value,
        "slices_read": size.slices_read,
        "counted_by": size.counted_by.value,
    }


def depth_json(depth: Depth | None) -> dict[str, Any] | None:
    """The broker's side."""
    if depth is None:
        return None
    return {
        "ready": depth.ready,
        "unacked": depth.unacked,
        "consumers": depth.consumers,
        "dead": depth.dead,
        "delivery_limit": depth.delivery_limit,
        "dead_limit": depth.dead_limit,
        "alarms": list(depth.alarms),
    }


def figures_json(figures: QueueFigures, reasons: Sequence[HealthReason]) -> dict[str, Any]:
    """A look at a queue, and what is wrong with it."""
    return {
        "queue": figures.queue,
        "healthy": not reasons,
        "reasons": [{"trouble": one.trouble.value, "what": one.what, "mend": one.mend} for one in reasons],
        "mails": figures.mails,
        "delayed": figures.delayed,
        "exact": figures.exact,
        "oldest_at": instant_text(figures.oldest_at),
        "browse_start": instant_text(figures.browse_start),
        "content_start": instant_text(figures.content_start),
        "furthest_start": instant_text(figures.furthest_start),
        "swept_at": instant_text(figures.swept_at),
        "broker": depth_json(figures.depth),
    }


def reconciled_json(found: Reconciled) -> dict[str, Any]:
    """The three sides, every id that was found."""
    tables, blobs, drained = found.tables, found.blobs, found.drained
    return {
        "broker": depth_json(found.depth),
        "table": {
            "live": len(tables.live),
            "marked": len(tables.marked),
            "delayed": tables.delayed_count,
            "delayed_beyond_ids_max": tables.delayed_beyond,
            "broken": [
                {
                    "id": str(row.enqueue_id),
                    "slice": instant_text(row.slice_start),
                    "bucket": row.bucket,
                    "why": row.why,
                }
                for row in tables.broken
            ],
        },
        "blobs": None
        if blobs is None
        else {
            "missing": sorted(map(str, blobs.missing)),
            "orphans": [
                {"id": one.blob_id, "bytes": one.size_bytes, "stored_at": instant_text(one.stored_at)}
                for one in blobs.orphans
            ],
            "orphans_kept_because": blobs.unsure,
        },
        "lacking": found.lacking,
        "surplus": found.surplus,
        "drained": None
        if drained is None
        else {
            "messages": len(drained.ids),
            "bad": drained.bad,
            "dead": sorted(map(str, drained.dead)),
            "only_in_table": [str(one) for one in found.without_message],
            "only_in_broker": [str(one) for one in found.only_in_broker],
        },
        "findings": {kind.value: count for kind, count in found.counts.items() if count},
    }


def sides_rows(found: Reconciled) -> list[tuple[str, str, str]]:
    """What each side holds: side, what, count."""
    tables, depth = found.tables, found.depth
    rows = [
        ("table", "live", f"{len(tables.live):,}"),
        ("table", "marked, waits for the sweep", f"{len(tables.marked):,}"),
        ("table", "delayed", f"{tables.delayed_count:,}"),
    ]
    if depth is not None:
        unacked = "not told" if depth.unacked is None else f"{depth.unacked:,}"
        rows += [
            ("broker", "ready", f"{depth.ready:,}"),
            ("broker", "unacked", unacked),
            ("broker", "consumers", f"{depth.consumers:,}"),
            ("broker", "dead letters", f"{depth.dead:,}"),
        ]
    return rows


def finding_rows(found: Reconciled) -> list[tuple[str, str, str]]:
    """Each kind that was found: name, count, meaning."""
    return [(kind.value, f"{count:,}", MEANINGS[kind]) for kind, count in found.counts.items() if count]


def named_lines(found: Reconciled) -> list[str]:
    """The first ids of each kind that has any."""
    blobs = found.blobs
    kinds: dict[QueueFinding, list[str]] = {
        QueueFinding.BROKEN_ROW: [f"{row.enqueue_id} ({row.why})" for row in found.tables.broken],
        QueueFinding.BLOB_MISSING: sorted(map(str, blobs.missing)) if blobs else [],
        QueueFinding.ORPHAN_BLOB: [one.blob_id for one in blobs.orphans] if blobs else [],
        QueueFinding.LACKS_MESSAGE: [str(one) for one in found.without_message],
        QueueFinding.ONLY_IN_BROKER: [str(one) for one in found.only_in_broker],
    }
    return [line for kind, names in kinds.items() if names for line in _named(kind, names)]


def _named(kind: QueueFinding, names: Sequence[str]) -> list[str]:
    more = len(names) - IDS_SHOWN
    lines = [f"{kind.value}:", *(f"    {name}" for name in names[:IDS_SHOWN])]
    return [*lines, f"    and {more:,} more: --json names all"] if more > 0 else lines
