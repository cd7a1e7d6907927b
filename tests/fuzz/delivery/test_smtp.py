"""SMTP in both directions, spoilt: a listener answers each line or ends, a delivery comes to a result."""

import asyncio
import re

from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.smtp.incoming.replies import FAULT
from tests.support.fuzzing import fuzzing, spoilt_bytes
from tests.support.mail_clients import entrance
from tests.support.smtp_attempts import BOTH, deliver
from tests.support.smtp_sink import AfterAnswer, Answer, SmtpSink

SESSION = (
    b"EHLO client.example\r\nMAIL FROM:<ann@example.org> SIZE=20 BODY=8BITMIME RET=HDRS ENVID=x+2B\r\n"
    b"RCPT TO:<bob@example.com> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;bob@example.com\r\n"
    b"DATA\r\nSubject: x\r\n\r\n..dot\r\n.\r\nRSET\r\nNOOP\r\nVRFY bob\r\nQUIT\r\n"
)
SESSION_WORDS = (
    *(b"\r\n", b"\r", b"\n", b"\x00", b"\xff", b" ", b"<", b">", b"@", b":", b'"', b"\\", b"+", b"=", b",", b";", b"."),
    *(
        b"\r\n.\r\n",
        b"BDAT 5 LAST\r\n",
        b"HELO\r\n",
        b"EHLO \xff\r\n",
        b"MAIL FROM:<>",
        b"RCPT TO:<",
        b"SIZE=",
        b"9" * 5_000,
    ),
    *(
        b"STARTTLS\r\n",
        b"AUTH PLAIN\r\n",
        b"GET / HTTP/1.1\r\n",
        b"x" * 3_000,
        b"@[IPv6:::",
        b"\xe2\x80\xa8",
        b"+FF",
        b"+",
    ),
)
REPLY = b"250-mx.example\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250 2.1.0 fine\r\n"
REPLY_WORDS = (
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b"\x00",
        b"\xff",
        b"-",
        b" ",
        b"250",
        b"421",
        b"4.",
        b"5.7.1",
        b"999",
        b"000",
        b"25",
        b"5",
    ),
    *(
        b"SIZE ",
        b"SIZE -1",
        b"SIZE " + b"9" * 5_000,
        b"\xc3\x28",
        b"\x1b[31m",
        b"x" * 3_000,
        b"250-x\r\n" * 200,
        b"\xb2\xbb",
    ),
)
WORDS = ("GREETING", "EHLO", "MAIL", "RCPT", "DATA", "END", "RSET")
ANSWER = re.compile(r"[2-5]\d\d[ -]")


@fuzzing(500)
@given(spoilt_bytes(SESSION, SESSION_WORDS, changes_max=4))
def test_a_session_is_answered_and_the_next_one_is_taken(session: bytes) -> None:
    async def story() -> tuple[list[str], str]:
        async with entrance() as site:
            client = await site.client("")
            client.write(session)
            client.end_input()
            replies = await client.rest()
            return replies, await (await site.client()).hand_over(b"Subject: x\r\n\r\nx\r\n")

    replies, taken = asyncio.run(story())

    assert all(ANSWER.match(line) for reply in replies for line in reply.splitlines()), replies
    assert not [reply for reply in replies if FAULT.text in reply]
    assert taken.startswith("250")


@fuzzing(500)
@given(st.dictionaries(st.sampled_from(WORDS), spoilt_bytes(REPLY, REPLY_WORDS), min_size=1, max_size=3), st.booleans())
def test_a_delivery_comes_to_a_result_whatever_is_replied(said: dict[str, bytes], lmtp: bool) -> None:
    """The server hangs up behind what it says; notes of its words can be kept."""
    script = {word: [Answer(text, AfterAnswer.DROP)] for word, text in said.items()}

    results = asyncio.run(deliver(SmtpSink(script=script, lmtp=lmtp)))

    assert len(results) == len(BOTH)
    for result in results:
        str(result).encode()
