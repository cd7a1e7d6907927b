"""Limits that people set for a while, before those of the policy files: add, list, remove."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from uuid import UUID

from mailmend.admin.delivery.order_history import ListOrdersRequest, OrderHistory, history_listed, keep_record
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, QueueRequest
from mailmend.delivery.ledger.order_history import OrderEvent
from mailmend.delivery.policy.conditions import (
    MadeCondition,
    PlacedCondition,
    ServedPolicies,
    condition_id,
    normal_texts,
    with_conditions,
)
from mailmend.delivery.policy.policy import PatternTexts, Threshold
from mailmend.model.errors import NotThere, WrongUse


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConditionRequest(DryRunRequest):
    """Set limits.

    Attributes:
        fields: those of the policies that it is of; none: of those that count everything together.
        values: for which it holds, by the name of their field; one of a field's must match, and each field.
        everything: always; then no values are given.
        threshold: the limits, all of them.
        unlimited: no limit, which has to be said.
        lasts: None: until somebody removes it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveConditionRequest(DryRunRequest):
    """Let the policy file's limits hold again."""

    id: UUID


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
        WrongUse: it is not said for which values or with which limits, something is no value of its field, or the id is
            that of another condition.
        CannotReach: the ledger cannot be reached; nothing is set.
    """
    return with_queues(request.settings, partial(condition_added, request, caller))


async def condition_added(
    request: AddConditionRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[AddConditionRequest, ConditionState]:
    _refuse_unsaid(request)
    fields, values = normal_texts(request.fields, request.values)
    now = connections.now
    if request.queue not in await connections.names(everything=True):
        caller.remark(f"No mail was ever in {request.queue}: is it the right queue? See: mailmend queue list")
    ledger = connections.existing_conditions()
    before = (
        [condition for condition in await ledger.of(request.queue) if not condition.has_ended(now)] if ledger else []
    )
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
        raise WrongUse("a limit below nothing is none", mend="0 deliveries at once lets none begin.")
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


def remove_condition(
    request: RemoveConditionRequest, caller: Caller
) -> QueueAnswer[RemoveConditionRequest, ConditionState]:
    """End a condition.

    Raises:
        NotThere: there is none of that id.
        CannotReach: the ledger cannot be reached; all stays as it was.
    """
    return with_queues(request.settings, partial(condition_removed, request, caller))


async def condition_removed(
    request: RemoveConditionRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[RemoveConditionRequest, ConditionState]:
    ledger = connections.existing_conditions()
    found = await ledger.find(request.queue, request.id) if ledger else None
    if ledger is None or found is None or found.has_ended(connections.now):
        mend = f"See what is set with: mailmend policy list {request.queue}"
        raise NotThere(f"{request.queue} has no condition {request.id}: it has ended, or was removed", mend=mend)
    if not request.dry_run:
        await ledger.remove(found, connections.now)
        await keep_record(connections, OrderEvent.REMOVED, found, caller)
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
    ledger = connections.existing_conditions()
    some = await ledger.of(request.queue) if ledger else ()
    holding = [condition for condition in some if not condition.has_ended(connections.now)]
    return QueueAnswer(request, await _states(connections, request, holding))


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
