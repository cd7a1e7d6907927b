"""The description of `classes` and `automation` of a policy file."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from re import Match
from typing import Final

from mailmend.delivery.policy.automation import LASTS_MIN, TRIGGER_MAX, TRIGGER_WITHIN_MAX
from mailmend.delivery.policy.file.description import (
    DELIVERY_RATE,
    GROUP_NAME,
    PATTERNS,
    SUSPENSION_SCHEMA,
    THRESHOLD,
)
from mailmend.delivery.policy.orders import ORDER_MAX
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.rates import DeliveryRate
from mailmend.model.durations import format_duration, parse_duration
from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import (
    ANY_VALUE,
    FileForm,
    FilePart,
    Scalar,
    defined,
    list_schema,
    one_or_more,
    text_schema,
)
from mailmend.model.instants import nanos_in
from mailmend.model.json_forms import JsonField

_X_NUMBER: Final = "(?:[0-9]{1,3}|x)"


def _trigger(found: Match[str]) -> DeliveryRate:
    trigger = DeliveryRate.parse(found[0])
    if trigger.count > TRIGGER_MAX or trigger.interval > nanos_in(TRIGGER_WITHIN_MAX):
        seconds = f"{TRIGGER_WITHIN_MAX.total_seconds():,.0f} seconds"
        most = f"At most {TRIGGER_MAX:,} replies within {seconds}."
        raise WrongUse(f"{found[0]!r} is too large for a trigger", mend=most)
    return trigger


def _span(found: Match[str]) -> timedelta:
    lasts = parse_duration(found[0], maximum=ORDER_MAX)
    if lasts < LASTS_MIN:
        least = f"Write {format_duration(LASTS_MIN)} or more."
        raise WrongUse(f"{found[0]!r} is too short", mend=least)
    return lasts


def _names(fields: Iterable[PickupField]) -> list[str]:
    return [field.value for field in fields]


CLASS_NAME: Final = Scalar(
    "[A-Za-z][A-Za-z0-9-]{0,39}",
    lambda found: found[0],
    "is no name of a class",
    "Write letters, digits and '-', a letter first, at most 40.",
    {"type": ["boolean", "null"]},
)
RULE_NAME: Final = Scalar(
    GROUP_NAME.pattern,
    GROUP_NAME.meaning,
    "is no name of a rule",
    GROUP_NAME.mend,
    {"type": ["number", "boolean", "null"], "minimum": 0},
)
CODE: Final = Scalar(
    "[2-5][0-9x]{2}",
    lambda found: found[0],
    "is no code of replies",
    "Write it like 421, or 45x: x is any digit.",
    {"type": "integer", "minimum": 200, "maximum": 599},
)
ENHANCED_CODE: Final = Scalar(
    rf"[245x]\.{_X_NUMBER}\.{_X_NUMBER}",
    lambda found: found[0],
    "is no enhanced status code",
    "Write it like 4.7.1, or x.7.28: x is any number.",
    form=text_schema(rf"[245x]\.{_X_NUMBER}\.{_X_NUMBER}"),
)
REPLY_RULE: Final = FileForm(
    what="a rule of classes",
    parts=(
        FilePart("class", CLASS_NAME, "The class that the reply gets.", "name"),
        FilePart("code", one_or_more(CODE.schema), "Codes: 421, or 45x.", "codes"),
        FilePart(
            "enhanced",
            one_or_more(ENHANCED_CODE.schema),
            "Enhanced status codes: 4.7.1, or x.7.28.",
        ),
        FilePart(
            "reply",
            one_or_more(ANY_VALUE),
            "Words of the text, or /expression/; in any case.",
            "texts",
        ),
    ),
    meaning="The first rule whose parts all match gives a reply its class.",
    required=("class",),
    body="ReplyRuleBody",
    about="Gives a class to replies; a part without values matches every reply.",
    answers={
        "rule": JsonField(int, "Its number in the file, from 1.", None),
        "line": JsonField(int | None, "", None),
        "class": JsonField(str, "", "name"),
        "code": JsonField(list[str], "", "codes", list),
        "enhanced": JsonField(list[str], "", "", list),
        "reply": JsonField(list[str], "", "texts", list),
    },
)

SUSPEND: Final = "suspend"
"""Written for `then` where a rule suspends."""

TRIGGER: Final = Scalar(
    r"0*[1-9][0-9]{0,8}/(?=[0-9.]*[1-9])(?:[0-9]{1,9}(?:\.[0-9]{1,9})?)",
    _trigger,
    "is no trigger",
    "Write X replies within Y seconds as X/Y, like 5/60.",
    form=text_schema(r"0*[1-9][0-9]{0,8}/(?=[0-9.]*[1-9])(?:[0-9]{1,9}(?:\.[0-9]{1,9})?)"),
)
SPAN: Final = Scalar(
    r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:[sSmMhHdD])?",
    _span,
    "is no time for which something may be ordered",
    "Write it like 60s, 10m or 2h.",
    {"type": "number", "minimum": LASTS_MIN.total_seconds(), "maximum": ORDER_MAX.total_seconds()},
)
_FIELDS: Final = {
    **list_schema({"enum": [field.value for field in PickupField]}),
    "minItems": 1,
    "uniqueItems": True,
}
AUTOMATIC_RULE: Final = FileForm(
    what="an automatic rule",
    parts=(
        FilePart("name", RULE_NAME, "What orders and logs call it."),
        FilePart("class", one_or_more(CLASS_NAME.schema), "Replies that count.", "classes"),
        FilePart("if", SUSPENSION_SCHEMA, "Attempts that count; without it, all.", "patterns"),
        FilePart("fields", _FIELDS, "Attempts with the same values here are a sub-queue."),
        FilePart("trigger", TRIGGER, "X/Y: X such replies of a sub-queue within Y seconds."),
        FilePart(
            "then",
            {"anyOf": [{"enum": [SUSPEND]}, defined("threshold")]},
            "suspend, or limits.",
            "threshold",
        ),
        FilePart("for", SPAN, "How long the order lasts.", "lasts"),
    ),
    meaning="Suspends or limits a sub-queue for a while when replies of a class come too often.",
    required=("name", "class", "fields", "trigger", "then", "for"),
    body="AutomaticRuleBody",
    about="What is ordered for a sub-queue when replies of some classes come too often.",
    answers={
        "line": JsonField(int | None, "", None),
        "name": JsonField(str),
        "class": JsonField(list[str], "", "classes", sorted),
        "if": replace(PATTERNS, meaning="Attempts that count."),
        "fields": JsonField(list[PickupField], "", "", _names),
        "trigger": JsonField(DELIVERY_RATE),
        "then": JsonField(THRESHOLD, "null: it is suspended.", "threshold", optional=True),
        "for_seconds": JsonField(float, "", "lasts", timedelta.total_seconds),
    },
)
