"""Declarations of `mailmend queue`."""

from typing import Final

from mailmend.admin.frame.command import CommandGroup, Late
from mailmend.admin.queue.options import SETTINGS_NAMES

QUEUE: Final = CommandGroup(
    name="queue",
    summary="The distributed mail queue: look, take, put, mend, tend.",
    about="""RabbitMQ, a view in Cassandra, contents in an object store; as James has it. Commands that only look at
    the tables (list, size, browse) need no broker.""",
    commands=(
        Late(
            "list",
            "The queues, how many mails each holds, where it begins.",
            "mailmend.admin.queue.reading:LIST",
        ),
        Late(
            "size",
            "How many mails wait; exact or estimate.",
            "mailmend.admin.queue.reading:SIZE",
        ),
        Late(
            "browse",
            "The mails of a queue, filtered, page by page.",
            "mailmend.admin.queue.reading:BROWSE",
        ),
        Late(
            "enqueue",
            "Put .eml files into a queue; now, or later.",
            "mailmend.admin.queue.enqueue:ENQUEUE",
        ),
        Late(
            "dequeue",
            "Take mails: into a folder, or to a command each.",
            "mailmend.admin.queue.dequeue:DEQUEUE",
        ),
        Late(
            "delete",
            "Remove the mails that match; keeps them in a file first.",
            "mailmend.admin.queue.remove:DELETE",
        ),
        Late(
            "purge",
            "Remove every mail; asks, and keeps them in a file first.",
            "mailmend.admin.queue.remove:PURGE",
        ),
        Late(
            "restore",
            "Put back what a delete or purge removed.",
            "mailmend.admin.queue.remove:RESTORE",
        ),
        Late(
            "flush",
            "Let every delayed mail be due now.",
            "mailmend.admin.queue.redrive:FLUSH",
        ),
        Late(
            "sweep",
            "Move the browse start, and clean up behind it.",
            "mailmend.admin.queue.tend:SWEEP",
        ),
        Late(
            "tend",
            "The background work: due mails, sweeps, renewals.",
            "mailmend.admin.queue.tend:TEND",
        ),
        Late(
            "reconcile",
            "Compare broker, tables and blobs; mend.",
            "mailmend.admin.queue.reconcile:RECONCILE",
        ),
        Late(
            "republish",
            "Publish again what was not processed.",
            "mailmend.admin.queue.redrive:REPUBLISH",
        ),
        Late(
            "redrive",
            "Put dead letters back into their queue.",
            "mailmend.admin.queue.redrive:REDRIVE",
        ),
        Late(
            "health",
            "Whether a queue is well, and why not.",
            "mailmend.admin.queue.health:HEALTH",
        ),
        Late(
            "metrics",
            "Figures of a queue for Prometheus.",
            "mailmend.admin.queue.health:METRICS",
        ),
        Late(
            "move",
            "Move a queue from RabbitMQ to Pulsar, or back.",
            "mailmend.admin.queue.move:MOVE",
        ),
        Late(
            "configure",
            "Slice window, buckets and pace, by James's rules.",
            "mailmend.admin.queue.configure:CONFIGURE",
        ),
        Late(
            "advise",
            "Slice window, buckets and pace that fit the traffic.",
            "mailmend.admin.queue.configure:ADVISE",
        ),
    ),
    examples="""
        mailmend queue size outgoing                               how much waits; reads the tables only
        mailmend queue browse --sender '*@example.org' --older-than 1h
        mailmend queue delete --recipient bob@example.org --dry-run
        mailmend queue reconcile                                   is anything lost? broker, tables and blobs compared
        mailmend queue tend                                        what has to run next to the queue""",
    epilog="""\b
Where broker and blobs are: --broker and --blobs, MAILMEND_BROKER and MAILMEND_BLOBS, or in the settings file:
  [queue]
  broker = "amqps://james@rabbit.example.org"
  blobs = "s3://james?endpoint=https://s3.example.org"
Without any of them a running `mailmend local up --with rabbitmq,s3` is used.""",
    settings=SETTINGS_NAMES,
)
