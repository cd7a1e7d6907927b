"""Why a mail waits, as a server of deliveries tells it while it delivers; time is turned by hand."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mailmend.delivery.transports import SourceAddress, Transport
from mailmend.mailqueue.codec import attribute
from mailmend.model.ids import EnqueueId
from tests.support.deliveries import LATER
from tests.support.delivery_desk import DeliveryWorld

A, B = "192.0.2.1", "192.0.2.2"
POLICIES = """\
- fields: [recipientdomain]
  conditions: [{if: {recipientdomain: one.example}, then: {concurrency: 1}}]
- fields: [localip, recipientdomain]
  conditions:
    - {if: {recipientdomain: slow.example}, then: {rate: 1/240}}
    - {if: {recipientdomain: gaps.example}, then: {connectinterval: 200}}
    - {if: {recipientdomain: shut.example}, then: {concurrency: 0}}
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeliveryWorld]:
    """A server whose attempts take a quarter of an hour."""
    (tmp_path / "policies.yaml").write_text(POLICIES)
    world = DeliveryWorld(tmp_path / "policies.yaml")
    world.relay.seconds = 900
    async with world.open():
        yield world


@pytest.fixture
async def client(world: DeliveryWorld) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


async def explained(client: httpx2.AsyncClient, name: EnqueueId | str) -> Any:
    answer = await client.get(f"/explain/{name}")
    assert answer.status_code == 200, answer.text
    (one,) = answer.json()["entries"]
    return one


