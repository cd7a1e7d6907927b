"""Pickup policies: what is counted together, and the limits that hold for it.

A counter names fields; mails with the same values of these fields, or with values of the same groups, are counted
together. The first condition that matches such values sets their limits; where none does, the default holds.
Source: docs/design.md, "Pickup" (1, 2).
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, Self, TypeVar

from mailmend.delivery.policy.rates import DeliveryRate
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import (
    ascii_domain,
    read_address,
    read_domain,
    read_mailbox,
    read_name,
    read_network,
    read_server,
)
from mailmend.model.matching import check_expression, is_found
from mailmend.model.texts import names_instead

L = TypeVar("L")

NO_GROUPS: Final[Mapping["PickupField", tuple["FieldGroup", ...]]] = MappingProxyType({})


class MatchedField(Enum):
    """What patterns are of; the value is its name in a policy file. The kinds of fields are below this."""

    __hash__ = object.__hash__  # a member is there once; each pick looks some up, and Enum's own is no built-in

    @property
    def is_address(self) -> bool:
        return self.value in _ADDRESSES

    @property
    def is_domain(self) -> bool:
        return self.value in _DOMAINS

    def normal(self, value: str) -> str:
        """The value as it is compared, which is its own normal form; mails without the field have the empty value.

        Raises:
            WrongUse: no mail can have it.
        """
        if not value:
            return value
        if self.is_address:
            return read_address(value)
        if self.value == "remotemx":
            return read_server(value)
        if self.is_domain:
            return read_domain(value)
        if self.value in _MAILBOXES:
            return read_mailbox(value)
        return read_name(value, f"value of {self.value}")

    def of(self, value: str) -> str:
        """What a mail or a client says, as it is compared: nothing is refused, and what is no address is empty."""
        try:
            return self.normal(value)
        except WrongUse:
            pass
        if self.is_address:
            return ""
        if self.is_domain or self.value in _MAILBOXES:
            return value.lower()
        return value


class PickupField(MatchedField):
    """What a counter tells mails apart by. A policy file may declare further fields: attributes."""

    TRANSPORT_ID = "transportid"
    LOCAL_IP = "localip"
    REMOTE_IP = "remoteip"
    REMOTE_MX = "remotemx"
    RECIPIENT_DOMAIN = "recipientdomain"
    JOB_ID = "jobid"
    GROUPING = "grouping"
    TENANT_ID = "tenantid"

    def __reduce_ex__(self, _: object) -> tuple[Callable[[str], "PickupField"], tuple[str]]:
        """Other processes, as of Spark, have the same field, also where a file declares it."""
        return any_field, (self.value,)


def field_named(name: str, others: Iterable[str] = ()) -> PickupField:
    """The field of that name; `others` are further names that might be meant.

    Raises:
        WrongUse: there is no such value.
    """
    known = {pickup_field.value: pickup_field for pickup_field in PickupField}
    if name not in known:
        raise WrongUse(f"{name!r} is no field", mend=names_instead(name, [*known, *others]))
    return known[name]


CUSTOM_NAME: Final = "[A-Za-z][A-Za-z0-9_.-]{0,49}"
"""What names of attributes look like that a policy file may declare as fields."""

_CUSTOM: Final = dict[str, PickupField]()
_TAKEN: Final = frozenset(
    {
        *(named.value for named in PickupField),
        *("client", "helo", "user", "sender", "senderdomain", "recipient", "header"),
    }
)
_OWN_ATTRIBUTES: Final = re.compile(r"(?:mailmend\.|dsn-).*|expires|priority|MAIL_PRIORITY|REQUIRETLS", re.IGNORECASE)


def custom_field(name: str) -> PickupField:
    """The field of an attribute; the same one for each call.

    Such a field is not listed among the members of `PickupField`.

    Raises:
        WrongUse: no attribute of that name can be a field.
    """
    if name in _CUSTOM:
        return _CUSTOM[name]
    if name in _TAKEN:
        raise WrongUse(f"{name} is a field already", mend="Leave it out: no file has to declare it.")
    if not re.fullmatch(CUSTOM_NAME, name) or _OWN_ATTRIBUTES.fullmatch(name):
        mend = "Letters, digits, '.', '-' and '_' make one, 50 at most; the first is a letter."
        raise WrongUse(f"{name!r} is no attribute that can be a field", mend=mend)
    found = object.__new__(PickupField)
    found._name_ = name
    found._value_ = name
    return _CUSTOM.setdefault(name, found)


def any_field(name: str) -> PickupField:
    """The field of that name, whether a file has to declare it or not.

    Raises:
        WrongUse: no field can have the name.
    """
    for named in PickupField:
        if named.value == name:
            return named
    return custom_field(name)


def recorded_values(texts: Mapping[str, str]) -> dict[PickupField, str]:
    """The values of a recorded attempt, by the fields of any file; what is no field is left out."""
    found = dict[PickupField, str]()
    for name, text in texts.items():
        with suppress(WrongUse):
            found[any_field(name)] = text
    return found


_ADDRESSES: Final = frozenset({"localip", "remoteip", "client"})
_DOMAINS: Final = frozenset({"remotemx", "recipientdomain", "senderdomain", "helo"})
_MAILBOXES: Final = frozenset({"sender", "recipient"})
_OF_HALON: Final = frozenset({*_ADDRESSES, *_DOMAINS, "grouping"})


@dataclass(frozen=True, slots=True)
class ExactValue:
    """One value, in its normal form; mails without the field have the empty value."""

    value: str

    def matches(self, value: str) -> bool:
        return value == self.value


@dataclass(frozen=True, slots=True)
class DomainsBelow:
    """Every domain below one, at any depth, without that one itself: `*.example.org`."""

    domain: str

    def matches(self, value: str) -> bool:
        return value.endswith(f".{self.domain}")


@dataclass(frozen=True, slots=True)
class AddressRange:
    """The addresses of a network: `192.0.2.0/24`; a group of addresses is not a network."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network

    def matches(self, value: str) -> bool:
        return bool(value) and not value.startswith("#") and ipaddress.ip_address(value) in self.network


