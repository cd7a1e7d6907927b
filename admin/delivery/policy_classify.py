"""`mailmend policy classify`: the class of a reply, and the automatic rules that count it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.delivery.policy_texts import limits_text
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.values import plain, printable
from mailmend.delivery.mail.reactions import trigger_text
from mailmend.delivery.policy.automation import AutomaticRule
from mailmend.delivery.policy.reply_classes import (
    UNCATEGORISED,
    ClassifiedReply,
    ReplyClasses,
    ReplyRule,
)
from mailmend.model.durations import format_duration
from mailmend.model.errors import ExitCode


@dataclass(frozen=True, slots=True)
class PlacedReplyRule:
    """A rule of classes.

    Attributes:
        file: of the operator; None: the rule comes with the package.
        number: in its file, from 1.
    """

    rule: ReplyRule
    file: Path | None
    number: int
    line: int

    @property
    def place(self) -> str:
        """Where the rule is, for people."""
        if self.file is None:
            return f"shipped rule {self.number}"
        return f"rule {self.number} of {self.file} (line {self.line})"


@dataclass(frozen=True, slots=True)
class ClassifiedResult:
    """All rules in their order; and of one reply, its class.

    Attributes:
        reply: None: no reply was given.
        found: the rule that gives the class; None: no rule matches.
        automation: the automatic rules that count the class.
    """

    rules: tuple[PlacedReplyRule, ...]
    reply: ClassifiedReply | None = None
    found: PlacedReplyRule | None = None
    automation: tuple[AutomaticRule, ...] = ()

    @property
    def reply_class(self) -> str:
        if self.found is None:
            return UNCATEGORISED
        return self.found.rule.name


def classify(reply: str | None = None, policies: Path | None = None) -> ClassifiedResult:
    """The class of a reply, by a policy file and then by the shipped table.

    Without a reply, all rules.

    Raises:
        BadPolicyFile: the server would refuse the file.
        MissingExtra: the packages that read policy files are not installed.
    """
    rules = list[PlacedReplyRule]()
    automatic: Sequence[AutomaticRule] = ()
    if policies:
        rules += _rules_of(policies, policies)
        automatic = policy_file(policies).said.automation
    table: Path = import_or_name_extra("mailmend.delivery.policy.file.replies").TABLE
    rules += _rules_of(table, None)
    if reply is None:
        return ClassifiedResult(tuple(rules))
    read = ClassifiedReply.parse(reply)
    number = ReplyClasses([placed.rule for placed in rules]).rule_of(read)
    found = None
    if number is not None:
        found = rules[number]
    result = ClassifiedResult(tuple(rules), read, found)
    counting = tuple(rule for rule in automatic if result.reply_class in rule.classes)
    return ClassifiedResult(tuple(rules), read, found, counting)


def _rules_of(file: Path, shown: Path | None) -> list[PlacedReplyRule]:
    """The rules of a file; `shown` is how people know it."""
    read = policy_file(file)
    rules = list[PlacedReplyRule]()
    for number, rule in enumerate(read.said.classes):
        place = read.place_of(("classes", number))
        rules.append(PlacedReplyRule(rule, shown, number + 1, place.line))
    return rules


_COLUMNS: Final = ("class", "code", "enhanced", "reply", "where")


def classify_document(result: ClassifiedResult) -> Document:
    json: dict[str, Any] = {
        "reply": None,
        "class": None,
        "rule": None,
        "automation": [rule.name for rule in result.automation],
        "rules": [],
        "exit": int(ExitCode.FINE),
    }
    if result.reply is None:
        json["rules"] = [_rule_json(placed) for placed in result.rules]
        rows = [_row(placed) for placed in result.rules]
        grid = Grid(
            "Classes of replies: the first rule that matches",
            _COLUMNS,
            rows,
            frozenset({"reply", "where"}),
        )
        return Document(plain(json), (grid, f"What no rule matches is {UNCATEGORISED}."))
    json["reply"] = {
        "code": result.reply.code,
        "enhanced": result.reply.enhanced,
        "text": result.reply.text,
    }
    json["class"] = result.reply_class
    by = "no rule matches"
    if result.found:
        json["rule"] = _rule_json(result.found)
        by = result.found.place
    lines = [printable(f"{result.reply_class}: {by}.")]
    lines += [printable(_counted(rule)) for rule in result.automation]
    return Document(plain(json), tuple(lines))


def _counted(rule: AutomaticRule) -> str:
    effect = "it is suspended"
    if rule.threshold:
        effect = limits_text(rule.threshold)
    fields = ", ".join(named.value for named in rule.fields)
    lasts = format_duration(rule.lasts)
    counts = f"The automatic rule {rule.name} counts it by {fields}"
    return f"{counts}: {trigger_text(rule)}, and {effect} for {lasts}."


def _row(placed: PlacedReplyRule) -> tuple[str, ...]:
    rule = placed.rule
    texts = (rule.codes, rule.enhanced, rule.texts)
    return (rule.name, *(printable(" or ".join(some)) for some in texts), printable(placed.place))


def _rule_json(placed: PlacedReplyRule) -> Mapping[str, Any]:
    rule = placed.rule
    file = None
    if placed.file:
        file = str(placed.file)
    return {
        "class": rule.name,
        "code": rule.codes,
        "enhanced": rule.enhanced,
        "reply": rule.texts,
        "file": file,
        "rule": placed.number,
        "line": placed.line,
    }


CLASSIFY: Final = Command(
    name="classify",
    summary="Say which class a reply of a server has, and which automatic rules count it.",
    about="""The first rule that matches gives the class: the rules in `classes` of the policy file
    come before the rules that come with mailmend. Without REPLY the command lists all rules in
    their order. A reply is written as a log or `delivery show` has it, with its codes. The command
    asks no server, and needs mailmend[delivery].""",
    service="mailmend.admin.delivery.policy_classify:classify",
    present="mailmend.admin.delivery.policy_classify:classify_document",
    paged=True,
    options=(
        click.Argument(["reply"], required=False, metavar="[REPLY]"),
        option(
            "--policies",
            "Policies in YAML: its classes of replies count. [default: the shipped classes]",
            type=FILE,
            metavar="FILE",
        ),
    ),
    examples="""
        mailmend policy classify '421 4.7.0 too many connections'
        mailmend policy classify '550 5.7.1 see our page' --policies policies.yaml --json
        mailmend policy classify --policies policies.yaml                  all rules""",
    exits="0 it was said; 2 wrong use, or the server would refuse the file.",
)
