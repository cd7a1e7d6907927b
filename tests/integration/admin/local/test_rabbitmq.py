"""A real RabbitMQ of one's own: shared by virtual hosts, killed, restarted, wiped, encrypted; it meets nobody else."""

import asyncio
import json
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aio_pika
import psutil
import pytest

from mailmend.admin.local import ServerState, local_servers
from mailmend.admin.local.processes import speaks_amqp, unverified
from mailmend.admin.local.rabbitmq import MEMORY_MIB, BrokerCertificates, api_answers
from mailmend.admin.local.server import LocalServer
from mailmend.admin.main import run
from mailmend.model.errors import ExitCode
from tests.support.brokers import GIVEN, Broker, OwnBroker, eventually, one_rabbitmq, throwaway_rabbitmq
from tests.support.certificates import Authority, authority

QUEUE = "kept"


async def _publish(url: str, body: bytes, **options: Any) -> None:
    async with await aio_pika.connect(url, **options) as connection:
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key=queue.name)


async def _received(url: str, **options: Any) -> bytes:
    async with await aio_pika.connect(url, **options) as connection:
        queue = await (await connection.channel()).get_queue(QUEUE)
        message = await queue.get(timeout=20)
        assert message is not None
        await message.ack()
        return bytes(message.body)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def _node(signer: Authority) -> Iterator[OwnBroker]:
    node = signer.signed("node", "IP:127.0.0.1")
    with throwaway_rabbitmq(BrokerCertificates(Path(signer.file), node.certificate, node.key)) as own:
        yield own


@pytest.fixture
def own(_node: OwnBroker) -> OwnBroker:
    """A node that may be killed and wiped, and speaks TLS besides; it runs when the test begins."""
    _node.start()
    return _node


pytestmark = pytest.mark.broker


def test_a_virtual_host_is_ones_own(rabbitmq: Broker, vhost: str) -> None:
    # Given a message in a virtual host
    asyncio.run(_publish(rabbitmq.url(vhost), b"one"))
    with rabbitmq.vhost() as other:
        # When another one is looked at, then it knows nothing of the queue
        assert rabbitmq.api("GET", f"queues/{other}") == []
    # And it still is where it was, while the other virtual host is gone
    assert asyncio.run(_received(rabbitmq.url(vhost))) == b"one"
    assert other not in {known["name"] for known in rabbitmq.api("GET", "vhosts")}


