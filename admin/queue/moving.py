"""Declaration of `mailmend queue move`, between RabbitMQ and Pulsar."""

from datetime import timedelta
from typing import Final

import click

from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import CONNECTION, FILE, connection_of, flag, option
from mailmend.admin.frame.settings import QueueSettings, is_pulsar, parse_blobs, parse_management
from mailmend.admin.queue.broker_options import target_of
from mailmend.admin.queue.options import (
    DRY_RUN,
    QUEUE_ARGUMENT,
    QUEUE_NAME,
    blobs_of,
    local_service,
    queue_settings,
    unless,
)
from mailmend.mailqueue.codec.pulsar import PulsarForm
from mailmend.mailqueue.pulsar.broker.settings import PulsarSettings
from mailmend.model.errors import WrongUse

WAIT_MAX: Final = timedelta(days=1)

_TARGET: Final = (
    option(
        "--to-broker",
        "Where the mails go: pulsar://... of a queue over RabbitMQ, amqp://... of one over Pulsar, as in --broker. "
        "Password: MAILMEND_TO_PASSWORD.",
        required=True,
        metavar="URL",
    ),
    option("--to-queue", "Name of the queue there. [default: the same]", type=QUEUE_NAME, metavar="NAME"),
    option(
        "--to-blobs",
        "Blob store there, with the keys of --blobs. [default: the same]",
        type=ParsedValue("blobs", lambda value: parse_blobs(str(value))),
        metavar="URL",
    ),
    option("--to-password-file", "A file whose first line is the password there.", type=FILE, metavar="FILE"),
    option(
        "--to-management",
        "HTTP API of the broker there, as in --broker-management.",
        type=ParsedValue("management", lambda value: parse_management(str(value))),
        metavar="URL",
    ),
    option("--to-tls-ca", "Certificate of the authority that signed that broker's.", type=FILE, metavar="FILE"),
)


def _target(own: Values, _others: Values, context: click.Context) -> QueueSettings:
    """The queue that takes the mails in: over the other kind of broker than the source."""
    given = {**context.params, **own}
    over_pulsar = is_pulsar(own["to_broker"])
    if over_pulsar == is_pulsar(given["broker"] or ""):
        raise WrongUse(
            "a queue moves between RabbitMQ and Pulsar, and both brokers are of one kind",
            mend="Name one with amqp:// or amqps://, the other with pulsar:// or pulsar+ssl://.",
        )
    connection = connection_of(given, context, asks=False) if over_pulsar else CONNECTION.build(given, {}, context)
    broker = target_of(given, context)
    name = own["to_queue"] or given["queue_named"] or given["queue"]
    blobs = blobs_of({**given, "blobs": own["to_blobs"] or given["blobs"]}, context, local_service)
    if isinstance(broker, PulsarSettings):
        james = PulsarForm(given["broker_james"]) if given["broker_james"] else None
        return QueueSettings(connection, name, blobs=blobs, pulsar=broker, james=james)
    return QueueSettings(connection, name, broker, blobs)


MOVE: Final = Command(
    name="move",
    summary="Move a queue from RabbitMQ to Pulsar, or back.",
    about="""Every mail, while others may be put at the source: those that wait as a consumer would get them, delayed
    ones with their time. Each keeps its story: envelope, attributes, attempts, last error, time of enqueueing, and its
    id. A mail that comes back to a queue which had it before gets another id, which follows from the old one.

    Killed at any step, the same command goes on: what was taken is in a journal in ~/.local/share/mailmend/queue, and
    is moved once. So go on with it on the same machine, as the same user. Consumers may work at the target meanwhile.
    Consumers at the source are refused, for a mail that one of them finishes while a move is interrupted may come
    twice; --force lets them be.

    It ends when no mail came for --wait. Dead letters stay, and so do mails whose message the broker has lost: what is
    left is counted. Bytes are stored anew for the target; where blob ids are deduplicated and both queues have one
    store, they stay.""",
    service="mailmend.admin.queue.move:move",
    present="mailmend.admin.queue.mails_document:move_document",
    options=(
        QUEUE_ARGUMENT,
        option("--wait", "End when no mail came for so long.", type=Duration(WAIT_MAX), default="5s"),
        flag("--force", "Go on in spite of consumers. At the source they are refused without it."),
        DRY_RUN,
    ),
    shared=(Shared("to", {"Target": _TARGET}, _target), queue_settings(broker=unless(), blobs=unless())),
    examples="""
        mailmend queue move outgoing --to-broker pulsar://pulsar.example.org --dry-run     how many; writes nothing
        mailmend queue move outgoing --to-broker pulsar://pulsar.example.org               from RabbitMQ
        mailmend queue move outgoing --broker pulsar://pulsar.example.org --to-broker amqp://rabbit   and back""",
    exits="0 the source is empty but for dead letters (or it was a dry run), 1 mails are left there; 2 wrong use, or "
    "the source has consumers; 3 some cannot be moved (each is named); 4 cannot reach: what is moved stays so, the "
    "same command goes on.",
)
