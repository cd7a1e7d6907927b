"""Messages of James's Pulsar queue are read, and written again to the byte, in both of its forms."""

import json
from dataclasses import replace

import pytest

from mailmend.mailqueue.pulsar.deletions import JamesFilter, filter_of, filter_text
from mailmend.mailqueue.pulsar.settings import PulsarForm
from mailmend.mailqueue.pulsar.topics import form_of, pulsar_payload_of, pulsar_queued_of
from mailmend.mailqueue.rules.deletions import FilterKind
from mailmend.model.errors import BadPayload
from tests.support.james_pulsar import filters, mails

FORMS = pytest.mark.parametrize("form", PulsarForm)
STATELESS = "g19-null-state"
"""A mail without a state: it waits for `root`, as James itself takes it, and is written so."""


@FORMS
def test_every_mail_of_james_is_written_again_to_the_byte(form: PulsarForm) -> None:
    golden = [one["text"] for one in mails(form)]
    assert len(golden) >= 43
    for text in golden:
        queued = pulsar_queued_of(text.encode())
        if queued.mail.name == STATELESS:
            assert queued.mail.state == "root"
        else:
            assert pulsar_payload_of(queued, form) == text


@FORMS
def test_the_form_of_one_james_is_read_like_that_of_the_other(form: PulsarForm) -> None:
    other = next(one for one in PulsarForm if one is not form)
    for one in mails(form):
        queued = pulsar_queued_of(one["text"].encode())
        assert pulsar_queued_of(pulsar_payload_of(queued, other).encode()) == queued


@FORMS
def test_what_lies_there_tells_which_james_wrote_it(form: PulsarForm) -> None:
    found = {form_of(one["text"].encode()) for one in mails(form)}
    assert found <= {form, None}
    assert form in found


@FORMS
def test_every_filter_of_james_is_written_again_to_the_byte(form: PulsarForm) -> None:
    golden = [one["text"] for one in filters(form)]
    assert {filter_of(text.encode()).kind for text in golden} == set(FilterKind)
    assert [filter_text(filter_of(text.encode()), form) for text in golden] == golden


def test_both_forms_of_a_filter_are_one_filter() -> None:
    one = JamesFilter(FilterKind.SENDER, "ann@example.org", -1)
    assert {filter_of(filter_text(one, form).encode()) for form in PulsarForm} == {one}


def test_control_characters_are_escaped_as_each_form_does() -> None:
    queued = pulsar_queued_of(mails(PulsarForm.JAMES_3_9)[0]["text"].encode())
    queued = replace(queued, mail=replace(queued.mail, error_message="\x1f\x7f"))
    assert '"\\u001f\\u007f"' in pulsar_payload_of(queued, PulsarForm.JAMES_3_9)
    assert '"\\u001F\x7f"' in pulsar_payload_of(queued, PulsarForm.JAMES_3_8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"ByName":{"name":"a"}}',
        '{"ByName":{"name":"a","lastSequenceId":true}}',
        '{"ByName":{"name":1,"lastSequenceId":1}}',
        '{"BySize":{"size":1,"lastSequenceId":1}}',
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(BadPayload):
        filter_of(text.encode())


@pytest.mark.parametrize("headers", [{"a@b.org": {}}, {"a@b.org": [1]}, {"a@b.org": [{"key": 1, "values": []}]}])
def test_headers_of_another_form_are_refused(headers: object) -> None:
    fields = json.loads(mails(PulsarForm.JAMES_3_9)[0]["text"]) | {"perRecipientHeaders": headers}
    with pytest.raises(BadPayload):
        pulsar_queued_of(json.dumps(fields).encode())
