"""A RabbitMQ that is killed, started and wiped under traffic, and one that asks for TLS: nothing confirmed is lost."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from mailmend.admin.local.rabbitmq import BrokerCertificates as ServerTls
from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.rabbitmq.broker.adapter import Management, RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Form, Host, ManagementSettings, QueueForm
from mailmend.model.errors import BrokerUnreachable, MailmendError, PublishFailed
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.broker_scenes import soon, taken
from tests.support.brokers import OwnBroker, throwaway_rabbitmq
from tests.support.certificates import authority
from tests.support.logs import logged
from tests.support.thorough import first_of

SPOOL = QueueName("spool")
PUBLISHES = 200

pytestmark = pytest.mark.broker


@dataclass(frozen=True, slots=True)
class Papers:
    """What the node shows, what we show and trust, and what a stranger would."""

    node: ServerTls
    ours: BrokerTls
    stranger: BrokerTls


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """An authority that no system knows, what it signed for the node and for us; and a stranger."""
    folder = tmp_path_factory.mktemp("certificates")
    ours, stranger = authority(folder, "ours"), authority(folder, "stranger")
    node, client = ours.signed("broker", "IP:127.0.0.1"), ours.signed("client", "DNS:mailmend")
    return Papers(
        ServerTls(ours.own.certificate, node.certificate, node.key, asks_clients=True),
        BrokerTls(ours.own.certificate, client.certificate, client.key),
        BrokerTls(stranger.own.certificate, stranger.own.certificate, stranger.own.key),
    )


@pytest.fixture(scope="module")
def own(papers: Papers) -> Iterator[OwnBroker]:
    """A node that these tests have for themselves; encrypted, it talks to nobody without a certificate."""
    with throwaway_rabbitmq(papers.node) as broker:
        yield broker


def settings_of(own: OwnBroker) -> BrokerSettings:
    return BrokerSettings((Host(own.host, own.port),), answer_seconds=5)


def management_of(own: OwnBroker) -> ManagementSettings:
    return ManagementSettings(f"http://{own.host}:{own.management_port}")


async def failed(publish: Awaitable[None]) -> MailmendError | None:
    try:
        await publish
    except MailmendError as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class Traffic:
    """A publisher that repeats what was not confirmed, and a consumer; which numbers each has seen through."""

    queue: QueueName
    sender: RabbitBroker
    receiver: RabbitBroker
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))
    confirmed: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)

    async def publish(self, number: int) -> None:
        async with self.gate:
            while number not in self.confirmed:
                try:
                    await self.sender.publish(self.queue, Message(b"%d" % number))
                    self.confirmed.add(number)
                except MailmendError:
                    await asyncio.sleep(0.1)

    async def receive(self) -> None:
        async with self.receiver.deliveries(self.queue, 10, [5]) as deliveries:
            async for delivery in deliveries:
                with suppress(BrokerUnreachable):
                    await delivery.ack()
                    self.received.add(int(delivery.message.body))

    async def some_are_confirmed(self) -> bool:
        return len(self.confirmed) >= PUBLISHES // 4

    async def all_are_received(self) -> bool:
        return len(self.received) == PUBLISHES


@pytest.mark.parametrize("form", first_of([Form.QUORUM, Form.CLASSIC]))
async def test_what_was_confirmed_outlives_a_crash(own: OwnBroker, form: Form) -> None:
    """Killed amid publishes and a consumer: each confirmed one is delivered, to the same consumer, once or more.

    So is the first mail of another queue. RabbitMQ would lose it, and the quorum queue with it, when it is killed in
    the second after the declaration.
    """
    settings = replace(settings_of(own), form=QueueForm(form))
    sender, receiver = (RabbitBroker(settings, SystemClock()) for _ in range(2))
    traffic = Traffic(QueueName(f"crash-{form.value}"), sender, receiver)
    first = QueueName(f"first-{form.value}")
    receiving = asyncio.create_task(traffic.receive())
    async with asyncio.TaskGroup() as group:
        for number in range(PUBLISHES):
            group.create_task(traffic.publish(number))
        await soon(traffic.some_are_confirmed)
        await sender.publish(first, Message(b"first"))
        await asyncio.to_thread(own.run.kill)
        await asyncio.to_thread(own.start)
    await soon(traffic.all_are_received)
    async with sender.deliveries(first, 1, [5]) as deliveries:
        assert (await taken(deliveries, 1))[0].message == Message(b"first")
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await sender.close()
    await receiver.close()
    assert traffic.confirmed == traffic.received == set(range(PUBLISHES))


@pytest.mark.parametrize("form", first_of([Form.QUORUM, Form.CLASSIC]))
async def test_a_broker_that_was_wiped_is_set_up_anew(
    own: OwnBroker, form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer that was there declares what is missing and goes on; so does the publisher."""
    with caplog.at_level(logging.INFO, "mailmend.queue"):
        settings = replace(settings_of(own), form=QueueForm(form))
        sender, receiver = (RabbitBroker(settings, SystemClock()) for _ in range(2))
        await sender.publish(SPOOL, Message(b"lost"))
        async with receiver.deliveries(SPOOL, 5) as deliveries:
            await taken(deliveries, 1)
            await asyncio.to_thread(own.stop)
            await asyncio.to_thread(own.wipe)
            await asyncio.to_thread(own.start)
            await sender.publish(SPOOL, Message(b"after"))
            assert (await taken(deliveries, 1))[0].message == Message(b"after")
        await sender.close()
        await receiver.close()
    ours = logged(caplog).splitlines()
    assert any("was lost, and consumes anew" in line for line in ours)
    assert any("a queue is declared of_broker=JamesMailQueue-workqueue-spool" in line for line in ours)
    assert any("consuming again" in line for line in ours)


