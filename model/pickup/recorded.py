"""Attempts of deliveries as they were recorded, and which of them can influence each other at all.

Attempts that share no counter never wait for each other, so a record falls apart into groups that may be replayed one
by one, on as many machines as there are. Source: facts/mta.md 7.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from model.pickup.policies import PickupPolicies
from model.pickup.policy import CounterKey, CounterPolicy, FieldGroup, PickupField, Threshold
from model.pickup.sub_queues import ANY_SOURCE, ActiveMail

MILLI: Final = 1_000_000
"""Nanoseconds."""

SOURCE_SETS_MAX: Final = 10_000
"""How many different sets of source addresses are looked at to divide a record; beyond them it stays whole."""

_TEXTS_KEPT: Final = 65_536
_FIELDS: Final = {one.value: one for one in PickupField if one is not PickupField.LOCAL_IP}


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One attempt of a record; times are in milliseconds since 1970, as the table has them.

    Attributes:
        mail: as the policies count it; its id is unique in the record.
        ready_at: from when it might have been picked.
        ended_at: None: nobody knows.
    """

    mail: ActiveMail
    ready_at: int
    started_at: int
    ended_at: int | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """By which a record is sorted, whoever reads it."""
        return self.ready_at, self.started_at, self.mail.id

    @property
    def lasted(self) -> int | None:
        return None if self.ended_at is None else max(0, self.ended_at - self.started_at)


@lru_cache(_TEXTS_KEPT)
def values_of(text: str | None) -> Mapping[PickupField, str]:
    """The values of a mail in a row's column `fields`, without the address that it was sent from."""
    found: Mapping[str, str] = json.loads(text or "{}")
    return {_FIELDS[name]: value for name, value in found.items() if name in _FIELDS}


@lru_cache(_TEXTS_KEPT)
def sources_of(text: str | None) -> tuple[str, ...]:
    """The addresses in a row's column `sources`; none is any."""
    return tuple(json.loads(text or "[]")) or ANY_SOURCE


@dataclass(frozen=True, slots=True)
class AttemptGroups:
    """Which attempts of a record are to be replayed together.

    Attributes:
        shared: fields by which every policy tells mails apart, as these policies count them.
        connected: by set of source addresses, the number of those that it is connected with; empty: they are left out.
    """

    shared: CounterPolicy = field(default_factory=lambda: CounterPolicy(groups={}))
    connected: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    @property
    def is_one(self) -> bool:
        return not self.shared.fields and not self.connected

    def of(self, values: Mapping[PickupField, str], sources: tuple[str, ...]) -> CounterKey:
        """The group of an attempt."""
        if self.connected:
            return (str(self.connected[sources]),)
        return self.shared.key({**values, PickupField.LOCAL_IP: sources[0]})


def groups_of(said: PickupPolicies, source_sets: Iterable[tuple[str, ...]]) -> AttemptGroups:
    """How a record with these sets of source addresses falls apart under these policies; as one, where in doubt.

    Whose addresses are chosen in turn influence each other by that too, where any policy tells addresses apart.
    """
    fields = [one for one in PickupField if _is_shared(one, said.policies)]
    by_source = any(PickupField.LOCAL_IP in one.fields for one in said.policies) or any(
        PickupField.LOCAL_IP in one.patterns for one in said.suspensions
    )
    sets = list(source_sets) if by_source else []
    if len(sets) > SOURCE_SETS_MAX:
        return AttemptGroups()
    if all(len(set(one)) == 1 for one in sets):
        groups = {one: found for one in fields if (found := _groups_of(one, said.policies))}
        return AttemptGroups(CounterPolicy(tuple(fields), groups))
    if PickupField.LOCAL_IP in fields:
        return AttemptGroups(connected=_connected(sets))
    return AttemptGroups()


def _is_shared(one: PickupField, policies: Sequence[CounterPolicy]) -> bool:
    """Whether every policy tells mails apart by it, and those with groups of it have the same ones."""
    kinds = {repr(found) for policy in policies if (found := policy.groups.get(one))}
    return all(one in policy.fields for policy in policies) and len(kinds) <= 1


def _groups_of(one: PickupField, policies: Sequence[CounterPolicy]) -> tuple[FieldGroup, ...]:
    return next((found for policy in policies if (found := policy.groups.get(one))), ())


def _connected(sets: Iterable[tuple[str, ...]]) -> Mapping[tuple[str, ...], int]:
    """Sets that share an address, or another that shares one with each of them, have the same number."""
    above = dict[str, str]()

    def top(address: str) -> str:
        while (found := above.setdefault(address, address)) != address:
            above[address] = above[found]
            address = found
        return address

    ordered = sorted(set(sets))
    for one in ordered:
        for address in one[1:]:
            above[top(address)] = top(one[0])
    numbers = {name: number for number, name in enumerate(dict.fromkeys(top(one[0]) for one in ordered))}
    return {one: numbers[top(one[0])] for one in ordered}


def with_concurrency(said: PickupPolicies, most: int | None) -> PickupPolicies:
    """The same policies behind one more, the first, that lets at most so many deliveries go on at once."""
    if most is None:
        return said
    all_together = CounterPolicy(groups={}, default=Threshold(concurrency=most))
    return PickupPolicies((all_together, *said.policies), said.algorithm, said.suspensions)
