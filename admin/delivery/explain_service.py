"""What running servers of deliveries know, asked over HTTP: why a mail waits."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from mailmend.admin.delivery.server_client import HttpAnswer, asked, parse_server
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.settings import reason_of
from mailmend.model.errors import AccessDenied, BadSettings, CannotReach, ExitCode, NotThere, WrongUse


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
        return ExitCode.PARTLY_FAILED if self.unreached else ExitCode.FINE


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
    token = _token(request.token_file)
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
    return WaitExplanation(request, dict(_understood(answers)), unreached)


def _understood(answers: Mapping[str, HttpAnswer]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The answers of those that have the mail, else the first."""
    known = {url: answer.body for url, answer in answers.items() if answer.status == HTTPStatus.OK}
    if not known:
        raise _refusal(*next(iter(answers.items())))
    have = {url: body for url, body in known.items() if any(entry["here"] for entry in body.get("entries", ()))}
    by_values = {url: body for url, body in known.items() if "entries" not in body}
    yield from (have or by_values or dict([next(iter(known.items()))])).items()


def _refusal(url: str, answer: HttpAnswer) -> Exception:
    said = answer.body if isinstance(answer.body, Mapping) else {}
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


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("MAILMEND_TOKEN") or None
    try:
        words = file.expanduser().read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"token file {file} cannot be read: {reason_of(error)}") from error
    if len(words) != 1:
        raise BadSettings(f"token file {file} does not hold one token alone", mend="The token, and nothing else.")
    return words[0]
