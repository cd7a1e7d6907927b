"""Names of users and mailboxes, as James writes them: one grammar for every place that takes such a name.

James lower-cases users, knows INBOX in any case, and never registers some names (MailboxPath,
Username). James cannot ask for some names. Mail under such a name would be invisible, so the name
is refused before anything is written.
"""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from mailmend.model.errors import WrongUse
from mailmend.model.texts import printable

INBOX = "INBOX"
DELIMITER = "."
"""What separates a mailbox from its parents."""

USER_MAX = 255
MAILBOX_MAX = 200
"""The largest numbers of characters."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FORBIDDEN = re.compile(r"[%*]")
_WHITE = re.compile(r"\s")
_DIGITS = re.compile(r"\d+")
_ALIKE = 0.7
_SHOWN = 60


class BadName(WrongUse):
    """A name of a user or mailbox that James cannot know."""


def user_name(text: str) -> str:
    """The user as James writes it: in lower case.

    Raises:
        BadName: James has no user of that name.
    """
    name = text.lower()
    why = _wrong_with_user(name)
    if why:
        raise _bad("user", text, why, _WHITE.sub("", _CONTROL.sub("", name)), _wrong_with_user)
    return name


def mailbox_name(text: str) -> str:
    """The mailbox's name as James writes it: INBOX in capitals, others unchanged.

    Raises:
        BadName: James has no mailbox of that name.
    """
    if text.upper() == INBOX:
        return INBOX
    why = _wrong_with_mailbox(text)
    if why:
        clean = _FORBIDDEN.sub("", _CONTROL.sub("", text)).strip().lstrip("#")
        parts = (part.strip() for part in clean.split(DELIMITER))
        raise _bad("mailbox", text, why, DELIMITER.join(filter(None, parts)), _wrong_with_mailbox)
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the most similar known name; "" where none is similar.

    Users of one domain are compared by what is before it as well: most of such names is the same. People number their
    mailboxes and users (`box1`, `box2`), so a name with other digits is another name, not a typing error.
    """
    lower = name.lower()
    local = _local(lower)
    digits = _DIGITS.findall(lower)
    by_lower = {other.lower(): other for other in known if _DIGITS.findall(other) == digits}
    alike = [other for other in by_lower if get_close_matches(local, [_local(other)], 1, _ALIKE)]
    found = get_close_matches(lower, alike, n=1, cutoff=_ALIKE)
    return f"Did you mean '{printable(by_lower[found[0]])}'?" if found else ""


def _local(name: str) -> str:
    local, _, _ = name.partition("@")
    return local


def _wrong_with_user(name: str) -> str:
    """What James does not accept about a user, in words; "" where it is fine."""
    local, at, domain = name.partition("@")
    if not name:
        return "it is empty"
    if _CONTROL.search(name) or _WHITE.search(name):
        return "it contains white space or a control character"
    if not local or (at and not domain):
        return "nothing is before or after its '@'"
    if "@" in domain:
        return "it contains more than one '@'"
    if len(name) > USER_MAX:
        return f"it has more than {USER_MAX} characters"
    return ""


def _wrong_with_mailbox(name: str) -> str:
    """What James does not accept about a mailbox's name, in words; "" where it is fine."""
    checks = (
        (not name.strip(), "it is empty"),
        (_CONTROL.search(name), "it contains a control character"),
        (_FORBIDDEN.search(name), "it contains '%' or '*', which are wildcards in IMAP"),
        (name.startswith("#"), "it begins with '#', as IMAP's namespaces do"),
        (not all(map(str.strip, name.split(DELIMITER))), f"a part between its delimiters '{DELIMITER}' is empty"),
        (len(name) > MAILBOX_MAX, f"it has more than {MAILBOX_MAX} characters"),
    )
    return next((why for wrong, why in checks if wrong), "")


def _bad(what: str, text: str, why: str, cleaned: str, wrong: Callable[[str], str]) -> BadName:
    """The refusal, with the cleaned name where that would be accepted."""
    mend = "" if wrong(cleaned) else f"Did you mean '{printable(cleaned)}'?"
    return BadName(f"James has no {what} {printable(text)[:_SHOWN]!r}: {why}", mend=mend)
