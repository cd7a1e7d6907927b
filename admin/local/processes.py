"""The processes of local servers, their ports on the loopback addresses, and whether they answer.

A process is known by more than its number: a process id is reused, so a stale one must not be taken
for our server. A process is ours when its id, the moment it started and its command line all are
what was written down.

A server answers in its own protocol: a few bytes on a plain socket, no driver. A node of Cassandra
opens its native port last, when it has joined the ring and serves; so an answer to OPTIONS means
that it is up. Nothing secret is sent, so no server's certificate is verified.
"""

import errno
import secrets
import socket
import ssl
import struct
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from mailmend.admin.local.folders import read_json
from mailmend.model.errors import LocalServerError
from mailmend.model.grammar import host_and_port
from mailmend.model.ports import Clock
from mailmend.repair.http_client import NoAnswer, ask

_POLL_SECONDS: Final = 0.05
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_SAME_START_SECONDS: Final = 1.0
"""The start is given in ticks since boot and the time of boot: setting the clock moves it a little."""


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process as it is written down.

    Attributes:
        started_at: seconds since 1970.
        mark: words of its command line that no other process has.
    """

    pid: int
    started_at: float
    mark: str

    @property
    def runs(self) -> bool:
        return self._found() is not None

    def ask_to_end(self) -> None:
        if found := self._found():
            found.terminate()

    def kill(self) -> None:
        if found := self._found():
            found.kill()

    def wait_end(self, clock: Clock, seconds_max: float) -> bool:
        """Wait until it has ended; False when it still runs after `seconds_max`."""
        deadline = clock.monotonic() + seconds_max
        while self.runs:
            if clock.monotonic() >= deadline:
                return False
            clock.sleep(_POLL_SECONDS)
        return True

    def _found(self) -> psutil.Process | None:
        child = _children.get(self.pid)
        if child and child.poll() is not None:
            del _children[self.pid]
            return None
        with suppress(psutil.Error):  # gone, a zombie, or another user's
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.started_at) >= _SAME_START_SECONDS:
                return None
            # A child that is being started shows no command line for a moment; but we know what we started.
            if child or self.mark in " ".join(found.cmdline()):
                return found
        return None


# The servers that this very process started: a child has to be waited for, or it stays a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


def this_process() -> StartedProcess:
    own = psutil.Process()
    return StartedProcess(own.pid, own.create_time(), "")


def launch(
    command: Sequence[str], mark: str, folder: Path, console: Path, environment: Mapping[str, str] | None = None
) -> StartedProcess:
    """Start a server in a session of its own, so that Ctrl-C does not reach it; its output goes to a file."""
    with console.open("wb") as output:
        child = subprocess.Popen(  # noqa: S603 (our own command line)
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    _children[child.pid] = child
    try:
        return StartedProcess(child.pid, psutil.Process(child.pid).create_time(), mark)
    except psutil.Error:
        return StartedProcess(child.pid, 0.0, mark)  # it has ended already


RECORD: Final = "server.json"


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server's ports, and its processes in the order of their start; both may be empty."""

    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, StartedProcess] = field(default_factory=dict)

    @property
    def last_first(self) -> tuple[tuple[str, StartedProcess], ...]:
        return tuple(reversed(tuple(self.processes.items())))

    def with_process(self, name: str, process: StartedProcess) -> "ServerRecord":
        return ServerRecord(self.ports, {**self.processes, name: process})

    def without(self, name: str) -> "ServerRecord":
        processes = dict(self.processes)
        processes.pop(name, None)
        return ServerRecord(self.ports, processes)


def read_record(path: Path) -> ServerRecord:
    return read_json(path, _record_of) or ServerRecord()


def _record_of(document: Any) -> ServerRecord:
    processes = {str(name): StartedProcess(**process) for name, process in document["processes"].items()}
    ports = {str(name): int(port) for name, port in document["ports"].items()}
    return ServerRecord(ports, processes)


# Below the range from which Linux and macOS take the ports of outgoing connections, so none of those lands on ours.
_FIRST_PORT: Final = 17_000
_LAST_PORT: Final = 32_000


def free_port(hosts: Sequence[str], besides: Collection[int] = ()) -> int:
    """A port that is free on every address and not in `besides`, whose ports are promised already.

    The search begins anywhere: two programs that choose at the same time, or one while the other's server is down for
    a moment, hardly ever meet.
    """
    count = _LAST_PORT - _FIRST_PORT
    begin = secrets.randbelow(count)
    for step in range(count):
        port = _FIRST_PORT + (begin + step) % count
        if port not in besides and all(_bind_failure(host, port) is None for host in hosts):
            return port
    raise LocalServerError(f"no port between {_FIRST_PORT} and {_LAST_PORT} is free on {', '.join(hosts)}")


def is_taken(host: str, port: int) -> bool:
    """Whether another program listens there."""
    return _bind_failure(host, port) == errno.EADDRINUSE


def is_free(host: str, port: int) -> bool:
    return _bind_failure(host, port) is None


CHOOSE_ANOTHER: Final = "Choose another one with --port, or end that program."


def require_free(host: str, port: int, *, mend: str = CHOOSE_ANOTHER) -> None:
    """Check that a server can listen there."""
    match _bind_failure(host, port):
        case None:
            return
        case errno.EADDRINUSE:
            raise LocalServerError(
                f"port {port} on {host} is taken by another program",
                mend=mend,
            )
        case errno.EADDRNOTAVAIL:
            raise LocalServerError(
                f"this machine has no address {host}", mend=f"On macOS: sudo ifconfig lo0 alias {host} up"
            )
        case code:
            raise LocalServerError(f"cannot listen on {host}:{port}: {errno.errorcode.get(code, str(code))}")


def _bind_failure(host: str, port: int) -> int | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
    return None


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
    try:
        return ask(
            "GET",
            f"http://{host_and_port(host, port)}{path}",
            seconds=seconds_max,
            bytes_max=_ANSWER_BYTES_MAX,
            headers=headers,
        )
    except NoAnswer:
        return 0, b""


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
