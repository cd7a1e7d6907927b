"""A proxy of HTTP within the test's process, and the small server behind it."""

import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass(slots=True)
class SmallServer:
    """A server of HTTP: what it answers, and what it was asked.

    Attributes:
        status, content, headers: of each answer.
        asked: method and path of each request, in order; of a proxy the whole address.
        seen: the headers of each request.
    """

    port: int = 0
    status: int = HTTPStatus.OK
    content: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Answers(BaseHTTPRequestHandler):
    """Answers as its server says; CONNECT leads to the server behind."""

    server: "_Listener"

    def answer(self) -> None:
        self.note()
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        small = self.server.small
        self.send_response(small.status)
        for name, value in small.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(small.content)))
        self.end_headers()
        self.wfile.write(small.content)

    def note(self) -> None:
        self.server.small.asked.append(f"{self.command} {self.path}")
        self.server.small.seen.append(dict(self.headers))

    do_GET = answer  # noqa: N815 - http.server's names
    do_POST = answer  # noqa: N815
    do_PUT = answer  # noqa: N815

    def do_CONNECT(self) -> None:
        self.note()
        if self.server.small.status != HTTPStatus.OK:
            self.send_error(self.server.small.status)
            return
        with socket.create_connection(("127.0.0.1", self.server.behind)) as behind:
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            _pass_on(self.connection, behind)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Quietly."""


class _Listener(ThreadingHTTPServer):
    small: SmallServer
    behind: int


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    other = {client: server, server: client}
    while True:
        ready, _, _ = select.select([client, server], [], [])
        for side in ready:
            data = side.recv(65536)
            if not data:
                return
            other[side].sendall(data)


@contextmanager
def small_server(
    status: int = HTTPStatus.OK,
    content: bytes = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    behind: int = 0,
    wrap: Callable[[socket.socket], socket.socket] | None = None,
) -> Iterator[SmallServer]:
    """A server that runs until the block ends.

    Args:
        status: of each answer.
        content: of each answer.
        headers: of each answer.
        behind: the port on this machine to which CONNECT leads, whatever host is named.
        wrap: puts the listening socket into TLS.
    """
    small = SmallServer(0, status, content, dict(headers or {}))
    with _Listener(("127.0.0.1", 0), _Answers) as listener:
        if wrap is not None:
            listener.socket = wrap(listener.socket)
        small.port = listener.server_port
        listener.small = small
        listener.behind = behind
        serving = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield small
        finally:
            listener.shutdown()
            serving.join()


def set_proxies(monkeypatch: Any, **variables: str) -> None:
    """Only these variables of proxies are set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
