"""The broker lost every message of a queue: told by health, mended by what the pages name, and delivered once each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import RunbookStep, page_named
from tests.support.brokers import Broker
from tests.support.queue_pages import HOUR, filled, make_older, walk
from tests.support.real_queue import RealQueue, real_queue, until
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.broker]


@pytest.fixture(scope="module")
def servers(
    cassandra: CassandraServer, rabbitmq: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealQueue]:
    home = tmp_path_factory.mktemp("home")
    with real_queue(cassandra, rabbitmq, home, {"MAILMEND_BLOBS": f"file://{home}/blobs"}) as queue:
        yield queue


@pytest.mark.parametrize(
    "lose", [pytest.param(RealQueue.lose_messages, marks=pytest.mark.thorough), RealQueue.lose_broker_queue]
)
def test_mails_are_accepted_and_nothing_delivers_them(
    servers: RealQueue, lose: Callable[[RealQueue], None], tmp_path: Path
) -> None:
    """From the page of the symptom to the page that it leads to."""
    servers.empty()
    servers.put("one", "two")
    make_older(servers, 2 * HOUR)
    lose(servers)

    reconcile, health, *_ = page_named("queue-does-not-drain").commands("Check")
    walk(servers, [RunbookStep(reconcile, ())])
    words = filled(servers, f"{health.partition('#')[0]} --json", "")
    until(lambda: servers.line(*words).json["queues"][0]["lacking"] == 2)  # the broker's statistics are seconds old
    ended = servers.line(*words)
    (found,) = ended.json["queues"]
    assert (ended.code, found["broker"]["ready"]) == (1, 0)
    lacks = found["reasons"][0]
    assert (lacks["trouble"], "runbook show rabbitmq-was-lost" in lacks["mend"]) == ("lacks_message", True)

    page = page_named("rabbitmq-was-lost")
    for section in ("Check", "Do", "Verify"):
        walk(servers, page.steps(section))

    taken = servers("dequeue", "--dir", str(tmp_path), "--wait", "4s", "--json")
    assert taken.json["acked"] == 2
    assert servers("health").code == 0
