"""How much of a listener one client may take: bytes, recipients, connections, time."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.metrics import CONNECTIONS, REFUSED, TAKEN
from mailmend.delivery.settings import RECIPIENTS_BEYOND
from mailmend.delivery.smtp.incoming import client_connections, listener
from mailmend.delivery.smtp.incoming.replies import CROWDED_ADDRESS, FAULTY, IDLE, NO_MAIL, REFUSALS, TALKATIVE
from mailmend.model.errors import BrokerUnreachable
from tests.support.mail_clients import MAIL, RCPT, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"


async def test_a_mail_that_is_too_large_is_refused() -> None:
    """By what MAIL says of it, or by its bytes; one of exactly the limit is taken."""
    async with entrance(mail_bytes_max=5000) as site:
        client = await site.client()
        stated = await client.say(f"{MAIL} SIZE=5001")
        fits = await client.say(f"{MAIL} SIZE=5000")
        await client.say("RSET")
        sent = [await client.hand_over(b"x" * (size - 2) + b"\r\n") for size in (5001, 5000)]
        assert [len(one) for one in await site.contents()] == [5000]

    assert [one[:9] for one in (stated, fits, *sent)] == ["552 5.3.4", "250 2.1.0", "552 5.3.4", "250 2.0.0"]


async def test_recipients_beyond_the_limit_have_to_come_with_another_mail() -> None:
    """The mail goes to those before."""
    async with entrance(recipients_max=2) as site:
        client = await site.client()
        await client.say(MAIL)
        answers = [await client.say(f"RCPT TO:<r{number}@example.com>") for number in range(3)]
        await client.hand_over(CONTENT, "NOOP")
        ((mail, _),) = await site.mails()

    assert [one[:9] for one in answers] == ["250 2.1.5", "250 2.1.5", "452 4.5.3"]
    assert mail.recipients == ("r0@example.com", "r1@example.com")


async def test_connections_beyond_the_limit_are_sent_away_until_one_ends() -> None:
    """Each is told, and may come again."""
    async with entrance(connections_max=1) as site:
        first = await site.client()
        second = await site.client("")
        said = [await second.reply(), await second.reply()]
        await first.say("QUIT")
        assert await first.reply() == ""
        third = await site.client("")
        assert (await third.reply())[:3] == "220"

    assert (said[0][:9], said[1]) == ("421 4.3.2", "")


async def test_a_client_that_says_nothing_is_sent_away() -> None:
    """In the middle of a mail too, of which nothing is kept."""
    async with entrance(idle_max=timedelta(milliseconds=50)) as site:
        client = await site.client()
        client.send(MAIL, RCPT, "DATA", "Subject: hello")
        while (answer := await client.reply())[:3] in {"250", "354"}:
            pass
        assert await client.reply() == ""
        assert await site.mails() == []

    assert answer == "421 4.4.2 nothing was said for too long"


async def test_a_client_that_does_not_take_what_was_said_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that only waits for its client to read would stay for ever."""
    monkeypatch.setattr(client_connections, "LEAVING", timedelta(milliseconds=20))
    async with entrance() as site:
        await site.client()
        (connection,) = site.listener.connections.open
        transport: Any = connection.transport
        transport.write(bytes(32 * 1024 * 1024))
        connection.end(IDLE)
        await site.until(lambda: not site.listener.connections.open)
        assert transport.get_write_buffer_size() == 0


async def test_what_a_client_does_not_take_is_dropped_once_the_listener_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given no timer of the connection's own that would end it: the listener leaves no open connection behind."""
    monkeypatch.setattr(client_connections, "LEAVING", timedelta(hours=1))
    monkeypatch.setattr(listener, "LEAVING", timedelta(0))
    async with entrance(grace=timedelta(0)) as site:
        await site.client()
        (connection,) = site.listener.connections.open
        transport: Any = connection.transport
        transport.write(bytes(32 * 1024 * 1024))
        site.stop.set()
        await site.serving

        assert transport.get_write_buffer_size() == 0


async def test_a_client_that_says_something_is_not_sent_away() -> None:
    """Given a long time since its greeting, and a line just now."""
    async with entrance(idle_max=timedelta(hours=1)) as site:
        client = await site.client()
        (connection,) = site.listener.connections.open
        connection._heard_at -= 7200
        await client.say("NOOP")
        connection._timeout_cb()
        assert (await client.say("NOOP"))[:3] == "250"
        connection._heard_at -= 7200
        connection._timeout_cb()
        assert (await client.reply())[:9] == "421 4.4.2"


