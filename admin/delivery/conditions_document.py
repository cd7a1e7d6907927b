"""What `mailmend policy add`, `list` and `remove` show."""

from collections.abc import Iterator, Sequence
from typing import Any

from mailmend.admin.delivery.conditions_service import AddConditionRequest, ConditionState, RemoveConditionRequest
from mailmend.admin.delivery.order_history import OrderHistory, end_cell, history_document, unread_text, until_text
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain, printable, shown
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.policy.conditions import MadeCondition
from mailmend.delivery.policy.policy import Threshold
from mailmend.delivery.policy.rates import SECOND


def add_document(result: QueueAnswer[AddConditionRequest, ConditionState]) -> Document:
    state = result.found
    queue = result.request.queue
    made = state.made
    json = {"dry_run": result.request.dry_run, "condition": _condition_json(state)}
    said = f"{limits_text(made.threshold)}, for {_which(made)}, {until_text(made.ends_at)}."
    if result.request.dry_run:
        return queue_document(result, json, (f"{NOTHING_WRITTEN} Would be set in {queue}: {said}", *_on_servers(state)))
    lines = (
        f"Set in {queue}: {said}",
        *_on_servers(state),
        f"Its servers heed it within seconds; what is under way counts. mailmend policy remove {queue} {made.id}",
    )
    return queue_document(result, json, lines)


def remove_document(result: QueueAnswer[RemoveConditionRequest, ConditionState]) -> Document:
    made = result.found.made
    queue = result.request.queue
    json = {"dry_run": result.request.dry_run, "condition": _condition_json(result.found)}
    said = f"{limits_text(made.threshold)}, for {_which(made)}."
    if result.request.dry_run:
        return queue_document(result, json, (f"{NOTHING_WRITTEN} Would hold no longer in {queue}: {said}",))
    return queue_document(result, json, (f"Holds no longer in {queue}, within seconds: {said}",))


def list_document(
    result: QueueAnswer[QueueRequest, Sequence[ConditionState] | OrderHistory[MadeCondition]],
) -> Document:
    queue = result.request.queue
    found = result.found
    if isinstance(found, OrderHistory):
        return history_document(result, found, "condition", _limited, made_json)
    json = {"conditions": [_condition_json(state) for state in found]}
    if not found:
        return queue_document(result, json, (f"Nothing is set beside the policy files in {queue}.",))
    columns = ("id", "for", "limits", "made", "ends", "by", "why", "on servers")
    rows = [
        (
            str(state.made.id),
            _which(state.made),
            _limits_of(state.made),
            shown(state.made.made_at),
            end_cell(state.made.ends_at),
            printable(state.made.owner),
            printable(state.made.reason),
            "; ".join(_on_servers(state)),
        )
        for state in found
    ]
    wrapped = frozenset({"for", "limits", "by", "why", "on servers"})
    unread = [_unread_text(state.made) for state in found if state.made.unread]
    grid = Grid(f"Set beside the policy files in {queue}", columns, rows, wrapped)
    return queue_document(result, json, (grid, *unread))


def _unread_text(made: MadeCondition) -> str:
    effect = "sets no limits, and those of the policy files hold"
    if made.has_target:
        effect = "lets no such mail begin"
    return unread_text(made, made.unread, effect, "Set its limits again", "mailmend policy remove")


def limits_text(threshold: Threshold) -> str:
    """Limits as a person reads them."""
    most = threshold.concurrency
    rate = threshold.rate
    gap = threshold.connect_interval
    limits = [
        *([] if most is None else [f"concurrency {most:,}"]),
        *([f"rate {rate.count}/{rate.interval / SECOND:.9g}"] if rate else []),
        *([f"a connection each {gap / SECOND:.9g} s"] if gap else []),
    ]
    stop = ", and later policies are not consulted" if threshold.stop else ""
    alone = "" if threshold.cluster else ", for each server by itself"
    return (", ".join(limits) or "no limit") + alone + stop


def _which(made: MadeCondition) -> str:
    if not made.has_target:
        return "what cannot be read"
    named = (f"{name} {' or '.join(texts)}" for name, texts in made.values.items())
    counted = ", ".join(made.fields) or "everything together"
    return printable(f"{', '.join(named) or 'all'} of what is counted by {counted}")


def _limited(made: MadeCondition) -> str:
    return f"{_limits_of(made)}, for {_which(made)}"


def _limits_of(made: MadeCondition) -> str:
    limits = limits_text(made.threshold)
    if made.unread:
        return f"{limits}, as it cannot be read"
    return limits


def _on_servers(state: ConditionState) -> Iterator[str]:
    """Where it sets no limits, and what it means where it does: each once, whichever servers it is of."""
    if not state.servers:
        yield "No server of the queue is at work: whether a policy counts by these fields is not known."
    for why in dict.fromkeys(condition.parked for _, condition in state.servers if condition.parked):
        where = "" if state.parked else f" on {_names(state, why)}"
        yield printable(f"Parked{where}: {why}.")
    for said, group in dict.fromkeys(pair for _, condition in state.servers for pair in condition.groups.items()):
        yield printable(f"{said} is counted as {group}: the limits are those of the whole group.")


def _names(state: ConditionState, why: str) -> str:
    return ", ".join(server for server, condition in state.servers if condition.parked == why)


def set_text(made: MadeCondition) -> str:
    """Who set it, until when, and why."""
    until = f" until {shown(made.ends_at)}" if made.ends_at else ""
    return printable(f"{made.owner} set{until} ({made.reason})")


def limits_json(threshold: Threshold) -> dict[str, Any]:
    """Limits; null is none."""
    return {**threshold_json(threshold), "stop": threshold.stop, "cluster": threshold.cluster}


def threshold_json(threshold: Threshold) -> dict[str, Any]:
    rate = threshold.rate
    gap = threshold.connect_interval
    return {
        "concurrency": threshold.concurrency,
        "rate": {"count": rate.count, "seconds": rate.interval / SECOND} if rate else None,
        "connect_interval_seconds": gap / SECOND if gap else None,
    }


def made_json(made: MadeCondition) -> dict[str, Any]:
    found: dict[str, Any] = plain(
        {
            "id": made.id,
            "fields": made.fields,
            "if": made.values,
            "then": limits_json(made.threshold),
            "made_at": made.made_at,
            "ends_at": made.ends_at,
            "owner": made.owner,
            "why": made.reason,
            "unread": made.unread or None,
        }
    )
    return found


def _condition_json(state: ConditionState) -> dict[str, Any]:
    servers = [
        {"server": server, "parked": condition.parked or None, "counted_as": dict(condition.groups)}
        for server, condition in state.servers
    ]
    return {**made_json(state.made), "parked": state.parked or None, "servers": servers}
