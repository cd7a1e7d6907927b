"""Attributes: Python's values in James's form, James's values in Python's, and the priority among them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.codec import attribute, attribute_value, priority_of, queued_of, with_priority
from mailmend.mailqueue.rules.mails import PRIORITY_ATTRIBUTE, PRIORITY_NORMAL, Mail
from mailmend.model.errors import BadPayload, WrongUse
from tests.support.james_queue import james_messages
from tests.support.queued_mails import TEXTS

MAIL = Mail("mail", ("a@one.test",))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def james_attributes() -> list[tuple[str, str]]:
    return [pair for one in james_messages() for pair in queued_of(one.body).mail.attributes.items()]


def test_james_s_own_attributes_are_read_and_written_to_the_byte() -> None:
    texts = {text for _, text in james_attributes()}

    assert {attribute(attribute_value(text)) for text in texts if "Long" not in text} == {
        text for text in texts if "Long" not in text
    }
    assert {json.loads(text)["serializer"] for text in texts} == {
        f"{kind}Serializer" for kind in ("Boolean", "Bytes", "Collection", "Int", "Map", "String")
    }


def test_james_s_own_attributes_hold_what_it_was_given() -> None:
    """Value by value; a long that is small is a number like any other."""
    values = {name: attribute_value(text) for name, text in james_attributes() if name != "peer.number"}
    numbers = {attribute_value(text) for name, text in james_attributes() if name == "peer.number"}

    assert values["peer.bytes"] == b"\x00\x01\xc8"
    assert values["peer.flag"] is True
    assert values["peer.list"] == ["a", "b"]
    assert values["peer.map"] == {"k": 5}
    assert values["peer.text"].startswith('vé "')
    assert numbers == set(range(24))


@given(VALUES)
def test_any_value_reads_back(value: Any) -> None:
    back = attribute_value(attribute(value))

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (5, '{"serializer":"IntSerializer","value":5}'),
        (2**31 - 1, '{"serializer":"IntSerializer","value":2147483647}'),
        (2**31, '{"serializer":"LongSerializer","value":2147483648}'),
        (-(2**63), '{"serializer":"LongSerializer","value":-9223372036854775808}'),
        (True, '{"serializer":"BooleanSerializer","value":true}'),
        ("é", '{"serializer":"StringSerializer","value":"é"}'),
        (b"\x00\x01\xc8", '{"serializer":"BytesSerializer","value":"AAHI"}'),
        (("a",), '{"serializer":"CollectionSerializer","value":[{"serializer":"StringSerializer","value":"a"}]}'),
        ({"k": 1}, '{"serializer":"MapSerializer","value":{"k":{"serializer":"IntSerializer","value":1}}}'),
    ],
)
def test_each_kind_has_james_s_name(value: Any, written: str) -> None:
    assert attribute(value) == written


@pytest.mark.parametrize("value", [None, 1.5, 2**63, object(), [None]])
def test_what_james_has_no_kind_for_is_refused(value: object) -> None:
    with pytest.raises(WrongUse, match="James has no attribute of the kind"):
        attribute(value)


@pytest.mark.parametrize(
    "written",
    [
        {"serializer": "DateSerializer", "value": "2016-09-08T14:25:52.000+0000"},
        {"serializer": "IntSerializer", "value": "five"},
        {"serializer": "IntSerializer", "value": True},
        {"value": 5},
        {},
    ],
)
def test_kinds_that_are_not_known_stay_what_they_are(written: Mapping[str, Any]) -> None:
    """As parsed JSON, so that nothing of them is lost; inside of others too."""
    assert attribute_value(json.dumps(written)) == written
    assert attribute_value(json.dumps({"serializer": "CollectionSerializer", "value": [written]})) == [written]


NESTED = '{"serializer":"CollectionSerializer","value":['


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[]",
        '{"serializer":"BytesSerializer","value":"%%"}',
        "[" * 100_000,
        f"{NESTED * 5_000}{{}}{']}' * 5_000}",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_attribute_is_refused(text: str) -> None:
    with pytest.raises(BadPayload, match="the attribute is not"):
        attribute_value(text)


@pytest.mark.parametrize("priority", range(10))
def test_a_priority_travels_with_its_mail(priority: int) -> None:
    """In the attribute in which James looks for it, as the number that it casts it to."""
    mail = with_priority(MAIL, priority)

    assert priority_of(mail) == priority
    assert mail.attributes == {PRIORITY_ATTRIBUTE: f'{{"serializer":"IntSerializer","value":{priority}}}'}
    assert priority_of(with_priority(mail, 3)) == 3


@pytest.mark.parametrize("text", ["", "null", attribute("9"), attribute(10), attribute(-1), attribute(True), "{"])
def test_a_priority_that_says_nothing_is_the_normal_one(text: str) -> None:
    assert priority_of(Mail("mail", (), attributes={PRIORITY_ATTRIBUTE: text})) == PRIORITY_NORMAL
    assert priority_of(MAIL) == PRIORITY_NORMAL


@pytest.mark.parametrize("priority", [-1, 10])
def test_there_are_ten_priorities(priority: int) -> None:
    with pytest.raises(WrongUse, match="is not a priority"):
        with_priority(MAIL, priority)
