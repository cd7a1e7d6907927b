"""The server of deliveries: mails in memory, servers that answer by a script, time turned by hand."""

import errno
import logging
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any

import pytest

from mailmend.delivery.mail.attempts import NextHop, SmtpReply
from mailmend.delivery.mail.envelopes import outgoing_of
from mailmend.delivery.metrics import LOST_REPORTS
from mailmend.delivery.policy.policy import CounterPolicy, ExactValue, PickupField, Threshold, ThresholdCondition
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.delivery.server import serving as server
from mailmend.delivery.transports import SourceAddress
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.errors import BadPayload, WrongUse
from tests.support.deliveries import (
    ACCEPTED,
    BUSY,
    CONTENT,
    LATER,
    MINUTE,
    NEVER,
    DeliverySite,
    ScriptedRelay,
    TableHops,
)


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite()


async def test_a_mail_goes_to_every_recipient_and_leaves_the_queue(site: DeliverySite) -> None:
    """One attempt for each, with the server of its domain."""
    await site.put("bob@one.example", "cy@two.example")
    await site.serve(60)
    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example"]
    assert sorted(attempt.hop.host for _, attempt in site.relay.attempts) == ["mx.one.example", "mx.two.example"]
    assert await site.mails() == []


async def test_who_was_refused_for_now_is_tried_again_and_the_others_are_not(site: DeliverySite) -> None:
    """Given two refusals of one recipient of two, it is tried after one minute, and after five more."""
    site.relay.scripts["bob@one.example"] = [LATER, LATER, ACCEPTED]
    await site.put("bob@one.example", "cy@two.example")
    await site.serve(600)
    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example"]
    began = [at for at, attempt in site.relay.attempts if attempt.recipients[0].recipient == "bob@one.example"]
    assert [round((later - sooner) / 60) for sooner, later in pairwise(began)] == [1, 5]
    assert await site.mails() == []


async def test_a_mail_that_is_put_off_remembers_its_attempts_and_its_first_id(site: DeliverySite) -> None:
    """Its recipients that are left, and the last reply."""
    first = await site.put("bob@one.example", "cy@two.example")
    site.relay.scripts["bob@one.example"] = [LATER]
    await site.serve(30)
    (mail,) = await site.mails()
    assert (mail.recipients, mail.error_message) == (("bob@one.example",), "450 4.2.0 later")
    assert str(first) in mail.attributes["mailmend.delivery"]
    assert [wait < MINUTE for wait in await site.waits()] == [True]


async def test_the_sender_of_a_mail_that_was_refused_for_good_is_notified(site: DeliverySite) -> None:
    """By a mail without a sender, through the same queue; nothing is tried again."""
    site.relay.scripts["bob@one.example"] = [NEVER]
    await site.put("bob@one.example")
    await site.serve(600)
    assert site.relay.recipients == ["bob@one.example", "ann@sender.example"]
    assert site.relay.attempts[1][1].mail.sender is None
    assert site.relay.reports() == [("bob@one.example", "failed")]


async def test_a_notification_that_cannot_be_delivered_is_dropped(site: DeliverySite) -> None:
    """Nobody is told of it."""
    site.relay.scripts |= {"bob@one.example": [NEVER], "ann@sender.example": [NEVER]}
    await site.put("bob@one.example")
    await site.serve(600)
    assert site.relay.recipients == ["bob@one.example", "ann@sender.example"]
    assert await site.mails() == []


@pytest.mark.parametrize(
    ("reply", "again"),
    [
        (SmtpReply(550, "5.1.2", "no such domain", ours=True), False),
        (SmtpReply(451, "4.4.3", "DNS is silent", ours=True), True),
    ],
)
async def test_where_no_server_is_known_no_attempt_is_made(site: DeliverySite, reply: SmtpReply, again: bool) -> None:
    """A domain that is not there fails; DNS that does not answer is asked again."""
    site.hops.table["nowhere.example"] = reply
    await site.put("bob@nowhere.example")
    await site.serve(30)
    assert "bob@nowhere.example" not in site.relay.recipients
    assert [one.recipients for one in await site.mails()] == ([("bob@nowhere.example",)] if again else [])
    assert site.relay.reports() == ([] if again else [("bob@nowhere.example", "failed")])


