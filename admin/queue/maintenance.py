"""Declarations of the queue's maintenance: flush, sweep, tend, reconcile, republish, redrive."""

import shlex
from typing import Any, Final

import click

from mailmend.admin.frame.command import JSON, Command
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import FILE, METRICS_FILE, flag, option
from mailmend.admin.queue.options import (
    AGE_MAX,
    ALL,
    DRY_RUN,
    FILTERS,
    MAIL_FILTERS,
    QUEUE_ARGUMENT,
    YES,
    queue_settings,
    typed_stores,
    unless,
)
from mailmend.mailqueue.queue import IDS_MAX
from mailmend.model.errors import WrongUse

_UNLESS_DRY_RUN: Final = queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"))


def _ids_max(text: str) -> click.Option:
    return option("--ids-max", text, type=click.IntRange(min=1), default=IDS_MAX)


FLUSH: Final = Command(
    name="flush",
    summary="Let every delayed mail be due now.",
    about="""Mails to be tried again, and mails put for later. Each keeps its id. There is no way back: to wait again a
    mail has to be retried.""",
    service="mailmend.admin.queue.maintenance_service:flush",
    present="mailmend.admin.queue.maintenance_document:flush_document",
    options=(QUEUE_ARGUMENT, DRY_RUN),
    shared=(_UNLESS_DRY_RUN,),
    examples="""
        mailmend queue flush outgoing --dry-run        how many wait for their time, and until when
        mailmend queue flush outgoing                  the other side is back: try everything now""",
    exits="0 done (or nothing was delayed), 2 wrong use, 3 another process kept moving delayed mails, 4 cannot reach "
    "(what was moved stays moved, the same command goes on).",
)

SWEEP: Final = Command(
    name="sweep",
    summary="Move the browse start, and clean up behind it.",
    about="""Only slices without any unmarked mail are cleaned; a mail that is found there all the same is put where
    listings see it, and published again. Marks stay, so nothing that was deleted comes back. They expire by
    themselves, but not in tables that James made, which have no time to live: there they stay until `mailmend repair
    queues --marks` removes them. Mails that would expire soon are renewed. The first 15 minutes, and at least a slice,
    are never touched. Consumers sweep now and then by themselves: this is for queues in which little happens, and for
    who does not want to wait.""",
    service="mailmend.admin.queue.maintenance_service:sweep",
    present="mailmend.admin.queue.maintenance_document:sweep_document",
    options=(QUEUE_ARGUMENT, flag("--move-only", "Only move the browse start."), DRY_RUN),
    shared=(queue_settings(broker=unless("move_only", "dry_run"), blobs=unless("move_only", "dry_run")),),
    output=(JSON, METRICS_FILE),
    examples="""
        mailmend queue sweep --dry-run              how far it would go, what would be cleaned, put back and renewed
        mailmend queue sweep
        mailmend queue sweep --move-only            the browse start alone: needs no broker
        mailmend queue sweep --json | jq .rescued""",
    exits="0 done (or nothing was to do), 1 somebody had moved the browse start back (James does so without looking; "
    "it is where it belongs again, or a mail holds it), 2 wrong use, 4 cannot reach: the next sweep completes what was "
    "begun.",
)


def _refuse_json_of_a_service(others: dict[str, Any], context: click.Context) -> None:
    if context.params.get("as_json") and not (others["once"] or others["dry_run"]):
        raise WrongUse(
            "--json is for --once and --dry-run", mend="A service reports on stderr, and in --metrics-file FILE."
        )


TEND: Final = Command(
    name="tend",
    summary="The background work: due mails, sweeps, renewals.",
    about="""Due mails are moved, slices swept, old mails renewed, tallies written. One such process for each keyspace
    is enough; several do no harm, and take over from each other. Without any, delayed mails stay where they are, and
    mails that wait for longer than the tables' time to live expire. Of a queue over Pulsar due mails are moved, notes
    of deletions expire, and what a killed broker forgot is deleted again; without such a process notes pile up. A dry
    run is one look at what a round would do now.""",
    service="mailmend.admin.queue.tend:tend",
    present="mailmend.admin.queue.maintenance_document:tend_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--once", "End after one round."),
        option(
            "--metrics-file",
            "Write metrics for Prometheus's node_exporter: after each round, to a file of its own.",
            "metrics",
            before="--metrics",
            type=FILE,
            metavar="FILE",
        ),
        ALL,
        DRY_RUN,
    ),
    shared=(queue_settings(broker=unless("dry_run"), blobs=unless("dry_run"), check=_refuse_json_of_a_service),),
    examples="""
        mailmend queue tend --all                                    as a service; ends in good order on SIGTERM
        mailmend queue tend --all --dry-run                          what a round would move, sweep and renew now
        mailmend queue tend --all --once                             one round, from cron or a systemd timer
        mailmend queue tend --all --metrics-file /var/lib/node_exporter/mailmend_tend.prom""",
    exits="0 it was asked to stop, or the round is done; 2 wrong use; 4 cannot reach (at the start; later it waits "
    "longer and longer between its tries, and says so on stderr).",
)


def _refuse_removing_blobs(others: dict[str, Any], context: click.Context) -> None:
    if others.pop("remove_orphan_blobs"):
        given = context.params
        stores = typed_stores(context)
        words = ("--keyspace", given["keyspace"], *stores, "--queues", given["queue_named"] or given["queue"])
        raise WrongUse(
            "--remove-orphan-blobs is gone: blobs that nothing refers to are collected by a command of their own",
            mend=f"Look first: mailmend repair blobs {shlex.join(words)} --dry-run",
        )


