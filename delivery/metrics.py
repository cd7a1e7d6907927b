"""What a server of deliveries tells monitoring; no label names a mail, an address or a domain."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from model.delivery.entries import EntryEnd, EntryStage, EntryState
from model.ids import QueueName
from model.metrics import Metric, MetricKind, MetricSample

_LOAD: Final = "How much is at work: what does not get on is a trouble of its queue, with its alert"

ENDED: Final = Metric(
    "mailmend_delivery_recipients_total",
    "Recipients whose turn ended, by how: delivered, refused for now, failed, expired, returned to the queue (for want"
    " of room or at the end of the server), deleted by a hook",
    ("queue", "end"),
    MetricKind.COUNTER,
)
STAGES: Final = Metric(
    "mailmend_delivery_active_recipients",
    "Recipients in the hands of this server, by stage",
    ("queue", "stage"),
    no_alert=_LOAD,
)
HELD: Final = Metric("mailmend_delivery_mails", "Mails in the hands of this server", ("queue",), no_alert=_LOAD)
LOOKED_AT: Final = Metric(
    "mailmend_delivery_looked_at_timestamp_seconds",
    "When this was written",
    ("queue",),
)
SUSPENSIONS: Final = Metric(
    "mailmend_delivery_suspensions",
    "Suspensions by hand that this server heeds (`mailmend delivery suspensions QUEUE` names them)",
    ("queue",),
    no_alert="Somebody made each of them, and said why; mails that wait for long are a trouble of the queue",
)
SUSPENSIONS_READ: Final = Metric(
    "mailmend_delivery_suspensions_read_timestamp_seconds",
    "When this server last read them; where the ledger cannot be read, those of then hold on",
    ("queue",),
)
DELIVERY_METRICS: Final = (ENDED, STAGES, HELD, LOOKED_AT, SUSPENSIONS, SUSPENSIONS_READ)

_ACTIVE: Final = tuple(stage for stage in EntryStage if stage.state is EntryState.ACTIVE)


def delivery_samples(
    queue: QueueName, ended: Mapping[EntryEnd, int], stages: Counter[EntryStage], mails: int, micros: int
) -> Iterator[MetricSample]:
    """Every end and stage, those of which there are none too; `micros` is the time."""
    for end in EntryEnd:
        yield MetricSample(ENDED, (queue, end.name.lower()), ended.get(end, 0))
    for stage in _ACTIVE:
        yield MetricSample(STAGES, (queue, stage.value), stages[stage])
    yield MetricSample(HELD, (queue,), mails)
    yield MetricSample(LOOKED_AT, (queue,), micros / 1_000_000)


def suspension_samples(queue: QueueName, count: int, read_micros: int) -> Iterator[MetricSample]:
    """How many hold, and when they were read, in microseconds since 1970."""
    yield MetricSample(SUSPENSIONS, (queue,), count)
    yield MetricSample(SUSPENSIONS_READ, (queue,), read_micros / 1_000_000)