def counted_by(*fields: PickupField, **threshold: Any) -> CounterPolicy:
    return CounterPolicy(fields, default=Threshold(**threshold))


async def test_the_limits_of_the_policies_hold(site: DeliverySite) -> None:
    """Two at once to a domain, whatever waits; other domains do not wait for it."""
    site.relay.seconds = 10.0
    for number in range(10):
        await site.put(f"r{number}@one.example")
    await site.put("bob@two.example")
    await site.serve(25, [counted_by(PickupField.RECIPIENT_DOMAIN, concurrency=2)])
    assert site.relay.most == {"one.example": 2, "two.example": 1}
    assert "bob@two.example" in site.relay.recipients[:3]


async def test_a_rate_is_kept_and_nothing_waits_longer_than_for_it(site: DeliverySite) -> None:
    """Given one in ten seconds, six take fifty."""
    for number in range(6):
        await site.put(f"r{number}@one.example")
    await site.serve(100, [counted_by(rate=DeliveryRate(1, 10 * SECOND))])
    began = [at for at, _ in site.relay.attempts]
    assert [round(at - began[0]) for at in began] == [0, 10, 20, 30, 40, 50]


async def test_no_more_attempts_run_at_once_than_the_server_may(site: DeliverySite) -> None:
    """Whatever the policies allow."""
    for number in range(10):
        await site.put(f"r{number}@one.example")
    await site.serve(60, concurrency=3)
    assert site.relay.most == {"one.example": 3}
    assert len(site.relay.had) == 10


async def test_what_waits_for_its_policy_for_long_goes_back_and_no_retry_is_counted(site: DeliverySite) -> None:
    """Given a policy that lets nothing through, its mails do not keep those behind them from being taken."""
    closed = CounterPolicy(
        (PickupField.RECIPIENT_DOMAIN,),
        conditions=(
            ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue("one.example"),)}, Threshold(concurrency=0)),
        ),
    )
    first = await site.put("bob@one.example")
    await site.put("cy@two.example")
    await site.serve(600, [closed], prefetch=1)
    assert site.relay.had == ["cy@two.example"]
    assert [one.queued.enqueue_id async for one in site.queue.browse()] == [first], "it is as it was"


async def test_mails_that_wait_leave_room_for_others_soon_and_come_back_ever_later(site: DeliverySite) -> None:
    """Given ten that may not go and room for four, one behind them goes within seconds, not after minutes."""
    closed = CounterPolicy(
        (PickupField.RECIPIENT_DOMAIN,),
        conditions=(
            ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue("one.example"),)}, Threshold(concurrency=0)),
        ),
    )
    for number in range(10):
        await site.put(f"r{number}@one.example")
    await site.put("cy@two.example")
    began = site.clock.monotonic()
    await site.serve(3600, [closed], prefetch=4, until=lambda: bool(site.relay.had))
    assert site.clock.monotonic() - began < 90
    await site.serve(3600, [closed], prefetch=4)
    assert max(await site.waits()) > 7 * MINUTE
    assert site.relay.recipients == ["cy@two.example"]


async def test_no_more_bytes_are_held_than_may_be(site: DeliverySite) -> None:
    """However many mails there is room for otherwise; all of them go in the end."""
    for number in range(10):
        await site.put(f"r{number}@one.example")
    await site.serve(600, bytes_at_once_max=3 * len(CONTENT))
    assert site.relay.most == {"one.example": 3}
    assert len(site.relay.had) == 10


async def test_mails_that_wait_and_have_the_bytes_leave_room_for_others(site: DeliverySite) -> None:
    """Given some that may not go and fill the room, one behind them goes within seconds."""
    closed = CounterPolicy(
        (PickupField.RECIPIENT_DOMAIN,),
        conditions=(
            ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue("one.example"),)}, Threshold(concurrency=0)),
        ),
    )
    for number in range(4):
        await site.put(f"r{number}@one.example")
    await site.put("cy@two.example")
    await site.serve(60, [closed], bytes_at_once_max=2 * len(CONTENT))
    assert site.relay.had == ["cy@two.example"]