async def test_a_mail_that_comes_drop_by_drop_ends_with_its_time() -> None:
    """However often its client says something."""
    async with entrance(idle_max=timedelta(hours=1)) as site:
        client = await site.client()
        await client.say(MAIL, RCPT, "DATA")
        (connection,) = site.listener.connections.open
        client.write(b"Subject: hello\r\n")
        connection._timeout_cb()
        await site.until(lambda: site.listener.connections.bytes_held > 0)
        connection._ends_by = 0.0
        connection._timeout_cb()
        assert await client.reply() == "421 4.4.2 the mail took too long"
        assert await site.mails() == []

    assert site.listener.connections.bytes_held == 0


async def test_mails_that_come_together_share_what_memory_there_is() -> None:
    """One that finds no room has to come again; one alone may be larger than the room of all."""
    async with entrance(bytes_at_once_max=100) as site:
        first, second = await site.client(), await site.client()
        await first.say(MAIL, RCPT, "DATA")
        first.write(b"x" * 78 + b"\r\n")
        await site.until(lambda: site.listener.connections.bytes_held == 80)
        crowded = await second.hand_over(b"y" * 38 + b"\r\n")
        first.write(b"x" * 78 + b"\r\n.\r\n")
        alone = await first.reply()
        again = await second.hand_over(b"y" * 38 + b"\r\n")

    assert [one[:9] for one in (crowded, alone, again)] == ["452 4.3.1", "250 2.0.0", "250 2.0.0"]
    assert site.listener.connections.bytes_held == 0


async def test_what_was_taken_and_refused_is_counted() -> None:
    """By the status of the reply; what never was is there too."""
    async with entrance(connections_max=1, mail_bytes_max=1000) as site:
        client = await site.client()
        await site.client("")
        await client.say("VRFY", "RCPT TO:<a@b.org>", "", MAIL, "RCPT TO:<a>", "RSET")
        await client.hand_over(CONTENT, MAIL, RCPT, "RCPT TO:<cy@example.com>")
        await client.hand_over(b"x" * 2000 + b"\r\n")
        site.queue.error = BrokerUnreachable("away")
        await client.hand_over(CONTENT)
        found = {(one.metric, *one.labels[1:]): one.value for one in site.listener.samples()}
        ((_, content),) = await site.mails()

    assert [found[TAKEN[name],] for name in ("mails", "recipients", "bytes")] == [1, 2, len(content)]
    assert found[CONNECTIONS,] == 1
    refused = {status: found[REFUSED, status] for status in REFUSALS}
    wanted = {"4.3.0": 1, "4.3.2": 1, "5.1.3": 1, "5.3.4": 1, "5.5.1": 2, "5.5.2": 1}
    assert refused == {**dict.fromkeys(REFUSALS, 0), **wanted}


async def test_a_client_waits_as_long_as_the_queue_does() -> None:
    """That is no silence of its own."""
    async with entrance(idle_max=timedelta(milliseconds=50)) as site:
        site.queue.goes_on.clear()
        client = await site.client()
        answer = asyncio.ensure_future(client.hand_over(CONTENT))
        await asyncio.wait({answer}, timeout=0.2)
        site.queue.goes_on.set()
        assert (await answer)[:9] == "250 2.0.0"


async def test_connections_of_one_address_leave_room_for_others() -> None:
    """Each is told, and may come again once one of its address has ended."""
    async with entrance(connections_by_address_max=2) as site:
        first, second, third = await site.client(), await site.client(), await site.client("")
        assert [await third.reply(), await third.reply()] == [str(CROWDED_ADDRESS), ""]
        await first.close()
        await site.until(lambda: len(site.listener.connections.open) == 1)
        fourth = await site.client("")
        assert (await fourth.reply())[:3] == "220"
        assert (await second.say("NOOP"))[:3] == "250"

    assert not site.listener.connections._by_address


@pytest.mark.parametrize("dripped", [b"N", b"EHLO client.exam"])
async def test_bytes_that_drip_do_not_extend_the_time_for_a_command(dripped: bytes) -> None:
    """One byte a minute keeps no connection."""
    async with entrance(idle_max=timedelta(minutes=5), mail_wait_max=timedelta(hours=1)) as site:
        client = await site.client()
        (connection,) = site.listener.connections.open
        client.write(dripped)
        await site.until(lambda: len(connection._input._pending) == len(dripped))
        site.passes(timedelta(minutes=4, seconds=59))
        assert connection in site.listener.connections.open
        site.passes(timedelta(seconds=1))
        assert await client.rest() == [str(IDLE)]


