"""`mailmend delivery explain`: why a mail waits.

The command asks running servers over HTTP. A server's answer is made here too: figures for programs, and
sentences for people.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import click

from mailmend.admin.delivery.desk import MailExplanation, ServerMoment, ValuesExplanation
from mailmend.admin.delivery.entries import entry_order_json, intent_json, intent_text
from mailmend.admin.delivery.options import MAIL_FIELDS, mail_option
from mailmend.admin.delivery.orders_document import set_text, suspended_text
from mailmend.admin.delivery.policy_explain import refusals_json, share_json, suspension_numbers
from mailmend.admin.delivery.policy_texts import counted_json, counted_text, policy_path, suspension_path
from mailmend.admin.delivery.server_client import HttpAnswer, asked, parse_server
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import reason_of
from mailmend.admin.frame.values import instant_text, printable, shown
from mailmend.delivery.mail.entries import EntryStage, EntryState
from mailmend.delivery.mail.queued import EntryChange, QueuedEntry
from mailmend.delivery.policy.explaining import GATE, SUSPENDED, NextSource, PolicyShare, SourceExplanation
from mailmend.delivery.policy.policies import DocumentPath
from mailmend.delivery.policy.policy import CounterKey, PickupField
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail
from mailmend.delivery.server.explaining import EntryStanding
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
    return WaitExplanation(request, _understood(answers), unreached)


def _understood(answers: Mapping[str, HttpAnswer]) -> Mapping[str, Mapping[str, Any]]:
    """The answers of the servers that have the mail, else the first answer."""
    known = {url: answer.body for url, answer in answers.items() if answer.status == HTTPStatus.OK}
    if not known:
        url, answer = next(iter(answers.items()))
        raise _refusal(url, answer)
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


def _refusal(url: str, answer: HttpAnswer) -> Exception:
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


def wait_document(result: WaitExplanation) -> Document:
    """The servers' own sentences; their figures are in the JSON."""
    json = {
        "servers": [{"url": url, **answer} for url, answer in result.answers.items()],
        "unreached": dict(result.unreached),
        "exit": int(result.exit),
    }
    body = list[Part]()
    for url, answer in result.answers.items():
        body += _parts(url, answer)
    return Document(json, body, result.exit, [printable(reason) for reason in result.unreached.values()])


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


_AT_WORK: Final = {
    EntryStage.PRE_DELIVERY: "A hook decides about it, before its attempt.",
    EntryStage.DNS: "The servers of its domain are looked up.",
    EntryStage.POST_DELIVERY: "It was tried; what becomes of it is decided.",
}


def explanation_json(result: MailExplanation) -> dict[str, Any]:
    """A mail's recipients, each with all that is known of why it waits."""
    moment = result.moment
    entries = [_standing_json(standing, moment) for standing in result.here]
    if not entries:
        entries = [_queued_json(entry) for entry in result.queued]
    return {**_head(moment), "queue": moment.server.queue.name, "entries": entries}


def values_json(result: ValuesExplanation) -> dict[str, Any]:
    """What would hold for a mail with these values."""
    moment = result.moment
    why = [*_refusals(result.sources, moment), *_from_where(result.sources, result.goes, moment)]
    return {
        **_head(moment),
        "queue": moment.server.queue.name,
        "mail": _values(result.mail),
        "sources": [_source_json(source, moment) for source in result.sources],
        **_goes_json(result.goes, moment),
        "why": why,
    }


def _head(moment: ServerMoment) -> dict[str, Any]:
    return {"server": moment.server.settings.reporter, "at": instant_text(moment.at)}


def _standing_json(standing: EntryStanding, moment: ServerMoment) -> dict[str, Any]:
    held = standing.held
    entry = standing.entry
    stage = entry.stage
    if standing.ended:
        stage = EntryStage.GONE
    goes = standing.goes
    if standing.picked:
        goes = NextSource(standing.picked.source)
    counted_as = None
    if standing.counted:
        counted_as = _values(standing.counted)
    returns_at = None
    ahead = None
    if standing.sources:
        waits_until = held.taken_at + moment.server.settings.waiting_max.total_seconds() * SECOND
        returns_at = instant_text(moment.at_nanos(round(waits_until)))
        ahead = standing.ahead
    return {
        "id": str(entry.id),
        "recipient": entry.recipient,
        "here": True,
        "stage": stage.value,
        "since": instant_text(moment.at_nanos(held.taken_at)),
        "returns_at": returns_at,
        "expires_at": instant_text(moment.at_nanos(held.expires_at)),
        "due_at": None,
        "order": entry_order_json(entry.order),
        "after_attempt": intent_json(standing.after_attempt),
        "retries": entry.refusals,
        "reply": entry.reply or None,
        "host": entry.host or None,
        "counted_as": counted_as,
        "sources": [_source_json(source, moment) for source in standing.sources],
        **_goes_json(goes, moment),
        "ahead": ahead,
        "waits_on": [_place_json(place, moment) for place in standing.waits_on],
        "why": [*_sentences(standing, moment), *_intended(standing.after_attempt)],
    }


