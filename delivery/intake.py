"""What becomes of a mail that a client has handed over: one mail of the queue, or several where rules part it.

A client is told 250 once all of them are in the queue for good, and else to come again: then those that are there
already come twice, as a mail does whose answer is lost.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delivery import replies
from delivery.reception import (
    MailOrigin,
    NamedRecipient,
    NamedSender,
    goes_in_a_circle,
    header_values,
    incoming_mail,
    incoming_values,
    received_field,
    without_fields,
)
from mailqueue.codec import attribute
from mailqueue.concurrency import all_of
from mailqueue.queue import MailQueue
from model.delivery.attempts import SmtpReply
from model.delivery.incoming import IncomingField, IncomingOutcome, IncomingRule, outcome_of
from model.errors import MailmendError
from model.instants import instant_of
from model.ports import Clock
from model.queue.mails import Mail

AT_ONCE: Final = 16
"""How many of the mails that one became are put into the queue at once."""

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, kw_only=True, eq=False)
class MailIntake:
    """Puts the mails of clients into a queue; one event loop uses it.

    Attributes:
        rules: what sets their attributes; others may take their place at any time.
        taken: mails that are in the queue, their recipients and bytes.
        changed: set whenever a mail is in the queue, or was not taken.
    """

    queue: MailQueue
    clock: Clock
    host_name: str
    rules: tuple[IncomingRule, ...] = ()
    taken: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _puts: set[asyncio.Task[Sequence[SmtpReply]]] = field(default_factory=set)

    async def take(
        self, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> Sequence[SmtpReply]:
        """Put a mail into the queue, and answer each recipient; a client that leaves meanwhile changes nothing."""
        put = asyncio.ensure_future(self._taken(sender, recipients, origin, content))
        self._puts.add(put)
        put.add_done_callback(self._has_put)
        return await asyncio.shield(put)

    def _has_put(self, put: asyncio.Task[Sequence[SmtpReply]]) -> None:
        self._puts.discard(put)
        self.changed.set()

    async def _taken(
        self, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> Sequence[SmtpReply]:
        if goes_in_a_circle(content):
            return [replies.CIRCLE for _ in recipients]
        parts = self._parted(sender, recipients, origin, content)
        mail_id, at = str(self.clock.random_uuid()), instant_of(self.clock.micros())
        received = received_field(origin, self.host_name, mail_id, at)

        async def put(part: tuple[IncomingOutcome, list[NamedRecipient]]) -> SmtpReply:
            outcome, some = part
            plain = incoming_mail(mail_id, sender, some, origin, at)
            given = {name: attribute(value) for name, value in outcome.attributes}
            mail = replace(plain, attributes={**plain.attributes, **given})
            if outcome.unusable:
                shown = {"client": origin.client, "attributes": ", ".join(outcome.unusable)}
                _LOG.warning("a rule gave an attribute a value that it cannot have", extra=shown)
            return await self._put(mail, received + without_fields(content, outcome.removes))

        answers = await all_of(parts.items(), put, AT_ONCE)
        by_address = {one.address: answer for some, answer in zip(parts.values(), answers, strict=True) for one in some}
        return [by_address[one.address] for one in recipients]

    def _parted(
        self, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, content: bytes
    ) -> dict[IncomingOutcome, list[NamedRecipient]]:
        """The recipients for whom rules come to the same, together."""
        now, rules = instant_of(self.clock.micros()), self.rules
        asked = {name for rule in rules for named, name in rule.patterns if named is IncomingField.HEADER}
        header = header_values(content, asked)
        parts = dict[IncomingOutcome, list[NamedRecipient]]()
        for one in recipients:
            outcome = outcome_of(rules, incoming_values(sender, one, origin, header), now)
            parts.setdefault(outcome, []).append(one)
        return parts

    async def _put(self, mail: Mail, content: bytes) -> SmtpReply:
        fields = {"client": mail.remote_addr, "recipients": len(mail.recipients), "bytes": len(content)}
        try:
            enqueue_id = await self.queue.enqueue(mail, content)
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
        for one in some:
            one.cancel()
        await asyncio.gather(*some, return_exceptions=True)
