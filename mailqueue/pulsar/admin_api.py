"""Pulsar's admin API: the topics of a namespace, their policies, and what was acknowledged."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from mailmend.mailqueue.broker_http import BrokerHttp, basic
from mailmend.mailqueue.pulsar.settings import LOOK_AT_LOGIN, PulsarAuth, PulsarSettings
from mailmend.mailqueue.rules.health import ACK_STRETCHES_MAX, BacklogQuota, QuotaKind, TopicPolicies
from mailmend.mailqueue.rules.places import BEFORE_ALL, PartitionBacklog, position_of, stretches_of
from mailmend.model.errors import BrokerDenied, WrongUse

_CAUGHT_UP: Final = "delete_when_subscriptions_caught_up"
_DROPS: Final = "consumer_backlog_eviction"


class TopicPolicy(Enum):
    """Those that are asked of a topic: its own, the namespace's, or the broker's, whichever is in force."""

    TTL = "messageTTL"
    RETENTION = "retention"
    QUOTAS = "backlogQuotaMap"
    DELAYED = "delayedDelivery"
    IDLE = "inactiveTopicPolicies"


def policies_of(
    answers: Mapping[TopicPolicy, Any],
    expiry_minutes: int | None,
    broker: Mapping[str, str],
    stats: Iterable[Mapping[str, Any]],
) -> TopicPolicies:
    """What the answers mean together.

    Args:
        answers: to each of the policies.
        expiry_minutes: after which the namespace's subscriptions expire; None: as the broker says.
        broker: its configuration; empty where we may not read it.
        stats: of each partition.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: these are no such answers.
    """
    retention = answers[TopicPolicy.RETENTION] or {}
    delayed = answers[TopicPolicy.DELAYED] or {}
    idle = answers[TopicPolicy.IDLE] or {}
    deleted_after = None
    if idle.get("deleteWhileInactive") and idle.get("inactiveTopicDeleteMode") == _CAUGHT_UP:
        deleted_after = _span(seconds=idle["maxInactiveDurationSeconds"])
    if expiry_minutes is None:
        expiry_minutes = int(broker.get("subscriptionExpirationTimeMinutes") or 0)
    return TopicPolicies(
        _span(seconds=answers[TopicPolicy.TTL] or 0),
        retention.get("retentionTimeInMinutes") == retention.get("retentionSizeInMB") == -1,
        _quotas(answers[TopicPolicy.QUOTAS] or {}, list(stats)),
        _span(minutes=expiry_minutes),
        deleted_after,
        delayed.get("active", True),
        _span(milliseconds=delayed.get("maxDeliveryDelayInMillis") or 0),
        int(broker.get("managedLedgerMaxUnackedRangesToPersist") or ACK_STRETCHES_MAX),
    )


def _quotas(found: Mapping[str, Any], stats: Iterable[Mapping[str, Any]]) -> tuple[BacklogQuota, ...]:
    """Those that bound something. In a quota of an age the limit in bytes means nothing, and the other way round."""
    quotas = list[BacklogQuota]()
    for kind, limit, used in (
        (QuotaKind.BYTES, "limitSize", "backlogSize"),
        (QuotaKind.AGE, "limitTime", "oldestBacklogMessageAgeSeconds"),
    ):
        quota = found.get(kind.value) or {}
        if (most := quota.get(limit) or 0) > 0:
            now = max((int(stat.get(used) or 0) for stat in stats), default=0)
            quotas.append(BacklogQuota(kind, most, max(0, now), quota.get("policy") == _DROPS))
    return tuple(quotas)


def _span(**length: int) -> timedelta | None:
    """None for none: Pulsar says that with 0, or less."""
    found = timedelta(**length)
    if found <= timedelta(0):
        return None
    return found


_EARLIEST: Final = json.dumps({"ledgerId": -1, "entryId": -1, "partitionIndex": -1}).encode()
_DONE: Final = frozenset({HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.CONFLICT})
_PARTITION: Final = re.compile(r"-partition-\d+$")


class PulsarAdmin:
    """The admin API for one namespace; topics are named as in the namespace."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._namespace = settings.namespace
        who = "us"
        if settings.username:
            who = f"the user {settings.username!r}"
        self._http = BrokerHttp(
            settings.admin,
            _headers(settings),
            settings.answer_seconds,
            (who, LOOK_AT_LOGIN),
            "Look whether Pulsar runs there, and at --broker-management.",
            "Pulsar",
            settings.tls,
        )

    async def names(self) -> list[str]:
        """Every persistent topic, a partitioned one once.

        Raises:
            WrongUse: there is no such namespace.
        """
        path = f"admin/v2/persistent/{self._namespace}"
        content = await self._content(path)
        if content is None:
            raise WrongUse(
                f"Pulsar at {self._http.place} has no namespace {self._namespace}",
                mend=f"Name another at the end of --broker, or: pulsar-admin namespaces create {self._namespace}",
            )
        found: list[str] = self._http.parsed(content, list)
        partitioned: list[str] = await asyncio.to_thread(self._http.read, f"{path}/partitioned", list)
        return sorted({_PARTITION.sub("", name.rpartition("/")[2]) for name in (*found, *partitioned)})

    async def version(self) -> str:
        status, content = await asyncio.to_thread(self._http.answer, "GET", "admin/v2/brokers/version")
        if status != HTTPStatus.OK:
            raise self._http.refusal(status)
        return content.decode(errors="replace").strip('" \n')

    async def partitions(self, topic: str) -> int:
        """How many it has; 0 where it is not partitioned, or is not there."""
        found = await self._found(f"{self._path(topic)}/partitions")
        if not found:
            return 0
        return int(found["partitions"])

    async def longest_delay(self, topic: str) -> int:
        """For how many milliseconds a message may be delayed by the broker; 0: it sets no limit, or tells of none."""
        found = await self._found(f"{self._path(topic)}/delayedDelivery?applied=true")
        return int((found or {}).get("maxDeliveryDelayInMillis") or 0)

    async def create(self, topic: str, subscription: str) -> bool:
        """Create both where they are missing; a new subscription begins with the first message.

        Returns:
            False where the topic is on its way to a broker: to be asked again.
        """
        path = self._subscription(topic, subscription)
        status, _ = await asyncio.to_thread(self._http.answer, "PUT", path, _EARLIEST)
        if status not in {*_DONE, HTTPStatus.PRECONDITION_FAILED}:
            raise self._http.refusal(status)
        return status in _DONE

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription without consumers; a missing one is fine."""
        path = self._subscription(topic, subscription)
        status, _ = await asyncio.to_thread(self._http.answer, "DELETE", path)
        if status not in {*_DONE, HTTPStatus.NOT_FOUND}:
            raise self._http.refusal(status)

    async def backlog(self, partition: str, subscription: str) -> PartitionBacklog | None:
        """What the subscription has not acknowledged of one partition; None where that is not there.

        A subscription that is not there has acknowledged nothing.
        """
        path = self._path(partition)
        inside = await self._found(f"{path}/internalStats")
        stats = await self._found(f"{path}/stats?getPreciseBacklog=true&subscriptionBacklogSize=false")
        if inside is None or stats is None:
            return None
        writes_to = max((int(ledger["ledgerId"]) for ledger in inside["ledgers"]), default=0)
        cursor = inside["cursors"].get(subscription)
        counted = stats["subscriptions"].get(subscription)
        if cursor is None or counted is None:
            last = position_of(inside["lastConfirmedEntry"])
            count = int(inside["numberOfEntries"])
            added = int(inside["entriesAddedCounter"])
            return PartitionBacklog(BEFORE_ALL, (), last, count, added=added, writes_to=writes_to)
        return PartitionBacklog(
            position_of(cursor["markDeletePosition"]),
            stretches_of(cursor["individuallyDeletedMessages"]),
            position_of(inside["lastConfirmedEntry"]),
            int(counted["msgBacklog"]),
            int(counted["unackedMessages"]),
            len(counted["consumers"]),
            int(inside["entriesAddedCounter"]),
            int(cursor["messagesConsumedCounter"]),
            writes_to,
        )

    async def policies(self, topic: str, partitions: Sequence[str]) -> TopicPolicies | None:
        """What the broker does with the topic automatically; None without such a topic.

        Raises:
            BrokerDenied: only an administrator of the tenant may read that.
        """
        asked = [f"{self._path(topic)}/{policy.value}?applied=true" for policy in TopicPolicy]
        answers = dict(zip(TopicPolicy, await asyncio.gather(*map(self._value, asked)), strict=True))
        if answers[TopicPolicy.TTL] is None:
            return None
        expiry = await self._value(f"admin/v2/namespaces/{self._namespace}/subscriptionExpirationTime")
        stats = await asyncio.gather(*(self._found(f"{self._path(partition)}/stats") for partition in partitions))
        return policies_of(answers, expiry, await self._configuration(), [stat for stat in stats if stat])

    async def _configuration(self) -> Mapping[str, str]:
        """The broker's; empty where we may not read it, as only a superuser may."""
        try:
            return await self._found("admin/v2/brokers/configuration/runtime") or {}
        except BrokerDenied:
            return {}

    async def _value(self, path: str) -> Any:
        """The value of a policy; None where none is set, or the thing is not there."""
        status, content = await asyncio.to_thread(self._http.answer, "GET", path)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            raise BrokerDenied(
                f"the broker's HTTP API at {self._http.place} tells no policies of topics",
                mend="Set topicLevelPoliciesEnabled and systemTopicEnabled in broker.conf.",
            )
        if status not in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
            raise self._http.refusal(status)
        if not content or status != HTTPStatus.OK:
            return None
        return self._http.parsed(content, lambda found: found)

    async def _found(self, path: str) -> Mapping[str, Any] | None:
        """The answer, an object; None where the thing is not there."""
        content = await self._content(path)
        if content is None:
            return None
        return self._http.parsed(content, dict)

    async def _content(self, path: str) -> bytes | None:
        """The answer; None where the thing is not there."""
        status, content = await asyncio.to_thread(self._http.answer, "GET", path)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise self._http.refusal(status)
        return content

    def _subscription(self, topic: str, subscription: str) -> str:
        return f"{self._path(topic)}/subscription/{quote(subscription, safe='')}"

    def _path(self, topic: str) -> str:
        return f"admin/v2/persistent/{self._namespace}/{quote(topic, safe='')}"


def _headers(settings: PulsarSettings) -> Mapping[str, str]:
    match settings.auth:
        case PulsarAuth.TOKEN:
            return {"Authorization": f"Bearer {settings.password}"}
        case PulsarAuth.BASIC:
            return {"Authorization": basic(settings.username, settings.password)}
        case PulsarAuth.NONE:
            return {}
