"""The broker's HTTP API, played by a small server: what is asked, what is made of the answer, what a person is told."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.rabbitmq.broker.adapter import DELIVERY_LIMIT_DEFAULT, Management, QueueFacts, facts_of
from mailmend.mailqueue.rabbitmq.broker.settings import ManagementSettings
from mailmend.model.errors import BrokerDenied, BrokerUnreachable
from tests.support.answering import answering
from tests.support.proxies import set_proxies, small_server

PASSWORD = "of-nobody-at-all"
QUORUM = {"type": "quorum", "messages_unacknowledged": 0}


@contextmanager
def api(
    status: int, content: bytes, alarms: tuple[int, bytes] | None = None, **headers: str
) -> Iterator[tuple[str, list[str]]]:
    """A server that always answers so, but for alarms where that is said; its URL, and what was asked."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            answer = alarms if alarms and self.path.endswith("alarms") else (status, content)
            self.send_response(answer[0])
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def ask(url: str, tls: BrokerTls | None = None, vhost: str = "a/b") -> QueueFacts:
    settings = ManagementSettings(url, "monitor", PASSWORD, answer_seconds=5)
    return asyncio.run(Management(settings, vhost, tls).facts(["q.1", "q-2"]))


def test_one_question_names_the_queues_exactly() -> None:
    """In the virtual host, below the path of the URL, with names that are no patterns."""
    with api(200, b'{"items": [{"type": "classic", "messages_unacknowledged": 3}]}') as (url, asked):
        assert ask(f"{url}/behind/") == QueueFacts(3, None)
    question, _ = asked
    assert question.startswith("/behind/api/queues/a%2Fb?name=%5E%28q%5C.1%7Cq%5C-2%29%24&use_regex=true&")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_reported_without_them(status: int) -> None:
    with api(status, b"{}") as (url, _), pytest.raises(BrokerDenied, match="'monitor'") as caught:
        ask(url)
    assert PASSWORD not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [(404, b"{}", "404"), (500, b"", "500"), (200, b"<html>", "is not RabbitMQ"), (200, b"[]", "is not RabbitMQ")],
)
def test_what_is_no_answer_is_reported_with_the_option(status: int, content: bytes, reason: str) -> None:
    with api(status, content) as (url, _), pytest.raises(BrokerUnreachable, match=reason) as caught:
        ask(url)
    assert "--broker-management" in caught.value.mend


def test_a_redirect_is_not_followed() -> None:
    with api(200, b'{"items": []}') as (elsewhere, asked), api(302, b"", Location=elsewhere) as (url, _):
        with pytest.raises(BrokerUnreachable, match="302"):
            ask(url)
        assert not asked


def test_nobody_there_is_reported_with_the_option() -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        ask(f"http://monitor:{PASSWORD}@127.0.0.1:1")
    assert "http://127.0.0.1:1" in caught.value.what
    assert PASSWORD not in str(caught.value)
    assert "--broker-management" in caught.value.mend


