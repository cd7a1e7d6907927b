"""What a client sends, as commands and as lines of mails; and TLS that may end one way first.

asyncio's layer of TLS ends a connection as soon as the client's input ends (close_notify, or the
end of TCP's stream): what is written after that is dropped without an error. A client that ends its
input may still read (RFC 8446 6.1), and a client whose mail was taken has to hear of it. One door
to asyncio's private `sslproto`.
"""

import asyncio
import re
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Callable
from typing import Any, Final


class HalfCloseTls(sslproto.SSLProtocol):
    """As asyncio's, but the transport stays open for writing until the protocol above closes it."""

    _state: sslproto.SSLProtocolState
    _call_eof_received: Callable[[], None]

    def eof_received(self) -> bool:  # type: ignore[override] # asyncio's returns a truth value, too
        """The client ended its stream of TCP."""
        if not self._is_in_use:
            return bool(super().eof_received())
        self._eof_received = True  # so that nothing waits for the client's close_notify
        self._call_eof_received()
        return True

    def _start_shutdown(self, *given: Any) -> None:
        """Called by the transport's `close`, and by asyncio at the client's close_notify: this one changes nothing."""
        if not self._is_in_use:
            super()._start_shutdown(*given)

    @property
    def _is_in_use(self) -> bool:
        """Whether the handshake is over, and the protocol above has not closed the transport."""
        transport: asyncio.Transport | None = self._app_transport
        is_secured = self._state is sslproto.SSLProtocolState.WRAPPED
        return is_secured and transport is not None and not transport.is_closing()


def begin_tls(
    transport: Any, protocol: asyncio.Protocol, context: ssl.SSLContext, handshake_seconds: int
) -> tuple[HalfCloseTls, asyncio.Future[None]]:
    """Secure a connection as its server; `protocol.connection_made` is called again once it is secured.

    The future ends with the handshake; it raises an OSError where the handshake fails.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    tls = HalfCloseTls(loop, protocol, context, done, server_side=True, ssl_handshake_timeout=handshake_seconds)
    transport.set_protocol(tls)
    tls.connection_made(transport)
    return tls, done


COMMAND_BYTES_MAX: Final = 1001
"""A command has at most this many bytes, without its line end."""

CLIENT_VERBS: Final = frozenset(
    b"HELO EHLO LHLO MAIL RCPT DATA BDAT BURL RSET NOOP QUIT VRFY EXPN HELP AUTH STARTTLS ETRN ATRN TURN SEND SOML SAML"
    b" XCLIENT XFORWARD".split()
)
"""The first words of clients of SMTP and LMTP (RFC 821, 1985, 2033, 2645, 3030, 3207, 4468, 4954, 5321, and Postfix).

The listener knows a part of them. A client that begins a line with any other word speaks another
protocol.
"""

_READ_BYTES: Final = 65_536
_LINE_PART_BYTES: Final = 65_536
_FIRST_WORD_END: Final = re.compile(rb"[ \r\n]")


class NotSmtp(Exception):
    """A client began a line with a word that no client of SMTP says."""


class ClientInput:
    """Bytes of a client in the order in which they came."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._pending = bytearray()

    async def command(self) -> bytes | None:
        """The next line without its line end, an LF or CR LF; None at the end of the input.

        A line that is longer than `COMMAND_BYTES_MAX` comes shortened, with one byte more than the
        maximum.

        Raises:
            NotSmtp: the line begins with no verb of SMTP. An empty line is no such line.
        """
        while (end := self._pending.find(b"\n")) < 0:
            _check_first_word(self._pending)
            del self._pending[COMMAND_BYTES_MAX + 1 :]
            if not await self._has_read():
                return None
        _check_first_word(self._pending)
        line = bytes(self._pending[:end]).rstrip(b"\r")
        del self._pending[: end + 1]
        return line[: COMMAND_BYTES_MAX + 1]

    async def response(self) -> bytes | None:
        """The next line, which is no command; None where it is longer than `COMMAND_BYTES_MAX`.

        Raises:
            ConnectionError: the input ended.
        """
        is_long = False
        while (end := self._pending.find(b"\n")) < 0:
            if len(self._pending) > COMMAND_BYTES_MAX:
                is_long = True
                self._pending.clear()
            if not await self._has_read():
                raise ConnectionError("the input ended before the response did")
        line = bytes(self._pending[:end]).rstrip(b"\r")
        del self._pending[: end + 1]
        if is_long or len(line) > COMMAND_BYTES_MAX:
            return None
        return line

    async def content(self) -> AsyncIterator[bytes]:
        """The bytes of a mail in parts, up to the line of one dot between CR LF, without the dots of the transfer.

        A part ends with a line, or within a line of more than 64 KiB.

        Raises:
            ConnectionError: the input ended before the mail did.
        """
        line_end = b"\r\n"
        while True:
            lines = line_end + self._pending
            end = lines.find(b"\r\n.\r\n")
            if end >= 0:
                del self._pending[: end + 5 - len(line_end)]
                yield _without_dots(lines[: end + 2], line_end)
                return
            whole = lines.rfind(b"\r\n") + 2
            if whole > len(line_end) and whole > 1:
                self._pending = bytearray(lines[whole:])
                yield _without_dots(lines[:whole], line_end)
                line_end = b"\r\n"
            elif len(self._pending) > _LINE_PART_BYTES:
                kept = b""
                if lines.endswith(b"\r"):
                    kept = b"\r"
                self._pending = bytearray(kept)
                yield _without_dots(lines.removesuffix(kept), line_end)
                line_end = b""
            if not await self._has_read():
                raise ConnectionError("the input ended before the mail did")

    async def _has_read(self) -> bool:
        """Whether more bytes came."""
        data = await self._reader.read(_READ_BYTES)
        self._pending += data
        return bool(data)


def _without_dots(lines: bytes, line_end: bytes) -> bytes:
    """The lines without `line_end` before them, and without the first dot of each line (RFC 5321 4.5.2)."""
    return lines.replace(b"\r\n.", b"\r\n")[len(line_end) :]


def _check_first_word(line: bytes | bytearray) -> None:
    """Raise NotSmtp unless the bytes, which may be the begin of a line, can begin a command or an empty line."""
    end = _FIRST_WORD_END.search(line)
    if end is None:
        begin = bytes(line[:COMMAND_BYTES_MAX]).upper()
        fits = any(verb.startswith(begin) for verb in CLIENT_VERBS)
    elif end.start() > 0:
        fits = bytes(line[: end.start()]).upper() in CLIENT_VERBS
    else:
        fits = bytes(line[:COMMAND_BYTES_MAX]).lstrip(b"\r")[:1] in {b"", b"\n"}
    if not fits:
        raise NotSmtp
