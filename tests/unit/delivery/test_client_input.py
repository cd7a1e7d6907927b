"""Commands and mails out of a client's bytes, however the bytes come."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.smtp.incoming.client_input import (
    CLIENT_VERBS,
    COMMAND_BYTES_MAX,
    ClientInput,
    NotSmtp,
)
from mailmend.delivery.smtp.outgoing.esmtp import transparent

LINES = st.lists(
    st.one_of(
        st.text("\r\n.ab", max_size=12).map(str.encode),
        st.sampled_from(
            [b"\n.", b"\r.", b".", b"..", b"\r", b"x" * 70_000, b"." + b"x" * 70_000, b"x" * 65_537 + b"\r"]
        ),
    ),
    max_size=8,
).map(lambda lines: b"".join(line + b"\r\n" for line in lines))
CUTS = st.lists(st.integers(0, 140_000), max_size=6)


def given_input(parts: Sequence[bytes]) -> ClientInput:
    reader = asyncio.StreamReader()
    for part in parts:
        reader.feed_data(part)
    reader.feed_eof()
    return ClientInput(reader)


class PartsReader(asyncio.StreamReader):
    """Gives each read one of the parts."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__()
        self.parts = [part for part in parts if part]

    async def read(self, n: int = -1) -> bytes:  # noqa: ARG002 - asyncio's signature
        return self.parts.pop(0) if self.parts else b""


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = [0, *sorted(place for place in places if place < len(data)), len(data)]
    return [data[begin:end] for begin, end in pairwise(ends)]


@given(LINES, CUTS)
async def test_a_mail_is_the_same_however_its_bytes_come(lines: bytes, places: Sequence[int]) -> None:
    """Without the dots of the transfer; what stands behind its end is the next command."""
    found = ClientInput(PartsReader(cut(transparent(lines) + b"NOOP\r\n", places)))

    assert b"".join([part async for part in found.content()]) == lines
    assert await found.command() == b"NOOP"
    assert await found.command() is None


@pytest.mark.parametrize("sent", [b"", b"a\r\n", b"a\r\n.", b"a\r\n.\r", b"a\n.\n", b"a\r\n.\n", b"a\n.\r\n"])
async def test_a_mail_without_its_end_is_none(sent: bytes) -> None:
    with pytest.raises(ConnectionError, match="the input ended before the mail did"):
        [part async for part in given_input([sent]).content()]


@pytest.mark.parametrize("verb", sorted(CLIENT_VERBS))
async def test_a_command_begins_with_a_verb(verb: bytes) -> None:
    """In small letters too, and with LF alone."""
    found = given_input([verb[:2], verb[2:] + b" a b\r\n" + verb.lower() + b"\n\r\n"])
    assert [await found.command() for _ in range(4)] == [verb + b" a b", verb.lower(), b"", None]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST ",
        b"CONNECT example.org:25 HTTP/1.1\r\n",
        b"OPTIONS",
        b"Host: 127.0.0.1:2525\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-client\r\n",
        b"USER ann\r\n",
        b"MAILING x\r\n",
        b"MAI L\r\n",
        b"MA\r\n",
        b" EHLO a\r\n",
        b"\rEHLO a\r\n",
        b"\tEHLO a\r\n",
        b"{}",
        b"\xff\xff\r\n",
        b"\0",
    ],
)
async def test_a_word_that_no_client_of_smtp_says_is_known_at_once(sent: bytes) -> None:
    """Before its line has come whole."""
    with pytest.raises(NotSmtp):
        await given_input([sent]).command()


@pytest.mark.parametrize("size", [COMMAND_BYTES_MAX, COMMAND_BYTES_MAX + 1, 500_000])
async def test_a_long_command_comes_shortened(size: int) -> None:
    """The next one is whole."""
    line = b"NOOP " + b"x" * (size - 5)
    found = given_input([line + b"\r\nRSET\r\n"])
    assert await found.command() == line[: COMMAND_BYTES_MAX + 1]
    assert await found.command() == b"RSET"
