"""What the operations of one queue share."""

from dataclasses import dataclass
from datetime import datetime

from mailqueue.background import BackgroundTasks, BlobCleanup
from mailqueue.codec.pulsar import PulsarForm
from mailqueue.metrics import QueueCounts
from mailqueue.pulsar.topics import Topics
from model.ids import QueueName
from model.instants import instant_of
from model.ports import Blobs, Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """One queue's topics, blobs and clock, and what is built of them.

    Attributes:
        form: which James is to read what is published.
    """

    queue: QueueName
    topics: Topics
    blobs: Blobs
    clock: Clock
    form: PulsarForm
    background: BackgroundTasks
    blob_cleanup: BlobCleanup
    counts: QueueCounts

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())
