"""The broker's HTTP API: what AMQP does not tell of a queue, its unacked messages and its delivery limit."""

import asyncio
import http.client
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from mailmend.mailqueue.broker_http import BrokerHttp, basic
from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.rabbitmq.broker.settings import ManagementSettings

DELIVERY_LIMIT_DEFAULT: Final = 20
"""The delivery limit of a quorum queue that names none, since RabbitMQ 4; earlier releases have no limit then."""

_LIMITED_SINCE: Final = 4

_UNLIMITED: Final = "unlimited"
_OPTION: Final = "--broker-management"
_COLUMNS: Final = "name,type,arguments,effective_policy_definition,delivery_limit,messages,messages_unacknowledged"
_PAGE_MAX: Final = 100
_VERSION: Final = "api/overview?columns=rabbitmq_version"
_ALARMS: Final = "api/health/checks/alarms"


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
        items = self._http.read(f"api/queues/{quote(self.vhost, safe='')}?{urlencode(wanted)}", _items)
        default = self._http.read(_VERSION, _default_limit) if any(map(_keeps_silent, items)) else None
        return facts_of(items, default, self._alarms())

    def _alarms(self) -> tuple[str, ...]:
        """The alarms; empty where the broker has no such endpoint, or refuses it. The API tells one as an error."""
        status, content = self._http.answer("GET", _ALARMS)
        return self._http.parsed(content, _alarms_of) if status == http.client.SERVICE_UNAVAILABLE else ()

    @property
    def _http(self) -> BrokerHttp:
        settings = self.settings
        return BrokerHttp(
            settings.url,
            {"Authorization": basic(settings.username, settings.password)},
            settings.answer_seconds,
            (
                f"the user {settings.username!r}",
                "Look at the password, and whether the user has the tag 'monitoring' or 'management'.",
            ),
            f"Look whether the plugin rabbitmq_management is on, and at {_OPTION}; without it, less is known.",
            "RabbitMQ",
            self.tls,
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
    unacked = _sum_of("messages_unacknowledged", items)
    counted = _sum_of("messages", items)
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
    return tuple(f"{alarm['resource']} on {alarm['node']}" for alarm in answer.get("alarms") or ())
