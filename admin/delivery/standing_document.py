"""Why a mail waits, as a server of deliveries tells it: figures for programs, and sentences for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mailmend.admin.delivery.conditions import set_text
from mailmend.admin.delivery.desk import MailExplanation, ServerMoment, ValuesExplanation
from mailmend.admin.delivery.entries_document import intent_json, intent_text, order_json
from mailmend.admin.delivery.policy_document import share_json, suspension_numbers, unconsulted
from mailmend.admin.delivery.policy_service import policy_path, suspension_path
from mailmend.admin.delivery.suspend import suspended_text, suspension_json
from mailmend.admin.frame.values import instant_text, shown
from mailmend.delivery.mail.entries import EntryStage, EntryState
from mailmend.delivery.mail.queued import EntryChange, QueuedEntry
from mailmend.delivery.policy.explaining import GATE, SUSPENDED, NextSource, PolicyShare, SourceExplanation
from mailmend.delivery.policy.policies import DocumentPath
from mailmend.delivery.policy.policy import CounterKey, PickupField
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail
from mailmend.delivery.server.explaining import EntryStanding

_AT_WORK: Final = {
    EntryStage.PRE_DELIVERY: "A hook decides about it, before its attempt.",
    EntryStage.DNS: "The servers of its domain are looked up.",
    EntryStage.POST_DELIVERY: "It was tried; what becomes of it is decided.",
}


def explanation_json(result: MailExplanation) -> dict[str, Any]:
    """A mail's recipients, each with all that is known of why it waits."""
    moment = result.moment
    queue = result.moment.server.queue.name
    entries = [_standing_json(standing, moment) for standing in result.here] or [
        _queued_json(entry) for entry in result.queued
    ]
    return {**_head(moment), "queue": queue, "entries": entries}


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


