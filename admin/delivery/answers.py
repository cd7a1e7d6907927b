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
from mailmend.delivery.mail.entries import EntryStage, EntryState
from mailmend.delivery.policy.file.description import DELIVERY_RATE, THRESHOLD
from mailmend.delivery.policy.orders import OrderKind, PlacedCondition
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.rules.mails import ListingPosition
from mailmend.model.json_forms import JsonField, JsonForm


def from_one(number: int | None) -> int | None:
    """A number that counts from 0, as people count."""
    if number is None:
        return None
    return number + 1


def _unless_empty(text: str) -> str | None:
    return text or None


def _token(position: ListingPosition | None) -> str | None:
    if position is None:
        return None
    return position.token


# Recipients.

_ENTRY_ORDER: Final = JsonForm(
    body="OrderBody",
    about="An order held by a recipient: a server does it in place of an attempt.",
    answers={
        "kind": JsonField(Literal["hold", "bounce"], attribute="action"),
        "owner": JsonField(str),
        "why": JsonField(str, attribute="reason"),
        "at": JsonField(datetime),
    },
)
_INTENT: Final = JsonForm(
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
        "reply": JsonField(str | None, "", "entry.reply", _unless_empty),
        "host": JsonField(str | None, "", "entry.host", _unless_empty),
        "fields": JsonField(dict[str, str], "", "mail.fields"),
        "attributes": JsonField(dict[str, str]),
        "first_seen_at": JsonField(datetime, "", "mail.first_seen_at"),
        "expires_at": JsonField(datetime | None, "", "mail.expires_at"),
        "order": JsonField(_ENTRY_ORDER, "", "entry.order", optional=True),
        "after_attempt": JsonField(_INTENT, optional=True),
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
        "status": JsonField(str | None, to_json=_unless_empty),
        "class": JsonField(str | None, "Of the status.", "reply_class", _unless_empty),
        "host": JsonField(str),
        "bytes": JsonField(int, "", "content_bytes"),
        "urgent": JsonField(bool),
        "server": JsonField(str),
    },
)
_CLASS: Final = JsonField(str | None, "Of the reply.", "reply_class", _unless_empty)
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
            _unless_empty,
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
        "parked": JsonField(str | None, "Why it sets no limits there.", to_json=_unless_empty),
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
            to_json=_unless_empty,
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

_EXPLAINED_RATE: Final = replace(
    DELIVERY_RATE, body="ExplainRate", about="At most `count` deliveries in `seconds` seconds."
)


def _limits() -> dict[str, JsonField]:
    """The limits of a policy's share, as the description of the policy file names them."""
    limits = {name: replace(limit, meaning="") for name, limit in THRESHOLD.below("threshold").items()}
    cluster = "Whether the servers of the queue share the limits, where they can."
    limits["rate"] = replace(limits["rate"], type=_EXPLAINED_RATE)
    limits["cluster"] = replace(limits["cluster"], meaning=cluster)
    return limits


_SHARE_OF_FILE: Final = {
    "policy": JsonField(int, "Its number in the file, from 1.", to_json=from_one),
    "line": JsonField(int, attribute=None),
    "key": JsonField(dict[str, str], "As what it counts the mail.", None),
    "condition": JsonField(int | None, "The one that sets the limits, from 1; null: the default.", to_json=from_one),
    "limits_line": JsonField(int | None, attribute=None),
    **_limits(),
}
_SET_BY: Final = {
    "set_by": JsonField(CONDITION_ORDER, "The run-time condition that sets the limits; null: the file.", optional=True)
}
SHARE_IN_FILE: Final = JsonForm(answers={**_SHARE_OF_FILE, **_SET_BY, "lets_none": JsonField(bool, "", "refuses")})
"""What a policy of a file means for a mail."""

SHARE: Final = JsonForm(
    body="ShareBody",
    about="What one policy means for the mail at this moment.",
    answers={
        **_SHARE_OF_FILE,
        "shared": JsonField(bool, "Whether they do: these are this server's part."),
        "elsewhere": JsonField(bool, "This server has no part of them, others have."),
        **_SET_BY,
        "delivering": JsonField(int, "Deliveries of what is counted so that go on."),
        "refuses": JsonField(bool),
        "free_at": JsonField(
            datetime | None,
            "Refusing until then; null: it does not, or one has to end first.",
            None,
        ),
        "rate_free_at": JsonField(datetime | None, attribute=None),
        "connect_free_at": JsonField(datetime | None, attribute=None),
    },
    first=(*_SHARE_OF_FILE, *_SET_BY),
)
"""The same in a server at work."""

