"""Classes of replies: what a server meant when it refused a mail, by rules in their order.

The first rule whose parts all match gives the class, and a reply that no rule matches is
`Uncategorised`: every reply has exactly one class. Rules compare the code, the enhanced status code
and the text, without regard to upper and lower case. A sentence of ours, where no server said
anything, has no code: rules that ask for a code leave it to others.
Source: RFC 5321 4.2 (codes), RFC 3463 and RFC 5248 (enhanced status codes).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

from mailmend.model.matching import check_expression, groups_found

UNCATEGORISED: Final = "Uncategorised"
"""The class of a reply that no rule matches."""

RULES_MAX: Final = 1_000
"""The largest number of rules of a policy file."""

CLASSES_MAX: Final = 200
"""The largest number of names of classes of a policy file: each is a label of a metric."""

_KNOWN_MAX: Final = 1_024
"""Replies whose class is kept: a server that refuses says the same again."""

_LINE: Final = re.compile(r"[ \t]*([2-5][0-9]{2})(?:[ -]|$)[ ]?(.*)")
_ENHANCED: Final = re.compile(r"([245]\.[0-9]{1,3}\.[0-9]{1,3})(?:\s+|$)")


@dataclass(frozen=True, slots=True)
class ClassifiedReply:
    """The parts of a reply that rules compare.

    Attributes:
        code: of three digits; "" for a sentence of ours.
        enhanced: as `5.1.1`; "" where the server gave none.
        text: without the codes.
    """

    code: str
    enhanced: str
    text: str

    @classmethod
    def parse(cls, reply: str) -> Self:
        """A reply as a log, a report or an entry shows it; its lines may each repeat the codes."""
        code = ""
        enhanced = ""
        texts = list[str]()
        for line in reply.splitlines() or [""]:
            text = line.strip()
            if found := _LINE.fullmatch(line):
                code = code or found[1]
                text = found[2].strip()
            found = _ENHANCED.match(text)
            if found and (not code or found[1][0] == code[0]):
                enhanced = enhanced or found[1]
                text = text[found.end() :]
            if text:
                texts.append(text)
        return cls(code, enhanced, " ".join(texts))

    def __str__(self) -> str:
        return " ".join(filter(None, (self.code, self.enhanced, self.text)))


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """Gives a class to replies: each part that is named must match by one of its values.

    Attributes:
        name: of the class.
        codes: as `421` or `45x`; an x stands for any digit.
        enhanced: as `4.7.1` or `x.7.28`; an x stands for any number.
        texts: `/expression/`, or words that the text contains.
    """

    name: str
    codes: tuple[str, ...] = ()
    enhanced: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def matches(self, reply: ClassifiedReply) -> bool:
        if self.codes and not any(_code_fits(wanted, reply.code) for wanted in self.codes):
            return False
        enhanced = reply.enhanced
        if self.enhanced and not any(_enhanced_fits(wanted, enhanced) for wanted in self.enhanced):
            return False
        if not self.texts:
            return True
        expressions, words = _text_parts(self.texts)
        lower = reply.text.lower()
        if any(word in lower for word in words):
            return True
        return any(groups_found(expression, reply.text) is not None for expression in expressions)


@lru_cache(RULES_MAX)
def _text_parts(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The expressions of a rule, and its words in small letters."""
    expressions = list[str]()
    words = list[str]()
    for text in texts:
        if expression := _expression(text):
            expressions.append(expression)
        else:
            words.append(text.lower())
    return tuple(expressions), tuple(words)


def check_text(wanted: str) -> str:
    """The text of a rule itself.

    Raises:
        WrongUse: it is an expression that is not taken.
    """
    if expression := _expression(wanted):
        check_expression(wanted[1:-1])
        check_expression(expression)
    return wanted


def _expression(wanted: str) -> str:
    """The expression, for any case; "" where the text has words."""
    inner = wanted[1:-1]
    if inner and wanted == f"/{inner}/":
        return f"(?i:{inner})"
    return ""


def _code_fits(wanted: str, code: str) -> bool:
    if len(wanted) != len(code):
        return False
    return all(mark in {"x", digit} for mark, digit in zip(wanted, code, strict=True))


def _enhanced_fits(wanted: str, enhanced: str) -> bool:
    if not enhanced:
        return False
    pairs = zip(wanted.split("."), enhanced.split("."), strict=True)
    return all(mark in {"x", number} for mark, number in pairs)


@dataclass(slots=True, eq=False)
class ReplyClasses:
    """Rules in their order, and the class that they give to a reply."""

    rules: Sequence[ReplyRule] = ()
    _known: dict[ClassifiedReply, int | None] = field(default_factory=dict)

    def of(self, reply: ClassifiedReply) -> str:
        """The class of a reply."""
        number = self.rule_of(reply)
        if number is None:
            return UNCATEGORISED
        return self.rules[number].name

    def rule_of(self, reply: ClassifiedReply) -> int | None:
        """The number of the rule that gives the class, from 0; None: no rule matches."""
        if reply in self._known:
            return self._known[reply]
        found = None
        for number, rule in enumerate(self.rules):
            if rule.matches(reply):
                found = number
                break
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[reply] = found
        return found

    @property
    def names(self) -> Mapping[str, None]:
        """All classes, each once, in the order of the rules; the last one is `Uncategorised`."""
        return dict.fromkeys([*(rule.name for rule in self.rules), UNCATEGORISED])