async def test_an_alarm_blocks_publishers_and_nobody_else(own: OwnBroker) -> None:
    """Publishes fail in their time and say why; what was sent is in doubt; lifted, all goes on by itself."""
    settings = replace(settings_of(own), publish_confirm_seconds=1, management=management_of(own))
    broker, queue = RabbitBroker(settings, SystemClock()), QueueName("alarm")
    await broker.publish(queue, Message(b"before"))
    assert (await broker.depth(queue)).alarms == ()
    with own.short_of_memory():
        # Given an alarm, when a message is sent, then the broker reads no further, and its confirm does not come
        sent = await failed(broker.publish(queue, Message(b"in doubt")))
        assert isinstance(sent, PublishFailed)
        assert (sent.doubtful, "because of an alarm" in sent.what) == (True, True)
        # And while it lasts nothing is sent any more, to queues that are not there yet neither
        for other in (queue, QueueName("alarm-fresh")):
            kept = await failed(broker.publish(other, Message(b"kept back")))
            assert isinstance(kept, PublishFailed)
            assert (kept.doubtful, "because of an alarm" in kept.what) == (False, True)
            assert "rabbitmq-diagnostics alarms" in kept.mend
        # And what waits is consumed, and the alarm has a name
        async with broker.deliveries(queue, 1, [5]) as deliveries:
            await (await taken(deliveries, 1))[0].ack()
        assert (await broker.depth(queue)).alarms == ("memory on rabbit@localhost",)
    # When it is lifted, then the same broker publishes, and has what was in doubt too
    async with asyncio.timeout(20):
        while await failed(broker.publish(queue, Message(b"after"))):
            pass
    async with broker.deliveries(queue, 2, [5]) as deliveries:
        assert [one.message.body for one in await taken(deliveries, 2)] == [b"in doubt", b"after"]
    assert (await broker.depth(queue)).alarms == ()
    await broker.close()


