"""What a listener answers whatever a client says of its mail."""

from typing import Final

from mailmend.delivery.mail.attempts import SmtpReply

STOPPING: Final = SmtpReply(421, "4.3.2", "this server is being stopped", ours=True)
CROWDED: Final = SmtpReply(421, "4.3.2", "there are too many connections; come again later", ours=True)
CROWDED_ADDRESS: Final = SmtpReply(421, "4.3.2", "there are too many connections from this address", ours=True)
GIVES_WAY: Final = SmtpReply(421, "4.3.2", "another client needs the place; come again later", ours=True)
NO_MAIL: Final = SmtpReply(421, "4.4.2", "no mail began for too long", ours=True)
TALKATIVE: Final = SmtpReply(421, "4.7.0", "there were too many commands without a mail", ours=True)
FAULTY: Final = SmtpReply(421, "4.7.0", "there were too many errors", ours=True)
NOT_SMTP: Final = SmtpReply(500, "5.5.2", "this is no command of SMTP; the connection ends", ours=True)
EARLY: Final = SmtpReply(554, "5.5.1", "a client waits for the greeting; the connection ends", ours=True)
UNREADABLE: Final = SmtpReply(500, "5.5.2", "this command cannot be read", ours=True)
IDLE: Final = SmtpReply(421, "4.4.2", "nothing was said for too long", ours=True)
STRANGER: Final = SmtpReply(554, "5.7.1", "mails are not taken from this address", ours=True)
UNSECURED: Final = SmtpReply(530, "5.7.0", "say STARTTLS first", ours=True)
LOG_IN_FIRST: Final = SmtpReply(530, "5.7.0", "log in first", ours=True)
LOGGED_IN: Final = SmtpReply(235, "2.7.0", "welcome", ours=True)
WRONG_LOGIN: Final = SmtpReply(535, "5.7.8", "this user does not have this password", ours=True)
UNREADABLE_LOGIN: Final = SmtpReply(501, "5.5.2", "the login cannot be read", ours=True)
MANY_LOGINS: Final = SmtpReply(421, "4.7.0", "there were too many wrong passwords", ours=True)
SECURED: Final = SmtpReply(503, "5.5.1", "the connection is secured already", ours=True)
TOO_MANY: Final = SmtpReply(452, "4.5.3", "there are too many recipients; send the others in another mail", ours=True)
CIRCLE: Final = SmtpReply(554, "5.4.6", "the mail goes round in a circle", ours=True)
NUL: Final = SmtpReply(554, "5.6.0", "the mail has a NUL byte, which SMTP does not carry", ours=True)
LONG_HEADER: Final = SmtpReply(552, "5.3.4", "the header of the mail has more than 1 MiB", ours=True)
LARGE_ENVELOPE: Final = SmtpReply(552, "5.3.4", "the envelope of the mail is larger than a queue takes", ours=True)
UNFIT: Final = SmtpReply(554, "5.6.0", "the envelope of the mail cannot be kept in a queue", ours=True)
LATER: Final = SmtpReply(451, "4.3.0", "the mail cannot be kept now; send it again later", ours=True)
FULL: Final = SmtpReply(452, "4.3.1", "too many mails are coming at once; send it again later", ours=True)
UNCOUNTED: Final = SmtpReply(452, "4.3.1", "what is in the queue is being counted; send it again later", ours=True)
SLOW: Final = SmtpReply(421, "4.4.2", "the mail took too long", ours=True)
FAULT: Final = SmtpReply(451, "4.3.0", "something went wrong at our side", ours=True)
UNGREETED: Final = SmtpReply(503, "5.5.1", "say who you are first", ours=True)
NOT_HERE: Final = SmtpReply(502, "5.5.1", "this command is not known here", ours=True)
FINE: Final = SmtpReply(250, "2.1.0", "fine", ours=True)
TAKEN: Final = SmtpReply(250, "2.1.5", "fine", ours=True)

REFUSALS: Final = (
    *("4.3.0", "4.3.1", "4.3.2", "4.4.2", "4.5.3", "4.7.0", "5.1.3", "5.1.7", "5.3.4", "5.4.6"),
    *("5.5.1", "5.5.2", "5.5.4", "5.5.6", "5.6.0", "5.6.7", "5.7.0", "5.7.1", "5.7.8"),
)
"""The enhanced status codes of what is refused."""

_STATUS: Final = {"500": "5.5.2", "501": "5.5.4", "502": "5.5.1", "503": "5.5.1"}
_STATUS_CLASSES: Final = frozenset({"2", "4", "5"})
_GREETING: Final = "220"


def over_quota(name: str) -> SmtpReply:
    return SmtpReply(452, "4.3.1", f"the quota {name} is full; send it again later", ours=True)


def refusal_in(text: str) -> str | None:
    """The enhanced status code of a reply that refuses; None of another."""
    if text[:1] not in {"4", "5"}:
        return None
    return text.split(" ", 2)[1]


def with_status(text: str) -> str:
    """The reply, with an enhanced status code (RFC 2034) where it has none."""
    code = text[:3]
    rest = text[4:]
    if text[3:4] != " " or code == _GREETING or code[0] not in _STATUS_CLASSES or rest.startswith(f"{code[0]}."):
        return text
    return f"{code} {_STATUS.get(code, f'{code[0]}.0.0')} {rest}"