async def test_a_bounded_number_of_recipients_is_prepared_at_once_and_mails_take_turns(site: DeliverySite) -> None:
    """A mail of many recipients neither asks everything at once nor holds up the next one."""
    asked, most, waiting = list[str](), list[int](), set[str]()

    class SlowHops(TableHops):
        async def of(self, domain: str) -> Sequence[NextHop]:
            asked.append(domain)
            waiting.add(domain)
            most.append(len(waiting))
            await site.clock.pause(1)
            waiting.remove(domain)
            return await super().of(domain)

    site.hops = SlowHops()
    await site.put(*(f"r@d{number}.example" for number in range(300)))
    await site.put("cy@two.example")
    await site.serve(60, concurrency=400)

    assert max(most) == 100
    assert asked.index("two.example") <= 200
    assert len(site.relay.had) == 301


async def test_a_mail_for_nobody_leaves_the_queue(site: DeliverySite) -> None:
    """It has nowhere to go."""
    await site.put()
    await site.serve(5)
    assert await site.mails() == []


async def test_a_mail_that_waits_for_its_policy_expires_all_the_same(site: DeliverySite) -> None:
    """Its sender is told, without any attempt; its age runs over all of its passages through the queue."""
    at = (site.clock.now + 30 * MINUTE).isoformat()
    await site.put("bob@one.example", attributes={"expires": attribute(at)})
    only_reports = CounterPolicy(
        (PickupField.RECIPIENT_DOMAIN,),
        conditions=(ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue("sender.example"),)}, Threshold()),),
        default=Threshold(concurrency=0),
    )
    await site.serve(29 * 60, [only_reports])
    assert site.relay.reports() == []
    await site.serve(5 * 60, [only_reports])
    assert site.relay.reports() == [("bob@one.example", "failed")]
    assert site.relay.recipients == ["ann@sender.example"]


TWO = (NextHop("first.example", "192.0.2.1"), NextHop("second.example", "192.0.2.2"))


async def test_the_next_server_is_tried_where_the_first_is_not_there(site: DeliverySite) -> None:
    """In the same attempt: no retry is counted, nothing waits."""
    site.hops.table["one.example"] = TWO
    site.relay.silent.add("first.example")
    await site.put("bob@one.example")
    await site.serve(5)
    assert [attempt.hop.host for _, attempt in site.relay.attempts] == ["first.example", "second.example"]
    assert site.relay.had == ["bob@one.example"]


async def test_the_next_server_is_not_tried_where_the_first_refuses_the_recipient(site: DeliverySite) -> None:
    """What a server says of a recipient holds for the others of the domain."""
    site.hops.table["one.example"] = TWO
    site.relay.scripts["bob@one.example"] = [BUSY]
    await site.put("bob@one.example")
    await site.serve(5)
    assert [attempt.hop.host for _, attempt in site.relay.attempts] == ["first.example"]


async def test_the_next_server_is_tried_under_its_own_limits_or_not_at_all(site: DeliverySite) -> None:
    """Given that it may have none now, the recipient goes back to the queue, and no retry is counted."""
    site.hops.table["one.example"] = TWO
    site.relay.silent.add("first.example")
    closed = CounterPolicy(
        (PickupField.REMOTE_MX,),
        conditions=(
            ThresholdCondition({PickupField.REMOTE_MX: (ExactValue("second.example"),)}, Threshold(concurrency=0)),
        ),
    )
    await site.put("bob@one.example")
    await site.serve(5, [closed])
    assert [attempt.hop.host for _, attempt in site.relay.attempts] == ["first.example"]
    assert [round(wait / MINUTE) for wait in await site.waits()] == [1]


async def test_mails_go_from_our_addresses_in_turn_of_the_family_of_the_server(site: DeliverySite) -> None:
    """Two addresses of IPv4 by turns; the one of IPv6 for a server that has such an address only."""
    sources = tuple(map(SourceAddress, ("198.51.100.1", "198.51.100.2", "2001:db8::1")))
    site.hops.table["six.example"] = (NextHop("mx.six.example", "2001:db8::25"),)
    for number in range(4):
        await site.put(f"r{number}@one.example")
    await site.put("bob@six.example")
    await site.serve(60, sources=sources, concurrency=1)
    used = {attempt.recipients[0].recipient: attempt.source.address for _, attempt in site.relay.attempts}
    assert used.pop("bob@six.example") == "2001:db8::1"
    assert sorted(used.values()) == ["198.51.100.1", "198.51.100.1", "198.51.100.2", "198.51.100.2"]


