"""Attempts to deliver to a server that refuses, stalls or goes away at each stage, by SMTP and LMTP."""

import asyncio
import errno
import socket
import tracemalloc
from datetime import timedelta

import pytest

from mailmend.delivery.mail.attempts import AttemptStage, SmtpReply
from mailmend.delivery.smtp.outgoing import relay as smtp
from mailmend.delivery.smtp.outgoing.esmtp import ServerExtensions, fitted_lines
from mailmend.delivery.transports import ConnectionReuse
from mailmend.model.errors import CannotReach
from mailmend.model.texts import NOTE_BYTES_MAX, noted
from tests.support.smtp_attempts import CONTENT, SHORT, attempt, deliver, entries_of, limits, relay
from tests.support.smtp_sink import DEAF, DROP, STALL, AfterAnswer, Answer, SmtpSink, say


async def test_a_mail_is_taken_for_all_recipients() -> None:
    """Each has the server's reply to the end of the content."""
    sink = SmtpSink()

    results = await deliver(sink)

    assert [(one.recipient, one.delivered, str(one.reply), one.stage) for one in results] == [
        ("a@example.org", True, "250 2.0.0 taken", AttemptStage.DATA),
        ("b@example.org", True, "250 2.0.0 taken", AttemptStage.DATA),
    ]
    assert {(one.host, one.tells, one.uncertain, one.tls) for one in results} == {("localhost", True, False, "")}
    assert sink.mails[0].content == CONTENT
    assert sink.lines == [
        "EHLO client.example",
        f"MAIL FROM:<from@example.com> SIZE={len(CONTENT)}",
        "RCPT TO:<a@example.org>",
        "RCPT TO:<b@example.org>",
        "DATA",
        "QUIT",
    ]


@pytest.mark.parametrize(
    ("content", "arrives"),
    [
        (b".\n..\nx", b".\r\n..\r\nx\r\n"),
        (b"a\rb\nc\r\n", b"a\r\nb\r\nc\r\n"),
        (b"a\r\n.\r\nMAIL FROM:<x@example.org>\r\n", b"a\r\n.\r\nMAIL FROM:<x@example.org>\r\n"),
        (b"a\n.\r\nb\r.\r\nc", b"a\r\n.\r\nb\r\n.\r\nc\r\n"),
        (b"", b""),
        (b"x\n" * 200_000, b"x\r\n" * 200_000),
    ],
)
async def test_a_content_arrives_as_it_is(content: bytes, arrives: bytes) -> None:
    """Dots do not end it, and every line ends with CR and LF."""
    sink = SmtpSink(extensions=())

    async with sink.running(), relay() as made:
        await made.deliver(attempt(sink), content)

    assert [one.content for one in sink.mails] == [arrives]


REFUSED = [
    ("GREETING", AttemptStage.GREETING),
    ("MAIL", AttemptStage.MAIL),
    ("RCPT", AttemptStage.RECIPIENT),
    ("DATA", AttemptStage.DATA),
    ("END", AttemptStage.DATA),
]


@pytest.mark.parametrize("reply", ["421 4.3.2 going down", "450 4.2.0 later", "550 5.7.1 never"])
@pytest.mark.parametrize(("word", "stage"), REFUSED)
async def test_a_refusal_comes_with_its_stage(word: str, stage: AttemptStage, reply: str) -> None:
    """In the server's own words, for every recipient."""
    results = await deliver(SmtpSink({word: [say(reply)] * 2}))

    assert {(one.delivered, str(one.reply), one.stage) for one in results} == {(False, reply, stage)}
    assert not any(one.uncertain or one.reply.ours for one in results)
    assert len(results) == 2


NOT_UTF8 = [
    (b"451 4.7.1 Empf\xe4nger: bitte sp\xe4ter\r\n", "451 4.7.1 Empf\ufffdnger: bitte sp\ufffdter"),
    (b"421 4.7.0 \xd3\xc3\xbb\xa7\r\n", f"421 4.7.0 {noted(bytes.fromhex('d3c3bba7'))}"),
    (b"451-4.7.1 a\x1b[0m\xff\r\n451 4.7.1 \xed\xa0\x80\r\n", "451 4.7.1 a [0m\ufffd \ufffd\ufffd\ufffd"),
    (b"450 4.2.0 " + b"\xe4" * 7_000 + b"\r\n", "450 4.2.0 " + "\ufffd" * 665 + "..."),
]