def test_a_broker_that_runs_already_is_used(rabbitmq: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by the environment; nothing is started, and what is taken of it is given back."""
    monkeypatch.setenv(GIVEN, f"{rabbitmq.host}:{rabbitmq.port}:{rabbitmq.management_port}")
    with one_rabbitmq() as given, given.vhost() as name:
        assert (given.host, given.port) == (rabbitmq.host, rabbitmq.port)
        assert name in {known["name"] for known in rabbitmq.api("GET", "vhosts")}


@pytest.mark.thorough
def test_confirmed_messages_outlive_a_crash(own: OwnBroker) -> None:
    # Given a confirmed message
    asyncio.run(_publish(own.url(), b"confirmed"))
    # When the broker is killed
    own.kill()
    # Then nobody answers, until it is started again
    assert not speaks_amqp(own.host, own.port)
    own.start()
    assert asyncio.run(_received(own.url())) == b"confirmed"


@pytest.mark.thorough
def test_messages_outlive_a_stop(own: OwnBroker) -> None:
    asyncio.run(_publish(own.url(), b"kept over the night"))
    pids = own.run.status().pids
    own.stop()
    assert not any(map(psutil.pid_exists, pids))
    own.start()
    assert asyncio.run(_received(own.url())) == b"kept over the night"


def test_wiped_it_is_where_it_was_and_empty(own: OwnBroker) -> None:
    # Given a queue, and a virtual host that is not given back
    asyncio.run(_publish(own.url(), b"lost"))
    own.api("PUT", "vhosts/lost")
    # When the broker is killed, and all that it stored is lost
    own.kill()
    own.wipe()
    own.start()
    # Then it answers, and has nothing
    assert own.api("GET", "queues") == []
    assert [known["name"] for known in own.api("GET", "vhosts")] == ["/"]


def test_whoever_trusts_the_authority_gets_in_encrypted(own: OwnBroker, signer: Authority) -> None:
    assert own.secure_port is not None
    url = f"amqps://guest:guest@{own.host}:{own.secure_port}/"
    trusting = ssl.create_default_context(cafile=signer.file)
    asyncio.run(_publish(url, b"sealed", ssl_context=trusting))
    assert asyncio.run(_received(own.url())) == b"sealed"


def test_whoever_does_not_know_the_authority_stays_out(own: OwnBroker) -> None:
    with (
        socket.create_connection((own.host, own.secure_port or 0), timeout=10) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname=own.host)


def test_the_plain_port_speaks_no_tls_and_the_other_no_plain(own: OwnBroker) -> None:
    assert speaks_amqp(own.host, own.port)
    assert not speaks_amqp(own.host, own.port, context=unverified())
    assert speaks_amqp(own.host, own.secure_port or 0, context=unverified())
    assert not speaks_amqp(own.host, own.secure_port or 0)


def test_it_listens_on_no_other_address(own: OwnBroker) -> None:
    for port in own.run.site.ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_it_keeps_to_its_memory(own: OwnBroker) -> None:
    limit = eventually(lambda: own.api("GET", "nodes")[0].get("mem_limit"))
    assert limit == MEMORY_MIB * 1_000_000
    assert own.api("GET", "nodes")[0]["mem_used"] < limit


def test_wrong_passwords_stay_out(own: OwnBroker) -> None:
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        asyncio.run(_received(f"amqp://guest:wrong@{own.host}:{own.port}/"))


def test_only_rabbitmq_is_taken_for_it(own: OwnBroker) -> None:
    assert not speaks_amqp(own.host, own.management_port)
    assert not api_answers(own.host, own.port)
    assert api_answers(own.host, own.management_port)


@pytest.mark.thorough
def test_it_starts_with_no_way_to_any_network(own: OwnBroker, tmp_path: Path) -> None:
    """What was fetched once is enough: without apt-get, and with a mirror that nobody answers for."""
    own.stop()
    nowhere = {"MAILMEND_DEBIAN_URI": "http://127.0.0.1:1/debian", "PATH": _path_without("apt-get", tmp_path)}
    machine = replace(own.run.machine, environment={**os.environ, **nowhere})
    assert replace(own.run, machine=machine).up().state is ServerState.UP


@pytest.mark.thorough
def test_the_command_starts_it_and_tells_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Given a broker as `local up --with rabbitmq` starts it, here without a Cassandra
    servers, options = local_servers(tmp_path / "here"), ["--dir", str(tmp_path / "here")]
    broker: LocalServer = servers.services["rabbitmq"]
    broker.up()
    try:
        # When its status is asked for
        assert run(["local", "status", *options]) == ExitCode.PARTLY_FAILED
        assert broker.status().contacts["amqp"] in capsys.readouterr().out
        assert run(["local", "status", "--json", *options]) == ExitCode.PARTLY_FAILED
        document = json.loads(capsys.readouterr().out)["services"][0]
        # Then the address that is told is one where a client is let in
        url = document["contacts"]["amqp"].replace("amqp://", "amqp://guest:guest@") + "/"
        asyncio.run(_publish(url, b"hello"))
        # And it is neither cleaned away while it runs, nor left running
        assert run(["local", "clean", *options]) == ExitCode.WRONG_USE
        assert run(["local", "down", *options]) == ExitCode.FINE
        assert run(["local", "clean", *options]) == ExitCode.FINE
    finally:
        broker.kill()
    assert not any(map(psutil.pid_exists, document["pids"]))
    assert not broker.exists


def _path_without(program: str, folder: Path) -> str:
    links = folder / "bin"
    links.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for path in Path(place).glob("*"):
            if path.name != program and not (links / path.name).is_symlink():
                (links / path.name).symlink_to(path)
    assert shutil.which(program, path=str(links)) is None
    return str(links)