@dataclass(frozen=True, slots=True)
class RegexValues:
    """The values in which a regular expression is found: `/^mx[0-9]+[.]/`. `model.matching` says which there are."""

    expression: str

    def matches(self, value: str) -> bool:
        return is_found(self.expression, value)


@dataclass(frozen=True, slots=True)
class GroupName:
    """The values that are counted as one group of the same counter: `#gsuite`. Group names as keys begin with `#`."""

    name: str

    def matches(self, value: str) -> bool:
        return value == f"#{self.name}"


ValuePattern = ExactValue | DomainsBelow | AddressRange | RegexValues | GroupName
"""Which values of a field, in their normal form, are meant."""

PatternTexts = Mapping[str, tuple[str, ...]]
"""Patterns of values as people write them, by the name of their field."""


def pattern_of(named: MatchedField, text: str) -> ValuePattern:
    """The pattern that a policy file's text means, by the kinds that suit the field.

    Raises:
        WrongUse: a value that no mail can have; an expression that linear time does not suffice for.
    """
    if text.startswith("#"):
        return GroupName(text[1:])
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return RegexValues(check_expression(text[1:-1]))
    if text.startswith("&") and named.value in _OF_HALON:
        mend = f"Write {text[1:]!r} as a value of the field grouping, or '#{text[1:]}' for a group of this field."
        raise WrongUse(f"{text!r} is how Halon names a grouping, which is not read here", mend=mend)
    if named.is_domain and "*" in text:
        return _domains_below(text)
    if named.is_address and "/" in text:
        return AddressRange(read_network(text))
    if named.value in _MAILBOXES and text.startswith("*@"):
        raise WrongUse(f"{text!r} is no mailbox", mend=f"Write {named.value}domain: {text[2:]}")
    try:
        return ExactValue(named.normal(text))
    except WrongUse as error:
        below = f"*{text}"
        if named.is_domain and text.startswith(".") and ascii_domain(text[1:]):
            mend = f"Did you mean '{below}'? It is every domain below {text[1:]}, without that one itself."
            raise WrongUse(error.what, mend=mend) from error
        raise


def kept_pattern(named: MatchedField, text: str) -> ValuePattern:
    """The pattern of a text that was kept when it was taken; what would be refused now matches what it always did.

    Raises:
        WrongUse: an expression that is not taken any more.
    """
    try:
        return pattern_of(named, text)
    except WrongUse:
        if text.startswith("/"):
            raise
        return ExactValue(named.of(text))