UNCONSULTED: Final = JsonForm(
    body="UnconsultedBody",
    about="A policy behind one that stops.",
    answers={"policy": JsonField(int, attribute=None), "line": JsonField(int, attribute=None)},
)
FILE_SUSPENSION: Final = JsonForm(
    body="FileSuspension",
    about="A suspension of the policy file that holds the mail.",
    answers={"suspension": JsonField(int, attribute=None), "line": JsonField(int, attribute=None)},
)
_REFUSALS: Final = {
    "not_consulted": JsonField(UNCONSULTED, "", None, many=True),
    "suspensions": JsonField(FILE_SUSPENSION, "", None, many=True),
    "suspended_by": JsonField(SUSPENSION_ORDER, "Suspensions by hand that hold it.", None, many=True),
}
_IS_LEFT: Final = {"is_left": JsonField(bool, "Whether it may be sent from there now.")}
SOURCE_IN_FILE: Final = JsonForm(
    answers={
        "localip": JsonField(str, "", "source"),
        **_IS_LEFT,
        "policies": JsonField(SHARE_IN_FILE, "", None, many=True),
        **_REFUSALS,
    }
)
"""What a file means for a mail that is sent from an address."""

SOURCE: Final = JsonForm(
    body="SourceBody",
    about='What holds for the mail if it is sent from this address; "" is any.',
    answers={
        "localip": JsonField(str, "", "source"),
        "has_share": JsonField(bool, "Whether this server knows its part of shared limits now."),
        **_IS_LEFT,
        "free_at": JsonField(datetime | None, "From when it may; null: now, or unknown.", None),
        "policies": JsonField(SHARE, "", None, many=True),
        **_REFUSALS,
    },
    first=("localip", "is_left"),
)
"""The same in a server at work."""

_WAITS_ON: Final = JsonForm(
    body="WaitsOnBody",
    about="What wakes it: a policy and what it counts together, a suspension that ends, or the server's part of "
    "limits.",
    answers={
        "policy": JsonField(int),
        "line": JsonField(int),
        "key": JsonField(dict[str, str]),
        "suspension": JsonField(str),
        "share": JsonField(bool),
    },
    sparse=True,
)
STANDING: Final = JsonForm(
    body="StandingBody",
    about="The state of a recipient, and why it waits.",
    answers={
        "id": JsonField(str, "", "entry.id", str),
        "recipient": JsonField(str, "", "entry.recipient"),
        "here": JsonField(bool, "Whether this server has it; else it is told as the queue knows it.", None),
        "stage": JsonField(EntryStage | str, "Within the server, or hold, defer, active as the queue knows it.", None),
        "since": JsonField(datetime | None, "Since when this server has its mail.", None),
        "returns_at": JsonField(
            datetime | None, "It goes back to the queue then, if it was not picked. null: it stays.", None
        ),
        "expires_at": JsonField(datetime | None, attribute=None),
        "due_at": JsonField(datetime | None, attribute=None),
        "order": JsonField(_ENTRY_ORDER, "", "entry.order", optional=True),
        "after_attempt": JsonField(_INTENT, "What follows if this attempt does not deliver it.", optional=True),
        "retries": JsonField(int, "", "entry.refusals"),
        "reply": JsonField(str | None, "", "entry.reply", _unless_empty),
        "host": JsonField(str | None, "", "entry.host", _unless_empty),
        "counted_as": JsonField(dict[str, str] | None, attribute=None),
        "sources": JsonField(SOURCE, "", None, many=True),
        "goes_from": JsonField(str | None, "From where it goes, or will go as far as is known.", None),
        "goes_at": JsonField(datetime | None, "null: now; or unknown, where goes_from is null too.", None),
        "ahead": JsonField(int | None, "Mails that are counted as it is and come before it.", None),
        "waits_on": JsonField(_WAITS_ON, "", None, many=True),
        "why": JsonField(list[str], "The same in sentences.", None),
    },
)
_ON_A_SERVER: Final = {
    "server": JsonField(str, "", "moment.server.settings.reporter"),
    "at": JsonField(datetime, "", "moment.at"),
    "queue": JsonField(str, "", "moment.server.queue.name"),
}
MAIL_EXPLANATION: Final = JsonForm(
    body="ExplanationAnswer",
    about="Why a mail's recipients wait.",
    answers={**_ON_A_SERVER, "entries": JsonField(STANDING, "", None, many=True)},
)
VALUES_EXPLANATION: Final = JsonForm(
    body="ValuesAnswer",
    about="What holds for a mail with these values at this moment.",
    answers={
        **_ON_A_SERVER,
        "mail": JsonField(dict[str, str], "", "mail.values"),
        "sources": JsonField(SOURCE, "", None, many=True),
        "goes_from": JsonField(str | None, attribute=None),
        "goes_at": JsonField(datetime | None, attribute=None),
        "why": JsonField(list[str], attribute=None),
    },
)
