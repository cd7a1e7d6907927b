"""Whether a server on this machine answers in its own protocol: a few bytes on a plain socket, no driver.

A node of Cassandra opens its native port last, when it has joined the ring and serves; so an answer to OPTIONS means
that it is up. Nothing secret is sent, so no server's certificate is verified.
"""

import http.client
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_SECONDS_MAX: Final = 2.0
_BUSY_SECONDS_MAX: Final = 5.0

_VERSION: Final = 4
_HEADER: Final = struct.Struct(">BBhBi")
_OPTIONS = 0x05
_STARTUP = 0x01
_QUERY = 0x07
_AUTH_RESPONSE = 0x0F
_SUPPORTED = 0x06
_READY = 0x02
_AUTHENTICATE = 0x03
_RESULT = 0x08
_AUTH_SUCCESS = 0x10
_ALL: Final = 0x0005
_NO_FLAGS: Final = 0
# A table of Cassandra's own that three nodes hold three times: reading any of it at ALL takes every one of them.
_READ_OF_ALL: Final = "SELECT * FROM system_distributed.view_build_status LIMIT 1"
_BODY_BYTES_MAX: Final = 1 << 20

_AMQP_HEADER: Final = b"AMQP\x00\x00\x09\x01"
# A frame of a method on channel 0, the connection's own: seven bytes, then class 10 and method 10, connection.start.
_FRAME: Final = b"\x01\x00\x00"
_START: Final = b"\x00\x0a\x00\x0a"
_OPENING_BYTES: Final = 11


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


def speaks_cql(host: str, port: int, *, tls: bool = False) -> bool:
    try:
        with _connection(host, port, _SECONDS_MAX, unverified() if tls else None) as connection:
            return _ask(connection, frame(_OPTIONS)) == _SUPPORTED
    except OSError:
        return False


def logs_in(host: str, port: int, username: str, password: str, *, tls: bool = False) -> bool:
    """Whether a node there accepts this role; a new node creates its first role a moment after it answers."""
    try:
        with _connection(host, port, _BUSY_SECONDS_MAX, unverified() if tls else None) as connection:
            asked = _ask(connection, frame(_STARTUP, startup_body()))
            login = frame(_AUTH_RESPONSE, login_body(username, password))
            return asked == _AUTHENTICATE and _ask(connection, login) == _AUTH_SUCCESS
    except OSError:
        return False


def reaches_all(host: str, port: int) -> bool:
    """Whether this node reaches every other one; a node that has just restarted needs a moment for it."""
    try:
        with _connection(host, port, _BUSY_SECONDS_MAX) as connection:
            ready = _ask(connection, frame(_STARTUP, startup_body())) == _READY
            return ready and _ask(connection, frame(_QUERY, query_body(_READ_OF_ALL, _ALL))) == _RESULT
    except OSError:
        return False


def speaks_amqp(host: str, port: int, *, context: ssl.SSLContext | None = None) -> bool:
    """Whether the broker there answers the AMQP 0-9-1 header; within TLS where a context is given."""
    try:
        with _connection(host, port, _SECONDS_MAX, context) as connection:
            connection.sendall(_AMQP_HEADER)
            opening = _read(connection, _OPENING_BYTES)
            return opening.startswith(_FRAME) and opening.endswith(_START)
    except OSError:
        return False


def http_answer(
    host: str, port: int, path: str, headers: Mapping[str, str], seconds_max: float = _SECONDS_MAX
) -> tuple[int, bytes]:
    """Status and body of a GET; 0 and nothing where no web server answers."""
    connection = http.client.HTTPConnection(host, port, timeout=seconds_max)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _connection(
    host: str, port: int, seconds_max: float, context: ssl.SSLContext | None = None
) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=seconds_max) as plain:
        if context is None:
            yield plain
            return
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
