"""How a policy file says that a mail that comes in is held, put off or refused, and how answers show it."""

from datetime import timedelta
from typing import Final

from mailmend.delivery.policy.arrivals import (
    DELAY_MAX,
    REASON_MAX,
    REPLY_MAX,
    delay_of,
    hold_reason,
    refusing_reply,
)
from mailmend.model.file_forms import ANY_VALUE, FilePart, Scalar, whole
from mailmend.model.json_forms import JsonField

_REASON: Final = rf"[^\x00-\x1f\x7f]{{1,{REASON_MAX}}}"
_REPLY: Final = rf"[ -~]{{1,{REPLY_MAX}}}"

HOLD: Final = Scalar(
    _REASON,
    lambda found: hold_reason(found[0]),
    "is neither true nor false, nor a reason",
    f"A reason is one line of at most {REASON_MAX} characters.",
    form={**ANY_VALUE, **whole(_REASON)},
)
DELAY: Final = Scalar(
    r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|[smhd])?",
    lambda found: delay_of(found[0]),
    "is no time to wait",
    "Write it like 600, which is in seconds, or 10m.",
    {"type": "number", "minimum": 0, "maximum": int(DELAY_MAX.total_seconds())},
)
REJECT: Final = Scalar(
    _REPLY,
    lambda found: refusing_reply(found[0]),
    "is neither true nor false, nor a reply",
    f"A reply is one line of at most {REPLY_MAX} characters of ASCII, like 550 5.7.1 no such mails here.",
    form={**ANY_VALUE, **whole(_REPLY)},
)

ARRIVAL_PARTS: Final = (
    FilePart("hold", HOLD, "Such a mail is held: true, or the reason. false: no later rule holds it."),
    FilePart("delay", DELAY, "Such a mail is delivered that much later: in seconds, or like 10m."),
    FilePart(
        "reject",
        REJECT,
        "Such a mail is refused with this reply, like 550 5.7.1 not here, or true. false: no later rule refuses it.",
    ),
)


def _seconds(span: timedelta | None) -> float | None:
    if span is None:
        return None
    return span.total_seconds()


ARRIVAL_ANSWERS: Final = {
    "hold": JsonField(str | None, "Why such a mail is held; '': it is not, null: the rule does not say."),
    "delay_seconds": JsonField(float | None, "How much later it is delivered.", "delay", _seconds),
    "reject": JsonField(str | None, "The reply; '': it is not refused, null: the rule does not say."),
}
