"""Ports on the loopback addresses: which are free, and a clear error when the wanted one is not."""

import errno
import secrets
import socket
from collections.abc import Collection, Sequence
from typing import Final

from mailmend.model.errors import LocalServerError

# Below the range from which Linux and macOS take the ports of outgoing connections, so none of those lands on ours.
_FIRST: Final = 17_000
_LAST: Final = 32_000


def free_port(hosts: Sequence[str], besides: Collection[int] = ()) -> int:
    """A port that is free on every address and not in `besides`, whose ports are promised already.

    The search begins anywhere: two programs that choose at the same time, or one while the other's server is down for
    a moment, hardly ever meet.
    """
    count = _LAST - _FIRST
    begin = secrets.randbelow(count)
    for step in range(count):
        port = _FIRST + (begin + step) % count
        if port not in besides and all(_failure(host, port) is None for host in hosts):
            return port
    raise LocalServerError(f"no port between {_FIRST} and {_LAST} is free on {', '.join(hosts)}")


def is_free(host: str, port: int) -> bool:
    return _failure(host, port) is None


CHOOSE_ANOTHER: Final = "Choose another one with --port, or end that program."


def require_free(host: str, port: int, *, mend: str = CHOOSE_ANOTHER) -> None:
    """Check that a server can listen there."""
    match _failure(host, port):
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


def _failure(host: str, port: int) -> int | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
    return None
