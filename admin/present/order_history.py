"""What `--history` of suspensions and conditions shows: what was done, newest first."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from admin.present.document import Document, Grid
from admin.present.values import plain, printable, queue_document, shown
from admin.services.order_history import OrderHistory
from admin.services.queue.request import QueueAnswer, QueueRequest
from model.pickup.conditions import MadeCondition
from model.pickup.suspensions import MadeSuspension

M = TypeVar("M", bound=MadeSuspension | MadeCondition)


def history_document(
    result: QueueAnswer[QueueRequest, Any],
    history: OrderHistory[M],
    named: str,
    said: Callable[[M], str],
    as_json: Callable[[M], Mapping[str, Any]],
) -> Document:
    """A history.

    Args:
        result: the answer.
        history: what it found.
        named: what they are, as the JSON calls one.
        said: which mails one is of, and its limits.
        as_json: one as JSON.
    """
    queue, records, limit = result.request.queue, history.records, history.limit
    json = {
        "history": [
            {"id": one.id, "at": one.at, "event": one.event, "by": one.by, named: as_json(one.made)} for one in records
        ]
    }
    if not records:
        return queue_document(result, plain(json), (f"No {named} of {queue} was changed in the last 30 days.",))
    columns = ("when", "what", "by", named, "ends", "why", "id")
    rows = [
        (
            shown(one.at),
            one.event.value,
            printable(one.by),
            said(one.made),
            shown(one.made.ends_at) if one.made.ends_at else "when it is removed",
            printable(one.made.reason),
            str(one.made.id),
        )
        for one in records
    ]
    grid = Grid(f"What was done to each {named} of {queue}, newest first", columns, rows, frozenset({"by", named}))
    body = (grid, f"These are the newest {limit:,}; more: --changes.") if len(records) == limit else (grid,)
    return queue_document(result, plain(json), body)
