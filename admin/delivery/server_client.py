"""Asking our own servers over HTTP, with the standard library alone."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from mailmend.admin.frame.settings import is_here
from mailmend.model.errors import BadSettings, CannotReach, UnsafeRequest, WrongUse
from mailmend.model.grammar import can_be_looked_up

ANSWER_SECONDS: Final = 30
_ANSWER_BYTES_MAX: Final = 16_777_216


class HttpAnswer(NamedTuple):
    """A status, and the JSON that came with it."""

    status: int
    body: Any


def parse_server(url: str) -> SplitResult:
    """The address of a server: `http://HOST:PORT`, or https.

    Raises:
        WrongUse: it is not such an address.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port is not None
        known = known and can_be_looked_up(str(parts.hostname))
    except ValueError:
        known = False
    if not known or parts.path not in {"", "/"} or parts.query or "@" in parts.netloc:
        mend = "Write it like http://127.0.0.1:8000, or https://mx1.example.org:8443."
        raise WrongUse(f"{url!r} is no server", mend=mend)
    return parts


def asked(server: SplitResult, path: str, token: str | None, authorities: Path | None) -> HttpAnswer:
    """What a server answers to a GET.

    Raises:
        UnsafeRequest: the token would go over the network in the clear.
        CannotReach: it does not answer, is not who it says, or answers something else.
    """
    host = server.hostname or ""
    place = f"{server.hostname}:{server.port}"
    if server.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, server.port, timeout=ANSWER_SECONDS, context=_trusted(authorities)
        )
    elif token and not is_here(host):
        raise UnsafeRequest(f"the token would go to {place} in the clear", mend="Ask over https://.")
    else:
        connection = http.client.HTTPConnection(host, server.port, timeout=ANSWER_SECONDS)
    headers = {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return HttpAnswer(answer.status, json.loads(answer.read(_ANSWER_BYTES_MAX)))
    except (OSError, http.client.HTTPException) as error:
        raise CannotReach(
            f"{place} does not answer: {error}", mend="Is it there, with --http at that address?"
        ) from error
    except ValueError as error:
        raise CannotReach(
            f"{place} answers, but is not a server of mailmend", mend="Is it the right address?"
        ) from error
    finally:
        connection.close()


def _trusted(authorities: Path | None) -> ssl.SSLContext:
    file = None
    if authorities:
        file = str(authorities.expanduser())
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"{authorities} holds no certificates: {error.strerror or error}") from error
