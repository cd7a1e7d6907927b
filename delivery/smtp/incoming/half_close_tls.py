"""TLS of a client that may end its input before it has read all answers.

asyncio's layer of TLS ends a connection as soon as the client's input ends (close_notify, or the
end of TCP's stream): what is written after that is dropped without an error. A client that ends its
input may still read (RFC 8446 6.1), and a client whose mail was taken has to hear of it. One door
to asyncio's private `sslproto`.
"""

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Any


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
