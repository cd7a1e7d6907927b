"""`mailmend delivery top`: the sub-queues of a queue as its servers have them now, again and again.

The command asks running servers over HTTP, and adds up what they answer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import SplitResult, urlencode

import click

from mailmend.admin.delivery.explain import (
    ASK_OPTIONS,
    HttpAnswer,
    asked,
    parse_server,
    refusal,
    token_in,
)
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import printable, shown
from mailmend.admin.queue.options import QUEUE_NAME
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.errors import AccessDenied, CannotReach, ExitCode, WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.texts import cut
from mailmend.repair.clock import SystemClock

ROWS_MAX: Final = 1_000
"""The largest number of sub-queues of one look."""

_ROWS: Final = 20
_ANSWER_SECONDS: Final = 5
"""How long a server may take: the next look is not far."""

_ASKED_AT_ONCE: Final = 16
_INTERVAL_MAX: Final = timedelta(hours=1)
_REPLY_BYTES: Final = 60
_SUMS: Final = ("waiting", "in_hand", "backlog", "going", "delivered", "refused", "failed")
_PAPER_COLUMNS: Final = 160
_WRAPPED: Final = frozenset({"last reply"})
_QUIT: Final = ("q", "Q")


class SubQueueField(Enum):
    """What sub-queues are told apart by; the value is its name in commands and over HTTP."""

    DOMAIN = "domain"
    TENANT = "tenant"
    SOURCE = "source"
    TRANSPORT = "transport"
    JOB = "job"
    GROUPING = "grouping"

    @property
    def pickup_field(self) -> PickupField:
        """The field of policies."""
        return _PICKUP_FIELDS[self]

    @classmethod
    def of(cls, named: PickupField) -> Self:
        """The one of a field of policies."""
        return next(field for field in cls if field.pickup_field is named)


_PICKUP_FIELDS: Final = {
    SubQueueField.DOMAIN: PickupField.RECIPIENT_DOMAIN,
    SubQueueField.TENANT: PickupField.TENANT_ID,
    SubQueueField.SOURCE: PickupField.LOCAL_IP,
    SubQueueField.TRANSPORT: PickupField.TRANSPORT_ID,
    SubQueueField.JOB: PickupField.JOB_ID,
    SubQueueField.GROUPING: PickupField.GROUPING,
}

BY_DEFAULT: Final = (SubQueueField.DOMAIN, SubQueueField.TENANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRequest:
    """Which sub-queues, how often, and which servers are asked.

    Attributes:
        by: (): by domain and tenant.
        limit: the largest number of rows.
        ask: the servers.
        token_file: as of `mailmend delivery explain`.
    """

    queue: QueueName
    by: tuple[SubQueueField, ...] = ()
    interval: timedelta = timedelta(seconds=2)
    limit: int = _ROWS
    once: bool = False
    plain: bool = False
    ask: tuple[str, ...] = ()
    token_file: Path | None = None
    ask_tls_ca: Path | None = None

    @property
    def fields(self) -> tuple[SubQueueField, ...]:
        """What sub-queues are told apart by, each once."""
        return tuple(dict.fromkeys(self.by)) or BY_DEFAULT


@dataclass(frozen=True, slots=True)
class TopLook:
    """What servers answered at one moment.

    Attributes:
        answers: by address of the server.
        unreached: why others did not answer.
        rows: the sums of the answers, in the form of one answer; the most waiting mails come first.
        left_out: how many more there are, at most.
    """

    request: TopRequest
    answers: Mapping[str, Mapping[str, Any]]
    unreached: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    left_out: int

    @property
    def exit(self) -> ExitCode:
        """PARTLY_FAILED where a server did not answer."""
        if self.unreached:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE

    @property
    def counted_seconds(self) -> int:
        """For how long servers count the end of an attempt."""
        return max((answer["counted_seconds"] for answer in self.answers.values()), default=0)

    def sum_of(self, name: str) -> int:
        """The sum of the servers' own totals."""
        return sum(answer[name] for answer in self.answers.values())


