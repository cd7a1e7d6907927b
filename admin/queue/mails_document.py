"""Mails that were enqueued, dequeued, removed or restored, as documents."""

from collections.abc import Sequence
from typing import Any, Final

from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.values import NOTHING_WRITTEN, fields_json, plain, printable, shown
from mailmend.admin.queue.connections import MailContent
from mailmend.admin.queue.consumers import ConsumerOutcome
from mailmend.admin.queue.dequeue import DequeueResult
from mailmend.admin.queue.enqueue import EnqueueResult
from mailmend.admin.queue.health import HealthRequest, MeasuredQueue, MetricsRequest, QueueHealth
from mailmend.admin.queue.listing import BrowsedMail, BrowseResult, QueueOverview, SizeRequest
from mailmend.admin.queue.move import MoveResult
from mailmend.admin.queue.remove import RemoveResult
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.admin.queue.restore import RestoredMails
from mailmend.admin.queue.values import mail_json, mails_table, queue_document
from mailmend.mailqueue.prometheus import gauges_text
from mailmend.mailqueue.rules.size import CountedBy, Size, SizeKind
from mailmend.mailqueue.rules.topic_health import TopicFigures

_ORDER: Final = (
    "This is the order of the listing; the broker's own may differ: urgent mails come more often, and what came back "
    "comes later. Unacked mails are listed too."
)


def enqueue_document(result: EnqueueResult) -> Document:
    request = result.request
    done = result.succeeded
    failed = result.failed
    not_done = [{"file": file.file, "why": file.error.what} for file in failed if file.error]
    if request.dry_run:
        would = [{"file": file.file, "bytes": file.content_bytes} for file in done]
        json = {"dry_run": True, "enqueued": [], "failed": not_done, "would_enqueue": would, "due_at": result.due_at}
        due = f"due at {shown(result.due_at)}" if result.due_at else "due at once"
        size = sum(file.content_bytes for file in done)
        line = f"Nothing was enqueued. {len(done):,} mails ({size:,} bytes) would go into {request.queue}, {due}."
        remarks = [f"would not be enqueued: {file.file}: {file.error}" for file in failed]
        return queue_document(result, json, (line,), remarks)
    enqueued = [
        {"file": file.file, "id": str(file.enqueue_ids[0]), "ids": [str(enqueue_id) for enqueue_id in file.enqueue_ids]}
        for file in done
    ]
    json = {"dry_run": False, "enqueued": enqueued, "failed": not_done}
    body = [f"{enqueue_id}  {file.file}" for file in done for enqueue_id in file.enqueue_ids]
    body.append(f"{len(body):,} mails are in {request.queue}.")
    remarks = [f"not enqueued: {file.file}: {file.error}" for file in failed]
    return queue_document(result, json, body, remarks)


def dequeue_document(result: DequeueResult) -> Document:
    request = result.request
    counts = {outcome.value: result.settled.get(outcome, 0) for outcome in ConsumerOutcome}
    json = {"dry_run": request.dry_run, "taken": result.total, **counts, "unsettled": result.unsettled}
    if not request.dry_run:
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        line = f"Took {result.total:,} mails from {request.queue}" + (f": {named}." if named else ".")
        return queue_document(result, json, (line,))
    json |= {"would_take": [mail_json(mail, result.at) for mail in result.listed], "more": result.more}
    if not result.listed:
        return queue_document(result, json, (f"Nothing was taken. No mail waits in {request.queue}.",))
    more = ", and there are more" if result.more else ""
    body: Sequence[Part] = (
        mails_table(f"First in {request.queue}, as listed", result.listed, result.at),
        f"Nothing was taken. {len(result.listed):,} mails would be handed over{more}.",
        _ORDER,
    )
    return queue_document(result, json, body)


def remove_document(result: RemoveResult) -> Document:
    request = result.request
    count = result.removed.count
    failed = result.removed.failed
    json = {
        "dry_run": request.dry_run,
        "removed": 0 if request.dry_run else count,
        "would_remove": count if request.dry_run else None,
        "failed": [{"id": unremoved.enqueue_id, "why": unremoved.why} for unremoved in failed],
        "kept": str(result.kept) if result.kept else None,
        "kept_without_content": result.without_content,
        "mails": [mail_json(mail, result.at) for mail in result.listed] if request.dry_run else None,
    }
    body: list[Part] = []
    if request.dry_run:
        if result.listed:
            body.append(mails_table(f"Would be removed from {request.queue}", result.listed, result.at))
        body.append(f"{NOTHING_WRITTEN} {count:,} would be removed from {request.queue}.")
        return queue_document(result, json, body)
    body.append(f"Removed {count:,} mails from {request.queue}.")
    if result.without_content:
        body.append(f"The bytes of {result.without_content:,} of them were missing already; their envelopes are kept.")
    if result.kept:
        body.append(f"To put them back: mailmend queue restore {result.kept}")
    return queue_document(
        result, json, body, [f"not removed: {unremoved.enqueue_id}: {unremoved.why}" for unremoved in failed]
    )


