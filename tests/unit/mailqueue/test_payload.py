"""The body of a message: what James wrote is read and written again to the byte; anything else is read or refused."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.codec import BODY_BYTES_MAX, attribute, payload_of, queued_of
from mailmend.mailqueue.rules.mails import Mail, QueuedMail, RecipientHeader
from mailmend.model.errors import BadPayload
from tests.support.james_queue import JamesMessage, james_enqueued, james_messages
from tests.support.queued_mails import QUEUED, queued_mail

FIELDS = (
    "enqueueId",
    "recipients",
    "name",
    "sender",
    "state",
    "errorMessage",
    "lastUpdated",
    "attributes",
    "remoteAddr",
    "remoteHost",
    "perRecipientHeaders",
    "headerBlobId",
    "bodyBlobId",
)
REQUIRED = ("enqueueId", "recipients", "name", "headerBlobId", "bodyBlobId")
OUR_NAMES = {
    "errorMessage": "error_message",
    "lastUpdated": "last_updated",
    "remoteAddr": "remote_addr",
    "remoteHost": "remote_host",
    "perRecipientHeaders": "recipient_headers",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def fields_of(queued: QueuedMail) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(payload_of(queued))
    return fields


def read(fields: dict[str, Any]) -> QueuedMail:
    return queued_of(json.dumps(fields).encode())


@pytest.mark.parametrize("message", james_messages(), ids=lambda one: json.loads(one.body)["name"])
def test_what_james_wrote_is_written_again_to_the_byte(message: JamesMessage) -> None:
    """Order of fields and attributes, digits, escapes, nulls: all of it."""
    assert payload_of(queued_of(message.body)) == message.body


def test_every_field_is_what_james_was_given() -> None:
    read_back = {str(queued.enqueue_id): queued.mail for queued in map(queued_of, bodies())}
    given_to_james = {one["enqueueId"]: one for one in james_enqueued()}

    assert {name: reported(mail) for name, mail in read_back.items()} == {
        name: {field: one[field] for field in reported(Mail("", ()))} for name, one in given_to_james.items()
    }
    assert None in {mail.sender for mail in read_back.values()}


def bodies() -> list[bytes]:
    return [message.body for message in james_messages()]


def reported(mail: Mail) -> dict[str, Any]:
    """The mail in the form of the list of what James was given: headers by recipient, in order of the alphabet."""
    by_recipient = groupby(sorted(mail.recipient_headers, key=lambda one: one.recipient), lambda one: one.recipient)
    at = mail.last_updated
    return {
        "name": mail.name,
        "sender": mail.sender,
        "recipients": list(mail.recipients),
        "state": mail.state,
        "errorMessage": mail.error_message,
        "remoteAddr": mail.remote_addr,
        "remoteHost": mail.remote_host,
        "lastUpdated": at and at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "attributes": dict(mail.attributes),
        "perRecipientHeaders": {
            recipient: sorted(f"{one.name}: {one.value}" for one in headers) for recipient, headers in by_recipient
        },
    }


@given(QUEUED)
def test_whatever_is_written_reads_back(queued: QueuedMail) -> None:
    """Headers of one recipient and name come together; nothing else moves, and writing again changes nothing."""
    body = payload_of(queued)
    back = queued_of(body)

    assert replace(back.mail, recipient_headers=()) == replace(queued.mail, recipient_headers=())
    assert by_name(back.mail) == by_name(queued.mail)
    assert (back.enqueue_id, back.blobs) == (queued.enqueue_id, queued.blobs)
    assert list(back.mail.attributes) == list(queued.mail.attributes)
    assert payload_of(back) == body


def by_name(mail: Mail) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for one in mail.recipient_headers:
        found.setdefault((one.recipient, one.name), []).append(one.value)
    return found


def test_what_is_beyond_16_bits_is_escaped_once() -> None:
    """In the name as in an attribute, whose own JSON holds it as it is: so it stands in the row."""
    queued = queued_mail()
    mail = replace(queued.mail, name="😀", attributes={"face": attribute("😀")})
    body = payload_of(replace(queued, mail=mail))

    assert rb'"name":"\uD83D\uDE00"' in body
    assert rb'"value\":\"\uD83D\uDE00\"}"' in body
    assert queued_of(body).mail == mail


@given(QUEUED)
def test_any_payload_is_one_line_of_json_with_james_s_fields(queued: QueuedMail) -> None:
    body = payload_of(queued)

    assert tuple(json.loads(body)) == FIELDS
    assert b"\n" not in body


def test_headers_of_one_name_are_kept_together() -> None:
    """As James's multimap has them: by recipient, then by name, each in the order in which it first comes."""
    headers = [("b@x", "X-A", "1"), ("a@x", "X-A", "2"), ("b@x", "X-B", "3"), ("b@x", "X-A", "4")]
    queued = queued_mail()
    mail = replace(queued.mail, recipient_headers=tuple(RecipientHeader(*one) for one in headers))

    assert (
        b'"perRecipientHeaders":{"b@x":{"header":{"X-A":["1","4"],"X-B":["3"]}},"a@x":{"header":{"X-A":["2"]}}}'
        in payload_of(replace(queued, mail=mail))
    )


def test_instants_are_cut_to_james_s_milliseconds() -> None:
    """Else the payload and the row, which holds milliseconds, would tell of two instants."""
    at = datetime(2016, 9, 8, 14, 25, 52, 999, tzinfo=UTC)
    queued = queued_mail()
    fine = replace(queued, mail=replace(queued.mail, last_updated=at))

    assert b'"lastUpdated":1473344752.000000000,' in payload_of(fine)
    assert queued_of(payload_of(fine)).mail.last_updated == at - timedelta(microseconds=999)


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in REQUIRED])
def test_optional_fields_may_be_missing_or_null(field: str) -> None:
    queued, bare = queued_mail(), Mail("", ())
    name = OUR_NAMES.get(field, field)
    as_it_should_be = replace(queued, mail=replace(queued.mail, **{name: getattr(bare, name)}))
    fields = fields_of(queued)

    assert read({**fields, field: None}) == as_it_should_be
    del fields[field]
    assert read(fields) == as_it_should_be


