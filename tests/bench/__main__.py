"""`make bench`: every figure of docs/performance.md in one run, as a table and as bench-results/bench.json.

Ratios count, not seconds: everything that is compared runs in turn on the same servers.
"""

import argparse
import asyncio
import json
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from mailmend.cql.driver.session import CassandraCluster, Contact, Keyspace, connect
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.keyspace import Schema
from mailmend.spark_repair.session import session_for_a_command
from tests.bench import (
    blob_collecting,
    checking,
    declaring,
    delivering,
    isolating,
    mending,
    picking,
    policies,
    population,
    pressure,
    pulsar_history,
    pulsar_queueing,
    queue_cleanup,
    queue_delays,
    queue_history,
    queue_past,
    queueing,
    recovering,
    replaying,
    scanning,
    schema,
    writing,
)
from tests.support.applying import apply_schema
from tests.support.brokers import one_rabbitmq
from tests.support.keyspaces import created, dropped
from tests.support.object_stores import one_s3
from tests.support.pulsars import throwaway_pulsar
from tests.support.servers import CassandraServer, one_node
from tests.support.spark import started_settings

T = TypeVar("T")

QUEUE = Schema((), (*QUEUE_TABLES, EVENT_STORE))
RESULTS = Path("bench-results/bench.json")
PARTS = (
    "writing",
    "schema",
    "queue",
    "pulsar",
    "cleanup",
    "blobs",
    "check",
    "declared",
    "pressure",
    "scanning",
    "pickup",
    "policy",
    "replay",
    "delivery",
    "isolation",
    "recovery",
)
MESSAGES = 1_000_000
PROCESSED_MAX = 20_000
"""So many mails have gone through the largest queue over Pulsar."""

GROWTH = 10
"""The smaller of the two sizes is this much smaller."""


def main() -> None:
    """Measure, print, write."""
    arguments = _arguments()
    results: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "messages": arguments.messages or MESSAGES,
    }
    parts = arguments.only
    if "pickup" in parts:
        results["pickup"] = _pickup()
    if "policy" in parts:
        results["policy"] = _policy()
    if parts - {"pickup", "policy"}:
        _on_a_node(arguments, results)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nWritten to {RESULTS}")


def _on_a_node(arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    with one_node(java_options=()) as server:  # with both of Java's compilers, as nodes run elsewhere
        contact = Contact(hosts=(server.host,), port=server.port, local_dc=server.local_dc)
        messages, mails = arguments.messages, arguments.mails
        pressed = min(messages or MESSAGES, pressure.MESSAGES)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "writing": lambda: {"writing": _writing(server.host, server.port, arguments.writes)},
            "schema": lambda: {"schema": _schema(contact)},
            "queue": lambda: _queue(contact, mails),
            "pulsar": lambda: _pulsar(contact, min(mails, PROCESSED_MAX)),
            "delivery": lambda: {"delivery": _delivery(contact)},
            "isolation": lambda: {"isolation": _isolation(contact)},
            "recovery": lambda: {"recovery": _recovery(contact)},
            "replay": lambda: {"replay": _replay(contact)},
            "cleanup": lambda: {"cleanup": _cleanup(contact, mails)},
            "blobs": lambda: {"blobs": _blobs(contact, arguments.blobs)},
            "check": lambda: {"check": _check(server, contact, messages or checking.MESSAGES)},
            "declared": lambda: {"declared": _declared(contact, messages or checking.MESSAGES)},
            "pressure": lambda: {"pressure": _pressure(contact, pressed)},
            "scanning": lambda: _spark(contact, messages or MESSAGES),
        }
        for name, measure in parts.items():
            if name in arguments.only:
                results |= measure()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    sizes = (
        f"of the larger of the two scans ({MESSAGES:,}), and of the whole check ({checking.MESSAGES:,}; "
        "as many users in declared tables)"
    )
    parser.add_argument("--messages", type=int, help=f"{sizes}; at most {pressure.MESSAGES:,} under pressure")
    parser.add_argument("--writes", type=int, default=2_000, help="messages that the store adds and flags per round")
    parser.add_argument("--mails", type=int, default=1_000_000, help="mails that have gone through the largest queue")
    parser.add_argument("--blobs", type=int, default=100_000, help="blobs of the largest store that is collected")
    parts = f"some parts only, with commas between them: {', '.join(PARTS)}"
    parser.add_argument("--only", type=_parts, default=frozenset(PARTS), help=parts)
    return parser.parse_args()


