"""`mailmend queue`: the distributed mail queue. Each command in a module of its own, imported when it is called."""

from typing import Final

import click

from admin.cli.command import Later, LazyGroup
from admin.cli.queue_options import SHARED_NAMES

_COMMANDS: Final = {
    "list": Later("admin.cli.queue.listing", "list_queues", "The queues, how many mails each holds, where it begins."),
    "size": Later("admin.cli.queue.size", "size", "How many mails wait; exact or estimate."),
    "browse": Later("admin.cli.queue.browse", "browse", "The mails of a queue, filtered, page by page."),
    "enqueue": Later("admin.cli.queue.enqueue", "enqueue", "Put .eml files into a queue; now, or later."),
    "dequeue": Later("admin.cli.queue.dequeue", "dequeue", "Take mails: into a folder, or to a command each."),
    "delete": Later("admin.cli.queue.delete", "delete", "Remove the mails that match; keeps them in a file first."),
    "purge": Later("admin.cli.queue.delete", "purge", "Remove every mail; asks, and keeps them in a file first."),
    "restore": Later("admin.cli.queue.restore", "restore", "Put back what a delete or purge kept."),
    "flush": Later("admin.cli.queue.flush", "flush", "Let every delayed mail be due now."),
    "sweep": Later("admin.cli.queue.sweep", "sweep", "Move the browse start, and clean up behind it."),
    "tend": Later("admin.cli.queue.tend", "tend", "The background work: due mails, sweeps, renewals."),
    "reconcile": Later("admin.cli.queue.reconcile", "reconcile", "Compare broker, tables and blobs; mend."),
    "republish": Later("admin.cli.queue.republish", "republish", "Publish again what was not processed."),
    "redrive": Later("admin.cli.queue.redrive", "redrive", "Put dead letters back into their queue."),
    "health": Later("admin.cli.queue.health", "health", "Whether a queue is well, and why not."),
    "metrics": Later("admin.cli.queue.metrics", "metrics", "Figures of a queue for Prometheus."),
    "configure": Later("admin.cli.queue.configure", "configure", "Slice window, buckets and pace, by James's rules."),
    "advise": Later("admin.cli.queue.advise", "advise", "Slice window, buckets and pace that fit the traffic."),
}


@click.group(
    cls=LazyGroup,
    later=_COMMANDS,
    shared=SHARED_NAMES,
    epilog="""\b
Examples:
  mailmend queue size --queue outgoing                       how much waits; reads the tables only
  mailmend queue browse --sender '*@example.org' --older-than 1h
  mailmend queue delete --recipient bob@example.org --dry-run
  mailmend queue reconcile                                   is anything lost? broker, tables and blobs compared
  mailmend queue tend                                        what has to run beside the queue

\b
Where broker and blobs are: --broker and --blobs, MAILMEND_BROKER and MAILMEND_BLOBS, or in the settings file:
  [queue]
  broker = "amqps://james@rabbit.example.org"
  blobs = "s3://james?endpoint=https://s3.example.org"
Without any of them a running `mailmend local up --with rabbitmq,s3` is used.""",
)
def queue() -> None:
    """The distributed mail queue: RabbitMQ, a view in Cassandra, contents in an object store; compatible with James.

    Commands that only look at the tables (list, size, browse) need no broker.
    """