async def test_a_server_that_none_of_our_addresses_reaches_is_not_tried(site: DeliverySite) -> None:
    """And from no other address than those."""
    site.hops.table["six.example"] = (NextHop("mx.six.example", "2001:db8::25"),)
    await site.put("bob@six.example")
    await site.serve(5, sources=(SourceAddress("198.51.100.1"),))
    assert site.relay.attempts == []
    assert len(await site.waits()) == 1


async def test_a_server_that_is_stopped_lets_its_attempts_end(site: DeliverySite) -> None:
    """And picks nothing further; what it did not begin stays in the queue."""
    site.relay.seconds = 20.0
    for number in range(3):
        await site.put(f"r{number}@one.example")
    await site.serve(10, [counted_by(concurrency=1)])
    assert site.relay.had == ["r0@one.example"]
    assert sorted(one.recipients for one in await site.mails()) == [("r1@one.example",), ("r2@one.example",)]


async def test_an_attempt_that_does_not_end_in_time_goes_back(site: DeliverySite) -> None:
    """It is cut off, and its mail is as it was."""
    site.relay.seconds = 500.0
    await site.put("bob@one.example")
    await site.serve(10)
    assert site.relay.had == []
    assert [one.recipients for one in await site.mails()] == [("bob@one.example",)]
    assert site.relay.running == {"one.example": 0}


async def test_of_a_mail_that_is_half_delivered_when_the_server_stops_the_rest_is_put_off(site: DeliverySite) -> None:
    """Nobody has it twice."""
    await site.put("bob@one.example", "cy@two.example")
    limits = [counted_by(rate=DeliveryRate(1, 3600 * SECOND))]
    await site.serve(10, limits)
    assert len(site.relay.had) == 1
    assert [len(one.recipients) for one in await site.mails()] == [1]
    await site.serve(10)
    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example"]


