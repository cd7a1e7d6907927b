"""Declarations of the queue's commands that look and write no mail: list, size, browse, health, metrics, configure."""

from datetime import timedelta
from typing import Any, Final

import click

from mailmend.admin.frame.command import Command
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import CONNECTION, FILE, TRAFFIC, flag, option
from mailmend.admin.queue.options import ALL, FILTERS, NO_BROKER, QUEUE_ARGUMENT, queue_settings, unless, where
from mailmend.admin.queue.request import PAGE_MAILS
from mailmend.mailqueue.rules.positions import ListingPosition

OVER_MAX: Final = timedelta(minutes=10)

LIST: Final = Command(
    name="list",
    summary="The queues, how many mails each holds, where it begins.",
    about="Reads the tables only; writes nothing.",
    service="mailmend.admin.queue.listing:list_queues",
    present="mailmend.admin.queue.mails_document:list_document",
    shared=(queue_settings(named=False),),
    examples="""
        mailmend queue list
        mailmend queue list --json | jq '.queues[] | select(.mails > 1000).queue'""",
    exits="0 it was shown, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached.",
)

SIZE: Final = Command(
    name="size",
    summary="How many mails wait; exact or estimate.",
    about="""Delayed ones are counted too. The time that it takes depends on the number of slices, not of mails.
    `exact` is a count; `estimate` may be off by what is under way, by what a process that was killed had not reported,
    or, in a keyspace that James has created, by what James did just now. Writes nothing, unless asked to --recount.""",
    service="mailmend.admin.queue.listing:queue_size",
    present="mailmend.admin.queue.mails_document:size_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--recount", "Read every row first, and correct the tallies of all processes; writes tallies."),
    ),
    shared=(queue_settings(),),
    examples="""
        mailmend queue size
        mailmend queue size outgoing --json | jq .mails
        mailmend queue size --recount                   where it has been an estimate for long""",
    exits="0 it was counted, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached.",
)


def _position(value: Any) -> ListingPosition:
    return value if isinstance(value, ListingPosition) else ListingPosition.parse(str(value))


BROWSE: Final = Command(
    name="browse",
    summary="The mails of a queue, filtered, page by page.",
    about="""Those that wait, slice by slice, the oldest first; then those that are delayed. Only metadata is read, and
    no broker is asked. An unacked mail, which a consumer has, is still listed: it leaves the queue when it is acked.
    Writes nothing.""",
    service="mailmend.admin.queue.listing:browse",
    present="mailmend.admin.queue.mails_document:browse_document",
    item="mailmend.admin.queue.mails_document:browsed_json",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--limit",
            f"At most so many mails. [default: {PAGE_MAILS}; all of them with --lines]",
            type=click.IntRange(min=1),
            metavar="N",
        ),
        option(
            "--after",
            "Go on behind an earlier page, whose end names this token.",
            type=ParsedValue("position", _position),
            metavar="TOKEN",
        ),
        flag("--with-content", "Read the mails' bytes too; what is missing is named, and the rest shown."),
        flag(
            "--lines",
            "Write each mail as a line of JSON on stdout, while they are read; --json is one object at the end.",
        ),
    ),
    shared=(FILTERS, queue_settings(blobs=where("with_content"))),
    examples="""
        mailmend queue browse                                        the first 100 of spool
        mailmend queue browse outgoing --sender '*@example.org' --older-than 1h
        mailmend queue browse --id ID --with-content                 one mail, its bytes too
        mailmend queue browse --lines | jq -r .id                    all of them, a line each""",
    exits="0 it was shown, 2 wrong use, 3 rows were found that cannot be read (each is named), 4 cannot reach.",
)

HEALTH: Final = Command(
    name="health",
    summary="Whether a queue is well, and why not.",
    about="""Writes nothing. What is wrong: the browse start is older than 7 days; somebody moved it back; nothing was
    swept for half of what tables live longer than mails stay; a mail stays longer than the tables are made for; dead
    letters; the broker lacks messages of mails that have waited for a minute (looked at twice, 6 s apart; where
    consumers run, it needs --broker-management); mails wait and nobody takes any; the broker does not answer.
    Marks that never expire, in tables that James made, are named and no fault.

    Over Pulsar, where no table is read: dead letters; mails that nobody takes; delayed ones more than 5 minutes late,
    as nobody tends the queue; deletions that pile up; a broker that is away; and what its policies do, as they are in
    force for each topic: messages or subscriptions expire, a backlog quota drops the oldest mails or is nearly full,
    idle topics are deleted, done mails are kept for ever, delayed delivery is off or bounded, or acknowledgements lie
    in nearly more stretches than a broker remembers. Each with the pulsar-admin command that mends it. Policies are
    told to who administers the tenant; where they cannot be read that is said, and is no fault.""",
    service="mailmend.admin.queue.health:queue_health",
    present="mailmend.admin.queue.mails_document:health_document",
    options=(QUEUE_ARGUMENT, ALL, NO_BROKER),
    shared=(queue_settings(broker=unless("no_broker")),),
    examples="""
        mailmend queue health --all
        mailmend queue health outgoing --json | jq '.queues[].reasons'""",
    exits="0 well, 1 something is wrong (each reason is named), 2 wrong use, 4 the cluster cannot be reached.",
)