@dataclass(frozen=True, slots=True)
class TopResult:
    """How the command ended.

    Attributes:
        last: None: it was ended before the first look.
        is_shown: whether stdout has the last look already.
    """

    request: TopRequest
    looks: int
    last: TopLook | None
    is_shown: bool = False


def top(request: TopRequest, caller: Caller) -> TopResult:
    """Look at the sub-queues until a person ends it, or once.

    Raises:
        WrongUse: it is not said whom to ask, or a server delivers another queue.
        AccessDenied: a server does not take the token.
        CannotReach: none of the servers answers the first look.
    """
    servers = AskedServers(request)
    if caller.stdout_is_json:
        if request.once:
            return TopResult(request, 1, servers.first_look())
        return _followed(servers, caller.item)
    if request.once and not request.plain:
        return TopResult(request, 1, servers.first_look())
    from mailmend.admin.frame.live import documents_shown  # noqa: PLC0415 - brings rich

    with documents_shown(plain=request.plain) as series:
        result = _followed(servers, lambda look: series.draw(look_document(look)))
        return replace(result, is_shown=not series.redraws)


def _followed(servers: "AskedServers", show: Callable[[TopLook], None]) -> TopResult:
    """Look again and again, until q or Ctrl-C is typed."""
    from mailmend.admin.frame.live import keys_typed  # noqa: PLC0415 - as above

    request = servers.request
    clock = SystemClock()
    looks = 0
    last: TopLook | None = None
    with suppress(KeyboardInterrupt), keys_typed(clock) as key_within:
        pressed = ""
        while pressed not in _QUIT:
            began_at = clock.monotonic()
            if last is None:
                last = servers.first_look()
            else:
                last = servers.look()
            looks += 1
            show(last)
            if request.once:
                break
            rests = began_at + request.interval.total_seconds() - clock.monotonic()
            pressed = key_within(max(0.0, rests))
    return TopResult(request, looks, last)


class AskedServers:
    """The servers of a request, and the token that they know.

    Raises:
        WrongUse: it is not said whom to ask.
    """

    def __init__(self, request: TopRequest) -> None:
        if not request.ask:
            mend = f"Name it: mailmend delivery top {request.queue} --ask http://127.0.0.1:8000"
            raise WrongUse("it is not said which server is asked", mend=mend)
        self.request = request
        self._servers = {url: parse_server(url) for url in request.ask}
        self._token = token_in(request.token_file)
        # A sub-queue that is small on each server may be large in their sum.
        limit = request.limit
        if len(self._servers) > 1:
            limit = ROWS_MAX
        words = [("by", named.value) for named in request.fields]
        self._path = f"/sub-queues?{urlencode([*words, ('limit', limit)])}"

    def first_look(self) -> TopLook:
        """Ask all of them.

        Raises:
            CannotReach: none of them answers.
            AccessDenied: one does not take the token.
            WrongUse: one delivers another queue.
        """
        look = self.look()
        if not look.answers:
            mend = "Is a server there, with --http at that address?"
            raise CannotReach("; ".join(look.unreached.values()), mend=mend)
        return look

    def look(self) -> TopLook:
        """Ask all of them; the ones that do not answer are named."""
        answers = dict[str, Mapping[str, Any]]()
        unreached = dict[str, str]()
        with ThreadPoolExecutor(min(len(self._servers), _ASKED_AT_ONCE)) as threads:
            came = threads.map(self._asked, self._servers.values())
            for url, answer in zip(self._servers, came, strict=True):
                if isinstance(answer, CannotReach):
                    unreached[url] = answer.what
                elif answer.status == HTTPStatus.OK:
                    answers[url] = self._understood(url, answer.body)
                else:
                    refused = refusal(url, answer)
                    if isinstance(refused, AccessDenied):
                        raise refused
                    unreached[url] = refused.what
        rows = summed_rows(answers.values(), [named.value for named in self.request.fields])
        limit = self.request.limit
        left_out = max(0, len(rows) - limit)
        left_out += sum(answer["left_out"] for answer in answers.values())
        return TopLook(self.request, answers, unreached, rows[:limit], left_out)

    def _asked(self, server: SplitResult) -> HttpAnswer | CannotReach:
        try:
            return asked(server, self._path, self._token, self.request.ask_tls_ca, _ANSWER_SECONDS)
        except CannotReach as error:
            return error

    def _understood(self, url: str, body: Any) -> Mapping[str, Any]:
        if not isinstance(body, Mapping) or "sub_queues" not in body:
            what = f"{url} is not a server of deliveries"
            raise CannotReach(what, mend="Is it the right address?")
        if body["queue"] != self.request.queue:
            what = f"{url} delivers {body['queue']}, not {self.request.queue}"
            raise WrongUse(what, mend="Name its queue, or ask another server.")
        return body