async def test_what_is_left_when_the_server_stops_is_one_mail_however_long_that_takes(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real clocks move on from one recipient to the next: a mail for each of thousands would outlast the end."""
    micros, ticks = site.clock.micros, count(step=7)
    monkeypatch.setattr(site.clock, "micros", lambda: micros() + next(ticks))
    await site.put(*(f"r{number}@one.example" for number in range(40)))
    await site.serve(10, [counted_by(rate=DeliveryRate(1, 3600 * SECOND))])
    assert len(site.relay.had) == 1
    assert [len(one.recipients) for one in await site.mails()] == [39]


@pytest.mark.parametrize("call", ["ack", "enqueue"])
async def test_a_queue_that_does_not_answer_once_costs_no_second_delivery(site: DeliverySite, call: str) -> None:
    """What was put is not put again, what was delivered is not delivered again."""
    site.failing.add(call)
    site.relay.scripts["bob@one.example"] = [LATER, ACCEPTED]
    await site.put("bob@one.example", "cy@two.example")
    await site.serve(600)
    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example"]
    assert await site.mails() == []
    assert site.failing == set()


async def test_an_error_of_ours_ends_neither_the_server_nor_the_mail(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as a refusal for now, is logged, and its counters are free again."""
    deliver = ScriptedRelay.deliver

    async def failing(self: ScriptedRelay, *given: Any) -> Any:
        monkeypatch.setattr(ScriptedRelay, "deliver", deliver)
        raise ZeroDivisionError

    monkeypatch.setattr(ScriptedRelay, "deliver", failing)
    await site.put("bob@one.example")
    await site.serve(120, [counted_by(concurrency=1)])
    assert site.relay.had == ["bob@one.example"]
    assert "an attempt failed by itself" in caplog.text


async def test_a_mail_that_cannot_be_understood_is_tried_again_later(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Given one that an error of ours meets, those behind it are delivered, and it stays in the queue."""
    read = outgoing_of

    def failing(dequeued: Any, now: Any) -> Any:
        if dequeued.mail.recipients == ("bob@one.example",):
            raise ZeroDivisionError
        return read(dequeued, now)

    monkeypatch.setattr(server, "outgoing_of", failing)
    await site.put("bob@one.example")
    await site.put("cy@two.example")
    await site.serve(20)
    assert site.relay.had == ["cy@two.example"]
    assert [one.recipients for one in await site.mails()] == [("bob@one.example",)]
    assert "a mail cannot be understood" in caplog.text


async def test_each_end_of_a_recipient_is_one_line_of_the_log_without_addresses(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """Mail, domain, server and reply; nothing of the mail's contents."""
    caplog.set_level(logging.INFO, "mailmend.delivery")
    site.relay.scripts["bob@one.example"] = [SmtpReply(450, "4.2.0", "<bob@one.example> not now"), ACCEPTED]
    first = await site.put("bob@one.example")
    await site.serve(120)
    lines = [(one.getMessage(), one.__dict__) for one in caplog.records if one.name == "mailmend.delivery"]
    assert [line for line, _ in lines] == ["a recipient was refused for now", "a recipient has the mail"]
    assert {fields["mail"] for _, fields in lines} == {f"{first}:0"}
    assert [fields["reply"] for _, fields in lines] == ["450 4.2.0 (address) not now", "250 2.0.0 taken"]
    assert {(fields["domain"], fields["host"]) for _, fields in lines} == {("one.example", "mx.one.example")}


async def test_what_a_mail_requires_of_its_servers_is_in_every_attempt(site: DeliverySite) -> None:
    """TLS, and its priority; also after it was put off."""
    site.relay.scripts["bob@one.example"] = [LATER, ACCEPTED]
    await site.put("bob@one.example", attributes={"REQUIRETLS": attribute(True), "MAIL_PRIORITY": attribute(7)})
    await site.serve(600)
    asked = [(attempt.mail.requires_tls, attempt.mail.priority) for _, attempt in site.relay.attempts]
    assert asked == [(True, 7), (True, 7)]


async def test_a_reply_that_is_no_utf8_is_a_note_and_decides_nothing(site: DeliverySite) -> None:
    """Who was refused for now comes again, and nobody else does."""
    site.relay.scripts["bob@one.example"] = [SmtpReply(451, "4.7.1", "Empf\udce4nger: sp\udce4ter"), ACCEPTED]
    await site.put("bob@one.example", "cy@two.example", "di@three.example")

    await site.serve(30)
    (mail,) = await site.mails()
    await site.serve(600)

    assert (mail.recipients, mail.error_message) == (("bob@one.example",), "451 4.7.1 Empf\ufffdnger: sp\ufffdter")
    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example", "di@three.example"]
    assert (site.queue.dead, await site.mails()) == ([], [])


@pytest.mark.parametrize(
    "error", [BadPayload("a note cannot be kept"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "")]
)
async def test_a_mail_whose_notes_cannot_be_kept_is_kept_without_them(site: DeliverySite, error: Exception) -> None:
    """Its refusals are counted all the same."""
    site.relay.scripts["bob@one.example"] = [LATER, LATER, ACCEPTED]
    site.refusing["enqueue"] = [error]
    await site.put("bob@one.example", "cy@two.example")

    await site.serve(30)
    (mail,) = await site.mails()
    await site.serve(600)

    assert (mail.recipients, mail.error_message) == (("bob@one.example",), None)
    assert [round((at - site.relay.attempts[0][0]) / 60) for at, _ in site.relay.attempts] == [0, 0, 1, 6]
    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example"]
    assert (site.queue.dead, await site.mails()) == ([], [])


async def test_a_mail_that_cannot_be_put_off_by_an_error_of_the_system_is_put_off_later(site: DeliverySite) -> None:
    """Given no descriptor for a file that is needed; nothing is sent twice, and nothing stays unacked."""
    site.relay.scripts["bob@one.example"] = [LATER, ACCEPTED]
    site.refusing["enqueue"] = [OSError(errno.EMFILE, "Too many open files")] * 2
    await site.put("bob@one.example", "cy@two.example")

    await site.serve(600)

    assert sorted(site.relay.had) == ["bob@one.example", "cy@two.example"]
    assert (site.queue.dead, await site.mails()) == ([], [])


async def test_an_address_that_no_new_mail_may_have_is_put_off_like_any_other(site: DeliverySite) -> None:
    """Given a mail that James put into the queue: who was refused for now comes again, a failure is reported."""
    site.relay.scripts["bøb@one.example"] = [LATER, ACCEPTED]
    site.relay.scripts["jürg@two.example"] = [LATER, NEVER]
    recipients = ("bøb@one.example", "jürg@two.example", "cy@three.example")
    mail = Mail("m", recipients, sender="ann@sender.example", last_updated=site.clock.now)
    await site.queue.enqueue(mail, CONTENT, was_queued=True)

    await site.serve(30)
    put_off = [one.recipients for one in await site.mails()]
    await site.serve(600)

    assert put_off == [("bøb@one.example", "jürg@two.example")]
    assert (site.queue.dead, await site.mails()) == ([], [])
    assert sorted(site.relay.had) == ["ann@sender.example", "bøb@one.example", "cy@three.example"]
    (report,) = [content for reader, content in site.relay.taken if reader == "ann@sender.example"]
    assert report.isascii()
    assert b"  j=C3=BCrg@two.example\r\n    mx.two.example said: 550 5.1.1" in report
    assert b"\r\nFinal-Recipient: utf-8; j\\x{FC}rg@two.example\r\n" in report


EIGHT_BITS = "Subject: Grüße\r\n\r\nGrüße\r\n".encode()
NOT_SO = SmtpReply(554, "5.6.1", "8 bit content is not taken here")


async def test_a_report_on_what_was_refused_for_its_content_is_delivered(site: DeliverySite) -> None:
    """It is 7 bit, and has the header only, though the sender asked for all of it."""
    site.relay.scripts["bob@one.example"] = [NOT_SO]
    mail = Mail("m", ("bob@one.example",), "ann@sender.example", attributes={"dsn-ret": attribute("FULL")})
    await site.queue.enqueue(mail, EIGHT_BITS)
    await site.serve(600)
    ((reader, report),) = site.relay.taken
    assert (reader, report.isascii(), b"text/rfc822-headers" in report) == ("ann@sender.example", True, True)
    assert "Grüße".encode() not in report
    assert b"Status: 5.6.1" in report


async def test_a_report_that_cannot_be_delivered_reaches_the_postmaster(site: DeliverySite) -> None:
    """And is counted; what the postmaster did not get is told to nobody."""
    site.relay.scripts |= {"bob@one.example": [NEVER], "ann@sender.example": [NEVER]}
    await site.put("bob@one.example")
    await site.serve(600, postmaster="root@here.example")

    assert site.relay.recipients == ["bob@one.example", "ann@sender.example", "root@here.example"]
    assert site.relay.reports() == [("ann@sender.example", "failed")]
    assert b"To: <root@here.example>\r\nSubject: A report could not be delivered\r\n" in site.relay.taken[0][1]
    assert lost(site) == {"postmaster": 1, "nobody": 0}

    site.relay.scripts["Root@here.example"] = [NEVER]
    await site.put("bob@one.example")
    await site.serve(600, postmaster="Root@here.example")
    assert lost(site) == {"postmaster": 1, "nobody": 1}
    assert await site.mails() == []


async def test_without_a_postmaster_lost_reports_are_counted(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    site.relay.scripts |= {"bob@one.example": [NEVER], "ann@sender.example": [NEVER]}
    await site.put("bob@one.example")
    with caplog.at_level(logging.ERROR, "mailmend.delivery"):
        await site.serve(600)
    assert lost(site) == {"postmaster": 0, "nobody": 1}
    assert [one.message for one in caplog.records] == ["a report could not be delivered"]


async def test_a_sender_whose_address_no_queue_takes_is_the_postmasters_to_tell(site: DeliverySite) -> None:
    """Given a queue that refuses the report, as James could not read its recipient."""
    site.relay.scripts["bob@one.example"] = [NEVER]
    site.refusing["enqueue"] = [WrongUse("recipients[0] is no address")]
    await site.put("bob@one.example")
    await site.serve(600, postmaster="root@here.example")
    assert site.relay.reports() == [("bob@one.example", "failed")]
    assert site.relay.had == ["root@here.example"]
    assert lost(site) == {"postmaster": 1, "nobody": 0}


def lost(site: DeliverySite) -> dict[str, float]:
    """Reports that could not be delivered, by who was told."""
    return {one.labels[1]: one.value for one in site.server.samples() if one.metric is LOST_REPORTS}
