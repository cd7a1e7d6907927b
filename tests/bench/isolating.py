"""A mail of another domain behind 1,000 to 100,000 mails of a domain that is suspended, on real parts.

The mails lie in RabbitMQ when the server starts, with its default settings: it takes all of them
before it comes to the other one. Then the suspension ends, and they go out. The plain lane has as many mails, of
which none is suspended.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.bench.delivering import DeliveryParts, ServedQueue, served
from tests.bench.queueing import CONTENT, rate
from tests.support.postfix import MailDrain, mail_drain, send_mails

SIZES: Final = (1_000, 10_000, 100_000)
DRAINED: Final = 3_000
"""The number of mails whose going out is timed, at most."""

AT_ONCE: Final = 64
_PATIENCE_SECONDS: Final = 900.0
_SUSPENDED: Final = """
suspends:
  - recipientdomain: jammed.example
"""
_FREE: Final = """
suspends: []
"""


@dataclass(frozen=True, slots=True)
class Isolated:
    """What one jam of a size did to others.

    Attributes:
        mails: the number of suspended mails.
        first_seconds: until the mail behind them was delivered, from the moment that the server listens.
        next_seconds: until a mail was delivered that came later.
        mib: the server's memory with all of them in its backlogs.
        drained: mails a second once the suspension ended.
        plain: mails a second of the same number without a suspension.
    """

    mails: int
    first_seconds: float
    next_seconds: float
    mib: float
    drained: float
    plain: float

    def __str__(self) -> str:
        return (
            f"{self.mails:>7,} suspended: the mail behind them after {self.first_seconds:.1f} s, the next one after"
            f" {self.next_seconds:.2f} s, {self.mib:.0f} MiB; then {self.drained:.0f}/s = {self.share:.2f} of"
            f" {self.plain:.0f}/s"
        )

    @property
    def share(self) -> float:
        return self.drained / self.plain


def measure(parts: DeliveryParts, shown: Callable[[Isolated], None]) -> None:
    """Each size in turn, with a plain lane of its own."""
    for mails in SIZES:
        shown(_measured(parts, mails))


def as_json(isolated: Isolated) -> dict[str, Any]:
    """For the results' file."""
    return {**asdict(isolated), "share": round(isolated.share, 2)}


def _measured(parts: DeliveryParts, mails: int) -> Isolated:
    with TemporaryDirectory() as home, mail_drain() as drain:
        blobs = Path(home) / "blobs"
        policies = Path(home) / "policies.yaml"
        policies.write_text(_SUSPENDED)
        timed = min(mails, DRAINED)
        plain = f"plain-{mails}"
        _fill(parts, plain, blobs, ["to@free.example"] * timed)
        with served(parts, plain, drain.port, blobs=blobs):
            began = time.monotonic()
            plain_rate = _rate_of(drain, drain.count, timed, began)
        jam = f"jam-{mails}"
        _fill(parts, jam, blobs, ["to@jammed.example"] * mails)
        _fill(parts, jam, blobs, ["to@free.example"])
        gone = drain.count
        with served(parts, jam, drain.port, ("--policies", str(policies)), blobs) as server:
            began = time.monotonic()
            _wait(drain, gone + 1)
            first = time.monotonic() - began
            began = time.monotonic()
            send_mails(server.port, 1, 5_000, 1)
            _wait(drain, gone + 2)
            following = time.monotonic() - began
            mib = server.resident_mib
            drained = _drained(server, policies, drain, timed)
    return Isolated(mails, first, following, mib, drained, plain_rate)


def _drained(server: ServedQueue, policies: Path, drain: MailDrain, mails: int) -> float:
    policies.write_text(_FREE)
    gone = drain.count
    began = time.monotonic()
    server.process.send_signal(signal.SIGHUP)
    return _rate_of(drain, gone, mails, began)


def _rate_of(drain: MailDrain, gone: int, mails: int, began: float) -> float:
    _wait(drain, gone + mails)
    return mails / (time.monotonic() - began)


def _wait(drain: MailDrain, count: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while drain.count < count:
        assert time.monotonic() < end, f"{count - drain.count} mails are missing"
        time.sleep(0.01)


def _fill(parts: DeliveryParts, name: str, blobs: Path, recipients: list[str]) -> None:
    asyncio.run(_filled(parts, name, blobs, recipients))


async def _filled(parts: DeliveryParts, name: str, blobs: Path, recipients: list[str]) -> None:
    clock = SystemClock()
    hosts = (Host(parts.broker.host, parts.broker.port),)
    broker = RabbitBroker(BrokerSettings(hosts=hosts, vhost=parts.vhost), clock)
    store = open_files(blobs, clock)
    left = iter(recipients)
    try:
        async with await open_queue(QueueName(name), AsyncKeyspace(parts.keyspace), broker, store, clock) as queue:

            async def put() -> None:
                await queue.enqueue(Mail("bench", (next(left),), "from@example.test"), CONTENT)

            await rate(len(recipients), AT_ONCE, put)
    finally:
        await broker.close()
