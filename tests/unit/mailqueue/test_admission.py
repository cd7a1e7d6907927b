"""What may come into a queue is what James can read back; what may not is named, and shown to nobody."""

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.admission import admissible, check_room, is_address, parted
from mailmend.mailqueue.codec import attribute, listed_of, queued_of
from mailmend.mailqueue.rules.mails import Mail, RecipientHeader
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import WrongUse
from tests.support.james_queue import james_messages, james_queue_rows
from tests.support.queued_mails import queued_mail
from tests.support.queues import CONTENT, listed, twin_queue

MAIL = queued_mail().mail

GOOD = [
    "alice@one.test",
    "carol.d+x@three.test",
    "bob@localhost",
    "!#$%&'*+-/=?^_`{|}~@one.test",
    '"serge@home"@lokitech.com',
    '"a b"@one.test',
    r'"a\"b"@one.test',
    "a@1.2.3.4",
    "a@[1.2.3.4]",
    "a@3com.test",
    "a@x--y.test",
    "a@xn--mnchen-3ya.de",
]
BAD = [
    "",
    "@",
    "alice",
    "alice@",
    "@one.test",
    "a b@one.test",
    " alice@one.test",
    "alice@one.test\n",
    "a@b@one.test",
    ".a@one.test",
    "a.@one.test",
    "a..b@one.test",
    '""@one.test',
    '"a..b"@one.test',
    '"a"b@one.test',
    '"a\n"@one.test',
    r"a\,b@one.test",
    "alíce@one.test",
    "alice@óne.test",
    "alice@one..test",
    "alice@.one.test",
    "alice@one.test.",
    "alice@-one.test",
    "alice@one-.test",
    "alice@one_two.test",
    "alice@one.4test",
    "alice@1.2.3",
    "alice@[1.2.3]",
    "alice@[1.2.3.256]",
    "alice@[IPv6:::1]",
    f"alice@{'a' * 64}.test",
    f"alice@{'a.' * 126}test",
    "<>",
    "Alice <alice@one.test>",
]


@pytest.mark.parametrize("text", GOOD)
def test_addresses_that_james_takes(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize("text", BAD)
def test_addresses_that_james_refuses(text: str) -> None:
    """It would raise them out of the row, in the middle of a listing."""
    assert not is_address(text)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_none(text: str) -> None:
    """And what is one has both its sides, in ASCII, without white space outside of quotes."""
    if is_address(text):
        local, _, domain = text.rpartition("@")
        assert local
        assert domain
        assert text.isascii()
        assert " " not in domain


def test_every_mail_that_james_queued_may_come_in() -> None:
    mails = [queued_of(message.body).mail for message in james_messages()]
    mails += [listed_of(row).queued.mail for row in james_queue_rows(ENQUEUED_MAILS)]

    assert [admissible(mail) for mail in mails] == mails
    assert admissible(MAIL) is MAIL


@pytest.mark.parametrize(
    ("mail", "fault"),
    [
        (replace(MAIL, name=""), "its name is empty"),
        (replace(MAIL, sender="secret"), "its sender is no address"),
        (replace(MAIL, sender=""), "its sender is no address"),
        (replace(MAIL, recipients=("a@one.test", "secret")), r"recipients\[1\] is no address"),
        (
            replace(MAIL, recipient_headers=(RecipientHeader("secret", "X", "y"),)),
            r"the recipient of recipient_headers\[0\] is no address",
        ),
        (replace(MAIL, attributes={"": attribute("secret")}), "an attribute has no name"),
        (replace(MAIL, attributes={"a": "secret"}), "the attribute 'a' is not the JSON of one"),
        (replace(MAIL, attributes={"a": '{"value":"secret"}'}), "the attribute 'a' is not the JSON of one"),
        (replace(MAIL, name="\ud800"), "its name holds half a surrogate pair"),
        (replace(MAIL, state="\ud800"), "its state holds half a surrogate pair"),
        (replace(MAIL, error_message="\ud800"), "its error_message holds half a surrogate pair"),
        (
            replace(MAIL, recipient_headers=(RecipientHeader("a@x", "X", "\udfff"),)),
            r"the value of recipient_headers\[0\] holds half a surrogate pair",
        ),
        (replace(MAIL, remote_addr=cast("str", None)), "its remote_addr is missing"),
        (replace(MAIL, remote_host=cast("str", 7)), "its remote_host is not a text"),
    ],
)
def test_what_james_cannot_read_is_refused_by_field(mail: Mail, fault: str) -> None:
    with pytest.raises(WrongUse, match=fault) as refused:
        admissible(mail)
    assert "secret" not in str(refused.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(WrongUse) as refused:
        admissible(replace(MAIL, sender="x", recipients=("y", "z")))
    assert refused.value.what.count(" is no address") == 3


@pytest.mark.parametrize(
    "text",
    [
        *(attribute(value) for value in (5, 2**40, True, "x", b"x", ["a", 1, []], {"a": {"b": "c"}})),
        '{"serializer":"DateSerializer","value":"2016-09-08T14:25:52Z"}',
        '{"serializer":"CollectionSerializer","value":[{"serializer":"UrlSerializer","value":"x"}]}',
    ],
)
def test_attributes_that_james_reads_come_in(text: str) -> None:
    assert admissible(replace(MAIL, attributes={"a": text})).attributes == {"a": text}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "{}",
        '{"serializer":"IntSerializer"}',
        '{"serializer":"IntSerializer","value":"5"}',
        '{"serializer":"IntSerializer","value":2147483648}',
        '{"serializer":"LongSerializer","value":9223372036854775808}',
        '{"serializer":"BooleanSerializer","value":1}',
        '{"serializer":5,"value":5}',
        '{"serializer":"CollectionSerializer","value":["a"]}',
        '{"serializer":"MapSerializer","value":{"a":{"value":5}}}',
        '{"serializer":"MapSerializer","value":[]}',
        '{"serializer":"CollectionSerializer","value":[' * 5_000 + "{}" + "]}" * 5_000,
    ],
    ids=lambda text: text[:50],
)
def test_attributes_that_james_stumbles_over_stay_out(text: str) -> None:
    with pytest.raises(WrongUse, match="the attribute 'a' is not the JSON of one"):
        admissible(replace(MAIL, attributes={"a": text}))


