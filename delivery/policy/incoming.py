"""Rules for mails that come in: what a mail's client, envelope and header make of its transport, job and metadata.

Rules are read from top to bottom. Each attribute is set by the first rule that holds and names it,
and so is whether the mail is held, put off or refused. As with conditions, special rules come
before general ones. A rule looks at one recipient; recipients for whom rules come to the same share
a mail. Source: docs/policy-file.md, "Mails that come in".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from mailmend.delivery.policy.arrivals import NOT
from mailmend.delivery.policy.covering import covers
from mailmend.delivery.policy.policy import MatchedField, RegexValues, ValuePattern
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_ATTRIBUTE
from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse
from mailmend.model.matching import group_names, groups_found

EXPIRES: Final = "expires"
VALUE_MAX: Final = 200
"""Characters of an attribute; a rule sets no longer one."""

LIFE_MAX: Final = timedelta(days=366)

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_GROUP: Final = re.compile(r"[1-9][0-9]?|[A-Za-z_][A-Za-z0-9_]*")


class IncomingField(MatchedField):
    """What a rule tells mails apart by."""

    CLIENT = "client"
    HELO = "helo"
    USER = "user"  # who logged in
    SENDER = "sender"
    SENDER_DOMAIN = "senderdomain"
    RECIPIENT = "recipient"
    RECIPIENT_DOMAIN = "recipientdomain"
    HEADER = "header"


MatchedKey = tuple[IncomingField, str]
"""A field, and the name of the header field in small letters; "" of all others."""

IncomingPatterns = Mapping[MatchedKey, tuple[ValuePattern, ...]]
IncomingValues = Mapping[MatchedKey, str]
"""What is known of a mail and one of its recipients, in its normal form; what is not there is empty."""


@dataclass(frozen=True, slots=True)
class ValueTemplate:
    """What a rule sets: `news`, or `job-${1}` with a group of its expression, or `${senderdomain}`.

    Attributes:
        text: as it was written.
        names: those that it refers to.
    """

    text: str
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "ValueTemplate":
        """Whether the names mean something only the rule can say.

        Raises:
            WrongUse: a reference to a missing group.
        """
        if "${" in _REFERENCE.sub("", text):
            raise WrongUse(f"{text!r} has a '${{' without its end", mend="Write ${1}, ${name} or ${senderdomain}.")
        return cls(text, tuple(_REFERENCE.findall(text)))

    def filled(self, values: Mapping[str, str]) -> str:
        return _REFERENCE.sub(lambda found: values.get(found[1], ""), self.text)


@dataclass(frozen=True, slots=True)
class IncomingRule:
    """What is set where all patterns hold; none is every mail.

    Attributes:
        sets: by the name of the attribute; `expires` is a span from now on.
        removes: header fields, in small letters.
        stop: later rules are not looked at.
        hold: why the mail is held; `NOT`: it is not; None: the rule does not say.
        delay: how much later it is delivered; None: the rule does not say.
        reject: the reply to the client; `NOT` and None as for `hold`.
    """

    patterns: IncomingPatterns = field(default_factory=dict)
    sets: Mapping[str, ValueTemplate] = field(default_factory=dict)
    removes: frozenset[str] = frozenset()
    stop: bool = False
    hold: str | None = None
    delay: timedelta | None = None
    reject: str | None = None

    @property
    def asks_header(self) -> bool:
        return any(named is IncomingField.HEADER for named, _ in self.patterns)

    @property
    def named(self) -> Iterator[tuple[str, str]]:
        """What it decides unless an earlier rule did: the attributes that it sets, and what becomes of the mail."""
        for name in self.sets:
            yield "set", name
        for name, said in (("hold", self.hold), ("delay", self.delay), ("reject", self.reject)):
            if said is not None:
                yield name, ""

    def found(self, values: IncomingValues) -> Mapping[str, str] | None:
        """The groups of its expressions, by name and number; None where it does not hold."""
        groups = dict[str, str]()
        for key, some in self.patterns.items():
            found = _first_groups(some, values.get(key, ""))
            if found is None:
                return None
            groups |= found
        return groups

    def covers(self, other: "IncomingRule") -> bool:
        """Whether it certainly holds for every mail for which the other does."""
        for key, some in self.patterns.items():
            if key not in other.patterns:
                return False
            for wanted in other.patterns[key]:
                if not any(covers(pattern, wanted) for pattern in some):
                    return False
        return True


def _first_groups(patterns: Iterable[ValuePattern], value: str) -> Mapping[str, str] | None:
    """The groups of the first pattern that matches the value; None where none does."""
    for pattern in patterns:
        if isinstance(pattern, RegexValues):
            found = groups_found(pattern.expression, value)
            if found is not None:
                return found
        elif pattern.matches(value):
            return {}
    return None


def unknown_name(template: ValueTemplate, expressions: Sequence[RegexValues]) -> str | None:
    """Why a name in it means nothing in a rule with these expressions; None where all mean something."""
    fields = [incoming_field.value for incoming_field in IncomingField if incoming_field is not IncomingField.HEADER]
    counts = list[int]()
    names = set[str]()
    for expression in expressions:
        count, named = group_names(expression.expression)
        counts.append(count)
        names |= named
    for name in template.names:
        if not _GROUP.fullmatch(name):
            return f"${{{name}}} is no name of a group or field"
        if name.isdigit() and len(counts) != 1:
            return f"${{{name}}} counts the groups of one expression, and this rule has {len(counts)}"
        if name.isdigit() and int(name) > counts[0]:
            return f"${{{name}}} is not one of the {counts[0]} groups of the expression"
        if not name.isdigit() and name not in names and name not in fields:
            return f"${{{name}}} is neither a group of an expression of this rule nor one of {', '.join(fields)}"
    return None


@dataclass(frozen=True, slots=True)
class IncomingOutcome:
    """What rules make of a mail for a recipient.

    Attributes:
        attributes: to be set, by name and in that order; the empty ones, which no later rule may
            set, are left out.
        removes: header fields to be taken out, in small letters.
        unusable: the names of attributes that were to be set to something that they cannot be; they
            are not set.
        hold: why it is held; `NOT`: it is not.
        delay: how much later it is delivered; a mail that is held waits for its release alone.
        reject: the reply that refuses it; `NOT`: it is taken.
    """

    attributes: tuple[tuple[str, str | int], ...] = ()
    removes: frozenset[str] = frozenset()
    unusable: tuple[str, ...] = ()
    hold: str = NOT
    delay: timedelta = timedelta()
    reject: str = NOT


RuleThatHolds = tuple[int, IncomingRule, Mapping[str, str]]
"""A rule, its number from 0, and the groups of its expressions."""


def rules_that_hold(rules: Iterable[IncomingRule], values: IncomingValues) -> Iterator[RuleThatHolds]:
    """The rules that hold for a mail, up to one that stops."""
    for number, rule in enumerate(rules):
        groups = rule.found(values)
        if groups is not None:
            yield number, rule, groups
            if rule.stop:
                return


def outcome_of(rules: Iterable[IncomingRule], values: IncomingValues, now: datetime) -> IncomingOutcome:
    """What the rules that hold come to; of two that set one attribute the first counts."""
    sets = dict[str, str | int]()
    removes = set[str]()
    unusable = list[str]()
    holding = list[IncomingRule]()
    plain = {named.value: text for (named, header), text in values.items() if not header}
    for _, rule, groups in rules_that_hold(rules, values):
        holding.append(rule)
        removes |= rule.removes
        for name, template in rule.sets.items():
            if name in sets or name in unusable:
                continue
            try:
                sets[name] = checked_value(name, template.filled({**plain, **groups}), now)
            except WrongUse:
                unusable.append(name)
    found = tuple(sorted((name, value) for name, value in sets.items() if value != ""))
    return IncomingOutcome(
        found,
        frozenset(removes),
        tuple(unusable),
        hold=next((rule.hold for rule in holding if rule.hold is not None), NOT),
        delay=next((rule.delay for rule in holding if rule.delay is not None), timedelta()),
        reject=next((rule.reject for rule in holding if rule.reject is not None), NOT),
    )


def reject_before_header(rules: Iterable[IncomingRule], values: IncomingValues) -> str:
    """The reply that refuses a recipient whatever the header of the mail is; `NOT` where that is not known, or none.

    A rule that asks for the header may decide it, or stop the others, where it comes before.
    """
    for rule in rules:
        if rule.asks_header:
            if rule.stop or rule.reject is not None:
                return NOT
        elif rule.found(values) is not None:
            if rule.reject is not None:
                return rule.reject
            if rule.stop:
                return NOT
    return NOT


def rules_before_header(rules: Iterable[IncomingRule]) -> tuple[tuple[IncomingRule, ...], frozenset[str] | None]:
    """The rules that can be asked before the header is there, and the attributes that rules of the header may set.

    Of these attributes nothing is known before; None: of all, as one of those rules may stop the
    others.
    """
    before = list[IncomingRule]()
    names = set[str]()
    stops = False
    for rule in rules:
        if rule.asks_header:
            names.update(rule.sets)
            stops |= rule.stop
        else:
            before.append(rule)
    if stops:
        return tuple(before), None
    return tuple(before), frozenset(names)


def checked_value(name: str, text: str, now: datetime) -> str | int:
    """The value of an attribute that a text means; "" means no value.

    Raises:
        WrongUse: it cannot be one.
    """
    if not text:
        return ""
    if len(text) > VALUE_MAX or not text.isprintable():
        raise WrongUse(f"a value has at most {VALUE_MAX} characters, all of them printable")
    if name == EXPIRES:
        return (now + parse_duration(text, maximum=LIFE_MAX, zero=False)).isoformat()
    if name == PRIORITY_ATTRIBUTE:
        if not (text.isascii() and text.isdigit() and int(text) in PRIORITIES):
            raise WrongUse(f"{text!r} is no priority", mend="Priorities go from 0, the last, to 9, the first.")
        return int(text)
    return text


def idle_because(rules: Sequence[IncomingRule], number: int) -> tuple[int, ...] | None:
    """The earlier rules because of which one changes nothing; () where that is its own doing; None: it may."""
    rule = rules[number]
    if not rule.removes and not rule.stop and not list(rule.named):
        return ()
    before = [other for other in range(number) if rules[other].covers(rule)]
    for other in before:
        if rules[other].stop:
            return (other,)
    setters = list(_setters(rules, before, rule))
    done = set[str]()
    for other in before:
        done |= rules[other].removes
    if rule.stop or None in setters or not rule.removes <= done:
        return None
    because = {setter for setter in setters if setter is not None}
    because |= {other for other in before if rules[other].removes & rule.removes}
    return tuple(sorted(because))


def _setters(rules: Sequence[IncomingRule], before: Sequence[int], rule: IncomingRule) -> Iterator[int | None]:
    """The first of those before that decides each of what a rule names."""
    for name in rule.named:
        first = None
        for other in before:
            if name in rules[other].named:
                first = other
                break
        yield first
