"""Options that several commands of deliveries share: which queue, and which mails."""

from typing import Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.command import Values
from mailmend.admin.queue.options import queue_settings
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