async def test_nothing_is_put_anywhere_for_a_mail_that_may_not_come_in() -> None:
    twins = twin_queue()
    async with await twins.process() as queue:
        for wish in ({"priority": 9}, {"delay": timedelta(hours=1)}, {}):
            with pytest.raises(WrongUse, match="its sender is no address"):
                await queue.enqueue(replace(MAIL, sender="nobody"), CONTENT, **wish)
        assert await listed(queue) == []
        assert [blob async for blob in twins.blobs.scan()] == []
        assert (await twins.broker.depth(twins.name)).ready == 0


def test_an_envelope_that_no_broker_and_no_row_takes_is_refused() -> None:
    """Recipients and attributes count, as JSON writes them, with what may be noted of each recipient."""
    many = replace(MAIL, recipients=tuple(f"recipient-{number}@example.org" for number in range(15_000)))
    check_room(many)
    with pytest.raises(
        WrongUse, match=r"50,000 recipients .* comes to .* bytes, and no queue takes more than 4,194,304"
    ):
        check_room(replace(MAIL, recipients=many.recipients[:1] * 50_000))
    with pytest.raises(WrongUse, match="1 attributes"):
        check_room(replace(MAIL, attributes={"large": attribute('"' * 1_500_000)}))


def test_a_new_mail_is_parted_until_each_part_has_room() -> None:
    """By the number of recipients, and by their length; each recipient, with its headers, is in one part."""
    long = f"{'a' * 60}@{'b' * 60}.{'c' * 60}.org"
    recipients = tuple(f"{number}{long}" for number in range(50_000))
    headers = (RecipientHeader(recipients[0], "X-First", "x" * 3 * 2**20), RecipientHeader(recipients[-1], "X", "last"))
    mail = replace(MAIL, recipients=recipients, recipient_headers=headers, attributes={})

    parts = parted(mail)

    for part in parts:
        check_room(part)
        assert len(part.recipients) <= 5_000
    assert tuple(one for part in parts for one in part.recipients) == recipients
    assert (parts[0].recipient_headers, parts[-1].recipient_headers) == (headers[:1], headers[1:])
    assert len(parts[0].recipients) < 5_000
    assert parted(MAIL) == [MAIL]