def _domains_below(text: str) -> DomainsBelow:
    """`*.example.org`; no other star stands for a part of a domain."""
    domain = text.removeprefix("*.")
    if text == "*":
        raise WrongUse("'*' is no domain", mend="Every value is '/.*/', and every domain below another is '*.domain'.")
    if "*" in domain:
        bare = domain.removeprefix("*")
        meant = "Write a regular expression, like '/^mx[0-9]+[.]/'."
        if ascii_domain(bare):
            meant = f"Did you mean '*.{bare}'?"
        raise WrongUse(f"{text!r} is no domain: a star stands for whole parts, and first", mend=meant)
    return DomainsBelow(read_domain(domain))


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Values of a field that are counted as one."""

    name: str
    patterns: tuple[ValuePattern, ...]

    def holds(self, value: str) -> bool:
        return any(pattern.matches(value) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limits of what is counted together; None is no limit.

    Attributes:
        concurrency: deliveries at once; 0 lets none begin.
        rate: deliveries that begin in an interval.
        connect_interval: nanoseconds between two new connections.
        stop: later policies are not consulted for such a mail: they neither limit nor count it.
        cluster: the servers of a queue share the limits; else each has them for itself.
    """

    concurrency: int | None = None
    rate: DeliveryRate | None = None
    connect_interval: int | None = None
    stop: bool = False
    cluster: bool = True

    @property
    def is_shared(self) -> bool:
        """Whether there is anything to share; a concurrency of 0 is the same for all."""
        return self.cluster and bool(self.concurrency or self.rate or self.connect_interval)

    @property
    def connects(self) -> DeliveryRate | None:
        """How often connections may begin."""
        if not self.connect_interval:
            return None
        return DeliveryRate(1, self.connect_interval)


@dataclass(frozen=True, slots=True)
class ThresholdCondition(Generic[L]):
    """Limits for some values: each field that is named must match one of its patterns; none named is always true."""

    patterns: Mapping[PickupField, tuple[ValuePattern, ...]]
    threshold: L

    def holds(self, values: Mapping[PickupField, str]) -> bool:
        return all(any(value.matches(values[named]) for value in some) for named, some in self.patterns.items())


CounterKey = tuple[str, ...]
"""The values or groups, in the order of the counter's fields, of what is counted together."""


@dataclass(frozen=True, slots=True)
class CountedTogether(Generic[L]):
    """What is counted together by some fields (everything without fields), and its limits.

    Attributes:
        groups: of a field; a value belongs to the first that holds it, and else stands for itself.
        conditions: the first that holds sets the limits, all of them: nothing comes from the default then.
        default: where no condition holds; None is no limit.
    """

    fields: tuple[PickupField, ...] = ()
    groups: Mapping[PickupField, tuple[FieldGroup, ...]] = field(default_factory=lambda: NO_GROUPS)
    conditions: tuple[ThresholdCondition[L], ...] = ()
    default: L | None = None

    def counts_as(self, other: Self) -> bool:
        """Whether both count the same mails together; their limits may differ."""
        return (self.fields, self.groups) == (other.fields, other.groups)

    def key(self, values: Mapping[PickupField, str]) -> CounterKey:
        """The key of a mail, by values in their normal form; a field that it lacks is empty, a value like others."""
        if not self.groups:
            return tuple([values.get(pickup_field, "") for pickup_field in self.fields])
        return tuple(self._counted_as(pickup_field, values.get(pickup_field, "")) for pickup_field in self.fields)

    def threshold(self, key: CounterKey) -> L | None:
        """The limits of what has this key; None without limits."""
        number = self.condition(key)
        if number is None:
            return self.default
        return self.conditions[number].threshold

    def condition(self, key: CounterKey) -> int | None:
        """The number of the condition that sets the limits of what has this key, from 0; None: the default does."""
        values = dict(zip(self.fields, key, strict=True))
        for number, condition in enumerate(self.conditions):
            if condition.holds(values):
                return number
        return None

    def _counted_as(self, one: PickupField, value: str) -> str:
        for group in self.groups.get(one, ()):
            if group.holds(value):
                return f"#{group.name}"
        return value


@dataclass(frozen=True, slots=True)
class CounterPolicy(CountedTogether[Threshold]):
    """How many deliveries of what is counted together there may be."""
