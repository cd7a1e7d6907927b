"""The broker's HTTP API: what AMQP does not tell of a queue, how much is in hand and where its limit is.

The standard library is enough for one question. It follows no redirect and asks no proxy: credentials go to the host
that was named, and nowhere else.
"""

import asyncio
import base64
import http.client
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from mailqueue.brokers.settings import ManagementSettings, Tls
from mailqueue.brokers.transport_security import context_of
from model.errors import BrokerDenied, BrokerUnreachable

DELIVERY_LIMIT_DEFAULT: Final = 20
"""Of a quorum queue of which nothing is said, since RabbitMQ 4; before, it had none."""

_UNLIMITED: Final = "unlimited"
_OPTION: Final = "--broker-management"
_COLUMNS: Final = "name,type,arguments,effective_policy_definition,delivery_limit,messages_unacknowledged"
_PAGE_MAX: Final = 100
_DENIED: Final = frozenset({http.client.UNAUTHORIZED, http.client.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the HTTP API tells of some queues together, some seconds old.

    Attributes:
        unacked: messages in somebody's hand; None: not counted yet.
        delivery_limit: the lowest of them; None: none has one.
    """

    unacked: int | None
    delivery_limit: int | None


@dataclass(frozen=True, slots=True)
class Management:
    """The HTTP API for one virtual host.

    Args:
        tls: with `https`, whom to trust and what to show; None: whom the system trusts.
    """

    settings: ManagementSettings
    vhost: str
    tls: Tls | None = None

    async def facts(self, queues: Collection[str]) -> QueueFacts:
        """What is known of those queues together.

        Raises:
            BrokerUnreachable: nobody answers there, or not as RabbitMQ does.
            BrokerDenied: not to these credentials.
        """
        return facts_of(await asyncio.to_thread(self._ask, queues))

    def _ask(self, queues: Collection[str]) -> Any:
        pattern = f"^({'|'.join(map(re.escape, queues))})$"
        wanted = {"name": pattern, "use_regex": "true", "page": 1, "page_size": _PAGE_MAX, "columns": _COLUMNS}
        path = f"{urlsplit(self.settings.url).path.rstrip('/')}/api/queues/{quote(self.vhost, safe='')}"
        try:
            status, content = self._answer(f"{path}?{urlencode(wanted)}")
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        if status in _DENIED:
            raise BrokerDenied(
                f"the broker's HTTP API at {self._place} refuses the user {self.settings.username!r}",
                mend="Look at the password, and whether the user has the tag 'monitoring' or 'management'.",
            )
        if status != http.client.OK:
            raise self._unreachable(f"it answers {status}")
        return self._parsed(content)

    def _answer(self, path: str) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request("GET", path, headers={"Authorization": self._authorization()})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts, seconds = urlsplit(self.settings.url), self.settings.answer_seconds
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=context_of(self.tls or Tls()))
        return http.client.HTTPConnection(host, parts.port, timeout=seconds)

    def _authorization(self) -> str:
        return "Basic " + base64.b64encode(f"{self.settings.username}:{self.settings.password}".encode()).decode()

    def _parsed(self, content: bytes) -> Any:
        try:
            return json.loads(content)["items"]
        except (ValueError, TypeError, KeyError) as error:
            raise self._unreachable("what answers there is not RabbitMQ's HTTP API") from error

    @property
    def _place(self) -> str:
        """The URL, without what may stand before its host."""
        parts = urlsplit(self.settings.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"the broker's HTTP API at {self._place} does not answer: {reason}",
            mend=f"Look whether the plugin rabbitmq_management is on, and at {_OPTION}; without it, less is told.",
        )


def facts_of(items: Collection[Mapping[str, Any]]) -> QueueFacts:
    """What the API's answer for some queues means together."""
    unacked = [item["messages_unacknowledged"] for item in items if item.get("messages_unacknowledged") is not None]
    limits = [limit for limit in map(_limit_of, items) if limit is not None]
    return QueueFacts(sum(unacked) if unacked or not items else None, min(limits, default=None))


def _limit_of(item: Mapping[str, Any]) -> int | None:
    """A queue's own argument or its policy's, whichever is lower; below 0 means without limit."""
    if item.get("type") != "quorum":
        return None
    policy = item.get("effective_policy_definition") or {}
    said = (
        item.get("delivery_limit"),
        (item.get("arguments") or {}).get("x-delivery-limit"),
        policy.get("delivery-limit"),
    )
    limits = [-1 if limit == _UNLIMITED else limit for limit in said if limit == _UNLIMITED or isinstance(limit, int)]
    lowest = min((limit for limit in limits if limit >= 0), default=None)
    return lowest if limits else DELIVERY_LIMIT_DEFAULT
