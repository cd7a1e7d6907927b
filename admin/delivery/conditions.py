"""`mailmend policy add`, `list` and `remove`: limits for a while, before the limits of the files."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.delivery.limits import limits_text, made_json
from mailmend.admin.delivery.options import OF_A_QUEUE
from mailmend.admin.delivery.order_history import (
    HISTORY_OPTIONS,
    ListOrdersRequest,
    OrderHistory,
    RemoveOrderRequest,
    end_cell,
    history_document,
    history_listed,
    holding,
    keep_record,
    remark_if_unused,
    removed,
    unread_text,
    until_text,
)
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, QueueRequest
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.ledger.order_history import OrderEvent
from mailmend.delivery.policy.conditions import (
    MadeCondition,
    PlacedCondition,
    ServedPolicies,
    condition_id,
    normal_condition_value,
    normal_texts,
    with_conditions,
)
from mailmend.delivery.policy.policy import PatternTexts, PickupField, Threshold, field_named
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.delivery.policy.suspensions import ORDER_MAX
from mailmend.model.errors import NotThere, WrongUse


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConditionRequest(DryRunRequest):
    """Set limits.

    Attributes:
        fields: the fields of its policies; none: of the policies that count everything together.
        values: for which it holds, by the name of their field; one of a field's must match, and each field.
        everything: always; then no values are given.
        threshold: the limits, all of them.
        unlimited: no limit, which has to be said.
        lasts: None: until an operator removes it.
        id: None: it follows from fields and values.
        why: for those who find mails waiting.
    """

    fields: tuple[str, ...]
    values: PatternTexts = field(default_factory=dict)
    everything: bool = False
    threshold: Threshold = field(default_factory=Threshold)
    unlimited: bool = False
    lasts: timedelta | None = None
    id: UUID | None = None
    why: str


@dataclass(frozen=True, slots=True)
class ConditionState:
    """A condition, and what it is to the servers of its queue.

    Attributes:
        servers: by server, that is at work or was a moment ago; none: it is not known.
    """

    made: MadeCondition
    servers: tuple[tuple[str, PlacedCondition], ...] = ()

    @property
    def parked(self) -> str:
        """Why it sets limits on no server; "" where it does on one, or where it is not known."""
        whys = [condition.parked for _, condition in self.servers]
        return whys[0] if whys and all(whys) else ""


def add_condition(request: AddConditionRequest, caller: Caller) -> QueueAnswer[AddConditionRequest, ConditionState]:
    """Keep a condition, which every server of the queue heeds within seconds.

    One of the same fields and values that holds already is renewed: it gets these limits, this end and this reason.

    Raises:
        WrongUse: it is not said for which values or with which limits, something is no value of its field, or another
            condition has the id.
        CannotReach: the ledger cannot be reached; nothing is set.
    """
    return with_queues(request.settings, partial(condition_added, request, caller))


async def condition_added(
    request: AddConditionRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[AddConditionRequest, ConditionState]:
    _refuse_unsaid(request)
    fields, values = normal_texts(request.fields, request.values)
    now = connections.now
    await remark_if_unused(request.queue, caller, connections)
    before = await holding(connections.existing_conditions(), request.queue, now)
    same = next(
        (condition for condition in before if condition.names_the_same(fields, values) and not condition.is_of_hook),
        None,
    )
    _refuse_other_id(request, same, before)
    one = MadeCondition(
        id=same.id if same else request.id or condition_id(request.queue, fields, values),
        queue=request.queue,
        fields=fields,
        values=values,
        threshold=request.threshold,
        owner=caller.name or owner_name(),
        reason=request.why,
        made_at=same.made_at if same else now,
        ends_at=now + request.lasts if request.lasts else None,
    )
    if not request.dry_run:
        await connections.orders().conditions.put(one, now)
        await keep_record(connections, OrderEvent.RENEWED if same else OrderEvent.ADDED, one, caller)
    (state,) = await _states(connections, request, [one])
    return QueueAnswer(request, state)


def _refuse_unsaid(request: AddConditionRequest) -> None:
    threshold = request.threshold
    if bool(request.values) is request.everything:
        what = "--all is always, and values are given" if request.values else "it is not said for which values"
        mend = "Name them, like --if recipientdomain=example.org; for all that the policy counts: --all."
        raise WrongUse(what, mend=mend)
    if (threshold.concurrency or 0) < 0 or (threshold.connect_interval or 0) < 0:
        raise WrongUse("limits must not be negative", mend="0 deliveries at once lets none begin.")
    limits = (threshold.concurrency, threshold.rate, threshold.connect_interval)
    if request.unlimited is any(limit is not None for limit in limits):
        what = (
            "--unlimited is no limit, and one is given" if request.unlimited else "it is not said which limits are set"
        )
        raise WrongUse(what, mend="Give one, like --concurrency 2 or --rate 100/60; none at all: --unlimited.")


def _refuse_other_id(request: AddConditionRequest, same: MadeCondition | None, before: Sequence[MadeCondition]) -> None:
    if request.id and same and same.id != request.id:
        mend = "Leave --condition-id out to renew it."
        raise WrongUse(f"there is such a condition already, with the id {same.id}", mend=mend)
    if request.id and not same and request.id in {condition.id for condition in before}:
        mend = f"See what is set with: mailmend policy list {request.queue}"
        raise WrongUse(f"{request.id} is the id of another condition", mend=mend)


def remove_condition(request: RemoveOrderRequest, caller: Caller) -> QueueAnswer[RemoveOrderRequest, ConditionState]:
    """End a condition.

    Raises:
        NotThere: no condition has that id.
        CannotReach: the ledger cannot be reached; all stays as it was.
    """
    return with_queues(request.settings, partial(condition_removed, request, caller))


async def condition_removed(
    request: RemoveOrderRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[RemoveOrderRequest, ConditionState]:
    mend = f"See what is set with: mailmend policy list {request.queue}"
    what = f"{request.queue} has no condition {request.id}: it has ended, or was removed"
    missing = NotThere(what, mend=mend)
    found = await removed(connections.existing_conditions(), request, caller, connections, missing)
    return QueueAnswer(request, ConditionState(found))


def list_conditions(
    request: ListOrdersRequest, caller: Caller
) -> QueueAnswer[QueueRequest, Sequence[ConditionState] | OrderHistory[MadeCondition]]:
    """The conditions that hold now, in the order in which they are tested, or their history; it creates no ledger.

    Raises:
        CannotReach: the ledger cannot be reached.
    """
    if request.history:
        return with_queues(request.settings, partial(history_listed, MadeCondition, request, caller))
    return with_queues(request.settings, partial(conditions_listed, request, caller))


async def conditions_listed(
    request: QueueRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[QueueRequest, Sequence[ConditionState]]:
    made = await holding(connections.existing_conditions(), request.queue, connections.now)
    return QueueAnswer(request, await _states(connections, request, made))


async def _states(
    connections: QueueConnections, request: QueueRequest, made: Sequence[MadeCondition]
) -> list[ConditionState]:
    """What each is to each server, by what the servers said that they count by."""
    ledger = connections.existing_policies() if made else None
    said: Sequence[ServedPolicies] = await ledger.of(request.queue) if ledger else ()
    placed = [(policies.server, with_conditions(policies.policies, made, policies.algorithm)[1]) for policies in said]
    by_id = [(server, {condition.made.id: condition for condition in some}) for server, some in placed]
    return [
        ConditionState(condition, tuple((server, known[condition.id]) for server, known in by_id)) for condition in made
    ]


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


def remove_document(result: QueueAnswer[RemoveOrderRequest, ConditionState]) -> Document:
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
        return queue_document(result, json, (f"There are no run-time conditions in {queue}.",))
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
    grid = Grid(f"Run-time conditions in {queue}", columns, rows, wrapped)
    return queue_document(result, json, (grid, *unread))


def _unread_text(made: MadeCondition) -> str:
    effect = "sets no limits, and the limits of the policy files hold"
    if made.has_target:
        effect = "lets no such mail begin"
    return unread_text(made, made.unread, effect, "Set its limits again", "mailmend policy remove")


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
        yield printable(f"{said} is counted as {group}: the limits are for the whole group.")


def _names(state: ConditionState, why: str) -> str:
    return ", ".join(server for server, condition in state.servers if condition.parked == why)


def _condition_json(state: ConditionState) -> dict[str, Any]:
    servers = [
        {"server": server, "parked": condition.parked or None, "counted_as": dict(condition.groups)}
        for server, condition in state.servers
    ]
    return {**made_json(state.made), "parked": state.parked or None, "servers": servers}


_NAMES: Final = ", ".join(field.value for field in PickupField)


def _fields(value: Any) -> tuple[str, ...]:
    return tuple(name for word in str(value).split(",") if (name := word.strip()))


def _value(value: Any) -> tuple[str, str]:
    name, is_there, text = str(value).partition("=")
    if not name or not is_there:
        raise WrongUse(f"{value!r} is no field with a value", mend="Write it like recipientdomain=example.org.")
    return name, normal_condition_value(field_named(name), text)


def _nanos(value: Any) -> int:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= ORDER_MAX.total_seconds():
        raise WrongUse(f"{value!r} is no number of seconds", mend="Write it like 5, or 0.5.")
    return max(1, round(seconds * SECOND))


_WHICH: Final = Shared(
    "values",
    {
        "For which mails": (
            option(
                "--if",
                "A field of the policy, and its value as in a policy file: itself, *.domain, a network, /regex/, "
                "#group; may be given again: of the same field one is enough, each field must match.",
                "conditions",
                type=ParsedValue("condition", _value),
                multiple=True,
                metavar="FIELD=VALUE",
            ),
        )
    },
    lambda own, _others, _context: _by_field(own["conditions"]),
)


def _by_field(given: Any) -> dict[str, tuple[str, ...]]:
    found = dict[str, tuple[str, ...]]()
    for name, text in given:
        found[name] = (*found.get(name, ()), text)
    return found


def _threshold(own: Values, _others: Values, _context: click.Context) -> Threshold:
    return Threshold(own["concurrency"], own["rate"], own["connect_interval"], own["stop"], own["cluster"])


_LIMITS: Final = Shared(
    "threshold",
    {
        "Limits": (
            option(
                "--concurrency",
                "Attempts to deliver at once; 0 lets none begin. [default: no limit]",
                type=click.IntRange(0, 1_000_000),
                metavar="N",
            ),
            option(
                "--rate",
                "X deliveries in Y seconds as X/Y, or X alone for each second. [default: no limit]",
                type=ParsedValue("rate", lambda value: DeliveryRate.parse(str(value))),
                metavar="X/Y",
            ),
            option(
                "--connect-interval",
                "Seconds between two new connections. [default: none]",
                type=ParsedValue("seconds", _nanos),
                metavar="S",
            ),
            flag("--stop", "Later policies of the file neither limit nor count such a mail."),
            option(
                "--cluster/--no-cluster",
                "Whether the servers of the queue share these limits; else each has all of them. [default: they do]",
                default=True,
            ),
        )
    },
    _threshold,
)

ADD: Final = Command(
    name="add",
    summary="Set limits for a while, on all servers of a queue, before the limits of their policy files.",
    about="""The condition belongs to the policies that count by exactly these fields. It is tested before the file's
    own conditions, the earliest first, and its limits replace all limits of the file. As in a file, the servers of the
    queue share the limits; --no-cluster gives each server the whole limits (in a file: cluster: false). Deliveries that
    have begun are still counted. The condition makes no counter: where no policy counts by these fields it is parked,
    until a policy file that does is read. A value that a policy counts as part of a group means the group there, and
    the answer says so.

    Who set it, and why, is kept over restarts and reloads. With --for it expires. The same fields and values
    again are one condition, with the later command's limits, end and reason.""",
    service="mailmend.admin.delivery.conditions:add_condition",
    present="mailmend.admin.delivery.conditions:add_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--fields",
            f"What the policies count by, with commas between: {_NAMES}; '' is everything together.",
            type=ParsedValue("fields", _fields),
            required=True,
            metavar="FIELDS",
        ),
        flag("--all", "All of them: whatever such a policy counts.", "everything"),
        flag("--unlimited", "No limit: during this time the file's own limits do not count."),
        option("--for", "How long. [default: until it is removed]", "lasts", type=Duration(zero=False)),
        option(
            "--condition-id",
            "Its id, for scripts. [default: it follows from fields and values]",
            "id",
            type=click.UUID,
            metavar="ID",
        ),
        option("--why", "Reason: shown to operators who find mails waiting.", required=True, metavar="TEXT"),
        DRY_RUN,
    ),
    shared=(_WHICH, _LIMITS, OF_A_QUEUE),
    examples="""
        mailmend policy add outgoing --fields recipientdomain --if recipientdomain=example.org --rate 100/60 \\
            --for 2h --why 'they throttle us'
        mailmend policy add outgoing --fields localip,remotemx --if localip=192.0.2.7 --if 'remotemx=*.example.net' \\
            --concurrency 1 --why 'a new address; ticket 12'
        mailmend policy add outgoing --fields '' --all --concurrency 50 --for 10m --why 'the line is slow'
        mailmend policy add outgoing --fields localip --if localip=192.0.2.7 --rate 1 --no-cluster --why 'each its own'
        mailmend policy add outgoing --fields tenantid --if tenantid=acme --unlimited --for 1h --why 'as agreed'""",
    exits="0 it is set, or parked; 2 wrong use, 4 the cluster cannot be reached (`list` names it, or it is not).",
)