def restore_document(result: RestoredMails) -> Document:
    request = result.request
    plan = result.plan
    json = {
        **request.home,
        "file": str(request.file),
        "queues": sorted(plan.missing),
        "dry_run": request.dry_run,
        "restored": result.restored,
        "would_restore": plan.count if request.dry_run else None,
        "would_restore_ids": sorted(str(enqueue_id) for ids in plan.missing.values() for enqueue_id in ids)
        if request.dry_run
        else None,
        "already": result.already,
        "never_left": plain(result.never_left),
        "torn": plan.truncated,
        "without_content": plain(result.without_content),
        "failed": [{"id": str(enqueue_id), "why": why} for enqueue_id, why in result.failed.items()],
        "exit": int(result.exit),
    }
    return Document(json, _restored_lines(result), result.exit, _restore_remarks(result))


def _restored_lines(result: RestoredMails) -> list[str]:
    plan = result.plan
    request = result.request
    queues = ", ".join(sorted(plan.missing)) or "any queue"
    lines = [f"Put {result.restored:,} mails back into {queues}."]
    if request.dry_run:
        lines = [f"{NOTHING_WRITTEN} {plan.count:,} mails of {request.file} would go back into {queues}."]
    if result.already:
        lines.append(f"{result.already:,} had been put back by an earlier restore.")
    if result.never_left:
        lines.append(f"{len(result.never_left):,} never left their queue: their removal was interrupted.")
    return lines


def _restore_remarks(result: RestoredMails) -> list[str]:
    cut = ["The end of the file is missing; what stood there was not removed from its queue."] * result.plan.truncated
    missing = [
        f"not restored: {enqueue_id}: its bytes were missing when it was removed"
        for enqueue_id in result.without_content
    ]
    return [*cut, *missing, *(f"not restored: {enqueue_id}: {why}" for enqueue_id, why in result.failed.items())]


def move_document(result: MoveResult) -> Document:
    request = result.request
    before = result.before
    json = {
        "dry_run": request.dry_run,
        **request.ends,
        "before": plain(before),
        "moved": {"waiting": result.waiting, "delayed": result.delayed},
        "resumed": result.resumed,
        "renamed": {str(was): str(now) for was, now in result.renamed.items()},
        "failed": [{"id": str(unmoved.was), "why": unmoved.why} for unmoved in result.stay],
        "left": result.left,
        "dead_letters": result.dead,
        "consumers": result.consumers,
        "journal": str(result.journal) if result.journal else None,
    }
    if request.dry_run:
        about = "" if before.kind is SizeKind.EXACT else "about "
        counted = f"{about}{before.mails:,} mails that wait and {before.delayed:,} delayed ones"
        lines = [f"{NOTHING_WRITTEN} To be moved: {counted}, to {request.ends['target']}."]
        if result.resumed:
            lines.append(f"An interrupted move has taken {result.resumed:,} more; it would go on with them first.")
        if result.consumers:
            lines.append(f"{result.consumers:,} consumers are at the source: stop them first.")
        return queue_document(result, json, lines)
    lines = [f"Moved {result.waiting:,} mails that waited and {result.delayed:,} delayed ones of {request.queue}."]
    if result.resumed:
        lines.append(f"{result.resumed:,} more had been taken by an interrupted move.")
    if result.renamed:
        lines.append(f"{len(result.renamed):,} have another id now, for that queue had them before: see --json.")
    if result.left:
        lines.append(f"{result.left:,} are left at the source. See: mailmend queue browse {request.queue}")
    if result.dead:
        lines.append(f"{result.dead:,} dead letters stay at the source. See: mailmend queue redrive --dry-run")
    return queue_document(result, json, lines, [f"not moved: {unmoved.was}: {unmoved.why}" for unmoved in result.stay])


_STARTS: Final = ("browse_start", "content_start", "swept_at")
_QUEUE_COLUMNS: Final = ("queue", "waiting", "delayed", "counted", "browse start", "content start", "last sweep")


def list_document(result: QueueAnswer[QueueRequest, Sequence[QueueOverview]]) -> Document:
    place = result.request.place
    tabled = "keyspace" in result.request.home
    queues = [
        {"queue": overview.name, **_size_json(overview.size), **(fields_json(overview, *_STARTS) if tabled else {})}
        for overview in result.found
    ]
    body: Part = f"{place} has no queue yet: nothing was ever enqueued."
    if result.found:
        columns = _QUEUE_COLUMNS if tabled else _QUEUE_COLUMNS[: -len(_STARTS)]
        body = Grid(f"Queues of {place}", columns, [_cells(overview)[: len(columns)] for overview in result.found])
    return Document({**result.request.home, "queues": queues, "exit": 0}, (body,))


