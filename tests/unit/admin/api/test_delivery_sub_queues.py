"""The sub-queues of a server, as it answers over HTTP while it delivers; time is turned by hand."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.mailqueue.codec import attribute
from tests.support.deliveries import BUSY
from tests.support.delivery_desk import DeliveryWorld

A, B = "192.0.2.1", "192.0.2.2"
POLICIES = "[{fields: [recipientdomain], conditions: [{if: {recipientdomain: one.example}, then: {concurrency: 2}}]}]"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeliveryWorld]:
    """A server with few mails in hand, whose attempts take ten seconds."""
    (tmp_path / "policies.yaml").write_text(POLICIES)
    world = DeliveryWorld(tmp_path / "policies.yaml", settings={"prefetch": 8})
    world.relay.seconds = 10
    async with world.open():
        yield world


@pytest.fixture
async def client(world: DeliveryWorld) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


async def look(client: httpx2.AsyncClient, query: str = "") -> Any:
    answer = await client.get(f"/sub-queues{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def figures(row: Any, *names: str) -> Sequence[Any]:
    return [row[name] for name in names]


async def put(world: DeliveryWorld, count: int, domain: str, tenant: str = "") -> None:
    for _ in range(count):
        await world.put(f"bob@{domain}", attributes={"tenantid": attribute(tenant)})


async def test_what_waits_in_hand_and_in_backlogs_and_what_goes_is_counted(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """By domain and tenant; the sub-queue with the most waiting mails comes first, with the limit that holds it."""
    await put(world, 60, "one.example", "acme")
    await put(world, 1, "two.example")
    async with world.delivering():
        await world.clock.pause(1)
        answer = await look(client)
    jammed, free = answer["sub_queues"]
    assert jammed["values"] == {"domain": "one.example", "tenant": "acme"}
    assert figures(jammed, "waiting", "going") == [58, 2]
    assert jammed["backlog"] + jammed["in_hand"] == 58
    assert jammed["backlog"] > 40
    assert jammed["why"] == [
        "Policy 1 (line 1) counts it as recipientdomain one.example: 2 of 2 deliveries go on, and one has to end first."
    ]
    assert jammed["cause"] == "policy 1 (line 1), recipientdomain one.example: 2 of 2 go on"
    assert (jammed["until"], jammed["sources"]) == (None, [A, B])
    assert figures(free, "values", "waiting", "going", "why") == [{"domain": "two.example", "tenant": ""}, 0, 1, []]
    assert figures(answer, "waiting", "going", "left_out", "queue") == [58, 3, 0, "outgoing"]


async def test_a_suspended_sub_queue_says_who_suspended_it_why_and_until_when(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    body = {"fields": {"tenantid": ["acme"]}, "ttl": 3600, "why": "jams the queue; ticket 12"}
    made = (await client.post("/suspensions", json=body)).json()["suspension"]
    await put(world, 30, "one.example", "acme")
    async with world.delivering():
        await world.clock.pause(5)
        (row,) = (await look(client, "?by=tenant"))["sub_queues"]
    assert figures(row, "values", "waiting", "going") == [{"tenant": "acme"}, 30, 0]
    assert row["cause"].startswith("suspended by ")
    assert row["cause"].endswith(": jams the queue; ticket 12")
    assert "jams the queue; ticket 12" in row["why"][-1]
    left = datetime.fromisoformat(row["until"]) - datetime.fromisoformat(made["made_at"])
    assert left == pytest.approx(timedelta(hours=1), abs=timedelta(seconds=1))


async def test_the_last_reply_and_the_next_try_of_a_domain_that_refuses_are_shown(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """Deferred mails wait nowhere here: the reason is the refusal, until the mail is tried again."""
    world.relay.scripts["bob@one.example"] = [BUSY]
    await put(world, 1, "one.example")
    await put(world, 2, "two.example")
    async with world.delivering():
        await world.clock.pause(15)
        answer = await look(client)
        now = datetime.fromisoformat(answer["at"])
        rows = {row["values"]["domain"]: row for row in answer["sub_queues"]}
    refused = rows["one.example"]
    assert figures(refused, "waiting", "going", "delivered", "refused") == [0, 0, 0, 1]
    assert figures(refused["reply"], "outcome", "text", "host") == [
        "refused for now",
        "421 4.3.2 too busy",
        "mx.one.example",
    ]
    assert refused["until"] == refused["reply"]["again_at"]
    assert now < datetime.fromisoformat(refused["until"]) < now + timedelta(minutes=2)
    assert figures(rows["two.example"], "delivered", "refused", "why") == [2, 0, []]


async def test_attempts_of_the_last_minute_alone_are_counted(world: DeliveryWorld, client: httpx2.AsyncClient) -> None:
    await put(world, 2, "two.example")
    async with world.delivering():
        await world.clock.pause(15)
        (before,) = (await look(client))["sub_queues"]
        await world.clock.pause(70)
        (behind,) = (await look(client))["sub_queues"]
    assert (before["delivered"], behind["delivered"]) == (2, 0)
    assert behind["reply"]["outcome"] == "delivered"


async def test_sub_queues_differ_by_the_fields_that_are_asked_for(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """By the address that they are sent from too; what a limit leaves out is counted."""
    await put(world, 2, "two.example", "acme")
    await put(world, 2, "three.example", "acme")
    async with world.delivering():
        by_source = await look(client, "?by=source&by=tenant")
        short = await look(client, "?by=domain&limit=1")
    assert [figures(row, "values", "going", "sources") for row in by_source["sub_queues"]] == [
        [{"source": A, "tenant": "acme"}, 2, [A]],
        [{"source": B, "tenant": "acme"}, 2, [B]],
    ]
    assert (len(short["sub_queues"]), short["left_out"], short["going"]) == (1, 1, 4)


async def test_what_cannot_be_asked_is_refused_and_a_reader_may_look(world: DeliveryWorld) -> None:
    """Neither a recipient nor a subject is in the answer."""
    await put(world, 1, "two.example")
    token = "r" * 32
    access = Access(parse_tokens([f"watcher read {token}"], ""))
    async with world.client(access) as stranger, world.client(access, token) as reader, world.delivering():
        assert (await stranger.get("/sub-queues")).status_code == 401
        answer = await reader.get("/sub-queues")
        assert (answer.status_code, "bob" in answer.text, "hello" in answer.text) == (200, False, False)
        for query in ("by=recipient", "limit=0", "limit=1001", "size=1"):
            assert (await reader.get(f"/sub-queues?{query}")).status_code == 400
