"""Where a server listens, and who may ask: bearer tokens with roles, and the options that say so.

Nothing here needs a web framework. A token is never shown again: what is kept of it is a digest.
"""

import hmac
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from mailmend.admin.frame.command import Shared, Values
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import parse_port, reason_of
from mailmend.model.errors import BadSettings, UnsafeRequest, WrongUse
from mailmend.model.grammar import can_be_looked_up, is_here
from mailmend.model.texts import wellformed

TOKEN_CHARACTERS_MIN: Final = 20
PORT_MAX: Final = 65_535
_EXAMPLE: Final = "Each line is NAME ROLE TOKEN, like: nightly-script repair 3f9c...; ROLE is read, operate or repair."


class TokenRole(IntEnum):
    """What a token may do; the higher one may do what the lower one may."""

    READ = 1
    OPERATE = 2
    REPAIR = 2  # the same, by the name that tokens of the server of jobs have


class Refusal(Exception):
    """Why a call is refused, with its HTTP status: 401 the caller is unknown, 403 the caller may not do that."""

    def __init__(self, status: int, what: str, who: str = "") -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.who = who


@dataclass(frozen=True, slots=True)
class AccessToken:
    """One token: whose it is, for the record, and its SHA-256."""

    name: str
    role: TokenRole
    digest: bytes


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. Without tokens every user of this machine may, but no web page that a user visits here."""

    tokens: tuple[AccessToken, ...] = ()

    def refuses_page(self, site: str | None) -> bool:
        """Whether a call comes from a web page of elsewhere, whose browser would send it without being asked.

        Args:
            site: Sec-Fetch-Site, which browsers send with each call, an `<img>` too; None: it was not sent.
        """
        return not self.tokens and site not in {None, "none", "same-origin"}

    def caller(self, token: str | None, role: TokenRole, *, host: str, origin: str | None) -> str:
        """The name of who asks; "" without tokens.

        Raises:
            Refusal: the caller is unknown, or may not do that.
        """
        if not self.tokens:
            if origin is not None or not is_here(_host_in(host)):
                raise Refusal(403, "Without tokens only programs of this machine may ask: not a web page")
            return ""
        found = self.known(token)
        if found is None:
            raise Refusal(401, "A bearer token is needed, and must be a known one")
        if found.role < role:
            role_name = found.role.name.lower()
            what = f"The token {found.name!r} may not do that: its role is {role_name}"
            raise Refusal(403, what, found.name)
        return found.name

    def known(self, token: str | None) -> AccessToken | None:
        """The token with this text; each one is compared, always."""
        digest = sha256((token or "").encode("utf-8", "surrogatepass")).digest()
        found = [known for known in self.tokens if hmac.compare_digest(known.digest, digest)]
        if not found:
            return None
        return found[0]


def _host_in(header: str) -> str:
    """The name in a Host header.

    Raises:
        Refusal: there is no such token.
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        raise Refusal(400, "The Host header is not a host") from None


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, whom to answer, and with which certificate."""

    host: str
    port: int
    access: Access = Access()
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class HttpFace:
    """Answers callers at a desk, until an event.

    Attributes:
        listen: the web server; it takes what is answered, where it listens, the desk and the event.
        api: what is answered.
    """

    listen: Callable[..., Any]
    api: Any
    listening: Listening

    def __call__(self, desk: Any, stop: Any) -> Any:
        return self.listen(self.api, self.listening, desk, stop)

    def of_process(self, number: int) -> "HttpFace":
        """The face of one of several processes, numbered from 1: each has the port behind the last.

        Raises:
            WrongUse: there is no such port.
        """
        port = self.listening.port
        if port:
            port += number - 1
        if port > PORT_MAX:
            what = f"process {number} would answer at port {port}, and {PORT_MAX} is the last one"
            raise WrongUse(what, mend="Name a lower port.")
        return replace(self, listening=replace(self.listening, port=port))


def parse_tokens(lines: Iterable[str], place: str) -> tuple[AccessToken, ...]:
    """Read tokens; no message shows one.

    Raises:
        BadSettings: a line is not a token.
    """
    tokens: dict[str, AccessToken] = {}
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[1].upper() not in TokenRole.__members__:  # noqa: PLR2004 - name, role, token
            raise BadSettings(f"{place}, line {number}: this is not a token", mend=_EXAMPLE)
        name, role, token = words
        if len(token) < TOKEN_CHARACTERS_MIN:
            raise BadSettings(
                f"{place}, line {number}: the token of {name!r} is shorter than {TOKEN_CHARACTERS_MIN} characters",
                mend="Make one: openssl rand -hex 32",
            )
        if wellformed(line) != line:
            raise BadSettings(f"{place}, line {number}: this is not UTF-8 text", mend="Make one: openssl rand -hex 32")
        if name in tokens:
            raise BadSettings(f"{place}, line {number}: {name!r} has a token already", mend="Give each its own name.")
        tokens[name] = AccessToken(name, TokenRole[role.upper()], sha256(token.encode()).digest())
    return tuple(tokens.values())


def read_tokens(file: Path | None, stated: str | None) -> tuple[AccessToken, ...]:
    """Tokens of a file, or of the environment.

    Raises:
        BadSettings: the file cannot be read, others may read it, or it has no token.
    """
    if file is None:
        if not stated:
            return ()
        return parse_tokens(stated.splitlines(), "MAILMEND_TOKENS")
    file = file.expanduser()
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"tokens file {file} cannot be read: {reason_of(error)}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise BadSettings(f"tokens file {file} may be read by others", mend=f"chmod 600 {file}")
    tokens = parse_tokens(text.splitlines(), str(file))
    if not tokens:
        raise BadSettings(f"tokens file {file} holds no token", mend=_EXAMPLE)
    return tokens


def parse_listening(
    where: str, tokens: tuple[AccessToken, ...], certificate: Path | None, key: Path | None, option: str = "--listen"
) -> Listening:
    """Where to listen, as `option` and the options of its certificate say.

    Raises:
        WrongUse: that is no address, or half of a certificate.
        UnsafeRequest: others could reach it, and it has no tokens, or no TLS.
    """
    try:
        parts = urlsplit(f"//{where}")
        host = parts.hostname
        port = parts.port
    except ValueError:
        host = port = None
    if host and not can_be_looked_up(host):
        host = None
    if not host or port is None or parts.path or parts.query or "@" in parts.netloc:
        raise WrongUse(f"{where!r} is not HOST:PORT", mend="Write it like 127.0.0.1:8000 or [::1]:8000.")
    if (certificate is None) != (key is None):
        raise WrongUse("a certificate and its key go together", mend=f"Give {option}-tls-cert and {option}-tls-key.")
    for file in (certificate, key):
        if file and not file.expanduser().is_file():
            raise BadSettings(f"{file} does not exist", mend=f"It was named by {option}-tls-cert or {option}-tls-key.")
    if not is_here(host) and not (tokens and certificate):
        raise UnsafeRequest(
            f"{host} can be reached from elsewhere, and any program that reaches it could give orders",
            mend=f"Give --tokens-file, {option}-tls-cert and {option}-tls-key, or listen on 127.0.0.1.",
        )
    place = certificate and certificate.expanduser(), key and key.expanduser()
    return Listening(host, parse_port(port), Access(tokens), *place)


LIMITS_ABOUT: Final = (
    "It takes 200 connections, 100 of one address, and answers 100 calls at once, 50 of one address; silent connections"
    " give way to new ones. docs/delivery-http.md has all limits."
)


def http_face(where: str, api: str, about: str) -> Shared:
    """The request's `face`: what answers at a desk until an event; None without an address.

    Args:
        where: the option that says so.
        api: the place of what is answered.
        about: what its help says.
    """
    name = where.removeprefix("--")

    def face(own: Values, _others: Values, _context: click.Context) -> Callable[..., Any] | None:
        place = own[name]
        file = own["tokens_file"]
        certificate = own[f"{name}_tls_cert"]
        key = own[f"{name}_tls_key"]
        if place is None:
            if file or certificate or key:
                raise WrongUse(f"tokens and a certificate are for {where}", mend=f"Give {where} HOST:PORT too.")
            return None
        tokens = read_tokens(file, os.environ.get("MAILMEND_TOKENS"))
        listening = parse_listening(place, tokens, certificate, key, where)
        listen = imported("mailmend.admin.frame.http.server:listen")
        return HttpFace(listen, imported(api), listening)

    options = (
        option(where, f"{about} {LIMITS_ABOUT}", metavar="HOST:PORT"),
        option(
            "--tokens-file",
            "Who may ask: lines of NAME, role (read, or operate: repair is the same) and TOKEN, mode 600; or "
            "MAILMEND_TOKENS has them.",
            type=FILE,
            metavar="FILE",
        ),
        option(f"{where}-tls-cert", "Certificate of this server, with its chain.", type=FILE, metavar="FILE"),
        option(f"{where}-tls-key", "Private key of that certificate.", type=FILE, metavar="FILE"),
    )
    return Shared("face", {"HTTP": options}, face)
