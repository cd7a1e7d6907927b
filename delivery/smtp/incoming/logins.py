"""How a client logs in: AUTH with PLAIN or LOGIN, over TLS alone.

Each wrong password makes the next answer slower, and after some of them the connection ends. No log
has a password, nor a name that no user has: people type passwords where names belong. Source: RFC
4954 (AUTH), RFC 4616 (PLAIN); LOGIN has no RFC, and old clients know nothing else.
"""

import logging
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.smtp.incoming import replies
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.model.ports import Clock

MECHANISMS: Final = "PLAIN LOGIN"
FAILURES_MAX: Final = 3
"""Wrong passwords after which a connection ends."""

PAUSE_SECONDS: Final = 1.0
"""How long the first wrong password waits for its answer; each further one waits twice as long."""

_LOG: Final = logging.getLogger("mailmend.delivery")

AskClient = Callable[[str], Awaitable[bytes | None]]
"""Sends a challenge, and waits for the line that the client answers; None: the line is too long."""

Credentials = tuple[str, bytes]
"""The name of a user, and a password."""


@dataclass(slots=True, eq=False)
class ClientLogin:
    """The login of one connection.

    Attributes:
        users: None: no client logs in.
        user: who logged in; "" before that.
        failures: wrong passwords so far.
    """

    users: ListenerUsers | None
    clock: Clock
    user: str = ""
    failures: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the connection is to end, as too many passwords were wrong."""
        return self.failures >= FAILURES_MAX

    def is_offered(self, *, secured: bool) -> bool:
        """Whether EHLO names AUTH."""
        return self.users is not None and secured and not self.user

    async def answer(self, words: str, client: str, ask: AskClient, *, secured: bool) -> SmtpReply:
        """What is answered to AUTH with these words, once the client has said what it takes.

        Raises:
            ConnectionError: the client left.
        """
        if self.users is None:
            return replies.NOT_HERE
        if not secured:
            return replies.UNSECURED
        if self.user:
            return SmtpReply(503, "5.5.1", "you have logged in already", ours=True)
        found = await _credentials(words, ask)
        if isinstance(found, SmtpReply):
            return found
        name, password = found
        if await self.users.knows(name, password):
            self.user = name
            self.failures = 0
            _LOG.info("a client logged in", extra={"client": client, "user": name})
            return replies.LOGGED_IN
        await self.clock.pause(PAUSE_SECONDS * 2**self.failures)
        self.failures += 1
        _LOG.warning("a client could not log in", extra={"client": client, "failures": self.failures})
        return replies.WRONG_LOGIN


async def _credentials(words: str, ask: AskClient) -> Credentials | SmtpReply:
    mechanism, _, initial = words.partition(" ")
    if mechanism.upper() == "PLAIN":
        given = await _given(initial.strip(), "", ask)
        if isinstance(given, SmtpReply):
            return given
        return _plain(given)
    if mechanism.upper() != "LOGIN":
        return SmtpReply(504, "5.5.4", f"there are: {MECHANISMS}", ours=True)
    name = await _given(initial.strip(), "Username:", ask)
    if isinstance(name, SmtpReply):
        return name
    password = await _given("", "Password:", ask)
    if isinstance(password, SmtpReply):
        return password
    return _named(name, password)


def _plain(given: bytes) -> Credentials | SmtpReply:
    """Of PLAIN: whom to act as, the user, the password. No user acts as another one."""
    parts = given.split(b"\0")
    if len(parts) != 3:  # noqa: PLR2004 - the parts of RFC 4616
        return replies.UNREADABLE_LOGIN
    acts_as, name, password = parts
    if acts_as not in {b"", name}:
        return replies.WRONG_LOGIN
    return _named(name, password)


def _named(name: bytes, password: bytes) -> Credentials | SmtpReply:
    if not name or not password:
        return replies.UNREADABLE_LOGIN
    try:
        return name.decode(), password
    except UnicodeDecodeError:
        return replies.UNREADABLE_LOGIN


async def _given(initial: str, challenge: str, ask: AskClient) -> bytes | SmtpReply:
    """What the client says in base64: with the command, where `=` is nothing, or to a challenge."""
    if initial == "=":
        return b""
    line: bytes | None = initial.encode("ascii", "replace")
    if not initial:
        line = await ask(b64encode(challenge.encode()).decode())
    if line is None:
        return SmtpReply(500, "5.5.6", "the line is too long", ours=True)
    if line == b"*":
        return SmtpReply(501, "5.7.0", "the login is given up", ours=True)
    try:
        return b64decode(line, validate=True)
    except NotBase64:
        return replies.UNREADABLE_LOGIN
