"""`mailmend queue sweep`: move the browse start of a queue, and clean up behind it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import JSON, Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.options import METRICS_FILE, flag
from mailmend.admin.frame.values import NOTHING_WRITTEN, first_ids, plain, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT, queue_settings, unless
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer
from mailmend.admin.queue.values import queue_document
from mailmend.mailqueue.comparison import Swept
from mailmend.mailqueue.rabbitmq.sweep import Moved
from mailmend.model.errors import ExitCode

Sweep = Swept | Moved
"""The result of a sweep, or of moving the browse start alone; of a dry run, what either would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(DryRunRequest):
    """Sweep one queue, or only move its browse start."""

    move_only: bool = False


def sweep(request: SweepRequest, caller: Caller) -> QueueAnswer[SweepRequest, Sweep]:
    """Move the browse start to the first mail, clean up before it, renew mails that would expire."""

    async def swept(connections: QueueConnections) -> QueueAnswer[SweepRequest, Sweep]:
        async with connections.open_tabled(dry_run=request.dry_run) as queue:
            found: Sweep
            if request.move_only:
                found = await queue.move_browse_start(dry_run=request.dry_run)
            else:
                found = await queue.sweep(dry_run=request.dry_run)
        if isinstance(found, Swept) and (remark := connections.marks_stay):
            caller.remark(remark)
        if was_moved_back(found):
            return QueueAnswer(request, found, ExitCode.DRIFT)
        return QueueAnswer(request, found)

    return with_queues(request.settings, swept)


def was_moved_back(found: Sweep) -> bool:
    match found:
        case Moved():
            return found.back
        case Swept():
            return found.moved_back


def sweep_document(result: QueueAnswer[SweepRequest, Sweep]) -> Document:
    request = result.request
    json = {"dry_run": request.dry_run, **sweep_json(result.found, dry_run=request.dry_run)}
    lines = _sweep_lines(request.queue, result.found, dry_run=request.dry_run)
    remarks = list[str]()
    if was_moved_back(result.found):
        remarks.append("The browse start had been moved back. James does so when it moves it without looking.")
    return queue_document(result, json, lines, remarks)


def sweep_json(found: Sweep, *, dry_run: bool) -> dict[str, Any]:
    match found:
        case Moved():
            return {"before": found.before, "browse_start": found.after, "moved_back": found.back}
        case Swept():
            json: dict[str, Any] = dict(plain(found))
            before = {name: json.pop(name) for name in ("browse_start_before", "content_start_before")}
            rescued = json.pop("rescued_ids")
            if dry_run:
                json |= {**before, "would_rescue": rescued}
            return json


def _sweep_lines(queue: str, found: Sweep, *, dry_run: bool) -> list[str]:
    match found:
        case Moved() if dry_run:
            return [NOTHING_WRITTEN, _start_line(queue, "browse", found.before, found.after)]
        case Moved():
            return [_moved_line(queue, found)]
        case Swept() if dry_run:
            return [NOTHING_WRITTEN, *would_sweep_lines(queue, found)]
        case Swept():
            return [swept_line(queue, found)]


def _new(queue: str) -> str:
    return f"{queue} is new: nothing was ever enqueued."


def swept_line(queue: str, swept: Swept) -> str:
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


def would_sweep_lines(queue: str, swept: Swept) -> list[str]:
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


SWEEP: Final = Command(
    name="sweep",
    summary="Move the browse start, and clean up behind it.",
    about="""Only slices without any unmarked mail are cleaned; a mail that is found there all the same is put where
    listings see it, and published again. Marks stay, so nothing that was deleted comes back. They expire
    automatically, but not in tables that James made, which have no time to live: there they stay until `mailmend
    repair queues --marks` removes them. Mails that would expire soon are renewed. The last 15 minutes, and at least
    the last slice, are never touched. Consumers also sweep from time to time: the command is for queues in which
    little happens, and for an operator who does not want to wait.""",
    service="mailmend.admin.queue.sweep:sweep",
    present="mailmend.admin.queue.sweep:sweep_document",
    options=(QUEUE_ARGUMENT, flag("--move-only", "Only move the browse start."), DRY_RUN),
    shared=(queue_settings(broker=unless("move_only", "dry_run"), blobs=unless("move_only", "dry_run")),),
    output=(JSON, METRICS_FILE),
    examples="""
        mailmend queue sweep --dry-run              how far it would go, what would be cleaned, put back and renewed
        mailmend queue sweep
        mailmend queue sweep --move-only            the browse start alone: needs no broker
        mailmend queue sweep --json | jq .rescued""",
    exits="0 done (or nothing was to do), 1 the browse start had been moved back (James does so without looking; it "
    "is where it belongs again, or a mail holds it), 2 wrong use, 4 cannot reach: the next sweep completes what was "
    "begun.",
)