def _queued_json(one: QueuedEntry) -> dict[str, Any]:
    entry = one.entry
    return {
        "id": str(entry.id),
        "recipient": entry.recipient,
        "here": False,
        "stage": one.state.value,
        "since": None,
        "returns_at": None,
        "expires_at": instant_text(one.mail.expires_at),
        "due_at": instant_text(one.due_at),
        "order": entry_order_json(entry.order),
        "after_attempt": intent_json(one.after_attempt),
        "retries": entry.refusals,
        "reply": entry.reply or None,
        "host": entry.host or None,
        "counted_as": None,
        "sources": [],
        "goes_from": None,
        "goes_at": None,
        "ahead": None,
        "waits_on": [],
        "why": [_rests(one), *_intended(one.after_attempt)],
    }


def _intended(change: EntryChange | None) -> Iterator[str]:
    if change:
        yield f"If it is not delivered: {intent_text(change)}."


def _rests(queued: QueuedEntry) -> str:
    entry = queued.entry
    order = entry.order
    if order:
        what = "To be bounced by the next server that takes it"
        if queued.state is EntryState.HOLD:
            what = "Held"
        return f"{what}, by {order.owner} since {shown(order.at)}: {order.reason or 'no reason is given'}."
    if queued.due_at and entry.refusals:
        said = f"after {entry.refusals:,} refusals; the last one: {entry.reply}"
        return f"Deferred until {shown(queued.due_at)}, {said}."
    if queued.due_at:
        return f"Deferred until {shown(queued.due_at)}."
    return "Active, and not with this server: another one has it, or it is on its way to one."


def _sentences(standing: EntryStanding, moment: ServerMoment) -> Iterator[str]:
    if standing.ended:
        yield f"It has ended: {standing.ended.end.value}. Its mail is here until its other recipients have ended."
    elif standing.picked:
        values = standing.picked.mail.values
        by = ""
        if standing.picked.source:
            by = f" from {standing.picked.source}"
        host = values.get(PickupField.REMOTE_MX, "")
        address = values.get(PickupField.REMOTE_IP, "")
        yield f"It is being delivered to {host} ({address}){by}."
    elif standing.sources:
        yield from _refusals(standing.sources, moment)
        yield from _from_where(standing.sources, standing.goes, moment)
        if standing.ahead:
            yield f"Mails that are counted as it is and come before it: {standing.ahead:,}."
        returns_at = moment.at_nanos(standing.held.taken_at) + moment.server.settings.waiting_max
        yield f"If it is not picked until {shown(returns_at)} it goes back to the queue for a while."
    else:
        yield _AT_WORK.get(standing.entry.stage, f"It is at the stage {standing.entry.stage.value}.")


def _from_where(sources: Sequence[SourceExplanation], goes: NextSource | None, moment: ServerMoment) -> Iterator[str]:
    if not sources:
        yield "None of our addresses reaches its server."
    elif goes is None:
        anywhere = ", from whichever address" if sources[0].source else ""
        yield f"It is unknown when it may go{anywhere}."
    elif goes.clear_at is not None:
        by = f", from {goes.source}" if goes.source else ""
        yield f"The soonest that it may go is {shown(moment.at_nanos(goes.clear_at))}{by}."
    else:
        by = f": it would go from {goes.source} now" if goes.source else ""
        yield f"Nothing refuses it{by}."
        if moment.server.is_full:
            most = moment.server.settings.concurrency
            yield f"All {most:,} attempts that this server may make at once go on: one has to end first."


def _goes_json(goes: NextSource | None, moment: ServerMoment) -> dict[str, Any]:
    if goes is None:
        return {"goes_from": None, "goes_at": None}
    return {"goes_from": goes.source, "goes_at": _instant(goes.clear_at, moment)}


