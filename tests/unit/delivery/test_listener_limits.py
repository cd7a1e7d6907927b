"""How much of a listener one client may take: bytes, recipients, connections, time."""

import asyncio
from datetime import timedelta

from delivery.metrics import CONNECTIONS, REFUSED, TAKEN
from delivery.replies import REFUSALS
from model.errors import BrokerUnreachable
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

    assert answer[:9] == "421 4.4.2"


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
        assert (await client.reply())[:9] == "421 4.4.2"
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
        await client.say("VRFY", "RCPT TO:<a@b.org>", "HOW", MAIL, "RCPT TO:<a>", "RSET")
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
