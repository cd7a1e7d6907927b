"""`mailmend suspend`: mails that people hold back from delivery, for a while or until they let them go."""

from dataclasses import replace
from functools import partial
from typing import Any, Final

import click

from mailmend.admin.delivery.explain import ASK_OPTIONS
from mailmend.admin.delivery.options import MAIL_FIELDS, OF_A_QUEUE, WHY, list_command, of_kind, remove_command
from mailmend.admin.frame.command import Command, CommandGroup, Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT
from mailmend.delivery.policy.orders import ORDER_MAX, OrderKind, normal_value
from mailmend.delivery.policy.policy import PickupField


def _value(named: PickupField, value: Any) -> str:
    return normal_value(OrderKind.SUSPENSION, named, str(value))


def _field_option(name: str) -> click.Option:
    named, text = MAIL_FIELDS[name]
    return option(
        f"--{name.replace('_', '-')}",
        f"{text}; may be given again.",
        type=ParsedValue("value", partial(_value, named)),
        multiple=True,
        metavar="VALUE",
    )


def _values(own: Values, _others: Values, _context: click.Context) -> dict[str, tuple[str, ...]]:
    values = dict[str, tuple[str, ...]]()
    for name, (field, _) in MAIL_FIELDS.items():
        if own[name]:
            values[field.value] = tuple(own[name])
    return values


_WHICH: Final = Shared(
    "values",
    {
        "Which mails": tuple(map(_field_option, MAIL_FIELDS)),
    },
    _values,
)
ADD: Final = Command(
    name="add",
    summary="Hold back mails of a queue, on all of its servers.",
    about="""Each field that is named must match, and one of its values where it is given again. Values are as in a
    policy file: itself, '*.domain', a network, '/regex/'. What is under way goes on; the rest waits, or goes back to
    the queue for some minutes, and that counts as no retry; a mail that is too old is given up as ever. Who suspended
    it, and why, is kept over restarts. With --for it expires. The same mails suspended again are one suspension,
    with the later command's end and reason.""",
    service="mailmend.admin.delivery.orders:add_order",
    present="mailmend.admin.delivery.orders_document:add_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--all", "All of them: every mail of the queue.", "everything"),
        option(
            "--for",
            "How long. [default: until it is removed]",
            "lasts",
            type=Duration(ORDER_MAX, zero=False),
        ),
        WHY,
        DRY_RUN,
    ),
    shared=(of_kind(OrderKind.SUSPENSION), _WHICH, OF_A_QUEUE),
    examples="""
        mailmend suspend add outgoing --domain example.org --for 2h --why 'they throttle us'
        mailmend suspend add outgoing --local-ip 192.0.2.7 --why 'listed; ticket 12'       other addresses go on
        mailmend suspend add outgoing --transport alerts --remote-mx '*.example.net' --why 'wrong texts'
        mailmend suspend add outgoing --all --for 10m --why 'the firewall is changed'""",
    exits="0 it is suspended, 2 wrong use, 4 the cluster cannot be reached (`list` names it, or it is not).",
)

REMOVE: Final = remove_command(
    OrderKind.SUSPENSION,
    summary="Let suspended mails go again.",
    examples="""
        mailmend suspend remove outgoing 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002""",
)

_LIST: Final = list_command(
    OrderKind.SUSPENSION,
    summary="Say what is suspended: which mails, since when, until when, by whom, why.",
    about="""Suspensions of the policy files are not listed: each server has its own. With --history: which people and
    hooks suspended and removed what. A suspension that has expired is shown with the end that it was given; a change
    whose process was killed right behind it may be missing.

    With --exceeded: the entries whose thresholds are exceeded now, which are held back until one
    more delivery may begin. The command asks running servers over HTTP, each for its own entries:
    the policy, as what it counts the mails, the deliveries that go on and their limit, since when
    and until when, and how many mails wait at the server. Mails that wait in backlogs are not
    counted there.""",
    examples="""
        mailmend suspend list outgoing
        mailmend suspend list outgoing --json
        mailmend suspend list outgoing --history --changes 20      who did what last
        mailmend suspend list outgoing --exceeded --ask http://127.0.0.1:8000""",
)
LIST: Final = replace(
    _LIST,
    service="mailmend.admin.delivery.exceeded:list_suspensions",
    present="mailmend.admin.delivery.exceeded:suspensions_document",
    options=(
        *_LIST.options,
        flag("--exceeded", "Entries whose thresholds are exceeded now, of servers that are asked."),
        *ASK_OPTIONS,
    ),
    alone={"exceeded": ("history", "limit"), "history": ("ask", "token_file", "ask_tls_ca")},
    exits="0 done, also where nothing is listed; 2 wrong use; 3 some server did not answer, 4 the "
    "cluster cannot be reached, no server answered, or none knows the token.",
)

SUSPEND: Final = CommandGroup(
    name="suspend",
    summary="Hold back mails of a queue on all of its servers, for a while or until further notice.",
    commands=(ADD, LIST, REMOVE),
    examples="""
        mailmend suspend add outgoing --domain example.org --for 2h --why 'they throttle us'
        mailmend suspend list outgoing""",
)
