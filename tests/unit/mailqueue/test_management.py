"""The broker's HTTP API, played by a small server: what is asked, what is made of the answer, what a person is told."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mailqueue.brokers.management import DELIVERY_LIMIT_DEFAULT, Management, QueueFacts, facts_of
from mailqueue.brokers.settings import ManagementSettings, Tls
from model.errors import BrokerDenied, BrokerUnreachable

PASSWORD = "of-nobody-at-all"
QUORUM = {"type": "quorum", "messages_unacknowledged": 0}


@contextmanager
def api(status: int, content: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that always answers so; its URL, and what was asked."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

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


def ask(url: str, tls: Tls | None = None, vhost: str = "a/b") -> QueueFacts:
    """What it says of one queue."""
    settings = ManagementSettings(url, "monitor", PASSWORD, answer_seconds=5)
    return asyncio.run(Management(settings, vhost, tls).facts(["q.1", "q-2"]))


def test_one_question_names_the_queues_exactly() -> None:
    """In the virtual host, below the path of the URL, with names that are no patterns."""
    with api(200, b'{"items": [{"type": "classic", "messages_unacknowledged": 3}]}') as (url, asked):
        assert ask(f"{url}/behind/") == QueueFacts(3, None)
    (question,) = asked
    assert question.startswith("/behind/api/queues/a%2Fb?name=%5E%28q%5C.1%7Cq%5C-2%29%24&use_regex=true&")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_told_without_them(status: int) -> None:
    """Asking again does not help."""
    with api(status, b"{}") as (url, _), pytest.raises(BrokerDenied, match="'monitor'") as told:
        ask(url)
    assert PASSWORD not in f"{told.value} {told.value!r}"


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [(404, b"{}", "404"), (500, b"", "500"), (200, b"<html>", "is not RabbitMQ"), (200, b"[]", "is not RabbitMQ")],
)
def test_what_is_no_answer_is_told_with_the_option(status: int, content: bytes, reason: str) -> None:
    """Something listens there, and it is something else."""
    with api(status, content) as (url, _), pytest.raises(BrokerUnreachable, match=reason) as told:
        ask(url)
    assert "--broker-management" in told.value.mend


def test_a_redirect_is_not_followed() -> None:
    """Credentials go to the host that was named."""
    with api(200, b'{"items": []}') as (elsewhere, asked), api(302, b"", Location=elsewhere) as (url, _):
        with pytest.raises(BrokerUnreachable, match="302"):
            ask(url)
        assert not asked


def test_nobody_there_is_told_with_the_option() -> None:
    """With the URL, but not with what stands before its host."""
    with pytest.raises(BrokerUnreachable) as told:
        ask(f"http://monitor:{PASSWORD}@127.0.0.1:1")
    assert "http://127.0.0.1:1" in told.value.what
    assert PASSWORD not in str(told.value)
    assert "--broker-management" in told.value.mend


def test_https_where_no_tls_is_spoken_is_told() -> None:
    """The handshake fails, and says so."""
    with api(200, b"{}") as (url, _), pytest.raises(BrokerUnreachable, match="SSL"):
        ask(url.replace("http:", "https:"), Tls())


@pytest.mark.parametrize(
    ("items", "facts"),
    [
        ([], QueueFacts(0, None)),
        ([{"type": "quorum"}], QueueFacts(None, DELIVERY_LIMIT_DEFAULT)),
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
    assert facts_of(items) == facts


def test_the_settings_show_no_password() -> None:
    """Not where they are printed either."""
    assert PASSWORD not in repr(Management(ManagementSettings("http://h", "u", PASSWORD), "/"))