async def test_a_consumer_that_is_too_slow_for_the_broker_comes_back(
    own: OwnBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker closes the channel of who acks too late: what was in hand comes again, over another one."""
    with own.patience_of_consumers(seconds=1), caplog.at_level(logging.INFO, "mailmend.queue"):
        broker, queue, lost = RabbitBroker(settings_of(own), SystemClock()), QueueName("slow"), list[str]()
        await broker.publish(queue, Message(b"slowly"))
        async with broker.deliveries(queue, 5, [5], lambda: lost.append("lost")) as deliveries:
            (first,) = await taken(deliveries, 1)
            (again,) = await taken(deliveries, 1)
            assert (first.redelivered, again.redelivered, again.message) == (False, True, Message(b"slowly"))
            with pytest.raises(BrokerUnreachable, match="is gone"):
                await first.ack()
            await again.ack()
        assert lost
        await broker.close()
    assert "delivery acknowledgement on channel" in logged(caplog)
    assert "consuming again of_broker=JamesMailQueue-workqueue-slow" in logged(caplog)


def test_a_broker_that_is_away_is_reported_without_the_libraries_words(
    own: OwnBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    broker_settings = replace(settings_of(own), hosts=(Host(own.host, 1),), password="s3cr3t-of-nobody")

    async def story() -> None:
        broker = RabbitBroker(broker_settings, SystemClock())
        with pytest.raises(BrokerUnreachable, match="does not answer") as caught:
            await broker.depth(SPOOL)
        assert "s3cr3t" not in f"{caught.value} {caught.value.__cause__!r}"
        await broker.close()

    asyncio.run(story())
    assert capfd.readouterr().err == ""


async def test_encrypted_both_sides_show_who_they_are(own: OwnBroker, papers: Papers) -> None:
    broker, queue = RabbitBroker(secure(own, papers.ours), SystemClock()), QueueName("secret")
    await broker.publish(queue, Message(b"{}"))
    async with broker.deliveries(queue, 1) as deliveries:
        await (await taken(deliveries, 1))[0].ack()
    assert (await broker.depth(queue)).ready == 0
    await broker.close()


TLS_ERRORS = {
    "no authority": ("127.0.0.1", "not signed by an authority that we know", "--broker-tls-ca"),
    "another authority": ("127.0.0.1", "not signed by an authority that we know", "--broker-tls-ca"),
    "another name": ("localhost", "is for another host: Hostname mismatch", "as its certificate does"),
    "no certificate": ("127.0.0.1", "or we showed none", "--broker-tls-cert"),
    "a stranger's certificate": ("127.0.0.1", "does not take our certificate", "--broker-tls-cert"),
}
"""What is wrong; by which name the node is asked; what is told, and what to mend."""


@pytest.mark.parametrize("shown", TLS_ERRORS)
def test_a_tls_error_says_what_to_mend(
    own: OwnBroker, papers: Papers, capfd: pytest.CaptureFixture[str], shown: str
) -> None:
    """Over AMQP, and over the HTTP API alone: where, why, and which option to look at; nothing is printed."""
    named, what, mend = TLS_ERRORS[shown]
    ours, stranger = papers.ours, papers.stranger
    tls = {
        "no authority": replace(ours, ca=None),
        "another authority": replace(ours, ca=stranger.ca),
        "another name": ours,
        "no certificate": BrokerTls(ours.ca),
        "a stranger's certificate": replace(stranger, ca=ours.ca),
    }[shown]
    settings = secure(own, tls, named)
    api = Management(settings.management or ManagementSettings(""), "/", tls)

    async def story() -> None:
        broker = RabbitBroker(settings, SystemClock())
        for place, ask in (
            ("RabbitMQ at ", broker.depth(SPOOL)),
            ("the broker's HTTP API at https://", api.facts(["q"])),
        ):
            with pytest.raises(BrokerUnreachable) as caught:
                await ask
            assert what in caught.value.what
            assert f"{place}{named}:" in caught.value.what
            assert mend in caught.value.mend
        await broker.close()

    asyncio.run(story())
    assert capfd.readouterr().err == ""


def secure(own: OwnBroker, tls: BrokerTls, name: str = "127.0.0.1") -> BrokerSettings:
    port, api = own.secure_port or 0, own.run.site.ports["management-tls"]
    return BrokerSettings(
        (Host(name, port),), tls=tls, answer_seconds=5, management=ManagementSettings(f"https://{name}:{api}")
    )