@pytest.mark.parametrize(("said", "reply"), NOT_UTF8)
@pytest.mark.parametrize(("word", "stage"), [*REFUSED, ("EHLO", AttemptStage.GREETING)])
@pytest.mark.parametrize("lmtp", [False, True])
async def test_a_reply_in_any_bytes_is_a_refusal_that_can_be_kept(
    word: str, stage: AttemptStage, said: bytes, reply: str, lmtp: bool
) -> None:
    """At each stage: old servers answer in Latin-1 or GBK."""
    word = "LHLO" if lmtp and word == "EHLO" else word

    results = await deliver(SmtpSink({word: [Answer(said)] * 2}, lmtp=lmtp))

    assert {(one.delivered, str(one.reply), one.stage) for one in results} == {(False, reply, stage)}
    assert len(results) == 2
    assert all(len(str(one.reply).encode()) <= NOTE_BYTES_MAX for one in results)


NONSENSE = [
    *((word, stage, answer) for word, stage in REFUSED for answer in (DROP, STALL, say("hello"), say("999 x"))),
    ("END", AttemptStage.DATA, say("250-a\r\n251 b")),
    ("END", AttemptStage.DATA, say("25 x")),
    ("END", AttemptStage.DATA, say("250x")),
    ("END", AttemptStage.DATA, Answer(b"250-x\r\n" * 10_000)),
    ("END", AttemptStage.DATA, Answer(b"2" * 100_000)),
    ("END", AttemptStage.DATA, say("250-taken", AfterAnswer.DROP)),
]


@pytest.mark.parametrize(("word", "stage", "answer"), NONSENSE)
async def test_a_server_that_goes_away_or_talks_nonsense_refuses_for_now(
    word: str, stage: AttemptStage, answer: Answer
) -> None:
    """Where all of the mail was sent, it may have been taken: the result says that."""
    timeouts = limits(greeting=SHORT, command=SHORT, data=SHORT, end=SHORT) if answer is STALL else limits()

    results = await deliver(SmtpSink({word: [answer] * 2}), timeouts=timeouts)

    assert len(results) == 2
    assert {(one.delivered, one.reply.temporary, one.reply.ours, one.stage) for one in results} == {
        (False, True, True, stage)
    }
    assert {one.uncertain for one in results} == {word == "END"}


async def test_one_that_says_more_than_was_asked_is_not_believed() -> None:
    """A 250 to DATA, or a 354 to MAIL, is no consent; nothing of the mail is sent."""
    to_data = SmtpSink({"DATA": [say("250 taken")]})
    to_mail = SmtpSink({"MAIL": [say("354 go on")]})

    results = [*await deliver(to_data), *await deliver(to_mail)]

    assert not any(one.delivered or one.uncertain or one.reply.permanent for one in results)
    assert not to_data.mails + to_mail.mails


async def test_recipients_are_refused_one_by_one() -> None:
    """Those that the server accepted have the mail, the others its reply."""
    sink = SmtpSink({"RCPT": [say("550 5.1.1 unknown"), say("250 fine"), say("450 4.2.1 busy")]})

    results = await deliver(sink, recipients=entries_of("a@example.org", "b@example.org", "c@example.org"))

    assert [(one.delivered, one.reply.code, one.stage) for one in results] == [
        (False, 550, AttemptStage.RECIPIENT),
        (True, 250, AttemptStage.DATA),
        (False, 450, AttemptStage.RECIPIENT),
    ]
    assert sink.mails[0].recipients == ["RCPT TO:<b@example.org>"]


