"""What tests ask of a relay, and how it is asked."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from mailmend.delivery.mail.attempts import (
    DeliveryAttempt,
    DeliveryProtocol,
    EnvelopeRecipient,
    MailEnvelope,
    RecipientResult,
    StageTimeouts,
)
from mailmend.delivery.smtp.outgoing.relay import SmtpRelay
from tests.support.smtp_sink import SmtpSink

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=20)
BOTH = ("a@example.org", "b@example.org")


def attempt(sink: SmtpSink, *recipients: str, **changes: object) -> DeliveryAttempt:
    envelope = MailEnvelope("from@example.com", tuple(EnvelopeRecipient(one) for one in recipients or BOTH))
    protocol = DeliveryProtocol.LMTP if sink.lmtp else DeliveryProtocol.SMTP
    asked = DeliveryAttempt(envelope, sink.hop(), protocol=protocol, timeouts=limits())
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


def envelope_for(*recipients: str, **wishes: object) -> MailEnvelope:
    made = MailEnvelope("from@example.com", tuple(EnvelopeRecipient(one) for one in recipients))
    return replace(made, **wishes)  # type: ignore[arg-type]
