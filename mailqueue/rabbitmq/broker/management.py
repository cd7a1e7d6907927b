"""The broker's HTTP API: what AMQP does not tell of a queue, its unacked messages and its delivery limit.

Only the standard library is used. It follows no redirect and uses no proxy: credentials go only to the host that was
named.
"""

import asyncio
import base64
import http.client
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from mailqueue.rabbitmq.broker.settings import BrokerTls, ManagementSettings, context_of, tls_error
from model.errors import BrokerDenied, BrokerUnreachable

DELIVERY_LIMIT_DEFAULT: Final = 20
"""The delivery limit of a quorum queue that names none, since RabbitMQ 4; earlier releases have no limit then."""

_LIMITED_SINCE: Final = 4

_UNLIMITED: Final = "unlimited"
_OPTION: Final = "--broker-management"
_COLUMNS: Final = "name,type,arguments,effective_policy_definition,delivery_limit,messages,messages_unacknowledged"
_PAGE_MAX: Final = 100
_VERSION: Final = "overview?columns=rabbitmq_version"
_ALARMS: Final = "health/checks/alarms"
_DENIED: Final = frozenset({http.client.UNAUTHORIZED, http.client.FORBIDDEN})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the HTTP API tells of some queues together, some seconds old.

    Attributes:
        unacked: messages that consumers have not settled; None: not counted yet.
        delivery_limit: the lowest limit of these queues; None: none has one.
        alarms: what the broker is short of, and on which node.
        counted: messages, ready and unacked, at one instant; None: not counted yet.
    """

    unacked: int | None
    delivery_limit: int | None
    alarms: tuple[str, ...] = ()
    counted: int | None = None


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


@dataclass(frozen=True, slots=True)
class Management:
    """The HTTP API for one virtual host.

    Args:
        tls: with `https`, whom to trust and what to show; None: whom the system trusts.
    """

    settings: ManagementSettings
    vhost: str
    tls: BrokerTls | None = None

    async def facts(self, queues: Collection[str]) -> QueueFacts:
        return await asyncio.to_thread(self._facts, queues)

    def _facts(self, queues: Collection[str]) -> QueueFacts:
        pattern = f"^({'|'.join(map(re.escape, queues))})$"
        wanted = {"name": pattern, "use_regex": "true", "page": 1, "page_size": _PAGE_MAX, "columns": _COLUMNS}
        items = self._ask(f"queues/{quote(self.vhost, safe='')}?{urlencode(wanted)}", _items)
        default = self._ask(_VERSION, _default_limit) if any(map(_keeps_silent, items)) else None
        return facts_of(items, default, self._alarms())

    def _alarms(self) -> tuple[str, ...]:
        """The alarms; empty where the broker has no such endpoint, or refuses it. The API tells one as an error."""
        status, content = self._answer(_ALARMS)
        return self._parsed(content, _alarms_of) if status == http.client.SERVICE_UNAVAILABLE else ()

    def _ask(self, path: str, read: Callable[[Any], T]) -> T:
        status, content = self._answer(path)
        if status in _DENIED:
            raise BrokerDenied(
                f"the broker's HTTP API at {self._place} refuses the user {self.settings.username!r}",
                mend="Look at the password, and whether the user has the tag 'monitoring' or 'management'.",
            )
        if status != http.client.OK:
            raise self._unreachable(f"it answers {status}")
        return self._parsed(content, read)

    def _answer(self, path: str) -> tuple[int, bytes]:
        try:
            return self._answered(f"{urlsplit(self.settings.url).path.rstrip('/')}/api/{path}")
        except (OSError, http.client.HTTPException) as error:
            tls = tls_error(str(error), f"the broker's HTTP API at {self._place}")
            raise tls or self._unreachable(str(error) or type(error).__name__) from error

    def _answered(self, path: str) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request(
                "GET", path, headers={"Authorization": basic(self.settings.username, self.settings.password)}
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts, seconds = urlsplit(self.settings.url), self.settings.answer_seconds
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, parts.port, timeout=seconds, context=context_of(self.tls or BrokerTls())
            )
        return http.client.HTTPConnection(host, parts.port, timeout=seconds)

    def _parsed(self, content: bytes, read: Callable[[Any], T]) -> T:
        try:
            return read(json.loads(content))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._unreachable("what answers there is not RabbitMQ's HTTP API") from error

    @property
    def _place(self) -> str:
        parts = urlsplit(self.settings.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"the broker's HTTP API at {self._place} does not answer: {reason}",
            mend=f"Look whether the plugin rabbitmq_management is on, and at {_OPTION}; without it, less is known.",
        )


def facts_of(
    items: Collection[Mapping[str, Any]], default: int | None = None, alarms: tuple[str, ...] = ()
) -> QueueFacts:
    """What the API's answer for some queues means together.

    Args:
        items: the queues.
        default: the limit of a quorum queue that names none.
        alarms: what the broker is short of.
    """
    found = ((default,) if _keeps_silent(item) else _limits_said(item) for item in items)
    limits = [limit for said in found for limit in said if limit is not None and limit >= 0]
    unacked, counted = _sum_of("messages_unacknowledged", items), _sum_of("messages", items)
    return QueueFacts(unacked, min(limits, default=None), alarms, counted)


def _sum_of(column: str, items: Collection[Mapping[str, Any]]) -> int | None:
    """None: there are queues, and nothing was counted yet."""
    counts = [item[column] for item in items if item.get(column) is not None]
    return sum(counts) if counts or not items else None


def _keeps_silent(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "quorum" and not _limits_said(item)


def _limits_said(item: Mapping[str, Any]) -> list[int]:
    """The server's own value, the queue's argument, its policy's: the lowest holds; below 0 is no limit.

    RabbitMQ 3 does not say it itself; 4 does, like the policy, once the queue was first counted (some seconds).
    An operator's policy is in the one that is in effect.
    """
    if item.get("type") != "quorum":
        return []
    policy = item.get("effective_policy_definition") or {}
    said = (
        item.get("delivery_limit"),
        (item.get("arguments") or {}).get("x-delivery-limit"),
        policy.get("delivery-limit"),
    )
    return [-1 if limit == _UNLIMITED else limit for limit in said if limit == _UNLIMITED or isinstance(limit, int)]


def _items(answer: Any) -> list[Mapping[str, Any]]:
    items: list[Mapping[str, Any]] = answer["items"]
    return items


def _default_limit(answer: Any) -> int | None:
    """By the server's version, such as 3.13.7."""
    major = int(answer["rabbitmq_version"].partition(".")[0])
    return DELIVERY_LIMIT_DEFAULT if major >= _LIMITED_SINCE else None


def _alarms_of(answer: Any) -> tuple[str, ...]:
    return tuple(f"{one['resource']} on {one['node']}" for one in answer.get("alarms") or ())