async def test_the_content_waits_for_what_is_to_be_done_before_it() -> None:
    """The server has said that it would take it, and has none of it; where it refuses, nothing is to be done."""
    sink, seen = SmtpSink({"RCPT": [say("250 fine"), say("250 fine"), say("550 no")]}), list[tuple[int, str]]()

    async def before_content() -> None:
        await asyncio.sleep(0)
        seen.append((len(sink.ends), sink.lines[-1]))

    async with sink.running(), relay() as made:
        results = await made.deliver(attempt(sink), CONTENT, before_content)
        refused = await made.deliver(attempt(sink, recipients=entries_of("c@example.org")), CONTENT, before_content)

    assert [one.delivered for one in (*results, *refused)] == [True, True, False]
    assert seen == [(0, "DATA")]


async def test_where_it_cannot_be_done_no_content_is_sent() -> None:
    """The error is the caller's, and the connection, which waits for content, is of no more use."""
    sink = SmtpSink()

    async def before_content() -> None:
        raise CannotReach("the ledger does not answer")

    async with sink.running(), relay(reuse=ConnectionReuse()) as made:
        with pytest.raises(CannotReach):
            await made.deliver(attempt(sink), CONTENT, before_content)
        assert made.idle_connections == 0
        await sink.ended.wait()

    assert (sink.mails, sink.ends, sink.lines[-1]) == ([], [], "DATA")


async def test_without_an_accepted_recipient_no_content_is_sent() -> None:
    """The connection ends in order."""
    sink = SmtpSink({"RCPT": [say("550 no")] * 2})

    results = await deliver(sink)

    assert [one.reply.code for one in results] == [550, 550]
    assert "DATA" not in sink.lines
    assert sink.lines[-1] == "QUIT"


@pytest.mark.parametrize(
    ("reply", "code", "temporary"),
    [
        ("552 too many", 452, True),
        ("552 5.5.3 too many", 452, True),
        ("552 5.2.2 mailbox full", 552, False),
        ("452 4.5.3 too many", 452, True),
    ],
)
async def test_too_many_recipients_at_once_come_again(reply: str, code: int, *, temporary: bool) -> None:
    """A 552 after others were accepted; the first recipient's means what it says (RFC 5321 4.5.3.1.10)."""
    later = await deliver(SmtpSink({"RCPT": [say("250 fine"), say(reply)]}))
    first = await deliver(SmtpSink({"RCPT": [say(reply), say("250 fine")]}))

    assert later[0].delivered
    assert (later[1].reply.code, later[1].reply.temporary) == (code, temporary)
    assert str(first[0].reply) == reply


async def test_what_was_said_of_a_recipient_stands_when_the_connection_is_lost() -> None:
    """The others are refused for now."""
    sink = SmtpSink({"RCPT": [say("550 5.1.1 unknown"), say("250 fine"), DROP]})

    results = await deliver(sink, recipients=entries_of("a@example.org", "b@example.org", "c@example.org"))

    assert [(one.reply.code, one.reply.ours) for one in results] == [(550, False), (451, True), (451, True)]


async def test_421_at_one_recipient_is_the_answer_for_all_that_have_none() -> None:
    """Those that were accepted before have it too."""
    sink = SmtpSink({"RCPT": [say("250 fine"), say("421 4.7.0 enough", AfterAnswer.DROP)]})

    results = await deliver(sink)

    assert {(str(one.reply), one.stage) for one in results} == {("421 4.7.0 enough", AttemptStage.RECIPIENT)}


