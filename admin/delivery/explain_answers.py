"""JSON of what holds for a mail, and why one waits: one form for `--json` and HTTP."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from mailmend.admin.delivery.answers import (
    CONDITION_ORDER,
    ENTRY_ORDER,
    INTENT,
    SUSPENSION_ORDER,
    from_one,
    unless_empty,
)
from mailmend.delivery.mail.entries import EntryStage
from mailmend.delivery.policy.file.description import DELIVERY_RATE, THRESHOLD
from mailmend.model.json_forms import JsonField, JsonForm

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
        "order": JsonField(ENTRY_ORDER, "", "entry.order", optional=True),
        "after_attempt": JsonField(INTENT, "What follows if this attempt does not deliver it.", optional=True),
        "retries": JsonField(int, "", "entry.refusals"),
        "reply": JsonField(str | None, "", "entry.reply", unless_empty),
        "host": JsonField(str | None, "", "entry.host", unless_empty),
        "counted_as": JsonField(dict[str, str] | None, attribute=None),
        "sources": JsonField(SOURCE, "", None, many=True),
        "goes_from": JsonField(str | None, "From where it goes, or will go as far as is known.", None),
        "goes_at": JsonField(datetime | None, "null: now; or unknown, where goes_from is null too.", None),
        "ahead": JsonField(int | None, "Mails that are counted as it is and come before it.", None),
        "waits_on": JsonField(_WAITS_ON, "", None, many=True),
        "why": JsonField(list[str], "The same in sentences.", None),
    },
)
ON_A_SERVER: Final = {
    "server": JsonField(str, "", "moment.server.settings.reporter"),
    "at": JsonField(datetime, "", "moment.at"),
    "queue": JsonField(str, "", "moment.server.queue.name"),
}
MAIL_EXPLANATION: Final = JsonForm(
    body="ExplanationAnswer",
    about="Why a mail's recipients wait.",
    answers={**ON_A_SERVER, "entries": JsonField(STANDING, "", None, many=True)},
)
VALUES_EXPLANATION: Final = JsonForm(
    body="ValuesAnswer",
    about="What holds for a mail with these values at this moment.",
    answers={
        **ON_A_SERVER,
        "mail": JsonField(dict[str, str], "", "mail.values"),
        "sources": JsonField(SOURCE, "", None, many=True),
        "goes_from": JsonField(str | None, attribute=None),
        "goes_at": JsonField(datetime | None, attribute=None),
        "why": JsonField(list[str], attribute=None),
    },
)
