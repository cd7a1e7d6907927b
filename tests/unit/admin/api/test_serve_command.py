"""`mailmend serve` as a person types it: what it answers, and with what."""

from typing import Any

import pytest

from mailmend.admin.frame.http import server
from mailmend.admin.frame.http.access import Listening
from mailmend.admin.routes import SERVED
from mailmend.admin.serve import WebDesk
from mailmend.cql.driver import session
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the web server was given; it asks for the runs and ends."""
    given = list[tuple[Any, ...]]()

    async def listen(api: Any, listening: Listening, desk: WebDesk, stop: Any) -> None:
        given.append((api, listening.port, desk, await desk.api.queues()))
        stop.set()

    monkeypatch.setattr(server, "listen", listen)
    return given


def test_it_answers_the_api_by_the_cluster_that_it_keeps_open(
    mailmend: CommandLine, cluster: ClusterTwin, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls connect to no cluster again; a broker that is named is the broker of its queues."""
    opened = list[object]()

    def connect(contact: object) -> ClusterTwin:
        opened.append(contact)
        return cluster

    monkeypatch.setattr(session, "connect", connect)

    ended = mailmend("serve", "--listen", "127.0.0.1:8000", "--broker", "amqp://127.0.0.1")

    assert (ended.code, len(opened)) == (0, 1), ended.err
    ((api, port, desk, queues),) = calls
    assert (api, port, queues) == (SERVED, 8000, [])
    assert desk.api.settings.broker is not None
    assert desk.api.settings.blobs is None


def test_it_has_to_be_said_where_it_listens(mailmend: CommandLine) -> None:
    ended = mailmend("serve")
    assert (ended.code, "no address is given" in ended.err) == (2, True)
