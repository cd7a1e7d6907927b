"""`mailmend delivery explain`: why a mail waits.

The command asks running servers over HTTP.
"""

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import click

from mailmend.admin.delivery.options import MAIL_FIELDS, mail_option
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import reason_of
from mailmend.admin.frame.values import printable
from mailmend.model.errors import (
    AccessDenied,
    BadSettings,
    CannotReach,
    ExitCode,
    MailmendError,
    NotThere,
    UnsafeRequest,
    WrongUse,
)
from mailmend.model.grammar import can_be_looked_up, is_here
from mailmend.repair.http_client import NoAnswer, ask

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


def asked(
    server: SplitResult,
    path: str,
    token: str | None,
    authorities: Path | None,
    seconds: float = ANSWER_SECONDS,
) -> HttpAnswer:
    """What a server answers to a GET, within some seconds.

    Raises:
        UnsafeRequest: the token would go over the network in the clear.
        CannotReach: it does not answer, is not who it says, or answers something else.
    """
    host = server.hostname or ""
    place = f"{server.hostname}:{server.port}"
    trusted = None
    if server.scheme == "https":
        trusted = _trusted(authorities)
    elif token and not is_here(host):
        raise UnsafeRequest(f"the token would go to {place} in the clear", mend="Ask over https://.")
    headers = {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    url = f"{server.scheme}://{server.netloc}{path}"
    try:
        answer = ask(
            "GET",
            url,
            seconds=seconds,
            bytes_max=_ANSWER_BYTES_MAX,
            headers=headers,
            trusted=trusted,
        )
        return HttpAnswer(answer.status, json.loads(answer.content))
    except NoAnswer as error:
        raise CannotReach(
            f"{place} does not answer: {error.what}", mend="Is it there, with --http at that address?"
        ) from error
    except ValueError as error:
        raise CannotReach(
            f"{place} answers, but is not a server of mailmend", mend="Is it the right address?"
        ) from error


def _trusted(authorities: Path | None) -> ssl.SSLContext:
    file = None
    if authorities:
        file = str(authorities.expanduser())
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"{authorities} holds no certificates: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainWaitRequest:
    """Why a mail waits.

    Attributes:
        id: of a mail, or `mail:number`; None: of one that is not there, with these values.
        values: by the names that servers know.
        ask: the servers.
        token_file: whose first word is the token; None: MAILMEND_TOKEN has it, or none is needed.
        ask_tls_ca: certificates of the authorities that are trusted; None: the system's.
    """

    id: str | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ask: tuple[str, ...] = ()
    token_file: Path | None = None
    ask_tls_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    """What servers answered.

    Attributes:
        answers: by server: all that have the mail, or one where none has; of a mail that is not there, all.
        unreached: why others did not answer.
    """

    request: ExplainWaitRequest
    answers: Mapping[str, Mapping[str, Any]]
    unreached: Mapping[str, str]

    @property
    def exit(self) -> ExitCode:
        if self.unreached:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def explain(request: ExplainWaitRequest, _: Caller) -> WaitExplanation:
    """Ask each server.

    Raises:
        WrongUse: it is not said which mail, or whom to ask.
        NotThere: no server knows such a mail, nor its queue.
        AccessDenied: a server does not take the token.
        CannotReach: none of them answers.
    """
    if not request.ask:
        raise WrongUse("it is not said which server is asked", mend="Name it: --ask http://127.0.0.1:8000")
    if (request.id is None) == (not request.values):
        raise WrongUse("it is not said which mail", mend="Give the id of one, or what it would be like: --domain ...")
    servers = {url: parse_server(url) for url in request.ask}
    token = token_in(request.token_file)
    path = f"/explain?{urlencode(request.values, doseq=True)}"
    if request.id is not None:
        path = f"/explain/{quote(request.id, safe='')}"
    answers = dict[str, HttpAnswer]()
    unreached = dict[str, str]()
    for url, server in servers.items():
        try:
            answers[url] = asked(server, path, token, request.ask_tls_ca)
        except CannotReach as error:
            unreached[url] = error.what
    if not answers:
        raise CannotReach("; ".join(unreached.values()), mend="Is a server there, with --http at that address?")
    return WaitExplanation(request, _understood(answers), unreached)


def _understood(answers: Mapping[str, HttpAnswer]) -> Mapping[str, Mapping[str, Any]]:
    """The answers of the servers that have the mail, else the first answer."""
    known = {url: answer.body for url, answer in answers.items() if answer.status == HTTPStatus.OK}
    if not known:
        url, answer = next(iter(answers.items()))
        raise refusal(url, answer)
    have = dict[str, Mapping[str, Any]]()
    by_values = dict[str, Mapping[str, Any]]()
    for url, body in known.items():
        if "entries" not in body:
            by_values[url] = body
        elif any(entry["here"] for entry in body["entries"]):
            have[url] = body
    if have or by_values:
        return have or by_values
    url, body = next(iter(known.items()))
    return {url: body}


def refusal(url: str, answer: HttpAnswer) -> MailmendError:
    """The error that a server's answer is."""
    said: Mapping[str, Any] = {}
    if isinstance(answer.body, Mapping):
        said = answer.body
    what = f"{url}: {said.get('message') or f'status {answer.status}'}"
    mend = str(said.get("details") or "")
    match answer.status:
        case HTTPStatus.NOT_FOUND:
            return NotThere(what, mend=mend)
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return AccessDenied(what, mend="Name the file of a token that it knows with --token-file.")
        case HTTPStatus.BAD_REQUEST:
            return WrongUse(what, mend=mend)
        case _:
            return CannotReach(what, mend=mend)


def token_in(file: Path | None) -> str | None:
    """The token of a file, else of MAILMEND_TOKEN; None without one.

    Raises:
        BadSettings: the file does not hold one token alone.
    """
    if file is None:
        return os.environ.get("MAILMEND_TOKEN") or None
    try:
        words = file.expanduser().read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"token file {file} cannot be read: {reason_of(error)}") from error
    if len(words) != 1:
        raise BadSettings(f"token file {file} does not hold one token alone", mend="The token, and nothing else.")
    return words[0]