async def test_bytes_that_drip_do_not_extend_the_time_for_a_line_of_a_mail() -> None:
    """A whole line does."""
    async with entrance(idle_max=timedelta(minutes=5)) as site:
        client = await site.client()
        await client.say(MAIL, RCPT, "DATA")
        (connection,) = site.listener.connections.open
        site.passes(timedelta(minutes=4))
        client.write(b"Subject: hello\r\n")
        await site.until(lambda: connection._held > 0)
        site.passes(timedelta(minutes=4))
        client.write(b"X")
        await site.until(lambda: bytes(connection._input._pending) == b"X")
        site.passes(timedelta(minutes=2))
        assert await client.rest() == [str(IDLE)]


async def test_a_mail_has_to_begin_in_time() -> None:
    """Since the connection, and since the end of the last mail; commands do not extend it."""
    async with entrance(mail_wait_max=timedelta(minutes=5)) as site:
        client = await site.client()
        site.passes(timedelta(minutes=4))
        await client.say("NOOP")
        assert (await client.hand_over(CONTENT))[:9] == "250 2.0.0"
        site.passes(timedelta(minutes=4))
        assert (await client.say(MAIL, RCPT))[:3] == "250"
        site.passes(timedelta(minutes=2))
        assert await client.rest() == [str(NO_MAIL)]
        assert len(await site.mails()) == 1


async def test_a_client_has_a_bounded_number_of_commands_without_a_mail() -> None:
    """A mail begins the count anew, and its recipients are not counted."""
    async with entrance(commands_max=6, recipients_max=100) as site:
        client = await site.client()  # EHLO
        await client.say("NOOP", "RSET", "NOOP")
        assert (await client.hand_over(CONTENT, MAIL, *[RCPT] * 50))[:9] == "250 2.0.0"
        assert (await client.say(*["NOOP"] * 6))[:3] == "250"
        client.send("NOOP", "NOOP")
        said = await client.rest()
        assert len(await site.mails()) == 1

    assert said[-1] == str(TALKATIVE)


async def test_mails_that_are_begun_and_taken_back_are_bounded() -> None:
    """By what takes them back; one that is refused for now may be tried as often."""
    async with entrance(commands_max=6) as site:
        client = await site.client()
        client.send(*(MAIL, RCPT, "RSET") * 6)
        said = await client.rest()

    assert [answer[:3] for answer in said] == ["250"] * 18 + ["421"]


async def test_recipients_without_end_count_as_commands() -> None:
    """Beyond those that may be refused one by one, so that a client with too many may send its mail."""
    async with entrance(commands_max=6, recipients_max=1) as site:
        client = await site.client()
        client.send(MAIL, *[RCPT] * (1 + RECIPIENTS_BEYOND), *[RCPT] * 10)
        said = await client.rest()

    assert [answer[:9] for answer in said[:3]] == ["250 2.1.0", "250 2.1.5", "452 4.5.3"]
    assert len(said) == 1 + 1 + RECIPIENTS_BEYOND + 6 + 1
    assert said[-1] == str(TALKATIVE)


async def test_a_client_has_a_bounded_number_of_errors() -> None:
    """A mail that is taken begins the count anew; refused recipients of a mail are not counted."""
    async with entrance(errors_max=3) as site:
        client = await site.client()
        await client.say("VRFY", "AUTH", "")
        assert (await client.hand_over(CONTENT, MAIL, RCPT, *["RCPT TO:<x>"] * 9))[:9] == "250 2.0.0"
        assert (await client.say("VRFY", "AUTH", ""))[:9] == "500 5.5.2"
        assert (await client.say("VRFY"))[:9] == "502 5.5.1"
        assert await client.rest() == [str(FAULTY)]


async def test_a_mail_that_is_refused_for_now_is_no_error_of_its_client() -> None:
    async with entrance(errors_max=1) as site:
        site.queue.error = BrokerUnreachable("away")
        client = await site.client()
        answers = [await client.hand_over(CONTENT) for _ in range(4)]

    assert [one[:9] for one in answers] == ["451 4.3.0"] * 4
