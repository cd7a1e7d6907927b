"""The JSON of results about deliveries, for `--json`, HTTP answers and the OpenAPI description."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, Literal
from uuid import UUID

from mailmend.admin.delivery.value_texts import VALUES_NOTE
from mailmend.delivery.ledger.orders import OrderEvent
from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage
from mailmend.delivery.mail.entries import EntryState
from mailmend.delivery.policy.file.description import THRESHOLD
from mailmend.delivery.policy.orders import OrderKind, PlacedCondition
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.rules.mails import ListingPosition
from mailmend.model.json_forms import JsonField, JsonForm


def from_one(number: int | None) -> int | None:
    """A number that counts from 0, as people count."""
    if number is None:
        return None
    return number + 1


def unless_empty(text: str) -> str | None:
    """The text; None for an empty one."""
    return text or None


def _token(position: ListingPosition | None) -> str | None:
    if position is None:
        return None
    return position.token


# Recipients.

ENTRY_ORDER: Final = JsonForm(
    body="OrderBody",
    about="An order held by a recipient: a server does it in place of an attempt.",
    answers={
        "kind": JsonField(Literal["hold", "bounce"], attribute="action"),
        "owner": JsonField(str),
        "why": JsonField(str, attribute="reason"),
        "at": JsonField(datetime),
    },
)
INTENT: Final = JsonForm(
    body="IntentBody",
    about="What a server does with an active recipient once its attempt has ended.",
    answers={
        "kind": JsonField(Literal["hold", "defer", "bounce", "delete"], attribute="action"),
        "owner": JsonField(str),
        "why": JsonField(str, attribute="reason"),
        "at": JsonField(datetime),
        "until": JsonField(datetime | None),
    },
)
ENTRY: Final = JsonForm(
    body="EntryBody",
    about="A recipient of a mail.",
    answers={
        "id": JsonField(str, "The mail's first id, and a number.", "entry.id", str),
        "mail": JsonField(str, "", "mail.id"),
        "enqueue_id": JsonField(str, "Of the mail's present passage through the queue."),
        "recipient": JsonField(str, "", "entry.recipient"),
        "sender": JsonField(str | None, "", "mail.sender"),
        "state": JsonField(EntryState),
        "due_at": JsonField(datetime | None, "When a deferred one is tried again."),
        "retries": JsonField(int, "", "entry.refusals"),
        "reply": JsonField(str | None, "", "entry.reply", unless_empty),
        "host": JsonField(str | None, "", "entry.host", unless_empty),
        "fields": JsonField(dict[str, str], "", "mail.fields"),
        "attributes": JsonField(dict[str, str]),
        "first_seen_at": JsonField(datetime, "", "mail.first_seen_at"),
        "expires_at": JsonField(datetime | None, "", "mail.expires_at"),
        "order": JsonField(ENTRY_ORDER, "", "entry.order", optional=True),
        "after_attempt": JsonField(INTENT, optional=True),
        "values_set": JsonField(VALUES_NOTE, "", "values_note", optional=True),
    },
)
ENTRIES: Final = JsonForm(
    body="EntriesAnswer",
    about="A page of recipients, in the order of the queue's listing.",
    answers={
        "entries": JsonField(ENTRY, many=True),
        "next": JsonField(
            str | None,
            "`after` of the next page; null: this is the last one.",
            to_json=_token,
        ),
    },
)
_ATTEMPT: Final = JsonForm(
    body="AttemptBody",
    about="One attempt to hand a recipient's mail to a server.",
    answers={
        "first_mail": JsonField(str, "", "entry.mail"),
        "number": JsonField(int, "Of the recipient.", "entry.number"),
        "attempt": JsonField(str, "", "id"),
        "mail": JsonField(str),
        "fields": JsonField(dict[str, str]),
        "sources": JsonField(list[str]),
        "ready_at": JsonField(datetime | None),
        "started_at": JsonField(datetime),
        "ended_at": JsonField(datetime | None),
        "outcome": JsonField(AttemptOutcome | None, "null: none is known."),
        "stage": JsonField(AttemptStage | None),
        "status": JsonField(str | None, to_json=unless_empty),
        "class": JsonField(str | None, "Of the status.", "reply_class", unless_empty),
        "host": JsonField(str),
        "bytes": JsonField(int, "", "content_bytes"),
        "urgent": JsonField(bool),
        "server": JsonField(str),
    },
)
_CLASS: Final = JsonField(str | None, "Of the reply.", "reply_class", unless_empty)
_WITH_CLASS: Final = {**ENTRY.answers, "class": _CLASS}
_SHOWN_ENTRY: Final = replace(ENTRY, body="ShownEntryBody", answers=_WITH_CLASS)
SHOWN_ENTRIES: Final = JsonForm(
    body="EntryAnswer",
    about="All recipients of one mail, or one, and what was tried; none is left of a mail that is gone.",
    answers={
        "entries": JsonField(_SHOWN_ENTRY, many=True),
        "attempts": JsonField(_ATTEMPT, many=True),
    },
)
_GROUP: Final = JsonForm(
    body="GroupBody",
    about="Recipients with the same values; no values: the rest, where there are more than 10,000 groups.",
    answers={
        "values": JsonField(dict[str, str] | None),
        "recipients": JsonField(int),
        **{state.value: JsonField(int, "", "states", itemgetter(state)) for state in EntryState},
        "oldest_at": JsonField(datetime | None),
        "due_at": JsonField(datetime | None),
    },
)
GROUPS: Final = JsonForm(
    body="GroupsAnswer",
    about="Groups, the largest first.",
    answers={
        "by": JsonField(list[str], "", "request.fields"),
        "groups": JsonField(_GROUP, "", "found", many=True),
    },
)
_FAILED_MAIL: Final = JsonForm(
    body="FailedMail",
    about="A mail that could not be changed; the same call again goes on with it.",
    answers={"id": JsonField(str, "", "enqueue_id"), "why": JsonField(str)},
)
LEFT_ENTRY: Final = JsonForm(
    body="LeftEntryBody",
    about="A recipient that was left alone, as its attempt was under way.",
    answers={"id": JsonField(str, "", "id", str), "recipient": JsonField(str)},
)
CHANGED_ENTRIES: Final = JsonForm(
    body="ChangedAnswer",
    about="What became of the recipients that were selected.",
    answers={
        "dry_run": JsonField(bool, "", "request.dry_run"),
        "changed": JsonField(int, attribute=None),
        "would_change": JsonField(int | None, attribute=None),
        "mails": JsonField(int),
        "active": JsonField(int, "A server has them, or they are on their way to one."),
        "ordered": JsonField(int, "How many active ones wait for the answer of a server.", None),
        "would_order": JsonField(int | None, attribute=None),
        "after_attempt": JsonField(int, "How many active ones have an order for after attempts.", None),
        "would_follow_attempt": JsonField(int | None, attribute=None),
        "left": JsonField(int, "How many were left alone, as their attempts were under way.", None),
        "left_entries": JsonField(LEFT_ENTRY, "The first of them.", None, many=True),
        "until": JsonField(datetime | None, "", "change.until"),
        "failed": JsonField(_FAILED_MAIL, many=True),
        "kept": JsonField(
            str | None,
            "A file on the server's machine: mailmend queue restore FILE brings it back.",
        ),
        "kept_without_content": JsonField(int, "", "without_content"),
        "entries": JsonField(
            ENTRY,
            "Of a dry run: the first of them.",
            None,
            many=True,
            optional=True,
        ),
    },
)

# Orders.

_HOLDS: Final = {
    "made_at": JsonField(datetime),
    "ends_at": JsonField(datetime | None, "null: until it is lifted."),
    "owner": JsonField(str),
    "why": JsonField(str, attribute="reason"),
}
SUSPENSION_ORDER: Final = JsonForm(
    body="SuspensionBody",
    about="Mails that are held back.",
    answers={
        "id": JsonField(UUID),
        "fields": JsonField(
            dict[PickupField, list[str]],
            "Values by field; none is every mail.",
            "values",
        ),
        **_HOLDS,
        "unread": JsonField(
            list[str],
            "Why a field cannot be read; the suspension then holds more than it names.",
        ),
    },
)
CONDITION_ORDER: Final = JsonForm(
    body="MadeConditionBody",
    about="Limits that an operator or a hook set.",
    answers={
        "id": JsonField(UUID),
        "fields": JsonField(list[PickupField]),
        "if": JsonField(dict[PickupField, list[str]], "", "values"),
        "then": JsonField(THRESHOLD, "", "threshold"),
        **_HOLDS,
        "ends_at": JsonField(datetime | None, "null: until it is removed."),
        "unread": JsonField(
            str | None,
            "Why it cannot be read; it then lets nothing begin of the mails that it names, or is parked.",
            "damage",
            unless_empty,
        ),
    },
)
ORDERS: Final = {OrderKind.SUSPENSION: SUSPENSION_ORDER, OrderKind.CONDITION: CONDITION_ORDER}
"""An order alone."""

_SUSPENSION_STATE: Final = replace(SUSPENSION_ORDER, answers=SUSPENSION_ORDER.below("order"))
_ON_SERVER: Final = JsonForm(
    body="ConditionOnServer",
    about="What a condition is to one server.",
    answers={
        "server": JsonField(str, attribute=None),
        "parked": JsonField(str | None, "Why it sets no limits there.", to_json=unless_empty),
        "counted_as": JsonField(
            dict[str, str],
            "By value, the group as which it is counted there.",
            "groups",
        ),
    },
)


def _on_servers(servers: Iterable[tuple[str, PlacedCondition]]) -> list[dict[str, Any]]:
    return [_ON_SERVER.json(condition, server=server) for server, condition in servers]


_CONDITION_STATE: Final = JsonForm(
    body="ConditionStateBody",
    about="A condition, and what it is to the servers that are at work.",
    answers={
        **CONDITION_ORDER.below("order"),
        "parked": JsonField(
            str | None,
            "Why it sets limits on none of them.",
            to_json=unless_empty,
        ),
        "servers": JsonField(_ON_SERVER, to_json=_on_servers, many=True),
    },
)


def _ordered(body: str, about: str, name: str, state: JsonForm) -> JsonForm:
    answers = {"dry_run": JsonField(bool, "", "request.dry_run"), name: JsonField(state, "", "found")}
    return JsonForm(body=body, about=about, answers=answers)


def _listed(body: str, about: str, name: str, state: JsonForm) -> JsonForm:
    return JsonForm(body=body, about=about, answers={name: JsonField(state, "", "found", many=True)})


ORDERED: Final = {
    OrderKind.SUSPENSION: _ordered(
        "SuspensionAnswer",
        "A suspension that was made, or lifted; or would be.",
        "suspension",
        _SUSPENSION_STATE,
    ),
    OrderKind.CONDITION: _ordered(
        "ConditionAnswer", "A condition that was set, or removed; or would be.", "condition", _CONDITION_STATE
    ),
}
"""An order that was made, or has ended."""

LISTED_ORDERS: Final = {
    OrderKind.SUSPENSION: _listed("SuspensionsAnswer", "What is suspended now.", "suspensions", _SUSPENSION_STATE),
    OrderKind.CONDITION: _listed(
        "ConditionsAnswer", "What is set now, in the order in which it is tested.", "conditions", _CONDITION_STATE
    ),
}
"""The orders that hold now."""

_DONE: Final = {
    "id": JsonField(UUID),
    "at": JsonField(datetime),
    "event": JsonField(OrderEvent),
    "by": JsonField(str),
}
ORDER_HISTORY: Final = {
    OrderKind.SUSPENSION: _listed(
        "SuspensionHistoryAnswer",
        "What was done to suspensions.",
        "history",
        JsonForm(
            body="SuspensionRecordBody",
            about="With the suspension as it was behind the change; where it was removed, before.",
            answers={**_DONE, "suspension": JsonField(SUSPENSION_ORDER, "", "order")},
        ),
    ),
    OrderKind.CONDITION: _listed(
        "ConditionHistoryAnswer",
        "What was done to conditions.",
        "history",
        JsonForm(
            body="ConditionRecordBody",
            about="With the condition as it was behind the change; where it was removed, before.",
            answers={**_DONE, "condition": JsonField(CONDITION_ORDER, "", "order")},
        ),
    ),
}
"""What was done to orders."""

# Explanations.
