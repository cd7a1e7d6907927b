"""`mailmend suspend list --exceeded`: entries of counters whose thresholds are exceeded now.

Only the servers know what they are delivering, so the command asks them over HTTP, as `mailmend
delivery explain` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from mailmend.admin.delivery.explain import asked, parse_server, refusal, token_in
from mailmend.admin.delivery.explain_answers import SHARE, VALUES_EXPLANATION
from mailmend.admin.delivery.orders import ListOrdersRequest, list_orders
from mailmend.admin.delivery.orders_document import list_document
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import printable
from mailmend.admin.queue.request import queue_document
from mailmend.model.errors import CannotReach, ExitCode, WrongUse
from mailmend.model.json_forms import JsonField, JsonForm

EXCEEDED_SHOWN: Final = 100
EXCEEDED_MAX: Final = 10_000
_ASKED: Final = 1_000
"""How many entries the command asks of each server: a person reads the first ones."""

_ENTRY: Final = JsonForm(
    body="ExceededEntryBody",
    about="What is counted together, and lets no delivery begin now.",
    answers={
        **SHARE.answers,
        "since": JsonField(datetime | None, "null: it is not known.", None),
        "waiting": JsonField(int, "Mails that wait at this server, and that it counts.", None),
        "why": JsonField(str, attribute=None),
    },
)
EXCEEDED: Final = JsonForm(
    body="ExceededAnswer",
    about="The entries of one server whose thresholds are exceeded now.",
    answers={
        **{name: VALUES_EXPLANATION.answers[name] for name in ("server", "at", "queue")},
        "count": JsonField(int, "How many there are; the answer may have fewer."),
        "exceeded": JsonField(_ENTRY, "The ones for which most mails wait first.", None, many=True),
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSuspensionsRequest(ListOrdersRequest):
    """List suspensions, or with `exceeded` the entries whose thresholds are exceeded.

    Attributes:
        ask: the servers.
        token_file: whose first word is the token; None: MAILMEND_TOKEN has it, or none is needed.
        ask_tls_ca: certificates of the authorities that are trusted; None: the system's.
    """

    exceeded: bool = False
    ask: tuple[str, ...] = ()
    token_file: Path | None = None
    ask_tls_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ExceededOfServers:
    """What servers answered.

    Attributes:
        answers: by the address of the server.
        unreached: why others did not answer.
    """

    request: ListSuspensionsRequest
    answers: Mapping[str, Mapping[str, Any]]
    unreached: Mapping[str, str]

    @property
    def exit(self) -> ExitCode:
        if self.unreached:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def list_suspensions(request: ListSuspensionsRequest, caller: Caller) -> Any:
    """As `list_orders`; or an `ExceededOfServers`.

    Raises:
        WrongUse: it is not said which servers are asked.
        AccessDenied: a server does not take the token.
        CannotReach: no server answers, or the ledger cannot be reached.
    """
    if not request.exceeded:
        _refuse_servers(request)
        return list_orders(request, caller)
    if not request.ask:
        mend = "Name each server of the queue: --ask http://127.0.0.1:8000"
        raise WrongUse("it is not said which server is asked", mend=mend)
    servers = {url: parse_server(url) for url in request.ask}
    token = token_in(request.token_file)
    answers = dict[str, Mapping[str, Any]]()
    unreached = dict[str, str]()
    refused = list[Exception]()
    path = f"/suspensions/exceeded?limit={_ASKED}"
    for url, server in servers.items():
        try:
            answer = asked(server, path, token, request.ask_tls_ca)
        except CannotReach as error:
            unreached[url] = error.what
            continue
        if answer.status != HTTPStatus.OK:
            refused.append(refusal(url, answer))
            unreached[url] = str(refused[-1])
            continue
        if not isinstance(answer.body, Mapping) or answer.body.get("queue") != request.queue:
            unreached[url] = f"{url} does not deliver the queue {request.queue}"
            continue
        if not _is_complete(answer.body):
            unreached[url] = f"{url} gave an answer that this version cannot read"
            continue
        answers[url] = answer.body
    if not answers and refused:
        raise refused[0]
    if not answers:
        mend = "Is a server of the queue there, with --http at that address?"
        raise CannotReach("; ".join(unreached.values()), mend=mend)
    return ExceededOfServers(request, answers, unreached)


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Whether an answer has what is shown of it."""
    entries = answer.get("exceeded")
    if not isinstance(entries, list) or not isinstance(answer.get("count"), int):
        return False
    texts = (answer.get("server"), answer.get("at"))
    return all(isinstance(text, str) for text in texts) and all(map(_is_entry, entries))


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("waiting"), int):
        return False
    times = [entry.get(name, 0) for name in ("since", "free_at")]
    return isinstance(entry.get("why"), str) and all(isinstance(at, str | None) for at in times)


def _refuse_servers(request: ListSuspensionsRequest) -> None:
    if request.ask:
        mend = "What servers count is listed with --exceeded."
        raise WrongUse("no server is asked for suspensions: the ledger has them", mend=mend)
    if request.token_file or request.ask_tls_ca:
        mend = "Add --exceeded and --ask, or leave --token-file and --ask-tls-ca out."
        raise WrongUse("--token-file and --ask-tls-ca are for servers that are asked", mend=mend)


def suspensions_document(result: Any) -> Document:
    if isinstance(result, ExceededOfServers):
        return _exceeded_document(result)
    return list_document(result)


def _exceeded_document(result: ExceededOfServers) -> Document:
    json = {
        "servers": [{"url": url, **answer} for url, answer in result.answers.items()],
        "unreached": dict(result.unreached),
    }
    body = list[Part]()
    for url, answer in result.answers.items():
        server = printable(f"{answer['server']} ({url}), {answer['at']}")
        if not answer["exceeded"]:
            body.append(f"{server}: no threshold is exceeded.")
            continue
        rows = [_row(entry) for entry in answer["exceeded"]]
        title = f"Exceeded at {server}"
        body.append(Grid(title, _COLUMNS, rows, frozenset(_COLUMNS[1:])))
        hidden = answer["count"] - len(rows)
        if hidden > 0:
            body.append(f"{hidden:,} more are exceeded there.")
    hints = [printable(why) for why in result.unreached.values()]
    return queue_document(result, json, body, hints)


_COLUMNS: Final = ("waiting", "since", "until", "what is exceeded")


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{entry['waiting']:,}",
        _time(entry["since"], "not known"),
        _time(entry["free_at"], "one ends"),
        printable(entry["why"]),
    )


def _time(at: str | None, otherwise: str) -> str:
    if at is None:
        return otherwise
    return at.replace("T", " ").partition(".")[0]
