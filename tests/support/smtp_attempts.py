"""What tests ask of a relay, and how it is asked."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mailmend.delivery.mail.attempts import DeliveryAttempt, RecipientResult
from mailmend.delivery.mail.entries import DeliveryEntry, EntryId, OutgoingMail
from mailmend.delivery.smtp.outgoing.relay import SmtpRelay
from mailmend.delivery.transports import DeliveryProtocol, StageTimeouts
from mailmend.model.ids import EnqueueId
from tests.support.smtp_sink import SmtpSink

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=20)
BOTH = ("a@example.org", "b@example.org")
MAIL = EnqueueId(UUID(int=1))


def attempt(sink: SmtpSink, *recipients: str, **changes: object) -> DeliveryAttempt:
    protocol = DeliveryProtocol.LMTP if sink.lmtp else DeliveryProtocol.SMTP
    asked = DeliveryAttempt(
        mail_of(), entries_of(*recipients or BOTH), sink.hop(), protocol=protocol, timeouts=limits()
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


def limits(**changes: timedelta) -> StageTimeouts:
    return replace(StageTimeouts(LONG, LONG, LONG, LONG, LONG, LONG), **changes)


@asynccontextmanager
async def relay(**settings: object) -> AsyncIterator[SmtpRelay]:
    made = SmtpRelay("client.example", **settings)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


async def deliver(sink: SmtpSink, content: bytes = CONTENT, **changes: object) -> Sequence[RecipientResult]:
    async with sink.running(), relay() as made:
        return await made.deliver(attempt(sink, **changes), content)


def mail_of(**wishes: object) -> OutgoingMail:
    made = OutgoingMail(MAIL, "from@example.com", datetime(2026, 5, 1, 12, tzinfo=UTC))
    return replace(made, **wishes)  # type: ignore[arg-type]


def entries_of(*recipients: str) -> tuple[DeliveryEntry, ...]:
    return tuple(DeliveryEntry(EntryId(MAIL, number), recipient) for number, recipient in enumerate(recipients))
