"""Where all places of a listener are taken, a connection without a mail gives way: silent clients keep nobody out."""

from datetime import timedelta

from mailmend.delivery.settings import GIVES_WAY_AFTER
from tests.support.mail_clients import MAIL, RCPT, MailClient, MailEntrance, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
HERE, THERE, ELSEWHERE = "127.0.0.1", "127.0.0.2", "127.0.0.3"


async def silent(site: MailEntrance, address: str, count: int) -> list[MailClient]:
    """Clients that take the greeting and say nothing."""
    made = [await site.client("", address) for _ in range(count)]
    for client in made:
        assert (await client.reply())[:3] == "220"
    return made


async def test_silent_connections_of_few_addresses_keep_no_other_address_out() -> None:
    """Given all places taken by two addresses: the longest of the address with the most connections gives way."""
    async with entrance(connections_max=5, connections_by_address_max=3) as site:
        few = await silent(site, THERE, 2)
        many = await silent(site, HERE, 3)
        site.passes(GIVES_WAY_AFTER)
        client = await site.client(address=ELSEWHERE)
        taken = await client.hand_over(CONTENT)
        said = [await many[0].reply(), await many[0].reply()]
        left = [await one.say("NOOP") for one in (*few, *many[1:])]
        count = len(site.listener.connections.open)

    assert taken[:3] == "250"
    assert said == ["421 4.3.2 another client needs the place; come again later", ""]
    assert [answer[:3] for answer in left] == ["250"] * 4
    assert count == 5


async def test_commands_without_a_mail_keep_no_place() -> None:
    """Given a client that says NOOP and MAIL again and again, and one that is silent for a shorter time."""
    async with entrance(connections_max=2) as site:
        talking = await site.client(address=THERE)
        site.passes(timedelta(seconds=1))
        await silent(site, THERE, 1)
        site.passes(GIVES_WAY_AFTER)
        await talking.say("NOOP")
        third = await site.client("", HERE)

        assert (await third.reply())[:3] == "220"
        assert (await talking.reply())[:9] == "421 4.3.2"


async def test_a_client_that_named_its_sender_gives_way_after_one_that_did_not() -> None:
    async with entrance(connections_max=2) as site:
        named = await site.client(address=THERE)
        await named.say(MAIL)
        (waiting,) = await silent(site, THERE, 1)
        site.passes(GIVES_WAY_AFTER)
        third = await site.client("", HERE)

        assert (await third.reply())[:3] == "220"
        assert (await waiting.reply())[:9] == "421 4.3.2"
        assert (await named.hand_over(CONTENT, RCPT))[:3] == "250"


async def test_a_mail_under_way_and_a_new_connection_give_no_place() -> None:
    async with entrance(connections_max=2) as site:
        sending = await site.client(address=THERE)
        await sending.say(MAIL, RCPT, "DATA")
        site.passes(GIVES_WAY_AFTER)
        await silent(site, THERE, 1)
        refused = await site.client("", HERE)
        said = await refused.reply()
        sending.write(CONTENT + b".\r\n")

        assert said == "421 4.3.2 there are too many connections; come again later"
        assert (await sending.reply())[:3] == "250"


async def test_no_address_takes_the_place_of_one_with_fewer_connections() -> None:
    """It takes that of its own oldest connection."""
    async with entrance(connections_max=3) as site:
        (first,) = await silent(site, THERE, 1)
        own = await silent(site, HERE, 2)
        site.passes(GIVES_WAY_AFTER)
        third = await site.client("", HERE)

        assert (await third.reply())[:3] == "220"
        assert (await own[0].reply())[:9] == "421 4.3.2"
        assert (await first.say("NOOP"))[:3] == "250"