LIST: Final = Command(
    name="list",
    summary="Say which limits are set for a while: for which mails, until when, by whom, why, and which are parked.",
    about="""The conditions are listed in the order in which they are tested, each with the servers that use it. The
    conditions of the policy files are not listed. With --history: which people and hooks set and removed what. A
    condition that has expired is shown with the end that it was given; a change whose process was killed right behind
    it may be missing.""",
    service="mailmend.admin.delivery.conditions:list_conditions",
    present="mailmend.admin.delivery.conditions:list_document",
    options=(QUEUE_ARGUMENT, *HISTORY_OPTIONS),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend policy list outgoing
        mailmend policy list outgoing --json
        mailmend policy list outgoing --history --changes 20      who did what last""",
    exits="0 done, also where nothing is listed; 2 wrong use, 4 the cluster cannot be reached.",
)

REMOVE: Final = Command(
    name="remove",
    summary="Let the policy files' limits hold again.",
    service="mailmend.admin.delivery.conditions:remove_condition",
    present="mailmend.admin.delivery.conditions:remove_document",
    options=(QUEUE_ARGUMENT, click.Argument(["id"], type=click.UUID, metavar="ID"), DRY_RUN),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend policy remove outgoing 6e0ab5e0-8d1c-51f0-9a5e-0242ac120002""",
    exits="0 it is removed, 2 wrong use or no such condition, 4 the cluster cannot be reached.",
)

CONDITION_COMMANDS: Final = (ADD, LIST, REMOVE)
