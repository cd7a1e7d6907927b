"""`mailmend suspend`: mails that people hold back from delivery, for a while or until they let them go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

import click

from mailmend.admin.delivery.options import MAIL_FIELDS, OF_A_QUEUE
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
from mailmend.admin.frame.command import Command, CommandGroup, Shared
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import NOTHING_WRITTEN, plain, printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, QueueRequest
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.ledger.order_history import OrderEvent
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.suspensions import ORDER_MAX, MadeSuspension, normal_value, normal_values
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
    await remark_if_unused(request.queue, caller, connections)
    before = await holding(connections.existing_suspensions(), request.queue, now)
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


def remove_suspension(request: RemoveOrderRequest, caller: Caller) -> QueueAnswer[RemoveOrderRequest, MadeSuspension]:
    """End a suspension.

    Raises:
        NotThere: no suspension has that id.
        CannotReach: the ledger cannot be reached; all stays as it was.
    """
    return with_queues(request.settings, partial(suspension_removed, request, caller))


async def suspension_removed(
    request: RemoveOrderRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[RemoveOrderRequest, MadeSuspension]:
    mend = f"See what is suspended with: mailmend suspend list {request.queue}"
    what = f"{request.queue} has no suspension {request.id}: it has ended, or was removed"
    missing = NotThere(what, mend=mend)
    ledger = connections.existing_suspensions()
    return QueueAnswer(request, await removed(ledger, request, caller, connections, missing))


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
    return QueueAnswer(request, await holding(ledger, request.queue, connections.now))


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


def remove_document(result: QueueAnswer[RemoveOrderRequest, MadeSuspension]) -> Document:
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


def _value(named: PickupField, value: Any) -> str:
    return normal_value(named, str(value))


_WHICH: Final = Shared(
    "values",
    {
        "Which mails": tuple(
            option(
                f"--{name.replace('_', '-')}",
                f"{text}; may be given again.",
                type=ParsedValue("value", partial(_value, named)),
                multiple=True,
                metavar="VALUE",
            )
            for name, (named, text) in MAIL_FIELDS.items()
        )
    },
    lambda own, _others, _context: {
        field.value: tuple(own[name]) for name, (field, _) in MAIL_FIELDS.items() if own[name]
    },
)
ADD: Final = Command(
    name="add",
    summary="Hold back mails of a queue, on all of its servers.",
    about="""Each field that is named must match, and one of its values where it is given again. Values are as in a
    policy file: itself, '*.domain', a network, '/regex/'. What is under way goes on; the rest waits, or goes back to
    the queue for some minutes, and that counts as no retry; a mail that is too old is given up as ever. Who suspended
    it, and why, is kept over restarts. With --for it expires. The same mails suspended again are one suspension,
    with the later command's end and reason.""",
    service="mailmend.admin.delivery.suspend:add_suspension",
    present="mailmend.admin.delivery.suspend:add_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--all", "All of them: every mail of the queue.", "everything"),
        option(
            "--for",
            "How long. [default: until it is removed]",
            "lasts",
            type=Duration(ORDER_MAX, zero=False),
        ),
        option("--why", "Reason: shown to operators who find mails waiting.", required=True, metavar="TEXT"),
        DRY_RUN,
    ),
    shared=(_WHICH, OF_A_QUEUE),
    examples="""
        mailmend suspend add outgoing --domain example.org --for 2h --why 'they throttle us'
        mailmend suspend add outgoing --local-ip 192.0.2.7 --why 'listed; ticket 12'       other addresses go on
        mailmend suspend add outgoing --transport alerts --remote-mx '*.example.net' --why 'wrong texts'
        mailmend suspend add outgoing --all --for 10m --why 'the firewall is changed'""",
    exits="0 it is suspended, 2 wrong use, 4 the cluster cannot be reached (`list` names it, or it is not).",
)

REMOVE: Final = Command(
    name="remove",
    summary="Let suspended mails go again.",
    service="mailmend.admin.delivery.suspend:remove_suspension",
    present="mailmend.admin.delivery.suspend:remove_document",
    options=(QUEUE_ARGUMENT, click.Argument(["id"], type=click.UUID, metavar="ID"), DRY_RUN),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend suspend remove outgoing 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002""",
    exits="0 it is removed, 2 wrong use or no such suspension, 4 the cluster cannot be reached.",
)

LIST: Final = Command(
    name="list",
    summary="Say what is suspended: which mails, since when, until when, by whom, why.",
    about="""Suspensions of the policy files are not listed: each server has its own. With --history: which people and
    hooks suspended and removed what. A suspension that has expired is shown with the end that it was given; a change
    whose process was killed right behind it may be missing.""",
    service="mailmend.admin.delivery.suspend:list_suspensions",
    present="mailmend.admin.delivery.suspend:list_document",
    options=(QUEUE_ARGUMENT, *HISTORY_OPTIONS),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend suspend list outgoing
        mailmend suspend list outgoing --json
        mailmend suspend list outgoing --history --changes 20      who did what last""",
    exits="0 done, also where nothing is listed; 2 wrong use, 4 the cluster cannot be reached.",
)

SUSPEND: Final = CommandGroup(
    name="suspend",
    summary="Hold back mails of a queue on all of its servers, for a while or until further notice.",
    commands=(ADD, LIST, REMOVE),
    examples="""
        mailmend suspend add outgoing --domain example.org --for 2h --why 'they throttle us'
        mailmend suspend list outgoing""",
)
