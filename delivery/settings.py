"""How a server of deliveries works: its own settings, beside policies and hooks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from model.delivery.attempts import DeliveryProtocol, SourceAddress, TlsLevel
from model.delivery.retries import DEFAULT_SCHEDULE, RetrySchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """How a server of deliveries works.

    Attributes:
        reporter: the name of this host, in reports to senders.
        sources: the addresses that mails are sent from.
        prefetch: how many mails of each priority are held at once.
        concurrency: attempts at once.
        waiting_max: a recipient that was not picked this long after its mail was taken goes back to the queue.
        crowded_max: likewise, while as many mails are held as may be: half of those that only wait go back.
        grace: how long attempts may go on once the server is to stop.
        suspensions_every: how long after a reading of what people suspended the next one begins.
        schedules: of retries, by transport; "" is that of the others.
    """

    reporter: str
    sources: tuple[SourceAddress, ...] = (SourceAddress(),)
    tls: TlsLevel = TlsLevel.OPTIONAL
    protocol: DeliveryProtocol = DeliveryProtocol.SMTP
    prefetch: int = 100
    concurrency: int = 100
    waiting_max: timedelta = timedelta(minutes=5)
    crowded_max: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=30)
    suspensions_every: timedelta = timedelta(seconds=5)
    schedules: Mapping[str, RetrySchedule] = field(default_factory=dict)

    def schedule(self, transport: str) -> RetrySchedule:
        return self.schedules.get(transport) or self.schedules.get("") or DEFAULT_SCHEDULE
