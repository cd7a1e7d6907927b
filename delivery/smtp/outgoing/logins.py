"""Logging in at a server (AUTH): what is said, and what of the answer may be shown.

The password goes over a secured connection alone, or to this machine itself. What a server says to
a line with a password may repeat it, cut or altered: of its reply the codes alone are shown.

Source: RFC 4954 (AUTH), RFC 4616 (PLAIN), draft-murchison-sasl-login (LOGIN).
"""

from base64 import b64encode
from collections.abc import Collection, Sequence
from typing import Final

from mailmend.delivery.mail.attempts import NextHop, SmtpReply
from mailmend.delivery.smtp.outgoing.addresses import ip_of
from mailmend.delivery.transports import SmtpLogin

LoginCommands = Sequence[tuple[bytes, ...]]
"""Commands, word by word; the server asks for the next one with 334."""

GO_ON: Final = 334
_TEMPORARY: Final = 4
_PASSWORD_TRANSITION: Final = 432
"""The code of RFC 4954 for a user who needs a new password."""
_OF_PASSWORDS: Final = frozenset({"4.7.8", "4.7.9", "4.7.12"})
_LOST: Final = "4.4.2"


def login_commands(login: SmtpLogin, offered: Collection[str]) -> LoginCommands:
    """What is said to a server that offers these mechanisms, in small letters; (): none is ours."""
    user = login.user.encode()
    password = login.password.encode()
    if "plain" in offered:
        return [(b"AUTH", b"PLAIN", b64encode(b"\0" + user + b"\0" + password))]
    if "login" in offered:
        return [(b"AUTH", b"LOGIN"), (b64encode(user),), (b64encode(password),)]
    return ()


def may_log_in(hop: NextHop, *, secured: bool) -> bool:
    """Whether a password may be sent: over TLS, or to this machine.

    Which certificates TLS takes, the attempt says (`SendingSettings.login_tls`).
    """
    return secured or ip_of(hop.address).is_loopback


def unsecured_login() -> SmtpReply:
    return _for_now(
        "4.7.11",
        "the server asks for a login, and the connection is not secured: no password is sent",
    )


def no_mechanism(offered: Collection[str]) -> SmtpReply:
    """For a server that offers no AUTH of ours."""
    words = " ".join(sorted(offered)).upper() or "no AUTH"
    return _for_now("4.7.0", f"the login needs PLAIN or LOGIN, and the server offers {words}")


def login_refused(reply: SmtpReply) -> SmtpReply:
    """For now, whatever the server says: the login may be mended, and the mail is not at fault.

    A temporary reply, such as 421, is no failed login: its status is 4.3.2.

    Args:
        reply: to a line that had the user or the password; its words are not in the result.
    """
    if _is_temporary(reply):
        return _for_now("4.3.2", f"the server takes no login for now: {_without_words(reply)}")
    return _for_now("4.7.8", f"our login at the server failed: {_without_words(reply)}")


def _is_temporary(reply: SmtpReply) -> bool:
    if reply.ours or reply.code // 100 != _TEMPORARY:
        return False
    return reply.code != _PASSWORD_TRANSITION and reply.enhanced not in _OF_PASSWORDS


def _without_words(reply: SmtpReply) -> str:
    if not reply.ours:
        codes = " ".join(filter(None, (str(reply.code), reply.enhanced)))
        return f"{codes} (its words are not shown, as they may repeat the password)"
    if reply.enhanced == _LOST:
        return reply.text
    return "it answered what is no reply"


def _for_now(enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(451, enhanced, text, ours=True)
