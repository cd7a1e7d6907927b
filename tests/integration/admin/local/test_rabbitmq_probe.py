"""Whether RabbitMQ answers: only RabbitMQ's own first words count, however TCP cuts them."""

import socket
from collections.abc import Callable

import pytest

from mailmend.admin.local.processes import free_port, speaks_amqp, unverified
from mailmend.admin.local.rabbitmq import GUEST, api_answers
from mailmend.mailqueue.broker_http import basic
from tests.support.answering import answering

START = b"\x01\x00\x00\x00\x00\x01\xf6\x00\x0a\x00\x0a\x00\x09and what else it says"
"""A frame of a method on channel 0, its length, connection.start."""


def _saying(answer: bytes, heard: list[bytes] | None = None) -> Callable[[socket.socket], None]:
    def say(connection: socket.socket) -> None:
        asked = connection.recv(1000)
        if heard is not None:
            heard.append(asked)
        connection.sendall(answer)

    return say


@pytest.mark.parametrize(
    ("answer", "speaks"),
    [
        (START, True),
        (b"AMQP\x00\x00\x09\x01", False),
        (b"AMQP\x03\x01\x00\x00 and more", False),
        (START.replace(b"\x00\x0a\x00\x0a", b"\x00\x0a\x00\x32"), False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (START[:8], False),
        (b"", False),
    ],
    ids=["start", "another-version", "another-protocol", "closing", "web", "short", "silent"],
)
def test_only_the_start_of_a_connection_counts(answer: bytes, speaks: bool) -> None:
    """A broker that wants another version of AMQP says so in other words; so does any other program."""
    heard: list[bytes] = []
    with answering(_saying(answer, heard)) as port:
        assert speaks_amqp("127.0.0.1", port) is speaks
    assert heard == [b"AMQP\x00\x00\x09\x01"]


def test_a_start_in_pieces_is_read_whole() -> None:
    def dribble(connection: socket.socket) -> None:
        connection.recv(100)
        for byte in START[:11]:
            connection.sendall(bytes([byte]))

    with answering(dribble) as port:
        assert speaks_amqp("127.0.0.1", port)


@pytest.mark.parametrize(
    ("answer", "answers"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", False),
        (START, False),
        (b"", False),
    ],
    ids=["let-in", "kept-out", "not-yet", "amqp", "silent"],
)
def test_management_has_to_let_the_first_user_in(answer: bytes, answers: bool) -> None:
    heard: list[bytes] = []
    with answering(_saying(answer, heard)) as port:
        assert api_answers("127.0.0.1", port) is answers
    assert f"Authorization: {basic(*GUEST)}".encode() in heard[0]


def test_nobody_is_not_rabbitmq() -> None:
    port = free_port(["127.0.0.1"])
    assert not speaks_amqp("127.0.0.1", port)
    assert not speaks_amqp("127.0.0.1", port, context=unverified())
    assert not api_answers("127.0.0.1", port)
    with answering(_saying(START)) as plain:
        assert not speaks_amqp("127.0.0.1", plain, context=unverified())
