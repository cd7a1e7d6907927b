"""What a rule or a hook decides about a mail as it comes in: that it is held, put off or refused.

Source: docs/policy-file.md, "Mails that come in".
"""

import re
from datetime import timedelta
from typing import Final

from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse

DELAY_MAX: Final = timedelta(days=366)
REASON_MAX: Final = 200
"""Characters of the reason for which a mail is held."""

REPLY_MAX: Final = 400
"""Characters of a reply; a line of SMTP has 512 bytes (RFC 5321 4.5.3.1.5)."""

NOT: Final = ""
"""What a rule says that decides against: no later rule holds, or refuses, such a mail then."""

BY_A_RULE: Final = "a rule of incoming holds such mails"

_REPLY: Final = re.compile(r"(?P<code>[0-9]{3})(?: (?P<status>[0-9]+\.[0-9]+\.[0-9]+))?(?: (?P<text>.+))?")
_CODE: Final = re.compile("[45][0-5][0-9]")
_CLOSING: Final = "421"
_REFUSED: Final = "the mail is refused"
_POLICY: Final = "7.1"


def hold_reason(text: str) -> str:
    """Why a mail is held, by what a rule says: `true`, `false` or a reason. `NOT`: it is not held.

    Raises:
        WrongUse: the reason is long, or has characters that cannot be shown.
    """
    if text.lower() == "false":
        return NOT
    if text.lower() == "true":
        return BY_A_RULE
    _check_text(text, REASON_MAX)
    return text


def delay_of(text: str) -> timedelta:
    """How long a mail waits: `600` in seconds, or `10m`.

    Raises:
        WrongUse: it is no such span, or longer than `DELAY_MAX`.
    """
    return parse_duration(text, maximum=DELAY_MAX)


def refusing_reply(text: str) -> str:
    """The reply to a client, with code and enhanced status code: `550 5.7.1 no such mails here`.

    A text alone is refused for good; `true` has a text of ours. `NOT`, of `false`: nothing is
    refused.

    Raises:
        WrongUse: the code does not refuse, the status has another class, or the text is not ASCII
            or too long.
    """
    if text.lower() == "false":
        return NOT
    if text.lower() == "true":
        text = _REFUSED
    _check_text(text, REPLY_MAX)
    if not text.isascii():
        raise WrongUse(f"{text!r} is not ASCII", mend="Clients of SMTP read replies in ASCII.")
    found = _REPLY.fullmatch(text)
    if found is None and not text[:1].isdigit():
        return f"550 5.{_POLICY} {text}"
    if found is None or not _CODE.fullmatch(found["code"]) or found["code"] == _CLOSING:
        mend = "Write it like 550 5.7.1 no such mails here; 4yz is for now, 421 would end the connection."
        raise WrongUse(f"{text!r} is no reply that refuses a mail", mend=mend)
    code = found["code"]
    status = found["status"] or f"{code[0]}.{_POLICY}"
    if not re.fullmatch(r"[45]\.[0-9]{1,3}\.[0-9]{1,3}", status) or status[0] != code[0]:
        raise WrongUse(
            f"{status} is no status of a reply {code}",
            mend=f"Write it like {code} {code[0]}.{_POLICY}.",
        )
    return f"{code} {status} {found['text'] or _REFUSED}"


def worst_reply(replies: list[str]) -> str:
    """The one of several replies that a client gets which has one answer: one for good before one for now."""
    return max(replies, key=lambda reply: reply[:3])


def _check_text(text: str, longest: int) -> None:
    if not text or len(text) > longest or not text.isprintable():
        raise WrongUse(f"a text has 1 to {longest} characters, all of them printable")
    if "${" in text:
        raise WrongUse(
            f"{text!r} has a '${{', and only what is set has references",
            mend="Write the text itself.",
        )
