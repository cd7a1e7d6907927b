"""What only a real RabbitMQ shows of the adapter: forms of queues, publishes in doubt, refusals, what James sees."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import aio_pika
import pytest

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.rabbitmq.broker.adapter import DELIVERY_LIMIT_DEFAULT, Management, RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import Form, Host, ManagementSettings, QueueForm, topology_of
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, MailmendError, PublishFailed, TopologyMismatch
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.broker_scenes import RabbitScene, rabbit_scene, soon, taken
from tests.support.brokers import Broker, eventually
from tests.support.james_queue import james_messages
from tests.support.logs import logged

SPOOL = QueueName("spool")
NAMES = topology_of(SPOOL)
ONE = Message(b"{}")


@pytest.fixture
async def scene(rabbitmq: Broker, vhost: str) -> AsyncIterator[RabbitScene]:
    async with rabbit_scene(rabbitmq, vhost) as scene:
        yield scene


def queue_of(broker: Broker, vhost: str) -> dict[str, Any]:
    found: dict[str, Any] = broker.api("GET", f"queues/{vhost}/{NAMES.work_queue}")
    return found


async def test_what_james_published_leaves_us_as_it_left_james(
    rabbitmq: Broker, vhost: str, scene: RabbitScene
) -> None:
    """Body, content type, delivery mode, priority and headers; a message id beside them, by which returns are known."""
    broker = scene.client()
    for message in james_messages():
        await broker.publish(SPOOL, Message(message.body))
    connection = await aio_pika.connect(rabbitmq.url(vhost))
    async with connection, connection.channel() as channel:
        queue = await channel.get_queue(NAMES.work_queue)
        for message in james_messages():
            found = await queue.get(no_ack=True)
            sent = message.properties
            assert found is not None
            assert (found.body, found.content_type) == (message.body, sent["contentType"])
            assert (found.exchange, found.routing_key) == (sent["exchange"], sent["routingKey"])
            assert (found.delivery_mode, found.priority) == (sent["deliveryMode"], sent["priority"])
            assert dict(found.headers) == {"x-dead-letter-routing-key": ""}
            assert {
                name
                for name in (
                    "correlation_id",
                    "reply_to",
                    "expiration",
                    "timestamp",
                    "type",
                    "user_id",
                    "app_id",
                    "content_encoding",
                )
                if getattr(found, name)
            } == set()


@pytest.mark.parametrize("there", [{}, {"x-queue-version": 2}, {"x-queue-type": "quorum"}], ids=str)
@pytest.mark.parametrize("asked", [QueueForm(), QueueForm(Form.CLASSIC_V2), QueueForm(Form.QUORUM)], ids=str)
async def test_a_queue_that_is_there_is_used_as_it_is(
    rabbitmq: Broker, vhost: str, there: dict[str, Any], asked: QueueForm
) -> None:
    """Generations of James declare it differently; none is declared anew, whatever form is asked for."""
    dead = {"x-dead-letter-exchange": NAMES.dead_letter_exchange}
    rabbitmq.api("PUT", f"queues/{vhost}/{NAMES.work_queue}", {"durable": True, "arguments": dead | there})
    async with rabbit_scene(rabbitmq, vhost, asked) as scene:
        broker = scene.client()
        await broker.publish(SPOOL, ONE)
        async with broker.deliveries(SPOOL, 1) as deliveries:
            await (await taken(deliveries, 1))[0].ack()
    arguments = queue_of(rabbitmq, vhost)["arguments"]
    assert there.items() <= arguments.items()


async def test_a_binding_that_was_removed_is_made_again(rabbitmq: Broker, vhost: str, scene: RabbitScene) -> None:
    """The broker returns the message; what is missing is declared and bound, and it is published once more."""
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    rabbitmq.api("DELETE", f"bindings/{vhost}/e/{NAMES.exchange}/q/{NAMES.work_queue}/~")
    await broker.publish(SPOOL, ONE)
    assert (await broker.depth(SPOOL)).ready == 2


@pytest.mark.parametrize("kind", ["queues", "exchanges"])
async def test_what_was_removed_is_declared_again(rabbitmq: Broker, vhost: str, kind: str, scene: RabbitScene) -> None:
    name = NAMES.work_queue if kind == "queues" else NAMES.exchange
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    rabbitmq.api("DELETE", f"{kind}/{vhost}/{name}")
    await broker.publish(SPOOL, ONE)
    assert (await broker.depth(SPOOL)).ready == (1 if kind == "queues" else 2)


async def test_a_consumer_whose_queue_is_removed_comes_back(
    rabbitmq: Broker, vhost: str, caplog: pytest.LogCaptureFixture, scene: RabbitScene
) -> None:
    """The broker takes it away; the queue is declared anew, and it is told once, and counted."""
    lost = list[QueueName]()
    with caplog.at_level(logging.INFO, "mailmend.queue"):
        broker = scene.client()
        async with broker.deliveries(SPOOL, 1, None, lambda: lost.append(SPOOL)) as deliveries:
            await asyncio.to_thread(rabbitmq.api, "DELETE", f"queues/{vhost}/{NAMES.work_queue}")

            async def back() -> bool:
                return (await broker.depth(SPOOL)).consumers == 1 and "consuming again" in caplog.text

            await soon(back)
            await broker.publish(SPOOL, ONE)
            assert (await taken(deliveries, 1))[0].message == ONE
    lost_once = [line for line in logged(caplog).splitlines() if "was lost, and consumes anew" in line]
    assert [line.count("the broker took the consumer away") for line in lost_once] == [1]
    assert lost == [SPOOL]


async def test_a_full_queue_refuses_and_nothing_is_in_doubt(rabbitmq: Broker, vhost: str, scene: RabbitScene) -> None:
    full = {"pattern": "workqueue", "definition": {"max-length": 1, "overflow": "reject-publish"}}
    rabbitmq.api("PUT", f"policies/{vhost}/full", full)
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    outcomes = [await _outcome(asyncio.create_task(broker.publish(SPOOL, ONE))) for _ in range(20)]
    refused = [outcome for outcome in outcomes if outcome is not None]  # the limit is soft
    assert refused
    assert all(isinstance(one, PublishFailed) and not one.doubtful for one in refused)
    await broker.publish(SPOOL, ONE, 9)


async def test_a_limit_is_reported_as_one_and_passes(rabbitmq: Broker, vhost: str) -> None:
    """Of connections, of channels, of queues: who is in goes on, who is not is told what to look at."""
    user = f"u{vhost}"
    rabbitmq.api("PUT", f"users/{user}", {"password": "of-the-test", "tags": ""})
    rabbitmq.api("PUT", f"permissions/{vhost}/{user}", {"configure": ".*", "write": ".*", "read": ".*"})

    async def limited(limit: str, value: int, ask: Callable[[], Awaitable[object]], words: str) -> MailmendError:
        await asyncio.to_thread(rabbitmq.api, "PUT", limit, {"value": value})

        async def refused() -> MailmendError | None:
            """The broker counts channels late; and where it closes the connection, that may be told instead."""
            try:
                await ask()
            except MailmendError as error:
                return error if words in error.what else None
            return None

        error = await soon(refused)
        await asyncio.to_thread(rabbitmq.api, "DELETE", limit)
        assert error is not None
        return error

    try:
        async with rabbit_scene(rabbitmq, vhost, answer_seconds=3.0) as scene:
            broker = RabbitBroker(replace(scene.settings, username=user, password="of-the-test"), SystemClock())
            await broker.publish(SPOOL, ONE)
            # Given no connection more, when one is needed, then that is told, and the one that is there is used on
            connections, many = f"vhost-limits/{vhost}/max-connections", "as many connections as it may"
            reported = await limited(connections, 1, lambda: broker.depth(SPOOL), many)
            assert isinstance(reported, BrokerUnreachable)
            assert not isinstance(reported, BrokerDenied)
            assert "list_vhost_limits" in reported.mend
            await broker.publish(SPOOL, ONE)
            assert (await broker.depth(SPOOL)).ready == 2
            # Given few channels, when many are opened, then the broker's own words are told
            channels = f"user-limits/{user}/max-channels"
            reported = await limited(channels, 5, lambda: broker.depth(SPOOL), "maximum allowed user limit")
            assert "takes no more of us just now" in reported.what
            assert (await broker.depth(SPOOL)).ready == 2
            # Given no queue more, when one is missing, then it is told which and why, and nothing is published
            queues, more = f"vhost-limits/{vhost}/max-queues", QueueName("more")
            reported = await limited(queues, 2, lambda: broker.publish(more, ONE), "queue limit in vhost")
            assert isinstance(reported, TopologyMismatch)
            await broker.publish(QueueName("more"), ONE)
            await broker.close()
    finally:
        rabbitmq.api("DELETE", f"users/{user}")


async def test_a_publish_without_a_confirm_is_in_doubt(rabbitmq: Broker, vhost: str) -> None:
    """The broker has it, and its answer does not come: late, lost with the connection, or closed by us."""
    async with rabbit_scene(rabbitmq, vhost, publish_confirm_seconds=0.5, answer_seconds=2.0) as scene:
        for end in (None, scene.cut, "close"):
            broker = scene.client()
            await broker.publish(SPOOL, ONE)
            scene.wire.hold_answers()
            before = scene.wire.sent_bytes
            publish = asyncio.create_task(broker.publish(SPOOL, ONE))

            async def passed(before: int = before) -> bool:
                return scene.wire.sent_bytes > before + len("x-dead-letter-routing-key")

            await soon(passed)
            if end == "close":
                closing = asyncio.create_task(broker.close())
                await asyncio.sleep(0)
                scene.wire.let_answers()
                await closing
                assert not isinstance(await _outcome(publish), asyncio.CancelledError)
            else:
                if callable(end):
                    end()
                outcome = await _outcome(publish)
                assert isinstance(outcome, PublishFailed)
                assert outcome.doubtful
                scene.wire.let_answers()
            scene.wire.let_answers()
            await soon(lambda: _reaches(scene))


async def test_nobody_there_is_no_doubt(scene: RabbitScene) -> None:
    scene.wire.dead = True
    with pytest.raises(BrokerUnreachable):
        await scene.client().publish(SPOOL, ONE)


async def test_many_who_lost_the_connection_at_once_share_the_next(scene: RabbitScene) -> None:
    broker = scene.client()
    await broker.publish(SPOOL, ONE)
    scene.cut()
    dials = scene.wire.dials

    async def publish() -> bool:
        outcome = await _outcome(asyncio.create_task(broker.publish(SPOOL, ONE)))
        return outcome is None

    assert any(await asyncio.gather(*(publish() for _ in range(50))) + [await publish()])
    assert scene.wire.dials == dials + 1


async def test_the_next_host_is_asked(scene: RabbitScene) -> None:
    settings = replace(scene.settings, hosts=(Host("127.0.0.1", 1), *scene.settings.hosts))
    broker = RabbitBroker(settings, SystemClock())
    await broker.publish(SPOOL, ONE)
    await broker.close()
    with pytest.raises(BrokerUnreachable, match="closed by us"):
        await broker.publish(SPOOL, ONE)


@pytest.mark.parametrize("wrong", [{"password": "not-the-password"}, {"vhost": "not-there"}])
async def test_a_refusal_is_reported_without_the_password(
    wrong: dict[str, str], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], scene: RabbitScene
) -> None:
    with caplog.at_level(logging.DEBUG):
        settings = replace(scene.settings, **({"password": "s3cr3t-of-nobody"} | wrong))  # type: ignore[arg-type]
        broker = RabbitBroker(settings, SystemClock())
        with pytest.raises(BrokerDenied) as caught:
            await broker.publish(SPOOL, ONE)
        error: BaseException | None = caught.value
        while error is not None:
            assert settings.password not in f"{error} {error!r} {error.args!r}"
            error = error.__cause__ or error.__context__
        await broker.close()
        assert settings.password not in caplog.text
    assert capfd.readouterr().err == ""


async def test_the_heartbeat_and_a_name_reach_the_broker(rabbitmq: Broker, vhost: str) -> None:
    async with rabbit_scene(rabbitmq, vhost, heartbeat_seconds=17) as scene:
        await scene.client().publish(SPOOL, ONE)

        def seen() -> list[dict[str, Any]]:
            return [one for one in rabbitmq.api("GET", f"vhosts/{vhost}/connections") if one.get("timeout")]

        (found,) = await asyncio.to_thread(eventually, seen)
        assert found["timeout"] == 17
        assert found["client_properties"]["connection_name"] == "mailmend publishing"


async def test_the_http_api_tells_unacked_messages_and_the_limit(rabbitmq: Broker, vhost: str) -> None:
    """Beside what AMQP counts; an operator's policy is lower than the queue's own argument, and holds."""
    lower = {"pattern": "workqueue", "definition": {"delivery-limit": 3}, "apply-to": "queues"}
    rabbitmq.api("PUT", f"operator-policies/{vhost}/lower", lower)
    async with rabbit_scene(rabbitmq, vhost, QueueForm(Form.QUORUM, delivery_limit=4)) as scene:
        api = ManagementSettings(f"http://{rabbitmq.host}:{rabbitmq.management_port}")
        broker = RabbitBroker(replace(scene.settings, management=api), SystemClock())
        for _ in range(3):
            await broker.publish(SPOOL, ONE)
        async with broker.deliveries(SPOOL, 2) as deliveries:
            await taken(deliveries, 2)

            async def counted() -> bool:
                depth = await broker.depth(SPOOL)
                return (depth.ready, depth.unacked, depth.consumers, depth.delivery_limit) == (1, 2, 1, 3)

            await soon(counted, poll_seconds=0.5)  # the API tells the counts some seconds late
        await broker.close()


def test_a_queue_of_which_nothing_is_reported_yet_has_the_limit_of_its_version(rabbitmq: Broker, vhost: str) -> None:
    """The API tells of a new queue's limit some seconds late; the version is there at once."""
    version = int(rabbitmq.api("GET", "overview")["rabbitmq_version"].partition(".")[0])
    rabbitmq.api("PUT", f"queues/{vhost}/new", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    api = Management(ManagementSettings(f"http://{rabbitmq.host}:{rabbitmq.management_port}"), vhost)

    assert asyncio.run(api.facts(["new"])).delivery_limit == (DELIVERY_LIMIT_DEFAULT if version >= 4 else None)


async def _outcome(task: "asyncio.Task[None]") -> BaseException | None:
    await asyncio.wait((task,), timeout=20)
    assert task.done()
    assert not task.cancelled(), "an error of the connection came as a cancellation"
    return task.exception()


async def _reaches(scene: RabbitScene) -> bool:
    try:
        await scene.client().depth(SPOOL)
    except MailmendError:
        return False
    return True