def _parts(text: str) -> frozenset[str]:
    parts = frozenset(text.split(","))
    if unknown := sorted(parts - frozenset(PARTS)):
        raise argparse.ArgumentTypeError(f"no part has this name: {', '.join(unknown)}")
    return parts


def _pickup() -> list[dict[str, Any]]:
    print("== Picking a mail, against how many sub-queues are refused")
    measured = picking.measure()
    print(picking.shown(measured))
    return picking.as_json(measured)


def _policy() -> list[dict[str, Any]]:
    print("== A policy file, against how many conditions it has")
    measured = [policies.measure(conditions) for conditions in policies.CONDITIONS]
    for one in measured:
        print(one)
    return [asdict(one) for one in measured]


def _replay(contact: Contact) -> list[dict[str, Any]]:
    print("== Recorded attempts replayed, against the policies")
    measured: list[Any] = list(replaying.measure())
    with session_for_a_command(started_settings("local[2]", driver_memory="2g")) as session:
        measured += replaying.measure_engines(contact, session)
    for one in measured:
        print(one)
    return [asdict(one) for one in measured]


def _delivery(contact: Contact) -> list[dict[str, Any]]:
    print("== Mails in by SMTP and out by SMTP, beside Postfix")
    with connect(contact) as cluster, one_rabbitmq() as broker, broker.vhost() as vhost:
        keyspace = created(cluster, "bench_delivery", QUEUE)
        measured = delivering.measure(delivering.DeliveryParts(contact, keyspace, broker, vhost))
        for one in measured:
            print(one)
        print(delivering.ratios(measured))
        dropped(cluster, (keyspace.name,))
    return [asdict(one) for one in measured]


def _isolation(contact: Contact) -> list[dict[str, Any]]:
    print("== A mail behind mails of a suspended domain")
    measured = []

    def shown(isolated: isolating.Isolated) -> None:
        print(isolated, flush=True)
        measured.append(isolating.as_json(isolated))

    with connect(contact) as cluster, one_rabbitmq() as broker, broker.vhost() as vhost:
        keyspace = created(cluster, "bench_isolation", QUEUE)
        isolating.measure(delivering.DeliveryParts(contact, keyspace, broker, vhost), shown)
        dropped(cluster, (keyspace.name,))
    return measured


def _writing(host: str, port: int, writes: int) -> list[dict[str, Any]]:
    print("== The store beside the same raw prepared writes")
    measured = writing.measure(host, port, writes)
    for one in measured:
        print(one)
    return [writing.as_row(one) for one in measured]


def _schema(contact: Contact) -> list[dict[str, Any]]:
    print("== Planning and verifying, against the number of migrations and tables")
    with connect(contact) as cluster:
        measured = schema.measure(cluster)
    print(schema.shown(measured))
    return schema.as_json(measured)


def _queue(contact: Contact, mails: int) -> dict[str, Any]:
    with connect(contact) as cluster:
        results: dict[str, Any] = {"queue": _through_the_queue(created(cluster, "bench_queue", QUEUE))}
        past = created(cluster, "bench_queue_past", queue_past.SCHEMA)
        results["queue_history"] = _past_of_the_queue(past, mails)
        results["queue_delays"] = _delays_of_the_queue(past)
        dropped(cluster, ("bench_queue", "bench_queue_past"))
    return results


def _through_the_queue(keyspace: Keyspace) -> list[dict[str, Any]]:
    print("== The queue beside its raw parts")
    with one_rabbitmq() as broker, one_s3() as store, broker.vhost() as vhost:
        measured = queueing.measure(queueing.Servers(keyspace, broker.host, broker.port, vhost, store.bucket()))
    for one in measured:
        print(one)
    return queueing.as_json(measured)


def _pulsar(contact: Contact, mails: int) -> dict[str, Any]:
    print("== The queue over Pulsar beside its raw parts, and the one over RabbitMQ")
    # one as it is shipped: that of the tests ends a ledger after few messages, which nothing jumps over
    with connect(contact) as cluster, throwaway_pulsar() as server, ExitStack() as stack:
        broker, store = stack.enter_context(one_rabbitmq()), stack.enter_context(one_s3())
        keyspace = created(cluster, "bench_pulsar", QUEUE)
        vhost = stack.enter_context(broker.vhost())
        servers = queueing.Servers(keyspace, broker.host, broker.port, vhost, store.bucket())
        through = pulsar_queueing.measure(server.settings, servers)
        dropped(cluster, (keyspace.name,))
        print(*through, sep="\n", flush=True)
        print("== The queue over Pulsar against how much has gone through it")
        looks = list(_each_printed(pulsar_history.measure_looks(server.settings, mails)))
        print(
            f"== Deleting {pulsar_history.DELETED} mails of a queue over Pulsar, against the deletions that lie there"
        )
        deletions = list(_each_printed(pulsar_history.measure_deletions(server.settings)))
    return {
        "pulsar": pulsar_queueing.as_json(through),
        "pulsar_history": pulsar_history.as_json(looks),
        "pulsar_deletions": pulsar_history.as_json(deletions),
    }


