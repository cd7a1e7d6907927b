"""What becomes of a mail that a client has handed over: one mail of the queue, or several where rules part it.

A mail that a rule or a hook holds is in the queue as one that a person held; a delayed one is due
later; of a refused one nothing is kept. The hook at the end of DATA is asked once for a mail, after
the rules: what it decides and sets comes before what they do.

A client is told 250 once all of them are in the queue for good, and else to come again: then those
that are there already come twice, as a mail does whose answer is lost.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.mail.encoding import canonical_lines
from mailmend.delivery.mail.entries import HELD_FOR
from mailmend.delivery.mail.envelopes import (
    counted_mail,
    delayed_mail,
    held_mail,
    kept_attributes,
    own_expiry,
    with_bytes,
)
from mailmend.delivery.mail.hooks import (
    AcceptMail,
    ArrivalDecision,
    ArrivedRecipient,
    AskedAtArrival,
    DelayMail,
    HoldRecipient,
    HookedArrival,
    HookResult,
    RejectMail,
)
from mailmend.delivery.policy.arrivals import NOT, worst_reply
from mailmend.delivery.policy.incoming import (
    IncomingField,
    IncomingOutcome,
    IncomingRule,
    outcome_of,
    reject_before_header,
    rules_before_header,
)
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.quotas import QUOTA_FIELDS, QueueQuota
from mailmend.delivery.shared.quotas import QueueQuotas
from mailmend.delivery.smtp.incoming import replies
from mailmend.delivery.smtp.incoming.reception import (
    MailOrigin,
    NamedRecipient,
    NamedSender,
    goes_in_a_circle,
    has_long_header,
    header_values,
    incoming_mail,
    incoming_values,
    received_field,
    without_fields,
)
from mailmend.mailqueue.admission import RECIPIENTS_TOGETHER, admissible, check_room
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock

_Part = tuple[IncomingOutcome, list[NamedRecipient]]
_Parts = Mapping[IncomingOutcome, list[NamedRecipient]]
_MadeMail = Callable[[IncomingOutcome, Sequence[NamedRecipient]], Mail]

BY_RULES: Final = "incoming"
"""Who holds a mail that a rule, or the hook at the end of DATA, holds."""

_BY_A_HOOK: Final = "a hook holds the mail"

AT_ONCE: Final = 16
"""How many of the mails that one became are put into the queue at once."""

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, kw_only=True, eq=False)
class MailIntake:
    """Puts the mails of clients into a queue; one event loop uses it.

    Attributes:
        rules: what sets their attributes; others may take their place at any time.
        hook: asked for each mail behind its content; None: no hook.
        taken: mails that are in the queue, their recipients and bytes.
        quotas: how much may be in the queue.
        changed: set whenever a mail is in the queue, or was not taken.
    """

    queue: MailQueue
    clock: Clock
    host_name: str
    rules: tuple[IncomingRule, ...] = ()
    hook: AskedAtArrival | None = None
    taken: Counter[str] = field(default_factory=Counter)
    quotas: QueueQuotas = field(init=False)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _puts: set[asyncio.Task[Sequence[SmtpReply]]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.quotas = QueueQuotas(queue=self.queue, clock=self.clock)

    def refusal(self, sender: NamedSender, recipient: NamedRecipient, origin: MailOrigin) -> SmtpReply | None:
        """What is said to a recipient by a rule or a quota, as far as that is known before the mail has come."""
        values = incoming_values(sender, recipient, origin, {})
        if refusing := reject_before_header(self.rules, values):
            return _refused_with(refusing, origin)
        if self.quotas.are_unknown:
            return replies.UNCOUNTED
        if not self.quotas.usage.quotas:
            return None
        rules, later = rules_before_header(self.rules)
        known = {PickupField.RECIPIENT_DOMAIN}
        if later is not None and self.hook is None:
            known |= {quota_field for quota_field in QUOTA_FIELDS if quota_field.value not in later}
        at = instant_of(self.clock.micros())
        outcome = outcome_of(rules, values, at)
        mail = _with_attributes(incoming_mail("", sender, [recipient], origin, at), outcome)
        found = self.quotas.refusal([counted_mail(mail, sender.size)], known)
        if found is None:
            return None
        return _refused(found, origin)

    async def take(
        self, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> Sequence[SmtpReply]:
        """Put a mail into the queue, and answer each recipient; a client that leaves meanwhile changes nothing.

        Rules and the queue get the lines of the mail as `canonical_lines` has them. A mail with NUL
        bytes is refused.
        """
        if b"\0" in content:
            return [replies.NUL] * len(recipients)
        put = asyncio.ensure_future(self._taken(sender, recipients, origin, canonical_lines(content)))
        self._puts.add(put)
        put.add_done_callback(self._has_put)
        return await asyncio.shield(put)

    def _has_put(self, put: asyncio.Task[Sequence[SmtpReply]]) -> None:
        self._puts.discard(put)
        self.changed.set()

    async def _taken(
        self, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> Sequence[SmtpReply]:
        if has_long_header(content):
            return [replies.LONG_HEADER] * len(recipients)
        if goes_in_a_circle(content):
            return [replies.CIRCLE] * len(recipients)
        mail_id = str(self.clock.random_uuid())
        at = instant_of(self.clock.micros())
        received = received_field(origin, self.host_name, mail_id, at)

        def made(outcome: IncomingOutcome, some: Sequence[NamedRecipient]) -> Mail:
            return _with_attributes(incoming_mail(mail_id, sender, some, origin, at), outcome)

        async def put(part: _Part) -> SmtpReply:
            outcome, some = part
            if outcome.unusable:
                shown = {"client": origin.client, "attributes": ", ".join(outcome.unusable)}
                _LOG.warning("a rule gave an attribute a value that it cannot have", extra=shown)
            whole = received + without_fields(content, outcome.removes)
            return await self._put(with_bytes(made(outcome, some), whole), whole, outcome, at)

        let_in, by_address = _let_in(self._parted(sender, recipients, origin, content), origin)
        if self.hook and let_in:
            seen = _hooked(mail_id, sender, let_in, origin, content)
            let_in, refused = _let_in(_as_decided(let_in, await self.hook(seen)), origin)
            by_address.update(refused)
        parts = list(_small(let_in))
        with ExitStack() as putting:
            kept, refused = self._within_quotas(parts, made, len(received) + len(content), origin, putting)
            answers = await all_of(kept, put, AT_ONCE)
        by_address.update(refused)
        for (_, some), answer in zip(kept, answers, strict=True):
            for recipient in some:
                by_address[recipient.address] = answer
        return [by_address[recipient.address] for recipient in recipients]

    def _within_quotas(
        self, parts: Sequence[_Part], made: _MadeMail, size: int, origin: MailOrigin, putting: ExitStack
    ) -> tuple[Sequence[_Part], dict[str, SmtpReply]]:
        """What may be put into the queue, and counts from now on; and what is said to the other recipients.

        By SMTP that is all of a mail or nothing, as it knows one answer.
        """
        usage = self.quotas.usage
        kept = list[_Part]()
        refused = dict[str, SmtpReply]()
        if not usage.quotas or not origin.answers_each:
            whole = [counted_mail(made(*part), size) for part in parts]
            if found := self.quotas.refusal(whole):
                answer = _refused(found, origin)
                for _, some in parts:
                    for recipient in some:
                        refused[recipient.address] = answer
                return (), refused
            putting.enter_context(usage.putting(whole))
            return parts, refused
        for outcome, some in parts:
            fitting = list[NamedRecipient]()
            for recipient in some:
                if found := self.quotas.refusal([counted_mail(made(outcome, [recipient]), size)]):
                    refused[recipient.address] = _refused(found, origin)
                else:
                    fitting.append(recipient)
            if fitting:
                putting.enter_context(usage.putting([counted_mail(made(outcome, fitting), size)]))
                kept.append((outcome, fitting))
        return kept, refused

    def _parted(
        self, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> dict[IncomingOutcome, list[NamedRecipient]]:
        """The recipients for whom rules come to the same, together."""
        now = instant_of(self.clock.micros())
        rules = self.rules
        asked = set[str]()
        for rule in rules:
            asked |= {name for named, name in rule.patterns if named is IncomingField.HEADER}
        header = header_values(content, asked)
        parts = dict[IncomingOutcome, list[NamedRecipient]]()
        for recipient in recipients:
            outcome = outcome_of(rules, incoming_values(sender, recipient, origin, header), now)
            parts.setdefault(outcome, []).append(recipient)
        return parts

    async def _put(self, mail: Mail, content: bytes, outcome: IncomingOutcome, now: datetime) -> SmtpReply:
        fields = {"client": mail.remote_addr, "recipients": len(mail.recipients), "bytes": len(content)}
        when: dict[str, Any] = {}
        if outcome.hold:
            mail = held_mail(mail, now, BY_RULES, outcome.hold)
            when["at"] = now + HELD_FOR
            fields["held"] = outcome.hold
        elif outcome.delay:
            due_at = now + outcome.delay
            due_at = min(due_at, own_expiry(mail) or due_at)
            mail = delayed_mail(mail, due_at)
            when["at"] = due_at
            fields["delay"] = str(outcome.delay)
        if never := _refused_for_good(mail):
            _LOG.warning("a mail was refused, which no queue can keep", extra=fields)
            return never
        try:
            enqueue_id = await self.queue.enqueue(mail, content, **when)
        except MailmendError as error:
            _LOG.warning("a mail was not taken", extra={**fields, "error": str(error)})
            return replies.LATER
        except Exception:  # noqa: BLE001 - whatever it is, the client keeps the mail
            _LOG.exception("a mail was not taken", extra=fields)
            return replies.LATER
        self.taken.update(mails=1, recipients=len(mail.recipients), bytes=len(content))
        _LOG.info("a mail was taken", extra={"mail": str(enqueue_id), **fields})
        return SmtpReply(250, "2.0.0", f"taken as {enqueue_id}", ours=True)

    # The end

    @property
    def is_busy(self) -> bool:
        return bool(self._puts)

    async def close(self) -> None:
        """Give up what is still being put into the queue; its clients keep it."""
        some = tuple(self._puts)
        for task in some:
            task.cancel()
        await asyncio.gather(*some, return_exceptions=True)


def _with_attributes(plain: Mail, outcome: IncomingOutcome) -> Mail:
    given = {name: attribute(value) for name, value in outcome.attributes}
    return replace(plain, attributes={**plain.attributes, **given})


def _refused(quota: QueueQuota, origin: MailOrigin) -> SmtpReply:
    _LOG.info("a quota is full", extra={"quota": quota.name, "client": origin.client})
    return replies.over_quota(quota.name)


def _refused_with(text: str, origin: MailOrigin) -> SmtpReply:
    _LOG.info("a mail is refused by a rule or a hook", extra={"client": origin.client, "reply": text})
    return replace(SmtpReply.parsed(int(text[:3]), text[4:]), ours=True)


def _let_in(parts: _Parts, origin: MailOrigin) -> tuple[_Parts, dict[str, SmtpReply]]:
    """What is let in; and what is said to the other recipients: by SMTP, which knows one answer, to all."""
    refusing = [outcome.reject for outcome in parts if outcome.reject]
    if not refusing:
        return parts, {}
    worst = worst_reply(refusing)
    taken = dict[IncomingOutcome, list[NamedRecipient]]()
    refused = dict[str, SmtpReply]()
    for outcome, some in parts.items():
        text = outcome.reject
        if not origin.answers_each:
            text = worst
        if not text:
            taken[outcome] = some
            continue
        reply = _refused_with(text, origin)
        for recipient in some:
            refused[recipient.address] = reply
    return taken, refused


def _hooked(mail_id: str, sender: NamedSender, parts: _Parts, origin: MailOrigin, content: bytes) -> HookedArrival:
    seen = list[ArrivedRecipient]()
    for outcome, some in parts.items():
        attributes = {name: str(value) for name, value in outcome.attributes}
        for recipient in some:
            address = recipient.address
            seen.append(ArrivedRecipient(address, attributes, outcome.hold, outcome.delay))
    return HookedArrival(
        id=mail_id,
        client=origin.client,
        greeted_as=origin.greeted_as,
        protocol=origin.protocol,
        user=origin.user,
        sender=sender.address,
        recipients=tuple(seen),
        content=content,
    )


def _as_decided(parts: _Parts, result: HookResult[ArrivalDecision]) -> _Parts:
    """The recipients by what rules and then the hook make of their mail."""
    given = kept_attributes(result.attributes)
    decided = dict[IncomingOutcome, list[NamedRecipient]]()
    for outcome, some in parts.items():
        attributes = tuple(sorted({**dict(outcome.attributes), **given}.items()))
        behind = replace(_decided(outcome, result.decision), attributes=attributes)
        decided.setdefault(behind, []).extend(some)
    return decided


def _decided(outcome: IncomingOutcome, decision: ArrivalDecision) -> IncomingOutcome:
    match decision:
        case AcceptMail():
            return replace(outcome, hold=NOT, delay=timedelta())
        case HoldRecipient(reason):
            return replace(outcome, hold=reason or _BY_A_HOOK)
        case DelayMail(delay):
            return replace(outcome, hold=NOT, delay=delay)
        case RejectMail():
            return replace(outcome, reject=decision.line)
        case None:
            return outcome


def _small(parts: _Parts) -> Iterator[_Part]:
    """The parts, with as many recipients each as one mail of the queue may have."""
    for outcome, some in parts.items():
        for begin in range(0, len(some), RECIPIENTS_TOGETHER):
            yield outcome, list(some[begin : begin + RECIPIENTS_TOGETHER])


def _refused_for_good(mail: Mail) -> SmtpReply | None:
    """What is answered where no queue can ever keep a mail: to come again later would be of no use."""
    try:
        admissible(mail)
    except WrongUse:
        return replies.UNFIT
    try:
        check_room(mail)
    except WrongUse:
        return replies.LARGE_ENVELOPE
    return None
