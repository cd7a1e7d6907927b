"""A web address that is told: what is posted, and that it is tried again a bounded number of times."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mailmend.admin.jobs.declaration import Tell
from mailmend.admin.jobs.run import TELLING_SECONDS, tell_all
from tests.support.clock import VirtualClock
from tests.support.proxies import set_proxies, small_server

MESSAGE = {"text": "mailmend: job nightly failed", "exit_code": 3}


@contextmanager
def answering(*answers: int) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """An address that answers so, the last answer for ever; and what it was sent."""
    given, sent = list(answers), list[tuple[str, Any]]()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append((self.path, json.loads(body)))
            self.send_response(given.pop(0) if len(given) > 1 else given[0])
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quietly."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/T0/B0?k=1", sent
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("answers", "tries", "failure"),
    [
        ((200,), 1, None),
        ((204,), 1, None),
        ((503, 429, 200), 3, None),
        ((500,), 6, "answers 500"),
        ((404,), 1, "answers 404"),
        ((302,), 1, "answers 302"),
    ],
)
def test_an_address_is_tried_again_while_it_may_help(answers: tuple[int, ...], tries: int, failure: str | None) -> None:
    clock = VirtualClock()
    began = clock.micros()
    with answering(*answers) as (url, sent):
        failures = list(tell_all(Tell(webhook=url), MESSAGE, clock))

    assert sent == [("/T0/B0?k=1", MESSAGE)] * tries
    assert [failure in one for one in failures if failure] == ([True] if failure else [])
    assert len(failures) == (failure is not None)
    assert clock.micros() - began <= TELLING_SECONDS * 1_000_000


def test_the_address_is_not_shown() -> None:
    assert "B0" not in repr(Tell(webhook="https://hooks.example.org/T0/B0"))


def test_an_address_beyond_a_proxy_is_reported_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_server() as proxy:
        set_proxies(monkeypatch, HTTP_PROXY=proxy.url)
        failures = list(tell_all(Tell(webhook="http://hooks.example.org/T0/B0"), MESSAGE, VirtualClock()))

    assert (failures, proxy.asked) == ([], ["POST http://hooks.example.org/T0/B0"])


def test_a_proxy_that_refuses_is_named_and_the_address_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_server(403) as proxy:
        set_proxies(monkeypatch, HTTPS_PROXY=f"http://me:secret@127.0.0.1:{proxy.port}")
        (failure,) = tell_all(Tell(webhook="https://hooks.example.org/T0/B0"), MESSAGE, VirtualClock())

    assert failure == (
        f"tell_webhook at hooks.example.org does not answer: the proxy at 127.0.0.1:{proxy.port} answers: 403 Forbidden"
    )
