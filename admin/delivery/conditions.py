"""`mailmend policy add`, `list` and `remove`: limits for a while, before the limits of the files."""

import math
from typing import Any, Final

import click

from mailmend.admin.delivery.options import OF_A_QUEUE, WHY, list_command, of_kind, remove_command
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT
from mailmend.delivery.policy.orders import ORDER_MAX, OrderKind, normal_value
from mailmend.delivery.policy.policy import PickupField, Threshold, field_named
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.model.errors import WrongUse

_NAMES: Final = ", ".join(field.value for field in PickupField)


def _fields(value: Any) -> tuple[str, ...]:
    return tuple(name for word in str(value).split(",") if (name := word.strip()))


def _value(value: Any) -> tuple[str, str]:
    name, is_there, text = str(value).partition("=")
    if not name or not is_there:
        raise WrongUse(f"{value!r} is no field with a value", mend="Write it like recipientdomain=example.org.")
    return name, normal_value(OrderKind.CONDITION, field_named(name), text)


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
    service="mailmend.admin.delivery.orders:add_order",
    present="mailmend.admin.delivery.orders_document:add_document",
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
        WHY,
        DRY_RUN,
    ),
    shared=(of_kind(OrderKind.CONDITION), _WHICH, _LIMITS, OF_A_QUEUE),
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

LIST: Final = list_command(
    OrderKind.CONDITION,
    summary="Say which limits are set for a while: for which mails, until when, by whom, why, and which are parked.",
    about="""The conditions are listed in the order in which they are tested, each with the servers that use it. The
    conditions of the policy files are not listed. With --history: which people and hooks set and removed what. A
    condition that has expired is shown with the end that it was given; a change whose process was killed right behind
    it may be missing.""",
    examples="""
        mailmend policy list outgoing
        mailmend policy list outgoing --json
        mailmend policy list outgoing --history --changes 20      who did what last""",
)

REMOVE: Final = remove_command(
    OrderKind.CONDITION,
    summary="Let the policy files' limits hold again.",
    examples="""
        mailmend policy remove outgoing 6e0ab5e0-8d1c-51f0-9a5e-0242ac120002""",
)

CONDITION_COMMANDS: Final = (ADD, LIST, REMOVE)
