"""Listening sockets that several processes accept from: one with room takes the next client.

The parent opens them, so that a client waits in one line for all processes. Where a process ends,
the line is still there for the others. With a socket for each process (SO_REUSEPORT), the kernel
would give each client to a process without regard to its load, and drop the clients that wait at a
process that ends.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mailmend.delivery.settings import ListenAddress
from mailmend.model.errors import WrongUse

_BACKLOG: Final = 100
_GIVES_OTHERS_SECONDS: Final = 0.05
"""How long a process whose places are taken leaves a client to the other processes."""

_RETRY_SECONDS: Final = 1
_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """An address with its sockets: a name may have several addresses."""

    address: ListenAddress
    sockets: Sequence[socket.socket]

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()


def open_places(addresses: Iterable[ListenAddress]) -> tuple[OpenPlace, ...]:
    """Begin to listen at all addresses, or at none.

    Raises:
        WrongUse: an address is not one of this machine, is in use, or needs other rights.
    """
    opened = list[OpenPlace]()
    for address in addresses:
        sockets = list[socket.socket]()
        opened.append(OpenPlace(address, sockets))
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            for family, _, _, _, where in dict.fromkeys(found):
                sockets.append(_listening(family, str(where[0]), int(where[1])))
        except OSError as error:
            for place in opened:
                place.close()
            raise not_listening(address, error) from error
    return tuple(opened)


def _listening(family: int, host: str, port: int) -> socket.socket:
    opened = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    opened.setblocking(False)  # noqa: FBT003 - the library's own
    return opened


def not_listening(address: ListenAddress, error: OSError) -> WrongUse:
    why = error.strerror or str(error)
    place = "an address of this machine and a port that no other program has"
    return WrongUse(
        f"mails cannot be taken at {address}: {why}",
        mend=f"Name {place}; below 1024 needs rights.",
    )


async def accept_from(
    opened: socket.socket, protocol: Callable[[], asyncio.Protocol], is_full: Callable[[], bool]
) -> None:
    """Accept connections one at a time until cancelled; then close the socket for this process."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            if is_full():
                await asyncio.sleep(_GIVES_OTHERS_SECONDS)
            try:
                accepted, _ = await loop.sock_accept(opened)
                await loop.connect_accepted_socket(protocol, accepted)
            except ConnectionError:  # the client has left again
                continue
            except OSError as error:  # no file descriptor is left, or no memory
                why = error.strerror or str(error)
                _LOG.error("a connection cannot be accepted", extra={"error": why})
                await asyncio.sleep(_RETRY_SECONDS)
    finally:
        opened.close()
