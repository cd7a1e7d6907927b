"""What it costs to pick a mail, against how many sub-queues are refused; no server: the engine is pure."""

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from statistics import median
from time import process_time
from typing import Any

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.sub_queues import ActiveMail

REFUSED = (100, 1_000, 10_000, 100_000)
PICKS = 50_000
READY = 100
"""Domains that let their mails through, one at a time."""

TENANTS = 1_000
"""In one row more; each has a domain that lets its mails through."""

TURNS = 3
_POLICIES = (
    CounterPolicy((PickupField.LOCAL_IP, PickupField.RECIPIENT_DOMAIN), default=Threshold(concurrency=1)),
    CounterPolicy((PickupField.TRANSPORT_ID,), default=Threshold(concurrency=1_000_000)),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Picks, each with its mail's arrival and its delivery's end, among so many sub-queues that are refused.

    Attributes:
        picks_per_second: by processor time of one core; the median of the turns.
        tenants: whose mails they are, in equal parts.
        bytes_of_a_mail: memory for each mail that waits, with its sub-queue and counters where each has its own.
    """

    refused: int
    tenants: int
    picks_per_second: float
    bytes_of_a_mail: float

    def __str__(self) -> str:
        rate, size = f"{self.picks_per_second:9,.0f} picks/s", f"{self.bytes_of_a_mail:6,.0f} bytes a mail"
        return f"{self.refused:9,} refused, {self.tenants:5,} tenants: {rate}   {size}"


def measure() -> list[Measured]:
    """Every number of refused sub-queues, and the most again with many tenants."""
    return [
        Measured(refused, tenants, median(_rate(refused, tenants) for _ in range(TURNS)), _bytes(refused, tenants))
        for refused, tenants in [*((refused, 1) for refused in REFUSED), (REFUSED[-1], TENANTS)]
    ]


def shown(measured: Sequence[Measured]) -> str:
    rates = [one.picks_per_second for one in measured if one.tenants == 1]
    spread = f"of one tenant, the fastest ÷ the slowest: {max(rates) / min(rates):.2f}"
    return "\n".join([*map(str, measured), spread])


def as_json(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


def _rate(refused: int, tenants: int) -> float:
    ready = max(READY, tenants)
    engine, mails = _engine(refused, tenants), _mails("ready", ready, tenants)
    for _ in range(2 * ready):
        engine.add(next(mails))
    arriving = list(islice(mails, PICKS))
    began = process_time()
    for now, mail in enumerate(arriving):
        picked = engine.pick(now)
        assert picked is not None
        engine.add(mail)
        engine.end(picked, now)
    return PICKS / (process_time() - began)


def _bytes(refused: int, tenants: int) -> float:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        engine = _engine(refused, tenants)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert engine.pick(0) is None
    return (after - before) / (2 * refused)


def _engine(refused: int, tenants: int) -> PickupEngine:
    """Of each domain one mail is being delivered, and one waits for it."""
    engine, mails = PickupEngine(_POLICIES), _mails("refused", refused, tenants)
    for _ in range(2 * refused):
        engine.add(next(mails))
    for _ in range(refused):
        assert engine.pick(0) is not None
    assert engine.pick(0) is None
    return engine


def _mails(name: str, domains: int, tenants: int) -> Iterator[ActiveMail]:
    for number in count():
        values = {
            PickupField.RECIPIENT_DOMAIN: f"{name}{number % domains}.org",
            PickupField.TRANSPORT_ID: "out",
            PickupField.TENANT_ID: f"t{number % tenants}",
        }
        yield ActiveMail(f"{name} {number}", values)
