"""Whether a node answers CQL: a few bytes of the native protocol on a plain socket, no driver.

A node opens its native port last, when it has joined the ring and serves; so an answer to OPTIONS means that it is up.
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_VERSION: Final = 4
_HEADER: Final = struct.Struct(">BBhBi")
_OPTIONS, _STARTUP, _QUERY, _AUTH_RESPONSE = 0x05, 0x01, 0x07, 0x0F
_SUPPORTED, _READY, _AUTHENTICATE, _RESULT, _AUTH_SUCCESS = 0x06, 0x02, 0x03, 0x08, 0x10
_ALL: Final = 0x0005
_NO_FLAGS: Final = 0
# A table of Cassandra's own that three nodes hold three times: reading any of it at ALL takes every one of them.
_READ_OF_ALL: Final = "SELECT * FROM system_distributed.view_build_status LIMIT 1"
_BODY_BYTES_MAX: Final = 1 << 20


def frame(opcode: int, body: bytes = b"") -> bytes:
    return _HEADER.pack(_VERSION, 0, 0, opcode, len(body)) + body


def startup_body() -> bytes:
    return struct.pack(">H", 1) + _text("CQL_VERSION") + _text("3.0.0")


def login_body(username: str, password: str) -> bytes:
    token = b"\0" + username.encode() + b"\0" + password.encode()
    return struct.pack(">i", len(token)) + token


def query_body(text: str, consistency: int) -> bytes:
    encoded = text.encode()
    return struct.pack(">i", len(encoded)) + encoded + struct.pack(">HB", consistency, _NO_FLAGS)


def answers(host: str, port: int, seconds_max: float = 2.0, *, tls: bool = False) -> bool:
    """Whether a node there answers OPTIONS."""
    try:
        with _connection(host, port, seconds_max, tls=tls) as connection:
            return _ask(connection, frame(_OPTIONS)) == _SUPPORTED
    except OSError:
        return False


def logs_in(host: str, port: int, username: str, password: str, seconds_max: float = 5.0, *, tls: bool = False) -> bool:
    """Whether a node there accepts this role; a new node creates its first role a moment after it answers."""
    try:
        with _connection(host, port, seconds_max, tls=tls) as connection:
            asked = _ask(connection, frame(_STARTUP, startup_body()))
            login = frame(_AUTH_RESPONSE, login_body(username, password))
            return asked == _AUTHENTICATE and _ask(connection, login) == _AUTH_SUCCESS
    except OSError:
        return False


def reaches_all(host: str, port: int, seconds_max: float = 5.0) -> bool:
    """Whether this node reaches every other one; a node that has just restarted needs a moment for it."""
    try:
        with _connection(host, port, seconds_max, tls=False) as connection:
            ready = _ask(connection, frame(_STARTUP, startup_body())) == _READY
            return ready and _ask(connection, frame(_QUERY, query_body(_READ_OF_ALL, _ALL))) == _RESULT
    except OSError:
        return False


@contextmanager
def _connection(host: str, port: int, seconds_max: float, *, tls: bool) -> Iterator[socket.socket]:
    """Nothing secret is sent, so the server's certificate is not verified."""
    with socket.create_connection((host, port), timeout=seconds_max) as plain:
        if not tls:
            yield plain
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as wrapped:
            yield wrapped


def _ask(connection: socket.socket, request: bytes) -> int:
    """Send one request; returns the opcode of the answer, whose body is read and dropped."""
    connection.sendall(request)
    _, _, _, opcode, length = _HEADER.unpack(_read(connection, _HEADER.size))
    if not 0 <= length <= _BODY_BYTES_MAX:
        raise ConnectionError("not an answer of the native protocol")
    _read(connection, length)
    return int(opcode)


def _read(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("the other side hung up")
        received += part
    return bytes(received)


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()
