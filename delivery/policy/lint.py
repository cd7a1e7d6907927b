"""What is legal in a policy file, and surely not meant; only what is certain is said.

Source: docs/design.md, "Pickup" (2, 4).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from math import prod
from typing import Any, Final

from mailmend.delivery.policy.covering import (
    CoverIndex,
    FieldPatterns,
    covers,
    is_always_found,
    never_meet,
    pattern_text,
)
from mailmend.delivery.policy.incoming import idle_because
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import (
    CountedTogether,
    FieldGroup,
    GroupName,
    MatchedField,
    PickupField,
    Threshold,
    ThresholdCondition,
    ValuePattern,
)
from mailmend.delivery.policy.quotas import QueueQuota, QuotaLimit

COMBINATIONS_MAX: Final = 10_000
"""The maximum number of combinations of values that are checked of a condition with lists in several fields."""

OVERLAPS_MAX: Final = 1_000
"""Where a condition may overlap with more later ones, its mails are not looked for in them, and nothing is said."""


@dataclass(frozen=True, slots=True)
class PolicyHit:
    """One violation of a rule.

    Attributes:
        path: of what is not meant.
        because: of what makes it so.
    """

    path: DocumentPath
    text: str
    because: tuple[DocumentPath, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule: its code, its name, why it matters, what to do, and the function that finds hits."""

    id: str
    title: str
    reason: str
    fix: str
    check: Callable[[PickupPolicies], Iterator[PolicyHit]]


def _rule(
    rule_id: str, title: str, reason: str, fix: str
) -> Callable[[Callable[[PickupPolicies], Iterator[PolicyHit]]], PolicyRule]:
    return lambda check: PolicyRule(rule_id, title, reason, fix, check)


def _policies(file: PickupPolicies) -> Iterator[tuple[DocumentPath, CountedTogether[Any]]]:
    """The policies, and the quotas, which say in the same way what is counted together."""
    for number, policy in enumerate(file.policies):
        yield ("policies", number), policy
    for number, quota in enumerate(file.quotas):
        yield ("quotas", number), quota


def _no_limits(policy: CountedTogether[Any]) -> Threshold | QuotaLimit:
    if isinstance(policy, QueueQuota):
        return QuotaLimit()
    return Threshold()


