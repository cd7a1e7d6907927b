"""Whether RabbitMQ answers: the first bytes of AMQP and one question to its HTTP API, no library."""

import http.client
import socket
import ssl
from typing import Final

from mailqueue.rabbitmq.broker.management import basic

GUEST: Final = ("guest", "guest")
"""The user that RabbitMQ makes at its first start, and lets in from this machine only."""

_HEADER: Final = b"AMQP\x00\x00\x09\x01"
# A frame of a method on channel 0, the connection's own: seven bytes, then class 10 and method 10, connection.start.
_FRAME: Final = b"\x01\x00\x00"
_START: Final = b"\x00\x0a\x00\x0a"
_OPENING_BYTES: Final = 11
_SECONDS_MAX: Final = 2.0
_FOUND: Final = 200


def speaks_amqp(host: str, port: int, *, context: ssl.SSLContext | None = None) -> bool:
    """Whether the broker there begins a connection as AMQP 0-9-1 says, with a context within TLS."""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS_MAX) as plain:
            if context is None:
                return _opens(plain)
            with context.wrap_socket(plain) as wrapped:
                return _opens(wrapped)
    except OSError:
        return False


def api_answers(host: str, port: int) -> bool:
    """Whether its management lets the first user in."""
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS_MAX)
    try:
        connection.request("GET", "/api/whoami", headers={"Authorization": basic(*GUEST)})
        return connection.getresponse().status == _FOUND
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _opens(connection: socket.socket) -> bool:
    connection.sendall(_HEADER)
    received = b""
    while len(received) < _OPENING_BYTES:
        part = connection.recv(_OPENING_BYTES - len(received))
        if not part:
            return False
        received += part
    return received.startswith(_FRAME) and received.endswith(_START)


def unverified() -> ssl.SSLContext:
    """Nothing secret is asked or told, so whoever answers need not prove who it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