def _each_printed(measured: Iterator[T]) -> Iterator[T]:
    for one in measured:
        print(one, flush=True)
        yield one


def _past_of_the_queue(keyspace: Keyspace, mails: int) -> list[dict[str, Any]]:
    print("== The queue against how much has gone through it")
    measured = []
    for one in queue_history.measure(keyspace, mails):
        print(one, flush=True)
        measured.append(one)
    return queue_history.as_json(measured)


def _delays_of_the_queue(keyspace: Keyspace) -> list[dict[str, Any]]:
    print("== Delayed mails")
    measured = []
    for one in queue_delays.measure(keyspace):
        print(one, flush=True)
        measured.append(one)
    return queue_delays.as_json(measured)


def _recovery(contact: Contact) -> list[dict[str, Any]]:
    print("== A server that finds deferred mails due")
    measured = []
    with connect(contact) as cluster:
        keyspace = created(cluster, "bench_recovery", QUEUE)
        for one in recovering.measure(keyspace):
            print(one, flush=True)
            measured.append(one)
        dropped(cluster, (keyspace.name,))
    return recovering.as_json(measured)


def _cleanup(contact: Contact, mails: int) -> list[dict[str, Any]]:
    print("== The cleanup of all queues against how much has gone through one")
    measured = []
    with connect(contact) as cluster:
        keyspace = created(cluster, "bench_cleanup", queue_past.SCHEMA)
        for one in queue_cleanup.measure(contact, keyspace, mails):
            print(one, flush=True)
            measured.append(one)
        dropped(cluster, ("bench_cleanup", "bench_cleanup_ledger"))
    small, large = measured
    for less, more in zip(small.commands, large.commands, strict=True):
        growth = more.seconds / less.seconds
        print(f"{large.mails / small.mails:.0f} x the mails take {more.engine} {growth:.1f} x the time")
    return queue_cleanup.as_json(measured)