def test_a_broker_beyond_a_proxy_is_asked_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is among the exceptions, or on this machine."""
    with small_server(content=b'{"items": []}') as proxy:
        set_proxies(monkeypatch, HTTP_PROXY=proxy.url, NO_PROXY="0.0.0.0")
        assert ask("http://broker.example.org:15672") == QueueFacts(0, None, counted=0)
        for host in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(BrokerUnreachable, match="Connection refused"):
                ask(f"http://{host}:1")
    assert [line.partition("?")[0] for line in proxy.asked] == [
        "GET http://broker.example.org:15672/api/queues/a%2Fb",
        "GET http://broker.example.org:15672/api/health/checks/alarms",
    ]
    assert proxy.seen[0]["Authorization"].startswith("Basic ")


def test_tls_at_a_plain_address_is_named_as_what_it_may_be() -> None:
    alert = b"\x15\x03\x01\x00\x02\x02\x46"
    with (
        answering(lambda connection: connection.sendall(alert)) as port,
        pytest.raises(BrokerUnreachable) as caught,
    ):
        ask(f"http://127.0.0.1:{port}")
    assert caught.value.what.endswith("what answers there does not speak HTTP; perhaps TLS, that is https://")


def test_https_where_no_tls_is_spoken_is_reported() -> None:
    with api(200, b"{}") as (url, _), pytest.raises(BrokerUnreachable, match="does not speak TLS"):
        ask(url.replace("http:", "https:"), BrokerTls())


@pytest.mark.parametrize(
    ("items", "facts"),
    [
        ([], QueueFacts(0, None, counted=0)),
        ([{"messages": 2}, {"messages": 3}, {}], QueueFacts(None, None, counted=5)),
        ([{"type": "quorum"}], QueueFacts(None, DELIVERY_LIMIT_DEFAULT)),
        ([QUORUM | {"delivery_limit": 30}, QUORUM], QueueFacts(0, DELIVERY_LIMIT_DEFAULT)),
        ([QUORUM | {"arguments": {"x-delivery-limit": -1}, "delivery_limit": 5}], QueueFacts(0, 5)),
        ([{"messages_unacknowledged": 2}, {"messages_unacknowledged": 3}, {}], QueueFacts(5, None)),
        ([QUORUM | {"arguments": {"x-delivery-limit": 7}}], QueueFacts(0, 7)),
        ([QUORUM | {"effective_policy_definition": {"delivery-limit": 6}}], QueueFacts(0, 6)),
        (
            [QUORUM | {"arguments": {"x-delivery-limit": 7}, "effective_policy_definition": {"delivery-limit": 6}}],
            QueueFacts(0, 6),
        ),
        ([QUORUM | {"delivery_limit": 9}], QueueFacts(0, 9)),
        ([QUORUM | {"delivery_limit": "unlimited"}], QueueFacts(0, None)),
        ([QUORUM | {"arguments": {"x-delivery-limit": -1}}], QueueFacts(0, None)),
        ([QUORUM | {"arguments": {"x-delivery-limit": 9}}, QUORUM], QueueFacts(0, 9)),
        ([{"type": "classic", "arguments": {"x-delivery-limit": 9}}], QueueFacts(None, None)),
    ],
)
def test_limits_and_counts_of_some_queues_together(items: list[dict[str, Any]], facts: QueueFacts) -> None:
    """The lowest limit counts; a queue of which nothing is said has the broker's own."""
    assert facts_of(items, DELIVERY_LIMIT_DEFAULT) == facts


@pytest.mark.parametrize(("version", "limit"), [("4.0.5", 20), ("10.1.0-rc.1", 20), ("3.13.7", None), ("3.8.9", None)])
def test_a_queue_that_says_nothing_has_the_limit_of_its_version(version: str, limit: int | None) -> None:
    """Before RabbitMQ 4 there was none; the version is asked for only where nothing else tells."""
    served = {"items": [QUORUM], "rabbitmq_version": version}
    with api(200, json.dumps(served).encode()) as (url, asked):
        assert ask(url) == QueueFacts(0, limit)
    assert [question.partition("?")[0].rpartition("/")[2].split()[0] for question in asked] == [
        "a%2Fb",
        "overview",
        "alarms",
    ]
    served["items"] = [QUORUM | {"delivery_limit": 3}]
    with api(200, json.dumps(served).encode()) as (url, asked):
        assert ask(url) == QueueFacts(0, 3)
    assert not any("overview" in question for question in asked)


@pytest.mark.parametrize(
    ("status", "content", "alarms"),
    [
        (200, b'{"status":"ok"}', ()),
        (503, b'{"alarms":[{"node":"r@a","resource":"disk"},{"node":"r@b","resource":"memory"}]}', ("disk", "memory")),
        (403, b"{}", ()),
        (404, b"no such thing", ()),
    ],
)
def test_alarms_are_reported_where_they_are_known(status: int, content: bytes, alarms: tuple[str, ...]) -> None:
    """That one is on comes as an error; a broker that does not know the question, or does not tell us, hurts nobody."""
    with api(200, b'{"items": []}', alarms=(status, content)) as (url, _):
        found = ask(url).alarms
    assert tuple(one.partition(" on r@")[0] for one in found) == alarms


def test_an_alarm_that_cannot_be_read_is_no_silence() -> None:
    with (
        api(200, b'{"items": []}', alarms=(503, b"down")) as (url, _),
        pytest.raises(BrokerUnreachable, match="not Rabbit"),
    ):
        ask(url)


def test_the_settings_show_no_password() -> None:
    assert PASSWORD not in repr(Management(ManagementSettings("http://h", "u", PASSWORD), "/"))