def summed_rows(answers: Iterable[Mapping[str, Any]], by: Sequence[str]) -> list[Mapping[str, Any]]:
    """The sub-queues of several servers, added up; the ones with the most waiting mails first.

    The reply is the last one. Why the mails wait, and until when, is of the server with the most
    waiting mails.
    """
    alike = dict[tuple[str, ...], list[tuple[str, Mapping[str, Any]]]]()
    for answer in answers:
        for row in answer["sub_queues"]:
            key = tuple(row["values"][name] for name in by)
            alike.setdefault(key, []).append((answer["server"], row))
    rows = [_summed(some) for some in alike.values()]
    return sorted(rows, key=_rank)


def _rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (-row["waiting"], -row["going"], *row["values"].values())


def _summed(alike: Sequence[tuple[str, Mapping[str, Any]]]) -> Mapping[str, Any]:
    _, most = max(alike, key=lambda of_server: of_server[1]["waiting"])
    replies = [row["reply"] for _, row in alike if row["reply"]]
    sources = set[str]()
    sums = Counter[str]()
    for _, row in alike:
        sources.update(row["sources"])
        sums.update({name: row[name] for name in _SUMS})
    return {
        "values": most["values"],
        **sums,
        "sources": sorted(sources),
        "reply": max(replies, key=lambda reply: reply["at"], default=None),
        "cause": most["cause"],
        "why": most["why"],
        "until": most["until"],
        "servers": sorted({server for server, row in alike if row["waiting"] or row["going"]}),
    }


def look_json(look: TopLook) -> dict[str, Any]:
    """One look as JSON."""
    servers = list[Mapping[str, Any]]()
    for url, answer in look.answers.items():
        servers.append({"url": url, "server": answer["server"], "at": answer["at"]})
    return {
        "queue": look.request.queue,
        "by": [named.value for named in look.request.fields],
        "servers": servers,
        "unreached": dict(look.unreached),
        "counted_seconds": look.counted_seconds,
        "waiting": look.sum_of("waiting"),
        "going": look.sum_of("going"),
        "sub_queues": list(look.rows),
        "left_out": look.left_out,
        "exit": int(look.exit),
    }


def top_document(result: TopResult) -> Document:
    """The look of `--once`; else what is left to say at the end."""
    body: Sequence[Part] = ()
    if result.last is not None:
        last = look_document(result.last)
        if not result.is_shown:
            body = last.body
        if result.request.once:
            return replace(last, body=body)
    return Document({"queue": result.request.queue, "looks": result.looks, "exit": 0}, body)


def look_document(look: TopLook) -> Document:
    """One look as a table; texts of servers steer no terminal."""
    return Document(look_json(look), list(_parts(look)), look.exit)


def _parts(look: TopLook) -> Iterator[Part]:
    names = list[str]()
    for answer in look.answers.values():
        names.append(f"{printable(str(answer['server']))}, {_clock_text(answer['at'])}")
    yield f"{look.request.queue} on {'; '.join(names) or 'no server'}"
    yield f"Waiting {look.sum_of('waiting'):,}, going {look.sum_of('going'):,}."
    for url, reason in look.unreached.items():
        yield printable(f"No answer: {url}: {reason}")
    if not look.rows:
        yield "No sub-queue waits, and no attempt ended in the last minute."
        return
    fields = [named.value for named in look.request.fields]
    columns = [*fields, "waiting", "going", "per minute", "last reply", "why", "until"]
    if SubQueueField.SOURCE not in look.request.fields:
        columns.insert(len(fields), SubQueueField.SOURCE.value)
    rows = list[list[str]]()
    for row in look.rows:
        cells = _cells(row)
        rows.append([cells[column] for column in columns])
    yield Grid("Sub-queues", columns, rows, _WRAPPED, paper_columns=_PAPER_COLUMNS)
    if look.left_out:
        yield f"Sub-queues that are not shown: {look.left_out:,}. Show more with --rows."


