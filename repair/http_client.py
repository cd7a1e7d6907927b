"""HTTP requests to other servers: the only module that uses httpx2, and the rules of all requests.

- Proxies: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, or their names in small letters. A
  request to this machine never uses a proxy.
- Certificates are verified: by the caller's context, otherwise by the system's authorities, or by
  the authorities in SSL_CERT_FILE.
- An answer has a time limit as a whole and a size limit. Nothing is decompressed.
- `ask` follows no redirect: credentials go only to the host that the caller names, and its proxy.
- No error contains a header, a login, or the path of an address.

The library is imported with the first request, so a command that sends none starts without it.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from mailmend.model.errors import BadSettings, CannotReach
from mailmend.model.grammar import is_here
from mailmend.model.texts import noted

if TYPE_CHECKING:
    import httpx2

NO_HTTP: Final = "what answers there does not speak HTTP"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_OUR_HEADERS: Final = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Connection": "close",
    "User-Agent": "mailmend",
}
_OK: Final = 200
_PORTS: Final = {"http": 80, "https": 443}
_CHUNK_BYTES: Final = 1 << 20


class NoAnswer(CannotReach):
    """A request has no answer. `what` is the reason alone; the caller adds which server it is."""


class HttpResponse(NamedTuple):
    """A status, and the content up to the size that the caller wants."""

    status: int
    content: bytes


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    *,
    seconds: float,
    bytes_max: int,
    headers: Mapping[str, str] = _NO_HEADERS,
    trusted: ssl.SSLContext | None = None,
) -> HttpResponse:
    """Send one request and return the answer, whatever its status. No redirect is followed.

    Args:
        method: such as GET.
        url: the address, http or https; a login in it is not sent.
        body: the content of the request.
        seconds: the time limit of the whole answer, and of each wait for the server.
        bytes_max: the content is read up to this size; the rest is left unread.
        headers: sent with the request.
        trusted: the authorities that count, and our certificate; None: the system's authorities.

    Raises:
        NoAnswer: the server does not answer in time, or not in HTTP.
        BadSettings: a variable of the environment is not the address of a proxy.
    """
    if trusted is None:
        trusted = _system_trust(url)
    with (
        _Connection(seconds) as connection,
        _client(url, seconds, trusted) as client,
        _answer(client, connection, method, url, headers=headers, body=body) as answer,
    ):
        response = HttpResponse(answer.status_code, _content(answer, bytes_max))
        if connection.is_over:
            # Content without a length ends with its connection: this may be half of it.
            raise NoAnswer(connection.over)
        return response


def download(
    url: str,
    file: Path,
    *,
    wait_seconds: float,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> int:
    """Write the content of an address into a file, whole, and return the status.

    Redirects are followed; the header Authorization goes to the first host alone.

    Args:
        url: the address, http or https.
        file: written only if the status is 200.
        wait_seconds: the time limit of each wait for the server; the whole download has no limit.
        headers: sent with the request.

    Raises:
        NoAnswer: the server does not answer, or the connection ended before the content did.
        OSError: the file cannot be written.
        BadSettings: a variable of the environment is not the address of a proxy.
    """
    with (
        _Connection(None) as connection,
        _client(url, wait_seconds, ssl.create_default_context()) as client,
        _answer(client, connection, "GET", url, headers=headers, redirects=True) as answer,
    ):
        if answer.status_code == _OK:
            with file.open("wb") as opened:
                for chunk in answer.iter_raw(_CHUNK_BYTES):
                    opened.write(chunk)
        return answer.status_code


class _Connection:
    """The connection of one request: which host it goes to, and how long it may last.

    The library limits each wait, but not their sum: a server that sends a byte now and then would
    hold a request for ever. When the time is over, the connection is shut.
    """

    def __init__(self, seconds: float | None) -> None:
        self.is_over = False
        self.host = ""
        self.port = 0
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._timer: Timer | None = None

    @property
    def over(self) -> str:
        return f"the answer is not complete after {self._seconds:g} s"

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self._timer = Timer(self._seconds, self._end)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._socket is not None:
            self._socket.close()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the library at each step."""
        if event.endswith(".connect_tcp.started"):
            self.host = info["host"]
            self.port = info["port"]
        elif event.endswith(".connect_tcp.complete") and self._timer is not None:
            # TLS takes the socket over, so the timer needs a second handle of the connection.
            with suppress(OSError):  # too many open files: the limit of each wait is left
                self._socket = info["return_value"].get_extra_info("socket").dup()
            if self.is_over:
                self._shut()

    def _end(self) -> None:
        self.is_over = True
        self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the server was faster
                self._socket.shutdown(socket.SHUT_RDWR)