def _standing_json(one: EntryStanding, moment: ServerMoment) -> dict[str, Any]:
    held = one.held
    entry = one.entry
    returns_at = held.taken_at + moment.server.settings.waiting_max.total_seconds() * SECOND
    waits = bool(one.sources)
    return {
        "id": str(entry.id),
        "recipient": entry.recipient,
        "here": True,
        "stage": EntryStage.GONE.value if one.ended else entry.stage.value,
        "since": instant_text(moment.at_nanos(held.taken_at)),
        "returns_at": instant_text(moment.at_nanos(round(returns_at))) if waits else None,
        "expires_at": instant_text(moment.at_nanos(held.expires_at)),
        "due_at": None,
        "order": order_json(entry.order),
        "after_attempt": intent_json(one.after_attempt),
        "retries": entry.refusals,
        "reply": entry.reply or None,
        "host": entry.host or None,
        "counted_as": _values(one.counted) if one.counted else None,
        "sources": [_source_json(source, moment) for source in one.sources],
        **_goes_json(NextSource(one.picked.source) if one.picked else one.goes, moment),
        "ahead": one.ahead if waits else None,
        "waits_on": [_place_json(place, moment) for place in one.waits_on],
        "why": [*_sentences(one, moment), *_intended(one.after_attempt)],
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
        "order": order_json(entry.order),
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


def _rests(one: QueuedEntry) -> str:
    order = one.entry.order
    entry = one.entry
    if order:
        what = "Held" if one.state is EntryState.HOLD else "To be bounced by the next server that takes it"
        return f"{what}, by {order.owner} since {shown(order.at)}: {order.reason or 'no reason is given'}."
    if one.due_at:
        said = f", after {entry.refusals:,} refusals; the last one: {entry.reply}" if entry.refusals else ""
        return f"Deferred until {shown(one.due_at)}{said}."
    return "Active, and not with this server: another one has it, or it is on its way to one."


def _sentences(one: EntryStanding, moment: ServerMoment) -> Iterator[str]:
    if one.ended:
        yield f"It has ended: {one.ended.end.value}. Its mail is here until its other recipients have ended."
    elif one.picked:
        values = one.picked.mail.values
        source = one.picked.source
        by = f" from {source}" if source else ""
        host = values.get(PickupField.REMOTE_MX, "")
        address = values.get(PickupField.REMOTE_IP, "")
        yield f"It is being delivered to {host} ({address}){by}."
    elif one.sources:
        yield from _refusals(one.sources, moment)
        yield from _from_where(one.sources, one.goes, moment)
        if one.ahead:
            yield f"Mails that are counted as it is and come before it: {one.ahead:,}."
        returns_at = moment.at_nanos(one.held.taken_at) + moment.server.settings.waiting_max
        yield f"If it is not picked until {shown(returns_at)} it goes back to the queue for a while, by itself."
    else:
        yield _AT_WORK.get(one.entry.stage, f"It is at the stage {one.entry.stage.value}.")


def _from_where(sources: Sequence[SourceExplanation], goes: NextSource | None, moment: ServerMoment) -> Iterator[str]:
    if not sources:
        yield "None of our addresses reaches its server."
    elif goes is None:
        yield f"Nobody knows when it may go{', from whichever address' if sources[0].source else ''}."
    elif goes.clear_at is not None:
        by = f", from {goes.source}" if goes.source else ""
        yield f"The soonest that it may go is {shown(moment.at_nanos(goes.clear_at))}{by}."
    else:
        yield f"Nothing refuses it{f': it would go from {goes.source} now' if goes.source else ''}."
        if moment.server.is_full:
            most = moment.server.settings.concurrency
            yield f"All {most:,} attempts that this server may make at once go on: one has to end first."


def _goes_json(goes: NextSource | None, moment: ServerMoment) -> dict[str, Any]:
    return {"goes_from": goes.source if goes else None, "goes_at": _instant(goes.clear_at, moment) if goes else None}


def _refusals(sources: Sequence[SourceExplanation], moment: ServerMoment) -> Iterator[str]:
    """What refuses it: once where that is the same from every address, else from each."""
    each = [list(_of_source(explanation, moment)) for explanation in sources]
    if all(answer == each[0] for answer in each):
        yield from each[0] if each else ()
        return
    for source, some in zip(sources, each, strict=True):
        yield from (f"From {source.source}: {line}" for line in some)


def _of_source(one: SourceExplanation, moment: ServerMoment) -> Iterator[str]:
    yield from (_of_share(share, moment) for share in one.shares if share.refuses)
    if not one.has_share:
        yield "This server does not know its part of shared limits now: see mailmend delivery servers."
    heeded = moment.suspensions
    for number in suspension_numbers(one, moment.policies.said):
        yield f"Suspended by the policy file, line {_line(moment, suspension_path(number))}."
    yield from (suspended_text(heeded[name]) for name in one.suspensions if name in heeded)


def _of_share(share: PolicyShare, moment: ServerMoment) -> str:
    policy = moment.policies.said.policies[share.policy]
    threshold = share.threshold
    named = [f"{field.value} {text or '(empty)'}" for field, text in zip(policy.fields, share.key, strict=True)]
    line = _line(moment, policy_path(share.policy))
    what = f"Policy {share.policy + 1} (line {line}) counts it as {', '.join(named) or 'every mail'}"
    if share.set_by:
        what += f", with limits that {set_text(share.set_by)}"
    if share.elsewhere:
        return f"{what}: other servers of the queue have the whole of this limit, as it is below their number."
    if share.shared:
        what += ", and of the limit this server has its part"
    if threshold.concurrency == 0:
        return f"{what}: none of these may begin."
    if share.clear_at == UNKNOWN:
        most = (
            f"{share.delivering:,} of {threshold.concurrency:,} deliveries" if threshold.concurrency else "deliveries"
        )
        return f"{what}: {most} go on, and one has to end first."
    until = shown(moment.at_nanos(share.clear_at or moment.nanos))
    rate = threshold.rate
    if rate and share.rate_at == share.clear_at:
        return f"{what}: {rate.count:,} in {rate.interval / SECOND:.9g} s may begin, the next one at {until}."
    return f"{what}: the next connection may begin at {until}."


def _source_json(one: SourceExplanation, moment: ServerMoment) -> dict[str, Any]:
    said = moment.policies.said
    heeded = moment.suspensions

    def line(path: DocumentPath) -> int:
        return _line(moment, path)

    return {
        "localip": one.source,
        "is_left": one.is_left,
        "has_share": one.has_share,
        "free_at": _instant(one.clear_at, moment),
        "policies": [_share_json(share, moment) for share in one.shares],
        "not_consulted": [
            {"policy": number + 1, "line": line(policy_path(number))} for number in unconsulted(one, said)
        ],
        "suspensions": [
            {"suspension": number + 1, "line": line(suspension_path(number))}
            for number in suspension_numbers(one, said)
        ],
        "suspended_by": [suspension_json(heeded[name]) for name in one.suspensions if name in heeded],
    }


def _share_json(share: PolicyShare, moment: ServerMoment) -> dict[str, Any]:
    return {
        **share_json(share, moment.policies.said, lambda path: _line(moment, path)),
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
    fields = moment.policies.said.policies[number].fields
    named = {field.value: text for field, text in zip(fields, key, strict=True)}
    return {"policy": number + 1, "line": _line(moment, policy_path(number)), "key": named}


def _values(mail: ActiveMail) -> dict[str, str]:
    return {named.value: text for named, text in mail.values.items()}


def _instant(nanos: int | None, moment: ServerMoment) -> str | None:
    """null: now, or nobody knows."""
    return None if nanos is None or nanos == UNKNOWN else instant_text(moment.at_nanos(nanos))


def _line(moment: ServerMoment, path: DocumentPath) -> int:
    return moment.policies.read.place_of(path).line if moment.policies.read else 0
