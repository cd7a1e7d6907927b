"""Options that several commands of deliveries share: which queue, and which mails."""

from typing import Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT, queue_settings
from mailmend.delivery.policy.orders import OrderKind
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.errors import WrongUse


def refuse_unnamed(others: Values, context: click.Context) -> None:
    """Without a name the queue is James's spool, whose mails are not ready to go out."""
    if not others["queue_named"] and context.get_parameter_source("queue") is ParameterSource.DEFAULT:
        raise WrongUse("it is not said which queue is delivered", mend=f"Name it: {context.command_path} outgoing")


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


READS_LEDGER: Final = queue_settings(ledger=True)

HISTORY_SHOWN: Final = 100
"""How many of the newest changes are listed by default."""

WHY: Final = option("--why", "Reason: shown to operators who find mails waiting.", required=True, metavar="TEXT")


def of_kind(kind: OrderKind) -> Shared:
    """The field `kind` of a request: the command itself says it, and no option does."""
    return Shared("kind", {}, lambda _own, _others, _context: kind)


def mail_option(name: str) -> click.Option:
    """The option that names a field of one mail; `name` is a key of `MAIL_FIELDS`."""
    named, text = MAIL_FIELDS[name]
    kind = ParsedValue("value", named.normal)
    if named is PickupField.LOCAL_IP:
        # A server has several addresses that it may send a mail from.
        about = "Address that it is sent from; may be given again. [default: the server's]"
        return option("--local-ip", about, type=kind, multiple=True, metavar="VALUE")
    about = f"{text.partition(';')[0]}. [default: empty]"
    return option(f"--{name.replace('_', '-')}", about, type=kind, metavar="VALUE")


def list_command(kind: OrderKind, *, summary: str, about: str, examples: str) -> Command:
    """The command that lists the orders of a kind, or their history."""
    return Command(
        name="list",
        summary=summary,
        about=about,
        service="mailmend.admin.delivery.orders:list_orders",
        present="mailmend.admin.delivery.orders_document:list_document",
        options=(
            QUEUE_ARGUMENT,
            flag("--history", "What was made, renewed and removed in the last 30 days, by whom and why, newest first."),
            option(
                "--changes",
                "With --history: maximum number of changes.",
                "limit",
                type=click.IntRange(1, 100_000),
                default=HISTORY_SHOWN,
                metavar="N",
            ),
        ),
        shared=(of_kind(kind), OF_A_QUEUE),
        examples=examples,
        exits="0 done, also where nothing is listed; 2 wrong use, 4 the cluster cannot be reached.",
    )


def remove_command(kind: OrderKind, *, summary: str, examples: str) -> Command:
    """The command that ends an order of a kind."""
    return Command(
        name="remove",
        summary=summary,
        service="mailmend.admin.delivery.orders:remove_order",
        present="mailmend.admin.delivery.orders_document:remove_document",
        options=(QUEUE_ARGUMENT, click.Argument(["id"], type=click.UUID, metavar="ID"), DRY_RUN),
        shared=(of_kind(kind), OF_A_QUEUE),
        examples=examples,
        exits=f"0 it is removed, 2 wrong use or no such {kind.value}, 4 the cluster cannot be reached.",
    )
