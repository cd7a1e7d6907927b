"""Whatever a server answers at each stage, every recipient has exactly one result, and none claims too much."""

import asyncio
import re
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mailmend.delivery.mail.attempts import AttemptStage, RecipientResult
from mailmend.delivery.transports import ConnectionReuse, DeliveryProtocol
from tests.support.smtp_attempts import CONTENT, SHORT, attempt, limits, relay
from tests.support.smtp_sink import DROP, STALL, AfterAnswer, Answer, SmtpSink, say
from tests.support.thorough import share

RECIPIENTS = ("a@example.org", "b@example.org", "a@example.org", "no address")
WORDS = ("GREETING", "EHLO", "LHLO", "HELO", "MAIL", "RCPT", "DATA", "END", "RSET")
_WHOLE = re.compile(rb"^([2-5][0-9]{2})(?: [^\r\n]*)?\r?\n", re.MULTILINE)

codes = st.one_of(st.sampled_from([220, 250, 251, 354, 421, 450, 451, 452, 500, 550, 552, 554]), st.integers(0, 999))
texts = st.sampled_from(["", "fine", "5.1.1 unknown", "2.0.0 taken", "4.2.2 full", "ä\ttext"])
replies = st.builds(lambda code, text: f"{code:03} {text}\r\n".encode(), codes, texts)
several = st.builds(lambda code, text: f"{code:03}-{text}\r\n{code:03} end\r\n".encode(), codes, texts)
nonsense = st.one_of(st.binary(max_size=12), st.sampled_from([b"\r\n", b"250\n", b"250-\r\n", b"2 50 x\r\n"]))
said = st.one_of(replies, replies, replies, several, nonsense, st.builds(bytes.__add__, replies, replies))
# Few stall: each of them takes its time.
answers = st.one_of(
    *[st.builds(Answer, said)] * 8, st.builds(Answer, said, st.sampled_from(AfterAnswer)), st.just(DROP)
)
scripts = st.dictionaries(st.sampled_from(WORDS), st.lists(answers, min_size=1, max_size=4), max_size=4)


@settings(max_examples=share(200))
@given(scripts, st.sampled_from(DeliveryProtocol))
@example({"END": [DROP]}, DeliveryProtocol.SMTP)
@example({"END": [STALL]}, DeliveryProtocol.LMTP)
@example({"END": [say("250 a"), say("250 b\r\n250 c")]}, DeliveryProtocol.LMTP)
@example({"DATA": [say("354 a\r\n250 b")], "END": [DROP]}, DeliveryProtocol.SMTP)
@example({"EHLO": [say("250 sink", AfterAnswer.DROP)]}, DeliveryProtocol.SMTP)
@example({"DATA": [say("354 go on", AfterAnswer.DROP)]}, DeliveryProtocol.SMTP)
@example({"RCPT": [say("354 a")] * 4}, DeliveryProtocol.SMTP)
def test_each_recipient_has_one_result(script: dict[str, Sequence[Answer]], protocol: DeliveryProtocol) -> None:
    """Delivered is what a 2yz to the end of the content says; a mail that was taken is delivered, or uncertain."""
    sink = SmtpSink(script, lmtp=protocol is DeliveryProtocol.LMTP)

    first, ends, second = asyncio.run(_twice(sink))

    for results in (first, second):
        assert [one.recipient for one in results] == list(RECIPIENTS)
        assert not results[-1].delivered
        assert all(one.delivered or not one.reply.positive for one in results)
        assert all(one.stage is AttemptStage.DATA for one in results if one.uncertain)
    codes_said = [int(code) for code in _WHOLE.findall(b"".join(ends))]
    taking = sum(code in range(200, 300) for code in codes_said)
    delivered = sum(one.delivered for one in first)
    assert delivered <= (taking if sink.lmtp else 3 * taking)
    if ends and taking == len(codes_said):
        assert all(one.delivered or one.uncertain for one in first if one.stage is AttemptStage.DATA)


async def _twice(sink: SmtpSink) -> tuple[Sequence[RecipientResult], Sequence[bytes], Sequence[RecipientResult]]:
    """The results, what was answered to the end of the first content, and the results of another attempt."""
    timeouts = limits(connect=SHORT, greeting=SHORT, command=SHORT, data=SHORT, end=SHORT)
    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        asked = attempt(sink, *RECIPIENTS, timeouts=timeouts)
        first = await made.deliver(asked, CONTENT)
        ends = tuple(sink.ends)
        return first, ends, await made.deliver(asked, CONTENT)