def _refusals(sources: Sequence[SourceExplanation], moment: ServerMoment) -> Iterator[str]:
    """What refuses it: once where that is the same from every address, else from each."""
    answers = [list(_of_source(source, moment)) for source in sources]
    if not answers:
        return
    first, *others = answers
    if all(answer == first for answer in others):
        yield from first
        return
    for source, answer in zip(sources, answers, strict=True):
        for line in answer:
            yield f"From {source.source}: {line}"


def _of_source(source: SourceExplanation, moment: ServerMoment) -> Iterator[str]:
    for share in source.shares:
        if share.refuses:
            yield _of_share(share, moment)
    if not source.has_share:
        yield "This server does not know its part of shared limits now: see mailmend delivery servers."
    for number in suspension_numbers(source, moment.policies.said):
        yield f"Suspended by the policy file, line {_line(moment, suspension_path(number))}."
    heeded = moment.suspensions
    for name in source.suspensions:
        if name in heeded:
            yield suspended_text(heeded[name])


def _of_share(share: PolicyShare, moment: ServerMoment) -> str:
    policy = moment.policies.said.policies[share.policy]
    threshold = share.threshold
    counted = counted_text(dict(zip(policy.fields, share.key, strict=True))) or "every mail"
    line = _line(moment, policy_path(share.policy))
    what = f"Policy {share.policy + 1} (line {line}) counts it as {counted}"
    if share.set_by:
        what += f", with limits that {set_text(share.set_by)}"
    if share.elsewhere:
        return f"{what}: other servers of the queue have the whole of this limit, as it is below their number."
    if share.shared:
        what += ", and of the limit this server has its part"
    if threshold.concurrency == 0:
        return f"{what}: none of these may begin."
    if share.clear_at == UNKNOWN:
        most = "deliveries"
        if threshold.concurrency:
            most = f"{share.delivering:,} of {threshold.concurrency:,} deliveries"
        return f"{what}: {most} go on, and one has to end first."
    until = shown(moment.at_nanos(share.clear_at or moment.nanos))
    rate = threshold.rate
    if rate and share.rate_at == share.clear_at:
        return f"{what}: {rate.count:,} in {rate.interval / SECOND:.9g} s may begin, the next one at {until}."
    return f"{what}: the next connection may begin at {until}."


def _source_json(source: SourceExplanation, moment: ServerMoment) -> dict[str, Any]:
    return {
        "localip": source.source,
        "is_left": source.is_left,
        "has_share": source.has_share,
        "free_at": _instant(source.clear_at, moment),
        "policies": [_share_json(share, moment) for share in source.shares],
        **refusals_json(source, moment.policies.said, moment.suspensions, partial(_line, moment)),
    }


def _share_json(share: PolicyShare, moment: ServerMoment) -> dict[str, Any]:
    return {
        **share_json(share, moment.policies.said, partial(_line, moment)),
        "shared": share.shared,
        "elsewhere": share.elsewhere,
        "delivering": share.delivering,
        "refuses": share.refuses,
        "free_at": _instant(share.clear_at, moment),
        "rate_free_at": _instant(share.rate_at, moment),
        "connect_free_at": _instant(share.connect_at, moment),
    }


def _place_json(place: tuple[int, CounterKey], moment: ServerMoment) -> Mapping[str, Any]:
    number, key = place
    if number == GATE:
        return {"share": True}
    if number == SUSPENDED:
        return {"suspension": key[0]}
    counted = counted_json(moment.policies.said.policies[number].fields, key)
    return {"policy": number + 1, "line": _line(moment, policy_path(number)), "key": counted}


def _values(mail: ActiveMail) -> dict[str, str]:
    return {named.value: text for named, text in mail.values.items()}


def _instant(nanos: int | None, moment: ServerMoment) -> str | None:
    """null: now, or unknown."""
    if nanos is None or nanos == UNKNOWN:
        return None
    return instant_text(moment.at_nanos(nanos))


def _line(moment: ServerMoment, path: DocumentPath) -> int:
    if moment.policies.read is None:
        return 0
    return moment.policies.read.place_of(path).line


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
    options=(
        click.Argument(["id"], metavar="[ID]", required=False),
        option(
            "--ask", "A server to ask; may be given again: name all servers of the queue.", multiple=True, metavar="URL"
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