async def test_what_is_delivered_and_what_waits_for_its_end_are_explained(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """With the address, the counter, and how many are before it; asking changes nothing."""
    first, second, third = [await world.put("bob@one.example") for _ in range(3)]
    async with world.delivering():
        begun, waits, last = [await explained(client, name) for name in (first, second, f"{third}:0")]
    assert (begun["stage"], begun["goes_from"], begun["why"]) == (
        "delivering",
        A,
        [f"It is being delivered to mx.one.example (192.0.2.1) from {A}."],
    )
    share = waits["sources"][0]["policies"][0]
    assert (waits["stage"], share["refuses"], share["delivering"], share["free_at"]) == ("waiting", True, 1, None)
    assert waits["waits_on"] == [{"policy": 1, "line": 1, "key": {"recipientdomain": "one.example"}}]
    assert waits["why"][0] == (
        "Policy 1 (line 1) counts it as recipientdomain one.example: 1 of 1 deliveries go on, and one has to end first."
    )
    assert (waits["goes_from"], waits["goes_at"], waits["ahead"], last["ahead"]) == (None, None, 0, 1)
    assert [attempt.recipients[0].recipient for _, attempt in world.relay.attempts] == ["bob@one.example"]


async def test_it_is_said_until_when_a_mail_waits_and_from_which_address_it_will_go(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """Each address has its own rate; the one that is free first is named, with the time."""
    await world.put("a@slow.example")
    await world.put("b@slow.example")
    async with world.delivering():
        third = await world.put("c@slow.example")
        await world.clock.pause(20)
        one = await explained(client, third)
        await world.clock.pause(240)
        then = await explained(client, third)
    begun, (_, third_attempt) = world.relay.attempts[:2], world.relay.attempts[2]
    source = third_attempt.source.address
    assert one["goes_from"] == source
    assert one["goes_at"] == min(source["free_at"] for source in one["sources"])
    assert datetime.fromisoformat(one["goes_at"]).timestamp() - 240 == pytest.approx(min(at for at, _ in begun), abs=1)
    assert any(f"From {source}: Policy 2" in line and "1 in 240 s may begin" in line for line in one["why"])
    assert (then["stage"], then["goes_from"]) == ("delivering", source)


async def test_a_suspension_is_named_with_who_made_it_why_and_until_when(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """Of one address: the mail would go from the other."""
    body = {"fields": {"localip": [A]}, "ttl": 3600, "why": "listed; ticket 12"}
    made = (await client.post("/suspensions", json=body)).json()["suspension"]
    async with world.delivering():
        values = (await client.get("/explain?domain=x.example")).json()
        suspended = values["sources"][0]
    assert (suspended["localip"], suspended["is_left"], suspended["suspended_by"]) == (A, False, [made])
    assert suspended["free_at"] is not None
    assert (values["goes_from"], values["sources"][1]["is_left"]) == (B, True)
    assert any("listed; ticket 12" in line and line.startswith(f"From {A}: Suspended by ") for line in values["why"])
    assert values["why"][-1] == f"Nothing refuses it: it would go from {B} now."


async def test_what_follows_an_attempt_is_named_while_it_goes_on(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """Of the recipient that it was ordered of, with who ordered it and why."""
    name = await world.put("bob@one.example", "al@two.example")
    body = {"selection": {"recipient": ["bob@one.example"]}, "why": "looks like spam", "after_attempt": True}
    async with world.delivering():
        assert (await client.post("/entries/hold", json=body)).json()["after_attempt"] == 1
        bob, al = (await client.get(f"/explain/{name}")).json()["entries"]
    assert (bob["stage"], bob["after_attempt"]["kind"]) == ("delivering", "hold")
    owner = bob["after_attempt"]["owner"]
    assert bob["why"][-1] == f"Ordered: held, by {owner}: looks like spam."
    assert al["after_attempt"] is None


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        ("gaps.example", "the next connection may begin at 2026-08-29 10:43:2"),
        ("shut.example", "none of these may begin."),
    ],
)
async def test_each_kind_of_limit_is_explained_in_its_words(
    world: DeliveryWorld, client: httpx2.AsyncClient, domain: str, said: str
) -> None:
    """An interval between connections, and a limit of none."""
    for _ in range(2):
        await world.put(f"b@{domain}")
    last = await world.put(f"c@{domain}")
    async with world.delivering():
        one = await explained(client, last)
    assert one["stage"] == "waiting"
    assert any(said in line for line in one["why"]), one["why"]


async def test_who_has_ended_and_waits_for_others_of_its_mail_is_named(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """The mail leaves the queue with the last of them."""
    world.relay.seconds = 1
    name = await world.put("bob@shut.example", "cy@two.example")
    world.relay.scripts["cy@two.example"] = [LATER]
    async with world.delivering():
        await world.clock.pause(5)
        entries = (await client.get(f"/explain/{name}")).json()["entries"]
    assert [(one["recipient"], one["stage"]) for one in entries] == [
        ("bob@shut.example", "waiting"),
        ("cy@two.example", "gone"),
    ]
    assert entries[1]["why"][0].startswith("It has ended: refused for now.")
    assert entries[0]["returns_at"] is None


async def test_a_mail_that_this_server_does_not_have_is_explained_as_the_queue_knows_it(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """Deferred until when, held by whom and why, or with another server."""
    deferred = await world.put("bob@one.example", delay=timedelta(hours=1))
    held = await world.put("cy@two.example", delay=timedelta(hours=1))
    elsewhere = await world.put("di@two.example")
    order = {"selection": {"id": [str(held)]}, "why": "looks like spam"}
    assert (await client.post("/entries/hold", json=order)).json()["changed"] == 1

    said = [await explained(client, name) for name in (deferred, held, elsewhere)]

    assert [(one["here"], one["stage"]) for one in said] == [(False, "defer"), (False, "hold"), (False, "active")]
    assert said[0]["why"] == ["Deferred until 2026-08-29 11:40:00."]
    assert "looks like spam" in said[1]["why"][0]
    assert said[2]["why"][0].startswith("Active, and not with this server")
    assert (await client.get("/explain/nothing")).status_code == 404


async def test_what_holds_back_a_mail_that_is_not_in_hand_is_said_by_its_envelope(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """A mail in the backlog of its sub-queue waits for what the mails in hand wait for."""
    shut = await world.put("di@shut.example")
    free = await world.put("ed@two.example")

    waits, goes = [await explained(client, name) for name in (shut, free)]

    assert [(one["here"], one["stage"]) for one in (waits, goes)] == [(False, "active")] * 2
    assert waits["why"][1:] == [
        "A mail like it waits here for this:",
        *[
            f"From {address}: Policy 2 (line 3) counts it as localip {address}, recipientdomain shut.example: "
            "none of these may begin."
            for address in (A, B)
        ],
    ]
    assert (waits["goes_from"], goes["goes_from"]) == (None, A)
    assert goes["why"][1:] == ["Nothing refuses a mail like it here, as far as its envelope tells."]


async def test_a_mail_that_is_not_in_hand_is_explained_by_the_addresses_of_its_transport(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    name = await world.put("ed@two.example", attributes={"transportid": attribute("bulk")})
    world.desk.server.send_by({"bulk": Transport(sources=(SourceAddress("192.0.2.77"),))})

    assert (await explained(client, name))["goes_from"] == "192.0.2.77"


async def test_a_value_that_is_none_of_its_field_is_refused(client: httpx2.AsyncClient) -> None:
    """A slip would explain another mail."""
    refused = await client.get("/explain?remote_ip=nowhere")
    assert (refused.status_code, "is no address" in refused.text) == (400, True)
    assert (await client.get("/explain?domian=x.example")).status_code == 400
