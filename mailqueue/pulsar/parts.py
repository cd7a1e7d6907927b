"""What the operations of one queue share."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailmend.mailqueue.background import BackgroundTasks, BlobCleanup
from mailmend.mailqueue.codec.pulsar import PulsarForm, form_of
from mailmend.mailqueue.metrics import QueueCounts
from mailmend.mailqueue.pulsar.broker.names import out_subscription, out_topic, scheduled_subscription, scheduled_topic
from mailmend.mailqueue.pulsar.broker.topics import Topics
from mailmend.mailqueue.pulsar.view.deletions import Deletions
from mailmend.model.blobs import Blobs
from mailmend.model.errors import BadPayload
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock

_LOOKED_AT_MAX: Final = 20
"""How many mails are looked at to tell which James wrote them."""


@dataclass(frozen=True, slots=True)
class PulsarParts:
    """One queue's topics, blobs and clock, and what is built of them.

    Attributes:
        form: tells which James is to read what is published.
    """

    queue: QueueName
    topics: Topics
    blobs: Blobs
    clock: Clock
    form: Callable[[], Awaitable[PulsarForm]]
    background: BackgroundTasks
    blob_cleanup: BlobCleanup
    counts: QueueCounts
    deletions: Deletions

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())


class FormOfQueue:
    """Which James is to read what is published: the one that is named, or the one that wrote what lies there.

    That is looked for once, before the first mail is published; where nothing tells, it is James 3.9.
    """

    def __init__(self, topics: Topics, queue: QueueName, named: PulsarForm | None) -> None:
        self._topics = topics
        self._queue = queue
        self._form = named

    async def __call__(self) -> PulsarForm:
        if self._form is None:
            self._form = await self._given() or PulsarForm.JAMES_3_9
        return self._form

    async def _given(self) -> PulsarForm | None:
        for topic, subscription in (
            (out_topic(self._queue), out_subscription(self._queue)),
            (scheduled_topic(self._queue), scheduled_subscription(self._queue)),
        ):
            looked_at = 0
            async with aclosing(self._topics.unacked(topic, subscription)) as messages:
                async for message in messages:
                    looked_at += 1
                    try:
                        found = form_of(message.payload)
                    except BadPayload:
                        found = None
                    if found or looked_at == _LOOKED_AT_MAX:
                        return found
        return None
