"""Declarations of `mailmend suspend`, and the options that name mails by what policies count."""

from functools import partial
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.delivery.order_history import HISTORY_SHOWN
from mailmend.admin.frame.command import Command, CommandGroup, Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT, queue_settings
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.suspensions import ORDER_MAX, normal_value
from mailmend.model.errors import WrongUse


def refuse_unnamed(others: Values, context: click.Context) -> None:
    """A queue that nobody named is James's spool, whose mails are not ready to go out."""
    if not others["queue_named"] and context.get_parameter_source("queue") is ParameterSource.DEFAULT:
        raise WrongUse("it is not said which queue is delivered", mend=f"Name it: {context.command_path} outgoing")


HISTORY_OPTIONS: Final = (
    flag("--history", "What was made, renewed and removed in the last 30 days, by whom and why, newest first."),
    option(
        "--changes",
        "With --history: at most so many changes.",
        "limit",
        type=click.IntRange(1, 100_000),
        default=HISTORY_SHOWN,
        metavar="N",
    ),
)
"""What was done, in place of what holds."""

OF_A_QUEUE: Final = queue_settings(ledger=True, check=refuse_unnamed)

MAIL_FIELDS: Final = {
    "transport": (PickupField.TRANSPORT_ID, "Transport of the mail, its attribute transportid"),
    "local_ip": (PickupField.LOCAL_IP, "Address that it is sent from; or a network; other addresses go on"),
    "remote_ip": (PickupField.REMOTE_IP, "Address of the next server; or a network"),
    "remote_mx": (PickupField.REMOTE_MX, "Name of the next server; *.example.org is every name below that"),
    "domain": (PickupField.RECIPIENT_DOMAIN, "Domain of the recipient; *.example.org is every domain below that"),
    "job": (PickupField.JOB_ID, "Job of the mail, its attribute jobid"),
    "grouping": (PickupField.GROUPING, "Grouping of the mail, its attribute"),
    "tenant": (PickupField.TENANT_ID, "Tenant of the mail, its attribute tenantid"),
}
"""Options by which mails are named: their fields, and what they mean; behind a semicolon, where many are named."""


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
    it, and why, is kept over restarts. With --for it ends by itself. The same mails suspended again are one suspension,
    with the later command's end and reason.""",
    service="mailmend.admin.delivery.suspend_service:add_suspension",
    present="mailmend.admin.delivery.suspend_document:add_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--all", "All of them: every mail of the queue.", "everything"),
        option(
            "--for",
            "How long. [default: until it is removed]",
            "lasts",
            type=Duration(ORDER_MAX, zero=False),
        ),
        option("--why", "Why: shown to whoever finds mails waiting.", required=True, metavar="TEXT"),
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
    service="mailmend.admin.delivery.suspend_service:remove_suspension",
    present="mailmend.admin.delivery.suspend_document:remove_document",
    options=(QUEUE_ARGUMENT, click.Argument(["id"], type=click.UUID, metavar="ID"), DRY_RUN),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend suspend remove outgoing 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002""",
    exits="0 it is removed, 2 wrong use or no such suspension, 4 the cluster cannot be reached.",
)

LIST: Final = Command(
    name="list",
    summary="Say what is suspended: which mails, since when, until when, by whom, why.",
    about="""What a policy file suspends is not among them: it is each server's own. With --history: who suspended and
    removed what, and which hooks did. What ends by itself is told of by the end that it was given; a change whose
    process was killed right behind it may be missing.""",
    service="mailmend.admin.delivery.suspend_service:list_suspensions",
    present="mailmend.admin.delivery.suspend_document:list_document",
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