@_rule(
    "P1",
    "a condition that no mail reaches",
    "The first condition that holds counts, so one whose mails all fall under earlier ones never does.",
    "Move it up, above those that are more general, or remove it.",
)
def shadowed_condition(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A condition that earlier ones of its policy cover, alone or together."""
    for path, policy in _policies(file):
        index = CoverIndex()
        for number, condition in enumerate(policy.conditions):
            if not _never_holds(policy, condition):
                earlier = _covered_by(index, condition.patterns)
                if earlier:
                    holds = "earlier ones hold"
                    if len(earlier) == 1:
                        holds = "an earlier one holds"
                    places = tuple((*path, "conditions", position) for position in earlier)
                    yield PolicyHit((*path, "conditions", number), f"{holds} for all of its mails", places)
            index.add(number, condition.patterns)


def _covered_by(index: CoverIndex, patterns: FieldPatterns) -> list[int]:
    """The first that covers all of it, or those that do so together; none where that is not certain."""
    whole = index.covering(patterns)
    if whole or prod(map(len, patterns.values())) > COMBINATIONS_MAX:
        return whole[:1]
    found = set[int]()
    for values in product(*patterns.values()):
        covering = index.covering({named: (value,) for named, value in zip(patterns, values, strict=True)})
        if not covering:
            return []
        found.add(covering[0])
    return sorted(found)


@_rule(
    "P2",
    "a condition that says the same as the default",
    "Without it its mails would have the same limits, as no later condition holds for any of them.",
    "Remove it, or write the limits that were meant.",
)
def like_the_default(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A condition with the default's limits, where none behind it could hold for its mails with others."""
    for path, policy in _policies(file):
        default = policy.default or _no_limits(policy)
        others = CoverIndex()
        limits = _limits_something(policy)
        for number, condition in reversed(list(enumerate(policy.conditions))):
            if condition.threshold != default:
                others.add(number, condition.patterns)
            elif limits and not _never_holds(policy, condition) and _is_apart(policy, condition, others):
                place = (*path, "conditions", number)
                if policy.default:
                    yield PolicyHit(place, "it says the same as the default", ((*path, "default"),))
                else:
                    yield PolicyHit(place, "it sets no limits, and there is no default")


def _is_apart(policy: CountedTogether[Any], condition: ThresholdCondition[Any], others: CoverIndex) -> bool:
    """Whether certainly no mail can fall under the condition and one of the others."""
    numbers = others.may_meet(condition.patterns)
    if len(numbers) > OVERLAPS_MAX:
        return False
    return all(_are_apart(condition.patterns, policy.conditions[number].patterns) for number in numbers)


def _are_apart(patterns: FieldPatterns, others: FieldPatterns) -> bool:
    """Whether a field has patterns in both that certainly never match one value."""
    shared = patterns.keys() & others.keys()
    return any(_none_meet(patterns[named], others[named]) for named in shared)


def _none_meet(patterns: Sequence[ValuePattern], others: Sequence[ValuePattern]) -> bool:
    """Whether certainly no value is matched by one pattern of each."""
    return all(starmap(never_meet, product(patterns, others)))


@_rule(
    "P3",
    "a default that no mail reaches",
    "A condition holds for every mail, so its limits stand in place of the default.",
    "Write the limits as the default, without that condition, or say in the condition which mails it is for.",
)
def unreached_default(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A default next to a condition that always holds."""
    for path, policy in _policies(file):
        always = _always(policy)
        if always is not None and policy.default:
            because = ((*path, "conditions", always),)
            yield PolicyHit((*path, "default"), "a condition holds for every mail", because)


def _always(policy: CountedTogether[Any]) -> int | None:
    """The number of the first condition that holds for every mail."""
    for number, condition in enumerate(policy.conditions):
        if all(any(map(is_always_found, some)) for some in condition.patterns.values()):
            return number
    return None


@_rule(
    "P4",
    "a value that no mail has",
    "A field without values, or with values that no mail can have there, matches nothing.",
    "Write the values that were meant; every value is /.*/.",
)
def impossible_value(file: PickupPolicies) -> Iterator[PolicyHit]:
    """Values that name no group, or are counted as a group; and fields and groups without any."""
    for path, policy in _policies(file):
        for number, condition in enumerate(policy.conditions):
            for named, some in condition.patterns.items():
                place = (*path, "conditions", number, "if", named.value)
                yield from _impossible(place, named, some, policy.groups.get(named, ()))
        for named, groups in policy.groups.items():
            for group in groups:
                yield from _impossible((*_place_of(path, policy, named), group.name), named, group.patterns, ())
    for number, suspension in enumerate(file.suspensions):
        for named, some in suspension.patterns.items():
            yield from _impossible(("suspends", number, named.value), named, some, ())
    for number, rule in enumerate(file.incoming):
        for (asked, _), some in rule.patterns.items():
            yield from _impossible(("incoming", number, "if", asked.value), asked, some, ())


def _impossible(
    path: DocumentPath, named: MatchedField, patterns: Sequence[ValuePattern], groups: Sequence[FieldGroup]
) -> Iterator[PolicyHit]:
    if not patterns:
        yield PolicyHit(path, "there is no value, so it never holds")
    for pattern in patterns:
        if why := _why_impossible(named, pattern, groups):
            yield PolicyHit(path, f"{pattern_text(pattern)} {why}")


def _why_impossible(named: MatchedField, pattern: ValuePattern, groups: Sequence[FieldGroup]) -> str:
    names = [group.name for group in groups]
    if isinstance(pattern, GroupName):
        if pattern.name in names:
            return ""
        return f"is no group of {named.value} here"
    if any(pattern.matches(f"#{name}") for name in names):
        return ""
    for group in groups:
        if any(covers(member, pattern) for member in group.patterns):
            return f"is counted as #{group.name}, and never alone"
    return ""


def _never_holds(policy: CountedTogether[Any], condition: ThresholdCondition[Any]) -> bool:
    for named, some in condition.patterns.items():
        groups = policy.groups.get(named, ())
        if all(_why_impossible(named, pattern, groups) for pattern in some):
            return True
    return False


@_rule(
    "P5",
    "a list that nothing uses",
    "Its values have no effect; where it was meant to be used, its name may be misspelt there as a value.",
    "Refer to it as '@name' instead of a value, or remove it.",
)
def unused_list(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A list that no policy and no suspension refers to."""
    for name in file.unused_lists:
        yield PolicyHit(("lists", name), f"nothing refers to @{name}")


@_rule(
    "P6",
    "a group without effect",
    "A value belongs to the first group that holds it; and what is counted as a group for which no limit can hold, and "
    "none could hold for its values either, might as well not be counted.",
    "Move it up, above those that are more general; write limits for '#name'; or remove it.",
)
def idle_group(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A group that no value can belong to, or that changes the limits of nothing."""
    for path, policy in _policies(file):
        for named, groups in policy.groups.items():
            earlier = CoverIndex()
            place = _place_of(path, policy, named)
            for number, group in enumerate(groups):
                covering = [earlier.covering({named: (pattern,)}) for pattern in group.patterns]
                if covering and all(covering):
                    first = sorted({cover[0] for cover in covering})
                    because = tuple((*place, groups[index].name) for index in first)
                    yield PolicyHit((*place, group.name), "its values all belong to earlier groups", because)
                elif covering and _limits_something(policy) and _is_idle(policy, named, group, groups[number + 1 :]):
                    yield PolicyHit((*place, group.name), f"nothing limits what is counted as #{group.name}")
                earlier.add(number, {named: group.patterns})


def _place_of(path: DocumentPath, policy: CountedTogether[Any], named: PickupField) -> DocumentPath:
    return (*path, "fields", policy.fields.index(named), named.value)


def _is_idle(policy: CountedTogether[Any], named: PickupField, group: FieldGroup, later: Sequence[FieldGroup]) -> bool:
    """Whether neither the group nor, without it, any of its values could have limits, or belong to a later group."""
    if (policy.default or _no_limits(policy)) != _no_limits(policy):
        return False
    own = (GroupName(group.name), *group.patterns)
    for condition in policy.conditions:
        wanted = condition.patterns.get(named)
        if wanted is None or not _none_meet(own, wanted):
            return False
    return all(_none_meet(group.patterns, other.patterns) for other in later)


@_rule(
    "P7",
    "a suspension that repeats another",
    "Without it its mails stay where they are: the other one holds them too.",
    "Remove it, or the wider one where only this was meant.",
)
def repeated_suspension(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A suspension whose mails another one holds as well; of two that are alike, the later."""
    index = CoverIndex()
    for number, suspension in enumerate(file.suspensions):
        index.add(number, suspension.patterns)
    for number, suspension in enumerate(file.suspensions):
        if not all(suspension.patterns.values()):
            continue
        for other in index.covering(suspension.patterns):
            is_alike = number in index.covering(file.suspensions[other].patterns)
            if other < number or not is_alike:
                yield PolicyHit(("suspends", number), "another one holds all of its mails", (("suspends", other),))
                break


@_rule(
    "P8",
    "a rate that is never reached",
    "Deliveries that are as far apart as the connect interval asks never exceed the rate; and where none may begin, "
    "no rate counts.",
    "Leave out the rate, or shorten the interval.",
)
def unreached_rate(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A rate that a connect interval or a concurrency never lets deliveries exceed."""
    for number, policy in enumerate(file.policies):
        path = ("policies", number)
        thresholds = list[tuple[DocumentPath, Threshold]]()
        for position, condition in enumerate(policy.conditions):
            thresholds.append(((*path, "conditions", position, "then"), condition.threshold))
        if policy.default:
            thresholds.append(((*path, "default"), policy.default))
        for place, threshold in thresholds:
            rate = threshold.rate
            gap = threshold.connect_interval
            if rate and threshold.concurrency == 0:
                yield PolicyHit((*place, "rate"), "no delivery may begin", ((*place, "concurrency"),))
            elif rate and gap and gap >= rate.apart:
                because = ((*place, "connectinterval"),)
                yield PolicyHit((*place, "rate"), "the connect interval is no shorter than it asks", because)


@_rule(
    "P9",
    "a policy that is never consulted",
    "An earlier policy stops whatever it counts, and it counts every mail.",
    "Move it up, above the one that stops, or leave out one of that one's stops.",
)
def unconsulted_policy(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A policy behind one of which all limits stop."""
    stops: int | None = None
    for number, policy in enumerate(file.policies):
        if stops is not None:
            yield PolicyHit(("policies", number), "an earlier one stops every mail", (("policies", stops),))
        elif all(threshold.stop for threshold in _reached(policy)):
            stops = number


def _reached(policy: CountedTogether[Any]) -> list[Any]:
    """The limits that may hold, up to the condition that holds for every mail."""
    always = _always(policy)
    if always is not None:
        return [condition.threshold for condition in policy.conditions[: always + 1]]
    return [*(condition.threshold for condition in policy.conditions), policy.default or _no_limits(policy)]


@_rule(
    "P10",
    "a policy that limits nothing",
    "It counts mails and neither holds any back, or refuses any, nor stops later policies from doing so.",
    "Write limits below default or conditions, or remove it.",
)
def limitless_policy(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A policy, or a quota, without any limit."""
    for path, policy in _policies(file):
        if not _limits_something(policy):
            yield PolicyHit(path, "none of its limits limits anything")


def _limits_something(policy: CountedTogether[Any]) -> bool:
    return any(limit != _no_limits(policy) for limit in _reached(policy))


@_rule(
    "P11",
    "a rule of incoming mails that changes nothing",
    "Each attribute is set by the first rule that holds and names it, so one whose mails an earlier rule has set them "
    "for, or stops, sets nothing more.",
    "Move it up, above those that are more general, or remove it.",
)
def idle_incoming_rule(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A rule that sets nothing at all, or that earlier ones leave nothing to."""
    for number in range(len(file.incoming)):
        because = idle_because(file.incoming, number)
        if because is not None:
            places = tuple(("incoming", index) for index in because)
            said = "it neither sets, removes, holds, delays, rejects nor stops anything"
            if because:
                said = "earlier ones leave it nothing to do"
            yield PolicyHit(("incoming", number), said, places)


@_rule(
    "P12",
    "a quota that lets no mail in",
    "A quota of 0 that counts every mail refuses all mails of all clients.",
    "Write how much there may be; or name in conditions the mails that are to be refused.",
)
def closed_quota(file: PickupPolicies) -> Iterator[PolicyHit]:
    """A quota of which all limits that may hold are 0."""
    for number, quota in enumerate(file.quotas):
        if all(limit is not None and 0 in {limit.messages, limit.bytes} for limit in _reached(quota)):
            yield PolicyHit(("quotas", number), "whatever counts there, nothing may be in the queue")


POLICY_RULES: Final = (
    shadowed_condition,
    like_the_default,
    unreached_default,
    impossible_value,
    unused_list,
    idle_group,
    repeated_suspension,
    unreached_rate,
    unconsulted_policy,
    limitless_policy,
    idle_incoming_rule,
    closed_quota,
)


def lint_policies(
    file: PickupPolicies, rules: Sequence[PolicyRule] = POLICY_RULES
) -> Sequence[tuple[PolicyRule, PolicyHit]]:
    """What the rules find: each hit behind the rule that it violates, by rule."""
    findings = list[tuple[PolicyRule, PolicyHit]]()
    for rule in rules:
        for hit in rule.check(file):
            findings.append((rule, hit))
    return findings
