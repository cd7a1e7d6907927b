"""`classes` and `automation` of a policy file, and the classes that come with the package.

The table is a policy file of its own. Rules of an operator's file come before its rules: they add
to the table, and override it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from mailmend.delivery.policy.automation import AutomaticRule
from mailmend.delivery.policy.file.description import FILE
from mailmend.delivery.policy.file.nodes import (
    PolicyNode,
    Refusals,
    read_each,
    read_parts,
    read_ungrouped,
)
from mailmend.delivery.policy.file.reply_description import (
    AUTOMATIC_RULE,
    CLASS_NAME,
    CODE,
    ENHANCED_CODE,
    REPLY_RULE,
    SUSPEND,
)
from mailmend.delivery.policy.orders import ORDER_MAX
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    PickupField,
    Threshold,
    ValuePattern,
    field_named,
)
from mailmend.delivery.policy.rates import DeliveryRate
from mailmend.delivery.policy.reply_classes import (
    CLASSES_MAX,
    RULES_MAX,
    UNCATEGORISED,
    ReplyClasses,
    ReplyRule,
    check_text,
)
from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import FileForm, Scalar
from mailmend.model.texts import names_instead

TABLE: Final = Path(__file__).with_name("reply_classes.yaml")
"""The table of classes that comes with the package."""

AUTOMATIC_RULES_MAX: Final = 100
"""The largest number of automatic rules of a file: each refusal is compared with all of them."""

_FIELDS: Final = [field.value for field in PickupField]


@lru_cache(maxsize=1)
def shipped_rules() -> tuple[ReplyRule, ...]:
    """The rules of the table that comes with the package."""
    refused = Refusals()
    top = PolicyNode.of_text(TABLE.name, TABLE.read_text(encoding="utf-8"), refused)
    rules = reply_rules(top.parts(FILE)["classes"])
    assert not refused.by_place, refused.error
    return rules


def all_classes(own: Sequence[ReplyRule]) -> ReplyClasses:
    """The rules of a file, and then the rules that come with the package."""
    return ReplyClasses((*own, *shipped_rules()))


def reply_rules(node: PolicyNode) -> tuple[ReplyRule, ...]:
    """The rules of `classes`, in their order.

    Raises:
        BadPolicyFile: there are too many, or one of them cannot be used.
    """
    rules = tuple(read_each(node.listed("classes"), _reply_rule))
    if len(rules) > RULES_MAX:
        node.fail(
            f"classes has {len(rules):,} rules",
            f"At most {RULES_MAX:,}: write several values in one rule.",
        )
    names = {rule.name for rule in rules}
    if len(names) > CLASSES_MAX:
        node.fail(
            f"classes names {len(names):,} classes",
            f"At most {CLASSES_MAX:,}: each is a label of a metric.",
        )
    return rules


def _reply_rule(node: PolicyNode) -> ReplyRule:
    parts = node.parts(REPLY_RULE)
    _note_missing(node, parts, REPLY_RULE)
    found = read_parts(
        parts,
        REPLY_RULE,
        code=partial(_scalars, CODE),
        enhanced=partial(_scalars, ENHANCED_CODE),
        reply=_texts,
    )
    return ReplyRule(**{"name": UNCATEGORISED, **found})


def _scalars(form: Scalar, node: PolicyNode) -> tuple[str, ...]:
    return tuple(read_each(node.one_or_more(), lambda value: value.parsed(form.parse, "a code")))


def _texts(node: PolicyNode) -> tuple[str, ...]:
    return tuple(read_each(node.one_or_more(), lambda value: value.parsed(_text, "a text")))


def _text(text: str) -> str:
    if not text.strip():
        raise WrongUse("an empty text is in every reply", mend="Write words, or leave out reply.")
    return check_text(text)


@dataclass(frozen=True, slots=True)
class RuleSurroundings:
    """What automatic rules of a file may refer to.

    Attributes:
        own: the rules of the file's own classes.
        is_sure: whether these are all of them: nothing of the file is refused yet.
        policies: the policies of the file.
        limit: reads the limits below `then`.
    """

    own: Sequence[ReplyRule]
    is_sure: bool
    policies: Sequence[CounterPolicy]
    limit: Callable[[PolicyNode], Threshold]

    def class_names(self) -> Collection[str]:
        return all_classes(self.own).names


def automatic_rules(surroundings: RuleSurroundings, node: PolicyNode) -> tuple[AutomaticRule, ...]:
    """The rules of `automation`, in their order.

    Raises:
        BadPolicyFile: there are too many, or one of them cannot be used.
    """
    rule = partial(_automatic_rule, surroundings, set())
    rules = tuple(read_each(node.listed("automation"), rule))
    if len(rules) > AUTOMATIC_RULES_MAX:
        node.fail(f"automation has {len(rules):,} rules", f"At most {AUTOMATIC_RULES_MAX}.")
    return rules


def _automatic_rule(
    surroundings: RuleSurroundings,
    names: set[str],
    node: PolicyNode,
) -> AutomaticRule:
    """A rule; `names` are the names of those before it."""
    refused_before = node.refused.count
    parts = node.parts(AUTOMATIC_RULE)
    _note_missing(node, parts, AUTOMATIC_RULE)
    found: dict[str, Any] = {
        "name": "",
        "classes": frozenset[str](),
        "fields": (),
        "patterns": {},
        "trigger": DeliveryRate(1),
        "threshold": None,
        "lasts": ORDER_MAX,
    }
    reads: dict[str, Callable[[PolicyNode], Any]] = {
        "class": partial(_classes, surroundings),
        "if": _patterns,
        "fields": _fields,
        "then": partial(_then, surroundings),
    }
    found |= read_parts(parts, AUTOMATIC_RULE, **reads)
    rule = AutomaticRule(**found)
    if rule.name and rule.name in names:
        parts["name"].note(f"there are two automatic rules {rule.name!r}")
    names.add(rule.name)
    if node.refused.count == refused_before:
        _refuse_parked(surroundings, parts, rule)
    return rule


def _note_missing(node: PolicyNode, parts: Collection[str], form: FileForm) -> None:
    for name in form.required:
        if name not in parts and node.is_sure_of(name, form):
            node.note(f"{form.what} lacks its {name}", f"It needs: {', '.join(form.required)}.")


def _classes(surroundings: RuleSurroundings, node: PolicyNode) -> frozenset[str]:
    if not node.node.value:
        node.fail("there is no class, so no reply counts", "Name a class, like RateLimited.")
    return frozenset(read_each(node.one_or_more(), partial(_class, surroundings)))


def _class(surroundings: RuleSurroundings, node: PolicyNode) -> str:
    name: str = node.parsed(CLASS_NAME.parse, "a class")
    if surroundings.is_sure:
        known = surroundings.class_names()
        if name not in known:
            node.fail(f"there is no class {name!r}", names_instead(name, known))
    return name


def _fields(node: PolicyNode) -> tuple[PickupField, ...]:
    fields = list[PickupField]()
    for entry in node.listed("fields"):
        for named in read_each([entry], _field):
            if named in fields:
                entry.note(f"{named.value} is there twice")
            fields.append(named)
    if not node.node.value:
        node.fail(
            "an automatic rule without fields is about all mails",
            "Name a field, like recipientdomain.",
        )
    return tuple(fields)


def _field(node: PolicyNode) -> PickupField:
    if node.text("a field") in node.lists.custom:
        node.fail(
            f"orders do not know {node.node.value}, which is a field of this file alone",
            f"Name another field: {', '.join(_FIELDS)}.",
        )
    return node.parsed_name(field_named, _FIELDS, "a field")


def _patterns(node: PolicyNode) -> dict[PickupField, tuple[ValuePattern, ...]]:
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in node.items("if"):
        for named in read_each([key], _field):
            wanted[named] = read_ungrouped(named, values, "an automatic rule knows no groups")
    return wanted


def _then(surroundings: RuleSurroundings, node: PolicyNode) -> Threshold | None:
    """The limits; None: the sub-queue is suspended."""
    if node.is_mapping:
        limits = surroundings.limit(node)
        if limits.concurrency is None and not limits.rate and not limits.connect_interval:
            node.fail("it is not said which limits are ordered", "Write them like {concurrency: 1}.")
        return limits
    if node.text("then") != SUSPEND:
        node.fail(
            "it is not said what is ordered",
            f"Write {SUSPEND}, or limits, like {{concurrency: 1}}.",
        )
    return None


def _refuse_parked(
    surroundings: RuleSurroundings,
    parts: Mapping[str, PolicyNode],
    rule: AutomaticRule,
) -> None:
    """Limits need a policy that counts by exactly these fields: without one they never hold."""
    if rule.threshold is None or not surroundings.policies:
        return
    fields = frozenset(rule.fields)
    if not any(frozenset(policy.fields) == fields for policy in surroundings.policies):
        named = ", ".join(field.value for field in rule.fields)
        mend = "Add one, which may have no limits of its own; or write then: suspend."
        what = f"no policy counts by exactly {named}, so these limits would never hold"
        parts["fields"].note(what, mend)