def _size_json(size: Size) -> dict[str, Any]:
    json = dict(plain(size))
    if size.counted_by is CountedBy.BROKER:
        del json["slices_read"]
    return json


def _cells(one: QueueOverview) -> tuple[str, ...]:
    about = "" if one.size.kind is SizeKind.EXACT else "about "
    starts = [shown(at) if at else "" for at in (one.browse_start, one.content_start, one.swept_at)]
    return (one.name, f"{about}{one.size.mails:,}", f"{one.size.delayed:,}", one.size.counted_by.value, *starts)


def size_document(result: QueueAnswer[SizeRequest, Size]) -> Document:
    size = result.found
    queue = result.request.queue
    about = "" if size.kind is SizeKind.EXACT else "About "
    delayed = f", {size.delayed:,} are delayed" if size.delayed else ""
    line = f"{about}{size.mails:,} mails wait in {queue}{delayed} ({_counted(size)})."
    return queue_document(result, _size_json(size), (line,))


def _counted(size: Size) -> str:
    match size.counted_by:
        case CountedBy.METADATA:
            return f"counted row by row, {size.slices_read:,} slices"
        case CountedBy.TALLIES:
            return f"by the tallies, {size.slices_read:,} slices"
        case CountedBy.BROKER:
            return "by the broker"


def browse_document(result: BrowseResult) -> Document:
    remarks = [
        f"not readable: {row.enqueue_id} in the slice of {row.slice_start:%Y-%m-%d %H:%M:%S}: {row.why}"
        for row in result.broken
    ]
    if result.request.lines:
        return Document(exit=result.exit, remarks=remarks)
    token = result.next.token if result.next else None
    json = {"mails": [browsed_json(mail) for mail in result.mails], "next": token}
    return queue_document(result, json, _page(result, token), remarks)


def browsed_json(mail: BrowsedMail) -> dict[str, Any]:
    return mail_json(mail.listed, mail.at, mail.content)


def _page(result: BrowseResult, token: str | None) -> list[Part]:
    queue = result.request.queue
    if not result.mails:
        return [f"No mail of {queue} matches."]
    body: list[Part] = [mails_table(f"Mails of {queue}", [mail.listed for mail in result.mails], result.mails[0].at)]
    for mail in result.mails:
        if mail.content is not None:
            body += [f"--- {mail.listed.queued.enqueue_id}", _text(mail.content)]
    if token:
        body.append(f"There are more. Next: mailmend queue browse --queue {queue} --after {token}")
    return body


def _text(content: MailContent) -> str:
    if content.content is None:
        return f"(its content is missing: blob {content.missing})"
    return printable(content.content.decode("utf-8", "replace").replace("\r\n", "\n"), kept="\n\t")


def health_document(result: QueueAnswer[HealthRequest, Sequence[QueueHealth]]) -> Document:
    json = {
        **result.request.home,
        "queues": [_health_json(health) for health in result.found],
        "exit": int(result.exit),
    }
    return Document(json, [line for health in result.found for line in _lines(health)], result.exit)


def _health_json(one: QueueHealth) -> dict[str, Any]:
    figures = one.figures
    json = {
        "queue": figures.queue,
        "healthy": not one.reasons,
        "reasons": [plain(reason) for reason in one.reasons],
        **fields_json(figures, "mails", "delayed", "exact", "oldest_at"),
        "broker": plain(figures.depth),
    }
    if not figures.tabled:
        return json | {"topics": _topics_json(figures.topics) if figures.topics else None}
    starts = fields_json(figures, *_STARTS, "furthest_start")
    return json | starts | fields_json(figures, "lacking", "marks_expire")


def _topics_json(topics: TopicFigures) -> dict[str, Any]:
    return {
        **fields_json(topics, "namespace", "deletions", "stretches", "unread"),
        "overdue_seconds": topics.overdue.total_seconds(),
        "policies": {topic: plain(policy) for topic, policy in topics.policies.items()},
    }


def _lines(one: QueueHealth) -> list[str]:
    figures = one.figures
    about = "" if one.figures.exact else "about "
    delayed = figures.delayed or 0
    if not one.reasons:
        return [f"{figures.queue} is well: {about}{figures.mails:,} mails wait, {delayed:,} are delayed."]
    reasons = [f"  {reason.what}\n    -> {reason.mend}" for reason in one.reasons]
    wait = "how many mails wait is not known" if figures.mails is None else f"{about}{figures.mails:,} mails wait"
    return [f"{figures.queue} is not well ({wait}):", *reasons]


def metrics_document(result: QueueAnswer[MetricsRequest, Sequence[MeasuredQueue]]) -> Document:
    away = {figures.broker_away for figures, _ in result.found if figures.broker_away}
    remarks = [f"the broker's figures are missing: {why}" for why in sorted(away)]
    body = () if result.request.output else (Verbatim(gauges_text(result.found)),)
    return Document(None, body, result.exit, remarks)