RECONCILE: Final = Command(
    name="reconcile",
    summary="Compare broker, tables and blobs; mend.",
    about="""Without stopping traffic; mends only what is asked for. The table's live mails against the broker's counts
    and against their blobs; rows that cannot be read. Nothing is written without a mending option. Blobs that nothing
    refers to: `mailmend check blobs`.

    Without --drain the broker's side is counts, for it cannot be searched. --republish then publishes every live mail
    older than --older-than, if some surely lack their message, and none if not; with --drain exactly those that lack
    it.

    What is removed is kept first, in ~/.local/share/mailmend/queue; `mailmend queue restore` puts it back. A mail that
    has a message and no row is kept with --drain only. Killed, the same command goes on.

    Over Pulsar the topics, of ready and of delayed mails, are compared with the blobs: `table` in the JSON is what they
    list, `bad_messages` where those are that are no mails. They are read without being taken, so neither --drain nor
    --republish has anything to do; --mark deletes.""",
    service="mailmend.admin.queue.reconcile:reconcile",
    present="mailmend.admin.queue.maintenance_document:reconcile_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--drain", "Take every message unacked, name it, give it back; asks. Pause consumers."),
        flag("--force", "Go on in spite of consumers. Drain then, and also where there is a delivery limit."),
        flag("--republish", "Publish mails again whose message the broker lacks."),
        option(
            "--older-than",
            "Only mails enqueued longer ago than this: for --republish.",
            type=Duration(AGE_MAX),
            default="1h",
        ),
        option(
            "--mark",
            "Take this mail out of the queue; may be given again.",
            type=click.UUID,
            multiple=True,
            metavar="ID",
        ),
        click.Option(["--remove-orphan-blobs"], is_flag=True, hidden=True),
        flag("--no-blobs", "Leave the blobs out: they take two requests for each live mail."),
        _ids_max(
            "How many mails of the queue are held in memory, about half a KiB each; more is refused. Delayed mails "
            "beyond that are counted, and not named."
        ),
        DRY_RUN,
        YES,
    ),
    shared=(queue_settings(broker=unless(), blobs=unless("no_blobs"), check=_refuse_removing_blobs),),
    examples="""
        mailmend queue reconcile                                    look only; traffic goes on
        mailmend queue reconcile --drain --yes                      name what is only in the broker or only in the table
        mailmend queue reconcile --drain --republish --dry-run      who would be published again
        mailmend queue reconcile --mark ID                          take one mail out, whatever is wrong with it""",
    exits="0 nothing was found, or all of it was mended; 1 something is found, or left; 2 wrong use, or a guard "
    "refused; 3 some of it could not be mended (each is named); 4 cannot reach.",
)

REPUBLISH: Final = Command(
    name="republish",
    summary="Publish again what was not processed.",
    about="""Every mail that waits for longer than --older-than (an hour, unless another age is given). For a broker
    that was lost or restored from an old state. Each mail keeps its id: where the broker has its message still,
    whichever copy comes second finds the mark of the first and is dropped. Two consumers may have both copies at once,
    so name an age that no mail reaches while all is well.""",
    service="mailmend.admin.queue.maintenance_service:republish",
    present="mailmend.admin.queue.maintenance_document:republish_document",
    options=(QUEUE_ARGUMENT, DRY_RUN),
    shared=(FILTERS, _UNLESS_DRY_RUN),
    examples="""
        mailmend queue republish --dry-run
        mailmend queue republish --older-than 1h           as James's republishing of what was not processed
        mailmend queue reconcile --drain --republish       exactly those whose message is lost""",
    exits="0 done (or nothing matched), 2 wrong use, 3 the broker refused one: what was published stays so, 4 cannot "
    "reach.",
)

REDRIVE: Final = Command(
    name="redrive",
    summary="Put dead letters back into their queue.",
    about="""Under their ids; those that were deleted meanwhile are dropped. Recipients that have their mail, by the
    journal of `delivery serve`, are left out and counted; --all-recipients delivers to them again. A dead letter is a
    mail that its consumer rejected, or that came back too often, or had lost its bytes. Mend the cause first, or it
    comes back here. The bytes of one that is dropped go with it. RabbitMQ's dead letters cannot be searched: a dry run
    takes all unacked for a moment, conditions those that they leave out, and all of these are given back.""",
    service="mailmend.admin.queue.maintenance_service:redrive",
    present="mailmend.admin.queue.maintenance_document:redrive_document",
    options=(
        QUEUE_ARGUMENT,
        option("--limit", "At most so many mails.", type=click.IntRange(min=1), metavar="N"),
        _ids_max("How many mails of the queue are held in memory, about half a KiB each; more is refused."),
        flag("--all-recipients", "Also those recipients that have their mail by the journal of attempts."),
        DRY_RUN,
    ),
    shared=(MAIL_FILTERS, queue_settings(broker=unless(), blobs=unless())),
    examples="""
        mailmend queue redrive --dry-run              how many there are, and how many of them were deleted meanwhile
        mailmend queue redrive --limit 10             the first ten, to see whether they fare better now
        mailmend queue redrive --recipient '*@example.com'    their server is back""",
    exits="0 done (or there are none), 1 some cannot be read, and stay where they are; 2 wrong use, 3 another process "
    "does the same, or the broker refused one; 4 cannot reach: "
    "what is back stays back, the same command goes on. After a kill too: a mail may come twice then, none is lost.",
)