@pytest.mark.parametrize("field", REQUIRED)
def test_what_no_mail_can_do_without_is_named(field: str) -> None:
    for written_as in ({}, {field: None}, {field: 5}):
        fields = {name: value for name, value in fields_of(queued_mail()).items() if name != field}
        with pytest.raises(BadPayload, match=f"^{field} is"):
            read({**fields, **written_as})


@pytest.mark.parametrize("field", ["headerBlobId", "bodyBlobId"])
def test_a_blob_without_an_id_is_refused(field: str) -> None:
    with pytest.raises(BadPayload, match=f"^{field} is empty"):
        read({**fields_of(queued_mail()), field: ""})


@pytest.mark.parametrize("sender", ["<>", "", None])
def test_the_null_sender_is_none_however_it_is_written(sender: str | None) -> None:
    assert read({**fields_of(queued_mail()), "sender": sender}).mail.sender is None


@pytest.mark.parametrize(
    "written_as", [1_473_344_752, "2016-09-08T14:25:52Z", 1473344752.0, "2016-09-08T16:25:52.000999+02:00"]
)
def test_older_and_newer_forms_of_an_instant_are_read(written_as: object) -> None:
    """Whole seconds and ISO 8601, as other settings of James's writer have them."""
    at = read({**fields_of(queued_mail()), "lastUpdated": written_as}).mail.last_updated
    assert at == datetime(2016, 9, 8, 14, 25, 52, tzinfo=UTC)


@pytest.mark.parametrize(
    "blob_id",
    [
        "1_692_81s1lUcMvwQqE6nRXy5XqxQK8NYyz2EENAznLzgArdo=",
        "1_692_81s1lUcMvwQqE6nRXy5XqxQK8NYyz2EENAznLzgArdo",
        "1_692_-_s1lUcMvwQqE6nRXy5XqxQK8NYyz2EENAznLzgArdo",
        "1_692_3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "a" * 64,
    ],
)
def test_ids_of_blobs_are_kept_in_any_generation_s_form(blob_id: str) -> None:
    """Base64 with and without padding, of URLs, hexadecimal, random: to us they are names."""
    queued = read({**fields_of(queued_mail()), "headerBlobId": blob_id, "bodyBlobId": blob_id})

    assert (queued.blobs.header, queued.blobs.body) == (blob_id, blob_id)
    assert fields_of(queued)["headerBlobId"] == blob_id


def test_fields_that_are_not_known_here_are_passed_over() -> None:
    assert read({**fields_of(queued_mail()), "newer": {"than": "we"}}) == queued_mail()


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("enqueueId", "no-uuid", "enqueueId is not a UUID"),
        ("recipients", "a@one.test", "recipients is not a list"),
        ("recipients", ["a@one.test", 5], r"recipients\[1\] is not a text"),
        ("name", "\ud800", "name holds half a surrogate pair"),
        ("lastUpdated", "soon", "lastUpdated is not an instant"),
        ("lastUpdated", 1e300, "lastUpdated is out of the years"),
        ("attributes", ["a"], "attributes is not an object"),
        ("attributes", {"tries": 3}, r"attributes\[tries\] is not a text"),
        ("perRecipientHeaders", {"secret@one.test": 1}, r"perRecipientHeaders\[0\] is not an object"),
        ("perRecipientHeaders", {"secret@one.test": {"header": []}}, r"perRecipientHeaders\[0\].header is not"),
        (
            "perRecipientHeaders",
            {"secret@one.test": {"header": {"X": "y"}}},
            r"perRecipientHeaders\[0\].header\[X\] is",
        ),
    ],
)
def test_a_field_of_another_kind_is_named(field: str, value: object, why: str) -> None:
    with pytest.raises(BadPayload, match=f"^{why}") as refused:
        read({**fields_of(queued_mail()), field: value})
    assert "secret" not in str(refused.value)


def test_a_body_that_no_broker_would_take_is_not_looked_into() -> None:
    with pytest.raises(BadPayload, match="more than 134,217,728 bytes"):
        queued_of(bytes(BODY_BYTES_MAX + 1))


def test_a_mail_that_no_store_can_keep_is_not_written() -> None:
    queued = queued_mail()
    with pytest.raises(BadPayload, match=f"the mail {queued.enqueue_id} holds half a surrogate pair"):
        payload_of(replace(queued, mail=replace(queued.mail, name="\udcff")))


@given(st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON)
def test_any_json_is_a_mail_or_refused(anything: object) -> None:
    assert_mail_or_refused(json.dumps(anything).encode())


@given(st.sampled_from(FIELDS), JSON)
def test_a_good_message_with_one_odd_field_is_a_mail_or_refused(field: str, value: object) -> None:
    assert_mail_or_refused(json.dumps({**fields_of(queued_mail()), field: value}).encode())


@given(st.sampled_from(bodies()), st.data())
def test_a_damaged_message_of_james_s_is_a_mail_or_refused(body: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.binary(max_size=1))

    assert_mail_or_refused(body[:place])
    assert_mail_or_refused(body[:place] + byte + body[place + 1 :])


def assert_mail_or_refused(body: bytes) -> None:
    try:
        queued = queued_of(body)
    except BadPayload as refused:
        said = refused.what
    else:
        said = f"{queued_of(payload_of(queued)).enqueue_id} is"
    assert said
