"""Readers and writers beside a repair: how long they wait, with and without pressure (`--pace auto`, `--pace full`).

The load is open: each request is due at its time whatever became of the ones before, and its latency counts from then.
In each round the load runs alone for a while, and then beside the repair; so every ratio is of one and the same load.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from statistics import median, quantiles
from typing import Any, Final
from uuid import UUID, uuid1

import psutil

from mailmend.cql.driver.session import Contact, Keyspace, connect
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGE_V3
from mailmend.model.operations import Put, Read, Scan
from tests.support.repairing import content_row, mirror_row, truth_row

MESSAGES: Final = 200_000
PER_SECOND: Final = 300
"""Requests of the load: of ten, six read a message by its mailbox or its id, one lists a mailbox, three write one."""

ROUNDS: Final = 3
WARM_SECONDS: Final = 15
WINDOW_SECONDS: Final = 30
SETTLE_SECONDS: Final = 10
"""Between the start of the repair and the window: its imports, and until its pace has found its place."""

LANES: Final = ("full", "auto")
REPAIR: Final = ("repair", "messages", "--engine", "local", "--delay", "1s", "--pace")
LOST_SECONDS: Final = 30
_KNOWN: Final = 2_000


@dataclass(frozen=True, slots=True)
class Waited:
    """Latencies of one window, in milliseconds."""

    requests: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Pressed:
    """One pace of the repair; medians of the rounds.

    Attributes:
        alone, beside: milliseconds of the load's 99th percentile without and with the repair.
        ratio: the median of the rounds' ratios.
        rows_per_second: that the repairs came to.
    """

    pace: str
    alone: float
    beside: float
    ratio: float
    worst_ratio: float
    rows_per_second: float

    def __str__(self) -> str:
        return (
            f"--pace {self.pace}: 99th percentile {self.alone:.1f} ms alone, {self.beside:.1f} ms beside a repair of "
            f"{self.rows_per_second:,.0f} rows/s: {self.ratio:.2f} times (worst round {self.worst_ratio:.2f})"
        )


def measure(contact: Contact, keyspace: str) -> list[Pressed]:
    """Both paces in turn."""
    rounds: dict[str, list[tuple[Waited, Waited, float]]] = {pace: [] for pace in LANES}
    for _ in range(ROUNDS):
        for pace in LANES:
            rounds[pace].append(_round(contact, keyspace, pace))
            print(f"  {pace}: {rounds[pace][-1]}", flush=True)
    return [_summed(pace, found) for pace, found in rounds.items()]


def as_json(measured: Sequence[Pressed]) -> list[dict[str, Any]]:
    return [asdict(one) for one in measured]


def _summed(pace: str, found: Sequence[tuple[Waited, Waited, float]]) -> Pressed:
    ratios = [beside.p99 / alone.p99 for alone, beside, _ in found]
    return Pressed(
        pace,
        round(median(alone.p99 for alone, _, _ in found), 2),
        round(median(beside.p99 for _, beside, _ in found), 2),
        round(median(ratios), 2),
        round(max(ratios), 2),
        round(median(rate for *_, rate in found), 0),
    )


def _round(contact: Contact, keyspace: str, pace: str) -> tuple[Waited, Waited, float]:
    began = WARM_SECONDS + WINDOW_SECONDS + SETTLE_SECONDS
    windows = [(WARM_SECONDS, WARM_SECONDS + WINDOW_SECONDS), (began, began + WINDOW_SECONDS)]
    address = f"{contact.hosts[0]}:{contact.port}"
    load = [sys.executable, "-m", "tests.bench.pressure", address, keyspace, json.dumps(windows)]
    with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as loading:
        assert loading.stdout is not None
        loading.stdout.readline()  # the first request is due
        started = time.monotonic()
        time.sleep(WARM_SECONDS + WINDOW_SECONDS)
        since = datetime.now(UTC)
        with _repairing(contact, keyspace, pace, started + began + WINDOW_SECONDS):
            alone, beside = (Waited(**one) for one in json.loads(loading.stdout.read()))
        return alone, beside, _rows_per_second(contact, keyspace, since)


@contextmanager
def _repairing(contact: Contact, keyspace: str, pace: str, until: float) -> Iterator[None]:
    """Repairs one after the other until that time; the last one is ended in good order."""

    def go() -> None:
        while (left := until - time.monotonic()) > 0:
            with psutil.Popen(_command(contact, keyspace, *REPAIR, pace), stdout=-3, stderr=-3) as process:
                try:
                    process.wait(left)
                except psutil.TimeoutExpired:
                    process.terminate()

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _command(contact: Contact, keyspace: str, *words: str) -> list[str]:
    place = ("--host", contact.hosts[0], "--port", str(contact.port), "--keyspace", keyspace)
    return [sys.executable, "-m", "mailmend", *words, *place, "--ledger-keyspace", f"{keyspace}_ledger"]


def _rows_per_second(contact: Contact, keyspace: str, since: datetime) -> float:
    """That the repairs since then came to, by the ledger."""
    said = subprocess.run(_command(contact, keyspace, "runs", "list", "--json"), stdout=-1, text=True, check=True)
    runs = [run for run in json.loads(said.stdout)["runs"] if datetime.fromisoformat(run["started_at"]) >= since]
    seconds = [
        (datetime.fromisoformat(run["ended_at"]) - datetime.fromisoformat(run["started_at"])).total_seconds()
        for run in runs
    ]
    rows: int = sum(run["summary"]["pace"]["rows"] for run in runs)
    return rows / sum(seconds)


# The load, in a process of its own


def _load(address: str, keyspace: str, windows: Sequence[tuple[float, float]]) -> list[Waited]:
    host, _, port = address.partition(":")
    with connect(Contact((host,), int(port))) as cluster:
        tables = cluster.keyspace(keyspace)
        requests, waited = _requests(tables), list[tuple[float, float]]()
        until, number = windows[-1][1], 0
        print("began", flush=True)
        started = time.perf_counter()
        while (due := number / PER_SECOND) < until:
            if (ahead := started + due - time.perf_counter()) > 0:
                time.sleep(ahead)
            tables.launch(next(requests)).call_back(partial(_landed, waited, started, due))
            number += 1
        while len(waited) < number and time.perf_counter() < started + until + LOST_SECONDS:
            time.sleep(0.1)
    assert len(waited) == number, f"{number - len(waited)} requests had no answer"
    return [_waited([one for due, one in waited if start <= due < end]) for start, end in windows]


def _landed(waited: list[tuple[float, float]], started: float, due: float) -> None:
    waited.append((due, time.perf_counter() - started - due))


def _waited(seconds: Sequence[float]) -> Waited:
    cuts = quantiles([one * 1000 for one in seconds], n=100)
    return Waited(len(seconds), round(cuts[49], 2), round(cuts[98], 2))


def _requests(tables: Keyspace) -> Iterator[Read | Scan | Put]:
    """James's reads and writes, evenly mixed."""
    chance = random.Random(1)
    rows = list(islice(tables.scan(Scan(IMAP_UID, ("messageid", "mailboxid", "uid"))), _KNOWN))
    number = 0
    while True:
        row = chance.choice(rows)
        kind = chance.randrange(10)
        if kind < 3:
            yield Read(MESSAGE_ID, (row["mailboxid"], row["uid"]))
        elif kind < 6:
            yield Read(IMAP_UID, (row["messageid"], row["mailboxid"]))
        elif kind == 6:
            yield Scan(MESSAGE_ID, MESSAGE_ID.names, under=(row["mailboxid"],), limit=100)
        else:
            number += 1
            yield from _delivered(uuid1(), row["mailboxid"], 1_000_000 + number)


def _delivered(message: UUID, mailbox: UUID, uid: int) -> Iterator[Put]:
    """A new message: its content, the source of truth, the denormalised table."""
    truth = truth_row(uid) | {"messageid": message, "mailboxid": mailbox}
    yield Put(MESSAGE_V3, content_row(message))
    yield Put(IMAP_UID, truth)
    yield Put(MESSAGE_ID, mirror_row(truth))


if __name__ == "__main__":
    print(json.dumps([asdict(one) for one in _load(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))]))
