"""What may refer to the blobs of a keyspace: its tables, messages at the broker, kept mails, unfinished moves."""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from mailmend.admin.frame.cluster import OpenCluster, state_folder
from mailmend.admin.frame.settings import BlobsSettings
from mailmend.admin.frame.whole_files import whole_file
from mailmend.admin.queue import openers
from mailmend.admin.queue.kept_mails import mails_on_their_way, read_removed_mails
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.collection.broker_references import NAME, broker_references
from mailmend.mailqueue.collection.references import (
    BeforeImages,
    IdsFile,
    KnownReferences,
    Reference,
    ReferenceSource,
    table_references,
)
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.mailqueue.rules.blob_ids import AGE_MIN, BlobNaming, MissingBlob
from mailmend.model.catalog.mail_queue import queue_tables_of
from mailmend.model.errors import SourceUnread
from mailmend.model.ids import QueueName
from mailmend.model.operations import Level

OF_JAMES: Final = (QueueName("spool"), QueueName("outgoing"))
"""Queues that a James has, whether or not its keyspace says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsWanted:
    """Which blobs are looked at, and who may refer to them; the names are the names of the options.

    Attributes:
        broker: None: it is not asked. Of Pulsar every topic of the namespace is read.
        only_broker: whether a person has said that no other broker holds a mail of the store.
        references: `TABLE.COLUMN`, in addition to the columns that are found by their names.
        queues: in addition to the keyspace's and James's own; over Pulsar, the queues that have to exist.
        oldest_message: how old messages at the broker may be; None: the queues must be empty.
        missing: a file for every blob that is missing.
        typed: store and broker as they were typed, without secrets.
    """

    store: BlobsSettings
    broker: BrokerSettings | PulsarSettings | None = None
    no_broker: bool = False
    only_broker: bool = False
    references: tuple[str, ...] = ()
    references_file: tuple[Path, ...] = ()
    queues: tuple[QueueName, ...] = ()
    oldest_message: timedelta | None = None
    min_age: timedelta = AGE_MIN
    generation: timedelta = BlobNaming().generation
    family: int = BlobNaming().family
    missing: Path | None = None
    typed: str = ""


Messages = Callable[[], Awaitable[ReferenceSource]]
"""What the messages at the broker refer to, read anew."""


async def messages_of(broker: Broker, opened: OpenCluster, wanted: BlobsWanted) -> ReferenceSource:
    """What the messages of RabbitMQ's queues refer to, dead letters among them."""
    names = sorted({*OF_JAMES, *wanted.queues, *await _queues_of(opened)})
    age_known = wanted.oldest_message is not None
    return await broker_references(broker, opened.clock, names, age_known=age_known)


async def _queues_of(opened: OpenCluster) -> list[QueueName]:
    """The queues that the tables name: those over RabbitMQ."""
    schema = live_schema(opened.cluster, opened.mail.name)
    if schema.table("browsestart") is None:
        return []
    own = queue_tables_of(schema, opened.mail.name)
    return await openers.queue_names(openers.tables_of(opened.mail), opened.clock, own)


@dataclass(frozen=True, slots=True)
class BlobSources:
    """Every place that may refer to the blobs."""

    opened: OpenCluster
    wanted: BlobsWanted
    level: Level
    messages: Messages | None

    async def opened_anew(self) -> Sequence[ReferenceSource]:
        """Those in memory first: what leaves them is in the tables by then."""
        opened = self.opened
        wanted = self.wanted
        level = self.level
        schema = live_schema(opened.cluster, opened.mail.name)
        found: list[ReferenceSource] = []
        if moving := list(_moving_mails(state_folder("queue"))):
            found.append(KnownReferences("unfinished moves on this machine", moving))
        if self.messages:
            if isinstance(wanted.broker, PulsarSettings) and not wanted.only_broker:
                _refuse_other_queues(await _queues_of(opened))
            found.append(await self.messages())
        found.append(KnownReferences("kept mails of this machine", list(_kept_mails(state_folder("queue")))))
        found += [IdsFile(path) for path in wanted.references_file]
        if ledger := opened.existing_ledger():
            found.append(BeforeImages(ledger.tables, level))
        return [*found, *table_references(schema, opened.mail, level, wanted.references)]


def _refuse_other_queues(queues_there: Sequence[QueueName]) -> None:
    if queues_there:
        raise SourceUnread(
            NAME,
            f"the tables name queues over RabbitMQ ({', '.join(queues_there)}), and the dead letters there may refer "
            "to blobs",
            mend="If RabbitMQ holds nothing of them any more, dead letters neither, say --only-broker.",
        )


def _kept_mails(folder: Path) -> Iterator[Reference]:
    """Mails that were kept without their bytes: a restore refers to the blobs again."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        for mail in read_removed_mails(path, on_torn=lambda: None):
            if mail.content is None:
                yield from (Reference(blob, path.name) for blob in (mail.queued.blobs.header, mail.queued.blobs.body))


def _moving_mails(folder: Path) -> Iterator[Reference]:
    """Mails that have left one queue, and may not be in the other yet: a move that goes on puts them there."""
    for path, mail in mails_on_their_way(folder):
        blobs = mail.listed.queued.blobs
        yield from (Reference(blob, f"{path.name} {mail.was}") for blob in (blobs.header, blobs.body))


@contextmanager
def lines_of_missing(path: Path | None) -> Iterator[Callable[[MissingBlob], Any]]:
    """Yields what writes a line for each missing blob; it writes nothing where no file is wanted."""
    if path is None:
        yield lambda _: None
        return
    with whole_file(path) as stream:
        yield lambda blob: stream.write(json.dumps(blob._asdict()) + "\n")
