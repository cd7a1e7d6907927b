"""The HTTP API of a broker, whichever: one request at a time, answered or refused in words.

No redirect is followed: credentials go only to the host that was named, and to the proxy that the environment names for
it.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from mailmend.mailqueue.broker_tls import BrokerTls, context_of, tls_error
from mailmend.model.errors import BrokerDenied, BrokerUnreachable
from mailmend.repair.http_client import NO_HTTP, NoAnswer, ask

_DENIED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024

T = TypeVar("T")


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


@dataclass(frozen=True, slots=True)
class BrokerHttp:
    """The HTTP API at an address.

    Attributes:
        url: such as `http://broker.example:15672`; with `https`, the broker's TLS files are used.
        headers: of every request; they say who asks.
        denied: what to say, and to do, where it refuses us.
        away: what to do where it does not answer.
        product: whose API it is.
        tls: with `https`, whom to trust and what to show; None: whom the system trusts.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    seconds: float
    denied: tuple[str, str]
    away: str
    product: str
    tls: BrokerTls | None = None

    def read(self, path: str, read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer's JSON.

        Raises:
            BrokerDenied: it refuses us.
            BrokerUnreachable: it does not answer, or not as this API does.
        """
        status, content = self.answer("GET", path)
        if status != HTTPStatus.OK:
            raise self.refusal(status)
        return self.parsed(content, read)

    def answer(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and the content of the answer, whatever they are."""
        headers = dict(self.headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        trusted = None
        if urlsplit(self.url).scheme == "https":
            trusted = context_of(self.tls or BrokerTls())
        try:
            return ask(
                method,
                f"{self.place.rstrip('/')}/{path}",
                body,
                seconds=self.seconds,
                bytes_max=_ANSWER_BYTES_MAX,
                headers=headers,
                trusted=trusted,
            )
        except NoAnswer as error:
            tls = tls_error(error.what, f"the broker's HTTP API at {self.place}")
            raise tls or self.unreachable(self._reason_of(error)) from error

    def parsed(self, content: bytes, read: Callable[[Any], T]) -> T:
        try:
            return read(json.loads(content))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self.unreachable(f"what answers there is not {self.product}'s HTTP API") from error

    def refusal(self, status: int) -> BrokerUnreachable:
        """The error of an answer that is not the wanted one."""
        if status in _DENIED:
            who, mend = self.denied
            return BrokerDenied(
                f"the broker's HTTP API at {self.place} refuses {who}: {status} {HTTPStatus(status).phrase}", mend=mend
            )
        return self.unreachable(f"it answers {status}")

    def unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(f"the broker's HTTP API at {self.place} does not answer: {reason}", mend=self.away)

    @property
    def place(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _reason_of(self, error: NoAnswer) -> str:
        if error.what.startswith(NO_HTTP) and urlsplit(self.url).scheme == "http":
            return f"{error.what}; perhaps TLS, that is https://"
        return error.what
