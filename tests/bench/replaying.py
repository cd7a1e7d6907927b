"""Recorded attempts replayed: in this process under more and more policies, and read from the ledger by either engine.

The record is that of a busy morning, the same in every round: few domains get most of the mails, each mail may be sent
from one of two addresses.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from statistics import median
from time import perf_counter, process_time
from typing import Final

from pyspark.sql import SparkSession

from mailmend.cql.driver.session import Contact, connect
from mailmend.delivery.ledger.attempts import AttemptsWanted
from mailmend.delivery.ledger.attempts import read_attempts as read_here
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.replay_sums import AttemptRecord, ReplaySums
from mailmend.delivery.policy.replaying import RecordedAttempt
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.ids import QueueName
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Level
from mailmend.spark_repair.attempts import read_attempts as read_by_spark
from mailmend.spark_repair.source import Source
from tests.support.attempts import drawn_attempts, rows_of
from tests.support.keyspaces import created, dropped
from tests.support.progress import SilentProgress

ATTEMPTS: Final = 20_000
RECORDED: Final = 100_000
ROUNDS: Final = 3
TOP: Final = 10
_SOURCES: Final = tuple((f"192.0.2.{number}", f"192.0.2.{number + 1}") for number in range(8))
_DOMAINS: Final = 2_000
_WRITTEN_AT_ONCE: Final = 1_000
_LEDGER: Final = "bench_replays"

_TEN: Final = (
    ("recipientdomain", 20),
    ("remotemx", 30),
    ("tenantid", 60),
    ("transportid", 200),
    ("localip", 40),
    ("localip, recipientdomain", 10),
    ("localip, remotemx", 15),
    ("tenantid, recipientdomain", 10),
    ("tenantid, localip", 30),
    ("tenantid, remotemx", 20),
)


def _policies(*counters: tuple[str, int]) -> str:
    return "".join(
        f"- fields: [{fields}]\n  default: {{concurrency: {most}, rate: {2 * most}/1}}\n" for fields, most in counters
    )


def _conditions(number: int) -> str:
    lines = "".join(
        f"  - if: {{recipientdomain: d{one}.example}}\n"
        f"    then: {{concurrency: {one % 9 + 2}, rate: {one % 7 + 5}/1}}\n"
        for one in range(number)
    )
    return f"- fields: [recipientdomain]\n  default: {{concurrency: 20}}\n  conditions:\n{lines}"


FILES: Final[Mapping[str, str]] = {
    "no policies": "[]",
    "1 policy": _policies(*_TEN[:1]),
    "10 policies": _policies(*_TEN),
    "1,000 conditions": _conditions(1_000),
}
BY_TENANT: Final = _policies(_TEN[2], _TEN[7])


@dataclass(frozen=True, slots=True)
class ReplayRate:
    """Attempts for each second of a processor, median; `delayed`: how many of them begin later than recorded."""

    policies: str
    attempts_per_second: float
    delayed: int

    def __str__(self) -> str:
        return f"{self.policies:16} {self.attempts_per_second:8,.0f} attempts a second of CPU, {self.delayed:,} delayed"


@dataclass(frozen=True, slots=True)
class EngineSeconds:
    """One engine on a record in the ledger: seconds of reading it, and of a replay in groups, and of one as a whole."""

    engine: str
    attempts: int
    read: float
    in_groups: float
    whole: float

    def __str__(self) -> str:
        return (
            f"{self.engine:6} {self.attempts:,} attempts: read {self.read:.1f} s, replayed by tenant "
            f"{self.in_groups:.1f} s, with no field in common {self.whole:.1f} s"
        )


def _record(count: int) -> list[RecordedAttempt]:
    drawn = drawn_attempts(random.Random(1), count, sources=_SOURCES, domains=_DOMAINS)
    return sorted(drawn, key=lambda one: one.order)


def measure() -> list[ReplayRate]:
    record = _record(ATTEMPTS)
    return [_rate(name, policies_of(text, name).said, record) for name, text in FILES.items()]


def _rate(name: str, said: PickupPolicies, record: list[RecordedAttempt]) -> ReplayRate:
    spent, delayed = [], 0
    for _ in range(ROUNDS):
        sums, began = ReplaySums(), process_time()
        sums.replay(record, said, 1_000, TOP)
        spent.append(process_time() - began)
        delayed = sums.total.delayed
    return ReplayRate(name, len(record) / median(spent), delayed)


def measure_engines(contact: Contact, session: SparkSession) -> list[EngineSeconds]:
    """A record in a ledger of its own, which is dropped at the end."""
    wanted = AttemptsWanted("mail", QueueName("spool"))
    with connect(contact) as cluster:
        ledger = created(cluster, _LEDGER, Schema((), (DELIVERY_ATTEMPT,)))
        try:
            rows = iter(rows_of(_record(RECORDED)))
            while some := list(islice(rows, _WRITTEN_AT_ONCE)):
                assert not any(ledger.write_all(some))
            source = Source(session, contact, _LEDGER)
            return [
                _engine("local", lambda: read_here(ledger, wanted, Level.LOCAL_QUORUM, SilentProgress())),
                _engine("spark", lambda: read_by_spark(source, wanted, SilentProgress())),
            ]
        finally:
            dropped(cluster, (_LEDGER,))


def _engine(name: str, read: Callable[[], AttemptRecord]) -> EngineSeconds:
    began = perf_counter()
    record = read()
    read_seconds = perf_counter() - began
    spent = []
    for text in (BY_TENANT, FILES["10 policies"]):
        began = perf_counter()
        record.replay(policies_of(text, name).said, TOP)
        spent.append(perf_counter() - began)
    attempts = record.attempts
    record.close()
    return EngineSeconds(name, attempts, read_seconds, *spent)
