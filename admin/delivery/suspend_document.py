"""What `mailmend suspend` shows."""

from collections.abc import Sequence
from typing import Any

from mailmend.admin.delivery.order_history import OrderHistory
from mailmend.admin.delivery.order_history_document import end_cell, history_document, unread_text, until_text
from mailmend.admin.delivery.suspend_service import AddSuspensionRequest, RemoveSuspensionRequest
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain, printable, shown
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.policy.suspensions import MadeSuspension


def add_document(result: QueueAnswer[AddSuspensionRequest, MadeSuspension]) -> Document:
    made = result.found
    queue = result.request.queue
    json = {"dry_run": result.request.dry_run, "suspension": suspension_json(made)}
    which = _which(made)
    until = until_text(made.ends_at)
    if result.request.dry_run:
        return queue_document(result, json, (f"{NOTHING_WRITTEN} Would be suspended in {queue}: {which}, {until}.",))
    lines = (
        f"Suspended in {queue}: {which}, {until}.",
        f"Its servers heed it within seconds; what is under way goes on. mailmend suspend remove {queue} {made.id}",
    )
    return queue_document(result, json, lines)


def remove_document(result: QueueAnswer[RemoveSuspensionRequest, MadeSuspension]) -> Document:
    made = result.found
    queue = result.request.queue
    json = {"dry_run": result.request.dry_run, "suspension": suspension_json(made)}
    if result.request.dry_run:
        return queue_document(result, json, (f"{NOTHING_WRITTEN} Would go again in {queue}: {_which(made)}.",))
    return queue_document(result, json, (f"Go again in {queue}, within seconds: {_which(made)}.",))


def list_document(
    result: QueueAnswer[QueueRequest, Sequence[MadeSuspension] | OrderHistory[MadeSuspension]],
) -> Document:
    queue = result.request.queue
    found = result.found
    if isinstance(found, OrderHistory):
        return history_document(result, found, "suspension", _which, suspension_json)
    json = {"suspensions": [suspension_json(suspension) for suspension in found]}
    if not found:
        return queue_document(result, json, (f"Nothing is suspended in {queue}.",))
    columns = ("id", "which mails", "made", "ends", "by", "why")
    rows = [
        (
            str(suspension.id),
            _which(suspension),
            shown(suspension.made_at),
            end_cell(suspension.ends_at),
            printable(suspension.owner),
            printable(suspension.reason),
        )
        for suspension in found
    ]
    grid = Grid(f"Suspended in {queue}", columns, rows, frozenset({"which mails", "by"}))
    unread = [_unread_text(suspension) for suspension in found if suspension.unread]
    return queue_document(result, json, (grid, *unread))


def _unread_text(made: MadeSuspension) -> str:
    effect = "holds every mail that its other fields name"
    if made.holds_every_mail:
        effect = "holds every mail"
    return unread_text(made, "; ".join(made.unread), effect, "Suspend its mails again", "mailmend suspend remove")


def _which(made: MadeSuspension) -> str:
    if made.damage:
        return "every mail, as it cannot be read"
    named = (f"{name} {' or '.join(texts)}" for name, texts in made.values.items())
    return printable(", ".join(named)) or "every mail"


def suspended_text(made: MadeSuspension) -> str:
    """That it holds a mail, and how to end that."""
    until = until_text(made.ends_at)
    lift = f"mailmend suspend remove {made.queue} {made.id}"
    said = f"Suspended by {made.owner} since {shown(made.made_at)}, {until}: {made.reason}. To let it go: {lift}"
    return printable(said)


def suspension_json(made: MadeSuspension) -> dict[str, Any]:
    found: dict[str, Any] = plain(
        {
            "id": made.id,
            "fields": made.values,
            "made_at": made.made_at,
            "ends_at": made.ends_at,
            "owner": made.owner,
            "why": made.reason,
            "unread": made.unread,
        }
    )
    return found
