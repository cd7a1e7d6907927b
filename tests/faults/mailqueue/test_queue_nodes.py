"""A queue on three nodes of Cassandra: one may be down, two may not; back, everything goes on by itself."""

import asyncio

import pytest

from mailmend.cql.driver.session import connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql, schema_cql
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.keyspace import Schema
from tests.support.brokers import Broker
from tests.support.object_stores import S3
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queue_faults import opened
from tests.support.queue_processes import delivered, servers_of, until
from tests.support.queue_servers import Servers
from tests.support.queues import CONTENT, mail, names, parts_of
from tests.support.servers import ThreeNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store, pytest.mark.thorough]


@pytest.fixture
def servers(three_nodes: ThreeNodes, vhost: str, rabbitmq: Broker, s3: S3) -> Servers:
    name = three_nodes.keyspace()
    at = servers_of(three_nodes, name, rabbitmq, vhost, s3)
    with connect(at.contact) as cluster:
        cluster.execute_ddl(keyspace_cql(name, in_every_data_centre(3)))
        for text in schema_cql(name, Schema((), (EVENT_STORE, *QUEUE_TABLES))):
            cluster.execute_ddl(text)
    return at


async def test_nodes_go_down_and_come_back(servers: Servers, three_nodes: ThreeNodes) -> None:
    """One down: nobody notices. Two: enqueues fail and leave nothing, what is in hand waits. Back: all of it comes."""

    async def story(queue: RabbitMailQueue, consumer: RabbitMailQueue) -> None:
        three_nodes.kill(3)
        for name in "abc":
            await queue.enqueue(mail(name), CONTENT)
        assert await names(queue) == list("abc")
        async with asyncio.timeout(6 * PATIENCE_SECONDS), consumer.dequeue(prefetch=1, priorities=[5]) as mails:
            first = await anext(mails)
            assert first.mail.name == "a"

            # When a second node goes
            await asyncio.to_thread(three_nodes.stop, 2)
            # Then an enqueue fails, and tells what may be left of it; a mail in hand cannot be acked, and goes back
            with pytest.raises(CannotReach) as failure:
                await queue.enqueue(mail("failed"), CONTENT)
            assert "its row may still be listed" in failure.value.mend
            assert "mailmend queue reconcile" in failure.value.mend
            assert (await parts_of(queue).broker.depth(queue.name)).ready == 2
            with pytest.raises(CannotReach):
                await first.ack()
            held = asyncio.ensure_future(anext(mails))
            with pytest.raises(MailmendError):
                await names(queue)
            assert not held.done()

            # And when both are back, so is everything: the stream goes on
            await asyncio.to_thread(three_nodes.start_all)
            again = await held
            await again.ack()

        async def listed_again() -> bool:
            shown = [name for name in await names(queue) if name != "failed"]
            return sorted(shown) == sorted({"a", "b", "c"} - {again.mail.name})

        # And the one that failed is never delivered; its row is there if the node that was left took it in silence
        await until(listed_again)
        assert len(await delivered(queue)) == 2
        assert set(await names(queue)) <= {"failed"}
        await queue.purge()
        assert not await names(queue)
        assert (await parts_of(queue).broker.depth(queue.name)).dead == 0

    with connect(servers.contact) as cluster:
        keyspace = cluster.keyspace(servers.keyspace)
        async with opened(servers, keyspace, "spool") as queue, opened(servers, keyspace, "spool") as consumer:
            await story(queue, consumer)
