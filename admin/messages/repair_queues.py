"""`mailmend repair queues`: what the sweep of the mail queues has left, removed."""

from typing import Final

import click

from mailmend.admin.frame.command import JSON, Command
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.nodetool import NODETOOL
from mailmend.admin.frame.options import FINDINGS, METRICS_FILE, REPORT, flag, option
from mailmend.admin.messages.options import (
    KEEP_OPTION,
    MARGIN_OPTION,
    PLAN,
    SCANNING_ALL,
    TIMING,
    scanning_of,
)
from mailmend.admin.queue.options import AGE_MAX, STORES_TYPED, queue_settings, unless
from mailmend.mailqueue.rules.cleanup import MarksRule
from mailmend.model.projections.verdicts import QUEUE_VERDICTS

_QUEUE_VERDICTS: Final = "\b\n    " + "\n    ".join(
    f"{verdict.value:<17} {queue_verdict.meaning}" for verdict, queue_verdict in QUEUE_VERDICTS.items()
)
REPAIR_QUEUES: Final = Command(
    name="queues",
    summary="Remove what the sweep of the mail queues has left.",
    about=f"""It cleans every queue of the keyspace: rows of finished mails in slices that are no longer browsed, also
    before the content start, where no sweep looks; their blobs; starts that could move on; counts that are wrong. Both
    tables are read whole, twice, the delay apart; a partition goes only if it was finished both times, and nothing goes
    that was written after the first look began. James, workers and sweeps may run meanwhile. Mails that wait are never
    touched. Removed rows do not come back: begin with --dry-run.

    {_QUEUE_VERDICTS}

    Marks hide what the broker may still deliver. Where they have no time to live (tables that James made) they stay,
    unless --marks says what proves that no delivery needs them: `empty`, the broker holds no message of the queue at
    either look, and nothing waits or is delayed; or `old`, no message at the broker is older than --marks-age.

    In tables whose rows never expire, Cassandra alone gives no room back. --garbagecollect has each node rewrite
    their SSTables without what is deleted, one node after the other. What it costs is shown, and asked about, before
    anything is done: bytes, and seconds by one SSTable that is rewritten. Interrupted, the node at work goes on:
    nodetool stop GARBAGE_COLLECT.""",
    service="mailmend.admin.queue.cleanup:repair_queues",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(
        *TIMING,
        flag("--dry-run", "Write nothing: look twice, and say what would be removed."),
        PLAN,
        option(
            "--marks",
            "Which marks without a row are removed, where marks never expire.",
            type=click.Choice([rule.value for rule in MarksRule]),
            default=MarksRule.KEEP.value,
        ),
        option("--marks-age", "With --marks old: only marks written longer ago.", type=Duration(AGE_MAX, zero=False)),
        flag("--no-blobs", "Leave the blobs out: the blobs of removed rows stay, for stores whose ids are shared."),
        flag("--garbagecollect", "Then give the room back at once: nodetool garbagecollect, node after node."),
        option(
            "--nodetool",
            "How nodetool of the node {host} is called: 'ssh {host} nodetool'. mailmend passes it no credentials.",
            default=NODETOOL,
            metavar="COMMAND",
        ),
        flag("--yes", "Do not ask: do as --garbagecollect says."),
        MARGIN_OPTION,
        KEEP_OPTION,
        *SCANNING_ALL,
    ),
    shared=(
        scanning_of((*TIMING, *SCANNING_ALL)),
        queue_settings(
            broker=lambda given: given["marks"] == MarksRule.EMPTY.value,
            blobs=lambda given: not given["no_blobs"] and (given["plan"] is not None or not given["dry_run"]),
            blobs_if_named=unless("no_blobs"),
            named=False,
        ),
        STORES_TYPED,
    ),
    output=(JSON, REPORT, FINDINGS, METRICS_FILE),
    alone={"plan": ("garbagecollect", "yes", "keep")},
    examples="""
        mailmend repair queues --dry-run                      what would be removed
        mailmend repair queues --plan plan.jsonl              the same, to be approved: then mailmend apply plan.jsonl
        mailmend repair queues
        mailmend repair queues --marks empty --dry-run        may marks go too? Stop what enqueues first
        mailmend repair queues --marks old --marks-age 30d    no message at the broker is older than 30 days
        mailmend repair queues --garbagecollect --nodetool 'ssh {host} nodetool'""",
    exits="0 nothing is left to clean (marks without a row do not count), 1 something is left (after --dry-run: there "
    "is something), 2 wrong use, 3 some partitions could not be removed or some node's garbage not collected, 4 cannot "
    "reach; the same command goes on.",
)
