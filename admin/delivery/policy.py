"""Declarations of `mailmend policy`."""

from typing import Final

import click

from mailmend.admin.delivery.conditions import CONDITION_COMMANDS
from mailmend.admin.delivery.options import MAIL_FIELDS
from mailmend.admin.frame.command import TYPED, Command, CommandGroup, Late, Shared, Values
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings
from mailmend.delivery.policy.policy import PickupField

_FILE: Final = click.Argument(["file"], type=FILE, metavar="FILE")

LINT: Final = Command(
    name="lint",
    summary="Say what of a policy file is legal, and surely not meant.",
    about="""The file is read as `mailmend delivery serve --policies` reads it: each value that it would refuse is
    refused here, with line and column. Then it is said what would be taken although nobody can have meant it:
    conditions, defaults and rates that are never reached, values that no mail has, groups and lists without effect,
    and more; only what is certain. The rules, and why each matters: docs/lint.md. It asks no server, and needs
    mailmend[delivery].""",
    service="mailmend.admin.delivery.policy_service:lint",
    present="mailmend.admin.delivery.policy_document:lint_document",
    options=(_FILE,),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy lint policies.yaml --json     for a script""",
    exits="0 nothing was found, 1 something was, 2 the file cannot be read, or the server would refuse it.",
)

_ONE_VALUE: Final = {name: field for name, field in MAIL_FIELDS.items() if field[0] is not PickupField.LOCAL_IP}
_MAIL: Final = Shared(
    "values",
    {
        "Which mail": tuple(
            option(
                f"--{name.replace('_', '-')}",
                f"{text.partition(';')[0]}. [default: empty]",
                type=ParsedValue("value", named.normal),
                metavar="VALUE",
            )
            for name, (named, text) in _ONE_VALUE.items()
        )
    },
    lambda own, _others, _context: {
        field: own[name] for name, (field, _) in _ONE_VALUE.items() if own[name] is not None
    },
)


def _settings_if_named(own: Values, others: Values, context: click.Context) -> QueueSettings | None:
    """None, so that nothing is connected to, where no queue is named on the command line."""
    if others["queue_named"] or context.get_parameter_source("queue") is TYPED:
        found: QueueSettings = _QUEUE.build(own, others, context)
        return found
    del others["queue_named"]
    return None


_QUEUE: Final = queue_settings(ledger=True)
_QUEUE_IF_NAMED: Final = Shared("settings", _QUEUE.groups, _settings_if_named)

EXPLAIN: Final = Command(
    name="explain",
    summary="Say what a policy file means for a mail.",
    about="""Which policies count it, as what; which condition, or the default, sets its limits, and where it stands;
    what suspends it; which of the addresses that it may be sent from are left; and which quotas of the queue count it.
    It is asked of the engine that `delivery serve` picks mails by, with nothing else to deliver: no limit is reached
    yet, so what is held back here is suspended, or may have no delivery at all. Without QUEUE it asks no server. It
    needs mailmend[delivery].

    With QUEUE typed, here or as --queue, what is ordered for that queue holds too: limits set by `policy add`, mails
    suspended by `suspend add`, and what hooks ordered of both. Where the file has quotas the queue is counted, which
    reads its listing through. What servers have under way, and their parts of shared limits: `delivery explain`.""",
    service="mailmend.admin.delivery.policy_service:explain",
    present="mailmend.admin.delivery.policy_document:explain_document",
    options=(
        _FILE,
        QUEUE_ARGUMENT,
        option(
            "--local-ip",
            "Address that it is sent from; may be given again: each is looked at. [default: any]",
            type=ParsedValue("address", PickupField.LOCAL_IP.normal),
            multiple=True,
            metavar="VALUE",
        ),
    ),
    shared=(_MAIL, _QUEUE_IF_NAMED),
    examples="""
        mailmend policy explain policies.yaml --domain example.org
        mailmend policy explain policies.yaml --domain example.org --remote-mx mx1.example.net --transport alerts
        mailmend policy explain policies.yaml outgoing --domain example.org       with what is ordered for the queue
        mailmend policy explain policies.yaml --local-ip 192.0.2.1 --local-ip 192.0.2.2 --domain example.org --json""",
    exits="0 it was explained, whether the mail is held back or not; 2 wrong use, or the server would refuse the file; "
    "4 the cluster of the queue cannot be reached.",
)

SCHEMA: Final = Command(
    name="schema",
    summary="The JSON schema of a policy file, for editors.",
    about="""Draft 2020-12, as in docs/policy.schema.json; the file is to be read as YAML 1.2, as editors do. It sees
    the form alone: that a group or list is there, and that an expression is one, `lint` tells.

    For VS Code and others, the first line of a policy file: # yaml-language-server: $schema=policy.schema.json""",
    service="mailmend.admin.delivery.policy_service:schema",
    present="mailmend.admin.delivery.policy_document:schema_document",
    examples="""
        mailmend policy schema > policy.schema.json""",
    exits="0 it was printed.",
)

POLICY: Final = CommandGroup(
    name="policy",
    summary="Limits of deliveries: what a policy file says, and what is set beside it for a while.",
    commands=(
        LINT,
        EXPLAIN,
        Late(
            "simulate",
            "Say what a policy file would have done to the recorded attempts of a queue.",
            "mailmend.admin.delivery.simulate:SIMULATE",
        ),
        SCHEMA,
        *CONDITION_COMMANDS,
    ),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy explain policies.yaml --domain example.org --local-ip 192.0.2.1
        mailmend policy simulate policies.yaml outgoing --against now.yaml
        mailmend policy add outgoing --fields recipientdomain --if recipientdomain=example.org \\
            --rate 100/60 --for 2h --why 'they throttle us'
        mailmend policy list outgoing""",
)