async def test_a_mail_is_encoded_once_for_all_servers_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as one of them is under way; one that takes 8-bit bytes has it as it is."""
    content = b"Subject: hello\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\xc3\xa9\r\n"
    made, plain, eight_bit = list[bytes](), SmtpSink(extensions=()), SmtpSink(extensions=("8BITMIME",))

    async def counting(lines: bytes, offered: ServerExtensions) -> bytes | SmtpReply:
        made.append(lines)
        return await fitted_lines(lines, offered)

    monkeypatch.setattr(smtp, "fitted_lines", counting)
    async with plain.running(), eight_bit.running(), relay() as sending:
        await asyncio.gather(*(sending.deliver(attempt(sink), content) for sink in (plain, plain, plain, eight_bit)))

    assert len(made) == 1
    assert [mail.content for mail in eight_bit.mails] == [content]
    (encoded,) = {mail.content for mail in plain.mails}
    assert encoded.isascii()
    assert len(plain.mails) == 3


async def test_too_many_open_files_refuse_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no fault of the mail, nor of its server."""
    asked = attempt(SmtpSink(port=25), "a@example.org")

    def no_socket(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many")

    async with relay() as made:
        monkeypatch.setattr(socket, "socket", no_socket)
        (result,) = await made.deliver(asked, CONTENT)
        monkeypatch.undo()

    assert result.stage is AttemptStage.CONNECT
    assert str(result.reply) == "451 4.3.0 no connection to localhost[127.0.0.1]:25: Too many open files"


async def test_a_mail_that_goes_to_many_slow_servers_at_once_is_in_memory_once() -> None:
    """Each attempt holds some blocks of it: what all of them have together is less than the mail."""
    attempts, content = 12, b"." + b"x" * 97 + b"\r\n"
    content *= 80_000
    sink = SmtpSink({"CONTENT": [DEAF] * attempts}, extensions=())
    slow = limits(data=timedelta(seconds=0.3))

    async with sink.running(), relay() as made:
        tracemalloc.start()
        try:
            results = await asyncio.gather(
                *(made.deliver(attempt(sink, "a@example.org", timeouts=slow), content) for _ in range(attempts))
            )
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert [str(result.reply) for (result,) in results] == [
        "451 4.4.2 the server took too long before the end of the mail"
    ] * attempts
    assert most < len(content)


LARGE = b"x" * 98 + b"\r\n"


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (say("552 5.3.4 too large", AfterAnswer.DEAF), "552 5.3.4 too large"),
        (say("250 taken", AfterAnswer.DEAF), "451 4.5.0 the server answered what was not asked: 250 taken"),
        (DEAF, "451 4.4.2 the server took too long before the end of the mail"),
        (DROP, "451 4.4.2 the connection was lost before the end of the mail"),
    ],
)
async def test_what_ends_the_content_early_leaves_nothing_uncertain(answer: Answer, reply: str) -> None:
    """Its end was not sent, so the server has not taken it, whatever it says."""
    sink = SmtpSink({"CONTENT": [answer]}, extensions=())

    results = await deliver(sink, LARGE * 200_000, timeouts=limits(data=timedelta(seconds=0.3)))

    assert {(str(one.reply).split(" (")[0], one.stage, one.uncertain) for one in results} == {
        (reply, AttemptStage.DATA, False)
    }
    assert not sink.mails


async def test_lmtp_answers_for_each_recipient() -> None:
    """Only for those that it accepted, in their order."""
    script = {"RCPT": [say("250 fine"), say("550 5.1.1 unknown")], "END": [say("250 2.0.0 in"), say("452 4.2.2 full")]}
    sink = SmtpSink(script, lmtp=True)

    results = await deliver(sink, recipients=entries_of("a@example.org", "b@example.org", "c@example.org"))

    assert sink.lines[0] == "LHLO client.example"
    assert [(one.delivered, str(one.reply)) for one in results] == [
        (True, "250 2.0.0 in"),
        (False, "550 5.1.1 unknown"),
        (False, "452 4.2.2 full"),
    ]


async def test_replies_of_lmtp_may_come_at_once() -> None:
    """In one packet, each is that of its recipient."""
    sink = SmtpSink({"END": [Answer(b"250-2.0.0 in\r\n250 2.0.0 both\r\n550 5.7.1 no\r\n"), Answer()]}, lmtp=True)

    results = await deliver(sink)

    assert [str(one.reply) for one in results] == ["250 2.0.0 in both", "550 5.7.1 no"]


async def test_lmtp_that_breaks_between_replies_leaves_the_rest_uncertain() -> None:
    """What was answered for stands."""
    results = await deliver(SmtpSink({"END": [say("250 in"), DROP]}, lmtp=True))

    assert [(one.delivered, one.uncertain) for one in results] == [(True, False), (False, True)]