METRICS: Final = Command(
    name="metrics",
    summary="Figures of a queue for Prometheus.",
    about="""How much waits, since when, how fast it goes. Writes no table. mailmend_queue_mails, _delayed_mails,
    _size_exact, _oldest_age_seconds, _browse_start_age_seconds, _content_start_lag_seconds, _last_sweep_age_seconds,
    _enqueued_per_second, _marked_per_second, _broker_up, _broker_ready, _broker_unacked, _broker_consumers,
    _broker_lacking, _broker_dead_letters, _trouble (1 where health names it). Over Pulsar also _deletions and
    _overdue_seconds, and nothing about slices, sweeps and marks. What a process of the queue counts itself
    (delivered, retried, ...) is in the file of `mailmend queue tend --metrics-file`.""",
    service="mailmend.admin.queue.health:queue_metrics",
    present="mailmend.admin.queue.mails_document:metrics_document",
    options=(
        QUEUE_ARGUMENT,
        option("--output", "Write to this file, whole or not at all.", type=FILE, metavar="FILE"),
        option(
            "--over",
            "Measure rates between two looks so far apart; 0 leaves them out.",
            type=Duration(OVER_MAX),
            default="5s",
        ),
        ALL,
        NO_BROKER,
    ),
    shared=(queue_settings(broker=unless("no_broker")),),
    output=(),
    examples="""
        mailmend queue metrics --all
        mailmend queue metrics --all --output /var/lib/node_exporter/mailmend_queue.prom      from cron, each minute""",
    exits="0 written, 2 wrong use, 3 the broker does not answer (the rest is written), 4 the cluster cannot be "
    "reached.",
)

CONFIGURE: Final = Command(
    name="configure",
    summary="Slice window, buckets and pace, by James's rules.",
    about="""Shown, or changed; without options nothing is written. It is stored as James does: each change is an event
    in eventStore, the last one counts. One configuration serves every queue of the keyspace. A new slice window must
    divide the last one, buckets only grow: else mails would be lost from view. Every process of the queues must be
    started again after it, James with the same values in its rabbitmq.properties.""",
    service="mailmend.admin.queue.configure:configure",
    present="mailmend.admin.schema.advise:configure_document",
    options=(
        option(
            "--slice-window",
            "The length of a slice: 1h, 30m, 90s.",
            type=Duration(timedelta(days=3_650)),
            metavar="DURATION",
        ),
        option("--buckets", "How many partitions each slice has.", type=int, metavar="N"),
        option(
            "--browse-start-every",
            "Move the browse start at one of N dequeues and deletes: James's updateBrowseStartPace.",
            "pace",
            before="--pace",
            type=int,
            metavar="N",
        ),
        flag("--dry-run", "Write nothing: say whether the change may be."),
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend queue configure                                what counts, and what was set before
        mailmend queue configure --slice-window 30m --dry-run   whether that may be, and what would be allowed instead
        mailmend queue configure --slice-window 30m --buckets 2
        mailmend runbook show change-slice-window               how to go about it""",
    exits="0 it is shown, set or may be set; 2 wrong use, or a change that would lose mails from view; 4 the cluster "
    "cannot be reached.",
)

ADVISE: Final = Command(
    name="advise",
    summary="Slice window, buckets and pace that fit the traffic.",
    about="""Writes nothing. One configuration serves every queue of a keyspace; the busiest is measured. About 10,000
    mails a slice are aimed at. A slice window may only become one that divides the present, and buckets only grow: what
    is advised may be set.""",
    service="mailmend.admin.queue.configure:advise",
    present="mailmend.admin.schema.advise:advise_document",
    shared=(TRAFFIC, CONNECTION),
    examples="""
        mailmend queue advise                               from what is measured; seconds
        mailmend queue advise --mails-per-second 40 --peak-mails-per-second 300
        mailmend queue advise --json | jq -r .command       what to type, for a script""",
    exits="0 the advice was given, 2 wrong use, 4 the cluster cannot be reached.",
)
