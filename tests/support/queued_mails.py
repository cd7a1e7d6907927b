"""Any mail that a queue may carry, for Hypothesis; and one whose every field is filled."""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from hypothesis import strategies as st

from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail, RecipientHeader
from mailmend.model.ids import BlobId, EnqueueId

TEXTS: Final = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
INSTANTS: Final = st.integers(-62_135_596_800_000, 253_402_300_798_999).map(
    lambda millis: datetime.fromtimestamp(millis // 1000, UTC).replace(microsecond=millis % 1000 * 1000)
)
"""In whole milliseconds, without the last second of the year 9999, which no payload may hold."""

HEADERS: Final = st.builds(
    RecipientHeader, st.sampled_from(["a@one.test", "b@two.test"]), st.sampled_from(["X-A", "X-B"]), TEXTS
)
MAILS: Final = st.builds(
    Mail,
    name=TEXTS,
    recipients=st.lists(TEXTS, max_size=3).map(tuple),
    sender=st.none() | NAMES.filter(lambda text: text != "<>"),
    state=TEXTS,
    error_message=st.none() | TEXTS,
    remote_addr=TEXTS,
    remote_host=TEXTS,
    last_updated=st.none() | INSTANTS,
    attributes=st.dictionaries(TEXTS, TEXTS, max_size=3),
    recipient_headers=st.lists(HEADERS, max_size=6).map(tuple),
)
QUEUED: Final = st.builds(
    QueuedMail, st.uuids().map(EnqueueId), MAILS, st.builds(MailBlobs, NAMES.map(BlobId), NAMES.map(BlobId))
)


def queued_mail(number: int = 1) -> QueuedMail:
    """A mail of its own for each number, with something in every field."""
    mail = Mail(
        name=f"mail-{number}",
        recipients=("alice@one.test", "bob@two.test"),
        sender="carol@three.test",
        state="transport",
        error_message="no route",
        remote_addr="10.0.0.9",
        remote_host="host9.test",
        last_updated=datetime(2026, 9, 21, 14, 13, 22, 978_000, tzinfo=UTC),
        attributes={"tries": '{"serializer":"IntSerializer","value":3}'},
        recipient_headers=(RecipientHeader("bob@two.test", "X-For", "bob"),),
    )
    blobs = MailBlobs(BlobId(f"1_692_header-{number}"), BlobId(f"1_692_body-{number}"))
    return QueuedMail(EnqueueId(UUID(int=number, version=4)), mail, blobs)