def _client(url: str, wait_seconds: float, trusted: ssl.SSLContext) -> "httpx2.Client":
    import httpx2  # noqa: PLC0415 - with the first request

    proxies = not is_here(urlsplit(url).hostname or "")
    try:
        return httpx2.Client(
            verify=trusted,
            timeout=wait_seconds,
            trust_env=proxies,
            headers=_OUR_HEADERS,
        )
    except (ValueError, httpx2.InvalidURL):
        # The library's words would contain the address, which may have a password.
        raise BadSettings(
            "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is not the address of a proxy",
            mend="Write it like http://proxy.example.org:3128, or socks5://proxy.example.org:1080.",
        ) from None


def _system_trust(url: str) -> ssl.SSLContext:
    if urlsplit(url).scheme == "https":
        return ssl.create_default_context()
    # It is not needed, and trusts no certificate. To read the system's takes time.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def _answer(
    client: "httpx2.Client",
    connection: _Connection,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    redirects: bool = False,
) -> Iterator["httpx2.Response"]:
    """The answer to a request; the library's errors become `NoAnswer`, in the block too."""
    import httpx2  # noqa: PLC0415 - with the first request

    try:
        with client.stream(
            method,
            _without_login(url),
            content=body,
            headers=_encoded(headers),
            follow_redirects=redirects,
            extensions={"trace": connection.watch},
        ) as answer:
            yield answer
    except (httpx2.LocalProtocolError, UnicodeError):
        # The library's words would contain the header that it refuses, which may be a password.
        raise NoAnswer("the address or a header has characters that HTTP does not allow") from None
    except httpx2.InvalidURL:
        raise NoAnswer("the address is not valid") from None
    except httpx2.HTTPError as error:
        raise NoAnswer(noted(_reason(error, connection))) from error


def _reason(error: "httpx2.HTTPError", connection: _Connection) -> str:
    import httpx2  # noqa: PLC0415 - with the first request

    proxy = _proxy(error, connection)
    if connection.is_over:
        reason = connection.over
    elif isinstance(error, httpx2.ProxyError):
        return f"{proxy} answers: {error}"
    elif isinstance(error, httpx2.RemoteProtocolError) and "illegal" in str(error):
        reason = NO_HTTP
    else:
        reason = str(error) or type(error).__name__
    if proxy:
        return f"{reason} (asked through {proxy})"
    return reason


def _proxy(error: "httpx2.HTTPError", connection: _Connection) -> str:
    """The proxy that was connected to, as a sentence names it; empty without one."""
    url = error.request.url
    server = (url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
    if not connection.host or server == (connection.host, connection.port):
        return ""
    return f"the proxy at {connection.host}:{connection.port}"


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    encoded = list[tuple[bytes, bytes]]()
    for name, value in headers.items():
        encoded.append((name.encode("ascii"), value.encode("latin-1")))
    return encoded


def _content(answer: "httpx2.Response", bytes_max: int) -> bytes:
    content = bytearray()
    if bytes_max:
        for chunk in answer.iter_raw():
            content += chunk
            if len(content) >= bytes_max:
                break
    return bytes(content[:bytes_max])
