"""Attempts of deliveries as they were recorded, and which of them can influence each other at all.

Where no attempt of one tenant ever waits for another tenant's, a record falls apart into groups that may be replayed
one by one, on as many machines as there are. Source: docs/design.md, "Pickup" (14).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import CounterPolicy, FieldGroup, PickupField, Threshold
from mailmend.delivery.policy.sub_queues import ANY_SOURCE, ActiveMail

MILLI: Final = 1_000_000
"""Nanoseconds."""

_TEXTS_KEPT: Final = 65_536
_FIELDS: Final = {field.value: field for field in PickupField if field is not PickupField.LOCAL_IP}


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One attempt of a record; times are in milliseconds since 1970, as the table has them.

    Attributes:
        mail: as the policies count it; its id is unique in the record.
        ready_at: from when it might have been picked.
        ended_at: None: unknown.
    """

    mail: ActiveMail
    ready_at: int
    started_at: int
    ended_at: int | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """The order of a record, for each reader."""
        return self.ready_at, self.started_at, self.mail.id

    @property
    def lasted(self) -> int | None:
        if self.ended_at is None:
            return None
        return max(0, self.ended_at - self.started_at)


@lru_cache(_TEXTS_KEPT)
def values_of(text: str | None) -> Mapping[PickupField, str]:
    """The values of a mail in a row's column `fields`, without the address that it was sent from."""
    found: Mapping[str, str] = json.loads(text or "{}")
    return {_FIELDS[name]: value for name, value in found.items() if name in _FIELDS}


@lru_cache(_TEXTS_KEPT)
def sources_of(text: str | None) -> tuple[str, ...]:
    """The addresses in a row's column `sources`; none is any."""
    return tuple(json.loads(text or "[]")) or ANY_SOURCE


def groups_of(said: PickupPolicies, *, several_sources: bool) -> CounterPolicy:
    """What of a record is to be replayed together: all attempts of one key of this policy; without fields the whole.

    Tenants take turns wherever any of their mails wait, and one tenant's turn anywhere lets others be woken. So all
    attempts of a tenant stay together, and tenants are apart where every policy tells them apart. Mails that may be
    sent from several addresses influence each other by whose turn it is, too, where anything tells addresses apart.

    Args:
        said: the policies.
        several_sources: whether any attempt of the record might be made from more than one address.
    """
    tenant = PickupField.TENANT_ID
    kinds = set[tuple[FieldGroup, ...]]()
    for policy in said.policies:
        groups = policy.groups.get(tenant)
        if groups:
            kinds.add(groups)
    is_shared = all(tenant in policy.fields for policy in said.policies) and len(kinds) <= 1
    if not is_shared or (several_sources and tells_sources(said)):
        return CounterPolicy(groups={})
    if not kinds:
        return CounterPolicy((tenant,), {})
    return CounterPolicy((tenant,), {tenant: kinds.pop()})


def tells_sources(said: PickupPolicies) -> bool:
    """Whether any policy or suspension tells source addresses apart."""
    named = [*(policy.fields for policy in said.policies), *(suspension.patterns for suspension in said.suspensions)]
    return any(PickupField.LOCAL_IP in fields for fields in named)


def with_concurrency(said: PickupPolicies, most: int | None) -> PickupPolicies:
    """The same policies behind one more, the first, that limits the number of simultaneous deliveries."""
    if most is None:
        return said
    all_together = CounterPolicy(groups={}, default=Threshold(concurrency=most))
    return replace(said, policies=(all_together, *said.policies))
