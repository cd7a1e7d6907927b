"""What a queue is made of, opened one by one: its tables, its broker, its topics, its blobs.

Nothing is connected to before it is asked for. Libraries of an extra are imported when they are needed.
"""

from typing import TYPE_CHECKING

from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.settings import BlobsSettings, Store, refuse_missing_folder
from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import Topics
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import OwnTables
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.ports import AsyncTables, Clock

if TYPE_CHECKING:
    from mailmend.cql.driver.session import Keyspace


def tables_of(keyspace: "Keyspace") -> AsyncTables:
    return AsyncKeyspace(keyspace)


def broker_behind(settings: BrokerSettings, clock: Clock) -> Broker:
    broker: Broker = import_or_name_extra("mailmend.mailqueue.rabbitmq.broker.adapter").RabbitBroker(settings, clock)
    return broker


def topics_behind(settings: PulsarSettings, clock: Clock) -> Topics:
    topics: Topics = import_or_name_extra("mailmend.mailqueue.pulsar.adapter").PulsarTopics(settings, clock)
    return topics


def blobs_behind(settings: BlobsSettings, tables: AsyncTables | None, clock: Clock, *, makes: bool = True) -> Blobs:
    """The store; only blobs in tables need the tables.

    Raises:
        WrongUse: without `makes`, it is a folder that is not there.
    """
    address, bucket = settings
    found: Blobs
    match address.store:
        case Store.FILES:
            if not makes:
                refuse_missing_folder(address)
            storage = import_or_name_extra("mailmend.mailqueue.blobs.object_storage")
            found = storage.open_files(address.folder.expanduser(), clock, address.naming, makes=makes)
        case Store.S3:
            storage = import_or_name_extra("mailmend.mailqueue.blobs.object_storage")
            found = storage.open_s3(bucket, clock, address.naming)
        case Store.CASSANDRA:
            cassandra = import_or_name_extra("mailmend.mailqueue.blobs.cassandra")
            found = cassandra.open_cassandra(tables, clock, address.naming)
    return found


def tables_lacking() -> WrongUse:
    return WrongUse(
        "this is about the tables of a queue, and a queue over Pulsar has none",
        mend="Its topics need no such work; see: mailmend queue tend --help. Or name a broker amqp://...",
    )


async def queue_names(tables: AsyncTables, clock: Clock, own: OwnTables) -> list[QueueName]:
    """Every queue of the keyspace."""
    return await QueueView(tables, clock, own).starts.queues()