def wait_document(result: WaitExplanation) -> Document:
    """The servers' own sentences; their figures are in the JSON."""
    figures = {
        "servers": [{"url": url, **answer} for url, answer in result.answers.items()],
        "unreached": dict(result.unreached),
        "exit": int(result.exit),
    }
    body = list[Part]()
    for url, answer in result.answers.items():
        body += _parts(url, answer)
    return Document(figures, body, result.exit, [printable(reason) for reason in result.unreached.values()])


def _parts(url: str, answer: Mapping[str, Any]) -> Iterator[Part]:
    yield f"{printable(str(answer['server']))} ({url}), queue {printable(str(answer['queue']))}, {answer['at']}"
    for entry in answer.get("entries", ()):
        where = entry["stage"]
        if not entry["here"]:
            where = f"{where}, not with this server"
        yield f"{printable(entry['id'])}, {printable(entry['recipient'])}: {where}"
        for reason in entry["why"]:
            yield f"    {printable(reason)}"
    if "entries" not in answer:
        named = ", ".join(f"{name} {text}" for name, text in answer["mail"].items())
        yield printable(f"A mail with {named or 'nothing of its own'}")
        for reason in answer["why"]:
            yield f"    {printable(reason)}"


def _mail_values(own: Values, _others: Values, _context: click.Context) -> dict[str, tuple[str, ...]]:
    values = dict[str, tuple[str, ...]]()
    for name, value in own.items():
        if not value:
            continue
        if isinstance(value, tuple):
            values[name] = value
        else:
            values[name] = (value,)
    return values


_OF_A_MAIL: Final = Shared(
    "values",
    {
        "Of a mail that is not there": tuple(map(mail_option, MAIL_FIELDS)),
    },
    _mail_values,
)

ASK_OPTIONS: Final = (
    option(
        "--ask",
        "A server to ask; may be given again: name all servers of the queue.",
        multiple=True,
        metavar="URL",
    ),
    option(
        "--token-file",
        "A file with a token that the server knows, and nothing else; or MAILMEND_TOKEN has it.",
        type=FILE,
        metavar="FILE",
    ),
    option(
        "--ask-tls-ca",
        "Certificates of the authorities that are trusted to know the server. [default: the system's]",
        type=FILE,
        metavar="FILE",
    ),
)
"""The servers that are asked over HTTP, and how."""

EXPLAIN: Final = Command(
    name="explain",
    summary="Say why a mail waits: on what, until when, and from which address it will go.",
    about="""The command asks running servers over HTTP: the servers that `mailmend delivery serve --http` began. The
    server that has the mail tells at which stage each recipient is; which policies refuse it, as what they count it,
    with how many deliveries or from when; who suspended it; which of its addresses are left; and how many mails come
    before it. If no server has the mail, the answer is what the queue knows: until when it is deferred, or by whom it
    is held and why.

    Without ID the answer is what would hold now for a mail with these values, as `mailmend policy explain` does for a
    file alone.""",
    service="mailmend.admin.delivery.explain:explain",
    present="mailmend.admin.delivery.explain:wait_document",
    paged=True,
    options=(
        click.Argument(["id"], metavar="[ID]", required=False),
        *ASK_OPTIONS,
    ),
    shared=(_OF_A_MAIL,),
    examples="""
        mailmend delivery explain 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002 --ask http://127.0.0.1:8000
        mailmend delivery explain 6e0ab5e0-8d1c-41f0-9a5e-0242ac120002:3 --ask https://mx1.example.org:8443 \\
            --ask https://mx2.example.org:8443 --token-file ~/.mailmend-token
        mailmend delivery explain --domain example.org --ask http://127.0.0.1:8000      what would hold for another""",
    exits="0 it was explained; 2 wrong use, no such mail, or the token would go in the clear; 3 some server did not "
    "answer, 4 none did, or none knows the token.",
)
