"""`python -m tests.bench.compactions --messages 100000`: what twcs, unified and leveled cost on two years of mail.

The mail arrives over 700 days in mailboxes of a thousand; most of it is read within hours, one message in ten is
flagged at any later time. The same trial as `mailmend schema advise` makes, on a node of its own.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, islice

from mailmend.admin.frame.terminal import PlainLines
from mailmend.admin.schema.measuring import draw_sample
from mailmend.admin.schema.trial import WAVES, Trial, started_node
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.introspect import live_schema
from mailmend.cql.schema.advice import choose
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.instants import MICROS
from mailmend.model.operations import Write
from mailmend.model.sizes import MIB
from mailmend.repair.clock import SystemClock
from tests.support.histories import histories
from tests.support.keyspaces import MAIL, created

DAYS = 700
PER_MAILBOX = 1_000
MAIL_KEYSPACE = "bench_mail"
_AT_ONCE = 2_000


def main() -> None:
    """Fill, try, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compactions", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--waves", type=int, default=WAVES)
    arguments = parser.parse_args()
    clock, progress = SystemClock(), PlainLines(sys.stderr, SystemClock())
    with started_node() as node:
        mail = filled(node.cluster, arguments.messages, until=clock.micros() - 3_600 * MICROS)
        live = live_schema(node.cluster, MAIL_KEYSPACE)
        sample = draw_sample(mail, live, arguments.messages, progress)
        results = Trial(node, clock, progress, waves=arguments.waves).run(sample.messages)
    print(f"{len(sample.messages):,} messages of {sample.mailboxes:,} mailboxes, {sample.changed:,} changed later")
    for one in results:
        print(
            f"{one.choice.value:8} mailbox {one.mailbox.sstables_mean:5.2f} SSTables, p50 {one.mailbox.p50_ms:.1f} ms, "
            f"p99 {one.mailbox.p99_ms:.1f} ms; message {one.message.sstables_mean:.2f} SSTables, "
            f"p50 {one.message.p50_ms:.2f} ms, p99 {one.message.p99_ms:.2f} ms; "
            f"{one.disk_bytes / MIB:.1f} MiB on disk, {one.rewritten_bytes / MIB:.1f} MiB rewritten"
        )
    print("\n".join(choose(results, CompactionChoice.TWCS, frozenset(CompactionChoice)).why))
    print(json.dumps([asdict(one) | {"choice": one.choice.value} for one in results]))


def filled(cluster: CassandraCluster, messages: int, *, until: int) -> Keyspace:
    """A mail keyspace with that history."""
    mail = created(cluster, MAIL_KEYSPACE, MAIL)
    for batch in _batches(chain.from_iterable(histories(messages // PER_MAILBOX, PER_MAILBOX, days=DAYS, until=until))):
        for error in mail.write_all(batch):
            if error is not None:
                raise error
    return mail


def _batches(writes: Iterator[Write]) -> Iterator[list[Write]]:
    while batch := list(islice(writes, _AT_ONCE)):
        yield batch


if __name__ == "__main__":
    main()