def _cells(row: Mapping[str, Any]) -> Mapping[str, str]:
    """The cells of a row, by their columns."""
    per_minute = f"{row['delivered']:,}"
    not_delivered = row["refused"] + row["failed"]
    if not_delivered:
        per_minute = f"{per_minute}; refused {not_delivered:,}"
    reply = ""
    if row["reply"]:
        reply = cut(row["reply"]["text"], _REPLY_BYTES)
    until = ""
    if row["until"]:
        until = _clock_text(row["until"])
    return {
        SubQueueField.SOURCE.value: ", ".join(row["sources"]),
        **row["values"],
        "waiting": f"{row['waiting']:,}",
        "going": f"{row['going']:,}",
        "per minute": per_minute,
        "last reply": reply,
        "why": row["cause"],
        "until": until,
    }


def _clock_text(at: str) -> str:
    """An instant of an answer, in UTC."""
    with suppress(ValueError):
        return shown(datetime.fromisoformat(at))
    return at


TOP: Final = Command(
    name="top",
    summary="Watch sub-queues: how many mails wait or go, the last reply, why and until when.",
    about="""The command asks running servers over HTTP: the servers that `mailmend delivery
    serve --http` began. The sums are of all servers that are named, and a server that does not
    answer is named. The sub-queue with the most waiting mails comes first. On a terminal the table
    is drawn again every --interval; q or Ctrl-C ends it. Without a terminal, or with --plain, each
    look is a block of lines without control codes.

    Waiting: recipients whose mail a server has in hand, and mails in the backlogs of the servers.
    Deferred and held mails are not counted: `mailmend delivery group` counts them. Going:
    attempts under way. Per minute: recipients that were delivered in the last minute, and how
    many were refused. A server remembers the last reply of the 2,000 sub-queues that it tried
    last. The reason and the time are of the first mail that waits; `mailmend delivery explain`
    says more of it.

    A look reads neither Cassandra nor the broker. With --json each look is one object on a line;
    without --once a last object says how many looks there were.""",
    service="mailmend.admin.delivery.top:top",
    present="mailmend.admin.delivery.top:top_document",
    item="mailmend.admin.delivery.top:look_json",
    options=(
        click.Argument(["queue"], type=QUEUE_NAME, metavar="QUEUE"),
        option(
            "--by",
            "Field to count by; may be given again. [default: domain and tenant]",
            type=click.Choice(list(SubQueueField), case_sensitive=False),
            multiple=True,
            metavar="FIELD",
        ),
        option(
            "--interval",
            "Time between two looks.",
            type=Duration(_INTERVAL_MAX, zero=False),
            default="2s",
        ),
        option(
            "--rows",
            "Maximum number of sub-queues.",
            "limit",
            type=click.IntRange(1, ROWS_MAX),
            default=_ROWS,
            metavar="N",
        ),
        flag("--once", "End after one round."),
        flag("--plain", "Write lines without control codes, one block a look."),
        *ASK_OPTIONS,
    ),
    alone={"once": ("interval",)},
    examples="""
        mailmend delivery top outgoing --ask http://127.0.0.1:8000
        mailmend delivery top outgoing --by tenant --by job --ask https://mx1.example.org:8443 \\
            --ask https://mx2.example.org:8443 --token-file ~/.mailmend-token
        mailmend delivery top outgoing --once --json --ask http://127.0.0.1:8000""",
    exits="0 done, also where a person ended it; 2 wrong use, or the token would go in the clear; "
    "with --once 3 some server did not answer; 4 none answered the first look, or a server does "
    "not know the token.",
)