def _blobs(contact: Contact, blobs: int) -> list[dict[str, Any]]:
    print("== The collection of blobs beside the bare listing and the scans of what refers to them")
    measured = []
    settings = started_settings("local[2]", driver_memory="2g")
    sizes = (blobs // GROWTH, blobs)
    with ExitStack() as stack:
        cluster = stack.enter_context(connect(contact))
        keyspaces = [created(cluster, f"bench_blobs_{size}", blob_collecting.TABLES) for size in sizes]
        session = stack.enter_context(session_for_a_command(settings))  # it would not see tables made later at once
        for size, keyspace in zip(sizes, keyspaces, strict=True):
            filled = blob_collecting.BlobKeyspace(session, contact, keyspace, size)
            _reported("written", filled.populate)
            for one in blob_collecting.measure_tables(filled):
                print(one, flush=True)
                measured.append(one)
            with blob_collecting.bucket_in_memory(size) as bucket:
                measured.append(blob_collecting.measure_bucket(filled, bucket, "bucket (a twin over HTTP)"))
            print(measured[-1], flush=True)
            if size == max((one for one in sizes if one <= blob_collecting.BUCKET_MAX), default=None):
                measured.append(_blobs_of_a_bucket(filled))
            dropped(cluster, (keyspace.name,))
    return blob_collecting.as_json(measured)


def _blobs_of_a_bucket(filled: blob_collecting.BlobKeyspace) -> blob_collecting.Collecting:
    with one_s3() as store:
        bucket = store.bucket()
        _reported("put", lambda: asyncio.run(blob_collecting.fill(bucket, filled.blobs)))
        one = blob_collecting.measure_bucket(filled, bucket)
    print(one, flush=True)
    return one


def _spark(contact: Contact, messages: int) -> dict[str, Any]:
    settings = started_settings("local[2]", driver_memory="2g")
    with connect(contact) as cluster, session_for_a_command(settings) as session:
        small, large = max(messages // GROWTH, mending.DAMAGES), messages
        with _populated(cluster, session, small) as place:
            sizes = [_scanned(place)]
            mended = mending.mend(place, "bench_ledger")
            dropped(cluster, ("bench_ledger",))
            print(mended)
        with _populated(cluster, session, large) as place:
            sizes.append(_scanned(place))
            walk = scanning.walk_per_second(cluster.keyspace(place.name), place.family)
    check = large / sizes[-1].check_seconds
    print(
        f"A walk with point reads: {walk:,.0f} messages/s; the check: {check:,.0f}/s = {check / walk:.1f} x as many "
        f"(James at its default throttle: {scanning.JAMES_AS_SHIPPED_PER_SECOND}/s)"
    )
    grown = sizes[1].check_seconds / sizes[0].check_seconds
    print(f"{large / small:.0f} x the messages take {grown:.1f} x the time")
    return {
        "scanning": [asdict(one) | {"ratio": round(one.ratio, 3)} for one in sizes],
        "mending": mended.as_json(),
        "walk": {"per_second": round(walk, 1), "check_per_second": round(check, 1), "times": round(check / walk, 2)},
        "growth": {"messages": large / small, "time": round(grown, 2)},
    }


def _check(server: CassandraServer, contact: Contact, messages: int) -> dict[str, Any]:
    print(f"== A check of {messages:,} messages as James left them: the whole command, engines in turn")
    checking.populate(contact, "bench_check", messages)
    snapshot = checking.snapshot_of(server, "bench_check")
    measured = checking.measure(contact, "bench_check", messages, snapshot)
    for one in measured:
        print(one)
    ratios = checking.ratios(measured)
    print(", ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()))
    peers = checking.beside(contact, "bench_check", messages)
    for peer in peers:
        print(peer)
    checking.populate(contact, "bench_hourly", messages, worn=False)
    hourly = checking.measure_hourly(contact, "bench_hourly")
    print(*hourly, sep="\n")
    with connect(contact) as cluster:
        dropped(cluster, ("bench_check", "bench_hourly"))
    return {"lanes": checking.as_json([*measured, *hourly]), "ratios": ratios, "beside": checking.as_json(peers)}


def _declared(contact: Contact, rows: int) -> dict[str, Any]:
    print(f"== A check of {rows:,} users in declared tables, beside a check of {rows:,} messages")
    names = ("bench_declared", "bench_mail")
    declaring.populate(contact, names[0], rows)
    checking.populate(contact, names[1], rows)
    measured = declaring.measure(contact, *names, rows)
    for one in measured:
        print(one)
    ratios = declaring.ratios(measured)
    print(", ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()))
    with connect(contact) as cluster:
        dropped(cluster, names)
    return {"lanes": checking.as_json(measured), "ratios": ratios}


def _pressure(contact: Contact, messages: int) -> list[dict[str, Any]]:
    print(f"== Readers and writers, {pressure.PER_SECOND} requests a second, beside a repair of {messages:,} messages")
    checking.populate(contact, "bench_pressure", messages)
    measured = pressure.measure(contact, "bench_pressure")
    for one in measured:
        print(one)
    with connect(contact) as cluster:
        dropped(cluster, ("bench_pressure", "bench_pressure_ledger"))
    return pressure.as_json(measured)


@contextmanager
def _populated(cluster: CassandraCluster, session: Any, messages: int) -> Iterator[scanning.Keyspace]:
    name = f"bench_{messages}"
    dropped(cluster, (name,))
    apply_schema(cluster, name)
    print(f"== {messages:,} messages")
    _reported("written", lambda: population.populate(session, cluster.contact, name, messages))
    try:
        yield scanning.Keyspace(session, cluster, name, messages)
    finally:
        dropped(cluster, (name,))


def _scanned(place: scanning.Keyspace) -> scanning.Scanned:
    one = scanning.scan(place)
    print(
        f"check {one.check_seconds:.1f} s, bare scans {one.bare_seconds:.1f} s: ratio {one.ratio:.2f}; "
        f"heap of driver and executors together {one.driver_heap_mib:,.0f} MiB, Python {one.python_mib:,.0f} MiB"
    )
    return one


def _reported(what: str, work: Callable[[], None]) -> None:
    seconds = scanning._seconds(work)
    print(f"{what} in {seconds:.1f} s")


if __name__ == "__main__":
    main()
