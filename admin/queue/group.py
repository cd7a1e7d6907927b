"""Declarations of `mailmend queue`."""

from typing import Final

from mailmend.admin.frame.command import CommandGroup
from mailmend.admin.queue.mails import DELETE, DEQUEUE, ENQUEUE, PURGE, RESTORE
from mailmend.admin.queue.maintenance import FLUSH, RECONCILE, REDRIVE, REPUBLISH, SWEEP, TEND
from mailmend.admin.queue.moving import MOVE
from mailmend.admin.queue.options import SETTINGS_NAMES
from mailmend.admin.queue.reading import ADVISE, BROWSE, CONFIGURE, HEALTH, LIST, METRICS, SIZE

QUEUE: Final = CommandGroup(
    name="queue",
    summary="The distributed mail queue: look, take, put, mend, tend.",
    about="""RabbitMQ, a view in Cassandra, contents in an object store; as James has it. Commands that only look at
    the tables (list, size, browse) need no broker.""",
    commands=(
        LIST,
        SIZE,
        BROWSE,
        ENQUEUE,
        DEQUEUE,
        DELETE,
        PURGE,
        RESTORE,
        FLUSH,
        SWEEP,
        TEND,
        RECONCILE,
        REPUBLISH,
        REDRIVE,
        HEALTH,
        METRICS,
        MOVE,
        CONFIGURE,
        ADVISE,
    ),
    examples="""
        mailmend queue size outgoing                               how much waits; reads the tables only
        mailmend queue browse --sender '*@example.org' --older-than 1h
        mailmend queue delete --recipient bob@example.org --dry-run
        mailmend queue reconcile                                   is anything lost? broker, tables and blobs compared
        mailmend queue tend                                        what has to run beside the queue""",
    epilog="""\b
Where broker and blobs are: --broker and --blobs, MAILMEND_BROKER and MAILMEND_BLOBS, or in the settings file:
  [queue]
  broker = "amqps://james@rabbit.example.org"
  blobs = "s3://james?endpoint=https://s3.example.org"
Without any of them a running `mailmend local up --with rabbitmq,s3` is used.""",
    settings=SETTINGS_NAMES,
)
