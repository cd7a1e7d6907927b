"""Mails that people hold back from delivery: suspend some, let them go again, and what is suspended."""

from collections.abc import Mapping, Sequence
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
from mailmend.delivery.policy.suspensions import MadeSuspension, normal_values
from mailmend.model.errors import NotThere, WrongUse


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSuspensionRequest(DryRunRequest):
    """Hold mails back.

    Attributes:
        values: of the mails, by the name of their field; one of a field's must match, and each field.
        everything: every mail of the queue; then no values are given.
        lasts: None: until it is removed.
        why: for those who find mails waiting.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    everything: bool = False
    lasts: timedelta | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSuspensionRequest(DryRunRequest):
    """Let mails go again."""

    id: UUID


def add_suspension(request: AddSuspensionRequest, caller: Caller) -> QueueAnswer[AddSuspensionRequest, MadeSuspension]:
    """Keep a suspension, which every server of the queue heeds within seconds.

    One of the very same mails that holds already is renewed: it gets this end and this reason.

    Raises:
        WrongUse: it is not said which mails, or something is no value of its field.
        CannotReach: the ledger cannot be reached; nothing is suspended.
    """
    return with_queues(request.settings, partial(suspension_added, request, caller))


async def suspension_added(
    request: AddSuspensionRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[AddSuspensionRequest, MadeSuspension]:
    if not request.values and not request.everything:
        mend = "Name them by a field, like --domain example.org; every mail of the queue: --all."
        raise WrongUse("it is not said which mails are suspended", mend=mend)
    if request.values and request.everything:
        raise WrongUse("--all is every mail, and fields name some of them", mend="Leave out the one or the other.")
    values = normal_values(request.values)
    now = connections.now
    if request.queue not in await connections.names(everything=True):
        caller.remark(f"No mail was ever in {request.queue}: is it the right queue? See: mailmend queue list")
    known = connections.existing_suspensions()
    before = (
        [suspension for suspension in await known.of(request.queue) if not suspension.has_ended(now)] if known else []
    )
    same = next(
        (suspension for suspension in before if suspension.names_the_same(values) and not suspension.is_of_hook), None
    )
    one = MadeSuspension(
        id=same.id if same else connections.clock.new_uuid(),
        queue=request.queue,
        values=values,
        owner=caller.name or owner_name(),
        reason=request.why,
        ends_at=now + request.lasts if request.lasts else None,
    )
    if not request.dry_run:
        await connections.orders().suspensions.put(one, now)
        await keep_record(connections, OrderEvent.RENEWED if same else OrderEvent.ADDED, one, caller)
    return QueueAnswer(request, one)


def remove_suspension(
    request: RemoveSuspensionRequest, caller: Caller
) -> QueueAnswer[RemoveSuspensionRequest, MadeSuspension]:
    """End a suspension.

    Raises:
        NotThere: there is none of that id.
        CannotReach: the ledger cannot be reached; all stays as it was.
    """
    return with_queues(request.settings, partial(suspension_removed, request, caller))


async def suspension_removed(
    request: RemoveSuspensionRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[RemoveSuspensionRequest, MadeSuspension]:
    ledger = connections.existing_suspensions()
    found = await ledger.find(request.queue, request.id) if ledger else None
    if ledger is None or found is None or found.has_ended(connections.now):
        mend = f"See what is suspended with: mailmend suspend list {request.queue}"
        raise NotThere(f"{request.queue} has no suspension {request.id}: it has ended, or was removed", mend=mend)
    if not request.dry_run:
        await ledger.remove(found, connections.now)
        await keep_record(connections, OrderEvent.REMOVED, found, caller)
    return QueueAnswer(request, found)


def list_suspensions(
    request: ListOrdersRequest, caller: Caller
) -> QueueAnswer[QueueRequest, Sequence[MadeSuspension] | OrderHistory[MadeSuspension]]:
    """What is suspended now, in the order in which it was, or its history; reading it creates no ledger.

    Raises:
        CannotReach: the ledger cannot be reached.
    """
    if request.history:
        return with_queues(request.settings, partial(history_listed, MadeSuspension, request, caller))
    return with_queues(request.settings, partial(suspensions_listed, request, caller))


async def suspensions_listed(
    request: QueueRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[QueueRequest, Sequence[MadeSuspension]]:
    ledger = connections.existing_suspensions()
    some = await ledger.of(request.queue) if ledger else ()
    return QueueAnswer(request, [suspension for suspension in some if not suspension.has_ended(connections.now)])
