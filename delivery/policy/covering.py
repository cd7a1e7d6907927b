"""What patterns have in common, as far as it is certain: which hold for all that others hold for, and which never meet.

Of two expressions nothing is known but that they are the same, or that one of them is found in every value.
"""

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mailmend.delivery.policy.policy import (
    AddressRange,
    DomainsBelow,
    ExactValue,
    GroupName,
    PickupField,
    RegexValues,
    ValuePattern,
)

FieldPatterns = Mapping[PickupField, tuple[ValuePattern, ...]]
"""What is wanted of a mail: of each field that is named, one of its patterns must match."""

_IN_EVERY_VALUE: Final = frozenset({"", "^", "$", ".*", "^.*", ".*$"})


def is_always_found(pattern: ValuePattern) -> bool:
    return isinstance(pattern, RegexValues) and pattern.expression in _IN_EVERY_VALUE


def covers(one: ValuePattern, other: ValuePattern) -> bool:
    """Whether one certainly matches all that the other matches."""
    if isinstance(one, RegexValues) and one != other:
        return is_always_found(one) or ((value := _only_value(other)) is not None and one.matches(value))
    return one in _wider(other)


def never_meet(one: ValuePattern, other: ValuePattern) -> bool:
    """Whether certainly no value is matched by both."""
    for single, pattern in ((one, other), (other, one)):
        if (value := _only_value(single)) is not None:
            return not pattern.matches(value)
    match one, other:
        case (RegexValues(), _) | (_, RegexValues()):
            return False
        case AddressRange(network), AddressRange(another):
            return not network.overlaps(another)
        case _:
            return not covers(one, other) and not covers(other, one)


def pattern_text(pattern: ValuePattern) -> str:
    """A pattern as a policy file spells it."""
    match pattern:
        case ExactValue(value):
            return value
        case DomainsBelow(domain):
            return f"*.{domain}"
        case AddressRange(network):
            return str(network)
        case RegexValues(expression):
            return f"/{expression}/"
        case GroupName(name):
            return f"#{name}"


def _only_value(pattern: ValuePattern) -> str | None:
    """The one value, as it is counted, that a pattern can match; None where there may be others."""
    match pattern:
        case ExactValue(value):
            return value
        case GroupName(name):
            return f"#{name}"
        case AddressRange(ipaddress.IPv4Network() as network) if network.num_addresses == 1:
            return str(network.network_address)  # of IPv6 there may be one for each interface
        case _:
            return None


def _wider(pattern: ValuePattern) -> Iterator[ValuePattern]:
    """The pattern itself, and every other but expressions that matches all that it matches."""
    yield pattern
    value = _only_value(pattern)
    if value is not None:
        yield ExactValue(value)
        yield from _domains_above(value)
        yield from _networks_around(value)
    elif isinstance(pattern, DomainsBelow):
        yield from _domains_above(pattern.domain)
    elif isinstance(pattern, AddressRange):
        yield from _networks_above(pattern.network)


def _domains_above(name: str) -> Iterator[DomainsBelow]:
    while "." in name:
        _, _, name = name.partition(".")
        yield DomainsBelow(name)


def _networks_around(value: str) -> Iterator[AddressRange]:
    try:
        network = ipaddress.ip_network(value)
    except ValueError:
        return
    yield from _networks_above(network)
    yield AddressRange(network)


def _networks_above(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Iterator[AddressRange]:
    for length in range(network.prefixlen):
        yield AddressRange(network.supernet(new_prefix=length))


@dataclass(slots=True)
class CoverIndex:
    """Which of many conditions cover another one; what this costs does not grow with their number, expressions aside.

    A condition is known by a number, and covers another where each of its fields covers that field of the other.
    """

    _fields: dict[int, int] = field(default_factory=dict)
    _for_all: list[int] = field(default_factory=list)
    _naming: dict[PickupField, set[int]] = field(default_factory=lambda: defaultdict(set))
    _numbers: dict[tuple[PickupField, ValuePattern], set[int]] = field(default_factory=lambda: defaultdict(set))
    _expressions: dict[PickupField, set[RegexValues]] = field(default_factory=lambda: defaultdict(set))

    def add(self, number: int, patterns: FieldPatterns) -> None:
        self._fields[number] = len(patterns)
        if not patterns:
            self._for_all.append(number)
        for named, some in patterns.items():
            self._naming[named].add(number)
            for pattern in some:
                self._numbers[named, pattern].add(number)
                if isinstance(pattern, RegexValues):
                    self._expressions[named].add(pattern)

    def covering(self, patterns: FieldPatterns) -> list[int]:
        """The numbers of the entries that hold for everything these patterns hold for, in their order."""
        found = Counter[int]()
        for named in dict.fromkeys((*patterns, *self._expressions)):
            if some := patterns.get(named):
                found.update(set.intersection(*(self._covering_one(named, pattern) for pattern in some)))
            else:
                found.update(self._holding(named, filter(is_always_found, self._expressions.get(named, ()))))
        each = (number for number, count in found.items() if count == self._fields[number])
        return sorted([*self._for_all, *each])

    def may_meet(self, patterns: FieldPatterns) -> set[int]:
        """The numbers of all that hold for some mail for which these patterns hold, and maybe others."""
        for named, some in patterns.items():
            if all(_only_value(pattern) is not None for pattern in some):
                lacking = set(self._fields) - self._naming.get(named, set())
                return lacking.union(*(self._covering_one(named, pattern) for pattern in some))
        return set(self._fields)

    def _covering_one(self, named: PickupField, pattern: ValuePattern) -> set[int]:
        expressions = (values for values in self._expressions.get(named, ()) if covers(values, pattern))
        return self._holding(named, [*_wider(pattern), *expressions])

    def _holding(self, named: PickupField, patterns: Iterable[ValuePattern]) -> set[int]:
        return set[int]().union(*(self._numbers.get((named, pattern), ()) for pattern in patterns))
