"""Who is signed in at the page, and the secrets of its forms. Both end with the server."""

import hmac
import secrets
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from mailmend.admin.frame.http.access import AccessToken, TokenRole
from mailmend.model.ports import Clock

SESSIONS_MAX: Final = 200
"""Sessions at once; the one that was used least recently ends when another person signs in."""

SESSIONS_OF_NAME_MAX: Final = 10
"""Sessions at once of one token: a script that signs in ends no session of another token."""

IDLE_SECONDS: Final = 3_600.0
LIFE_SECONDS: Final = 12 * 3_600.0
_RANDOM_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PageSession:
    """A person who is signed in.

    Attributes:
        name: of the token, for the record.
        began_at, used_at: seconds of the monotonic clock.
    """

    name: str
    role: TokenRole
    began_at: float
    used_at: float

    def is_over(self, now: float) -> bool:
        return now - self.used_at > IDLE_SECONDS or now - self.began_at > LIFE_SECONDS


@dataclass(slots=True)
class PageSessions:
    """The sessions of one server, by the SHA-256 of their ids; one event loop uses them."""

    clock: Clock
    _open: dict[bytes, PageSession] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, token: AccessToken) -> str:
        """The id of a new session; of too many, the ones that were used least recently end."""
        now = self.clock.monotonic()
        self._end_those_over(now)
        of_name = [digest for digest, session in self._open.items() if session.name == token.name]
        self._end_oldest(of_name, SESSIONS_OF_NAME_MAX)
        self._end_oldest(list(self._open), SESSIONS_MAX)
        session_id = secrets.token_urlsafe(_RANDOM_BYTES)
        self._open[_digest(session_id)] = PageSession(token.name, token.role, now, now)
        return session_id

    def find(self, session_id: str) -> PageSession | None:
        """The session, which counts as used now; None: there is no such session, or it is over."""
        digest = _digest(session_id)
        found = self._open.get(digest)
        now = self.clock.monotonic()
        if found is None:
            return None
        if found.is_over(now):
            del self._open[digest]
            return None
        self._open[digest] = replace(found, used_at=now)
        return found

    def end(self, session_id: str) -> None:
        self._open.pop(_digest(session_id), None)

    def _end_those_over(self, now: float) -> None:
        for digest, session in list(self._open.items()):
            if session.is_over(now):
                del self._open[digest]

    def _end_oldest(self, digests: list[bytes], maximum: int) -> None:
        """Leave room for one more session."""
        digests.sort(key=lambda digest: self._open[digest].used_at)
        for digest in digests[: max(0, len(digests) - maximum + 1)]:
            del self._open[digest]


@dataclass(frozen=True, slots=True)
class FormTokens:
    """The hidden token of each form: it follows from a cookie and a key of this server."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(_RANDOM_BYTES), repr=False)

    def token(self, cookie: str) -> str:
        return hmac.new(self.key, cookie.encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def is_right(self, cookie: str, given: str) -> bool:
        expected = self.token(cookie).encode()
        stated = given.encode("utf-8", "surrogatepass")
        return bool(cookie) and hmac.compare_digest(expected, stated)


def new_form_cookie() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def _digest(session_id: str) -> bytes:
    return sha256(session_id.encode("utf-8", "surrogatepass")).digest()
