"""What a server of deliveries tells of itself over HTTP: the policies that it works by, and how its parts stand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.delivery.http.shared import answer_model
from mailmend.admin.delivery.policies_in_force import POLICIES_IN_FORCE
from mailmend.admin.frame.http.access import Access
from mailmend.admin.frame.http.desk import ASKED_EVERY
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.mailqueue.concurrency import cancelled
from mailmend.model.errors import CannotReach
from tests.support.delivery_desk import DeliveryWorld
from tests.unit.admin.api.test_delivery_routes import POLICIES, TOKENS
from tests.unit.delivery.test_dkim import ED25519_KEY, pem_of


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeliveryWorld]:
    """With a policy file, and an empty queue."""
    (tmp_path / "policies.yaml").write_text(POLICIES)
    world = DeliveryWorld(tmp_path / "policies.yaml")
    async with world.open():
        yield world


RULES = """
fields: [campaign]
incoming:
  - if: {header: {x-job: /(.+)/}, senderdomain: "*.example.org"}
    set: {jobid: "job-${1}", expires: 2h, priority: 9, attributes: {x: y}}
    remove: X-Job
    stop: true
  - {set: {transportid: others}, hold: spam, delay: 90, reject: 451}
quotas:
  - {name: news, fields: [transportid, jobid],
     conditions: [{if: {transportid: news}, then: {messages: 10}}], default: {bytes: 1M}}
"""


async def test_incoming_rules_and_quotas_in_force_are_spelled_as_in_the_file(world: DeliveryWorld) -> None:
    assert world.policies
    world.policies.write_text(RULES)
    async with world.client() as client:
        read = (await client.post("/policies/reload")).json()
    listed: Any = answer_model(POLICIES_IN_FORCE).model_validate(read)
    incoming = [one.model_dump(by_alias=True, exclude_defaults=True, mode="json") for one in listed.incoming]
    undecided = {"hold": None, "delay_seconds": None, "reject": None}
    decided = {"hold": "spam", "delay_seconds": 90.0, "reject": "451 4.7.1 the mail is refused"}
    others = {"transportid": "others"}
    assert incoming == [
        {
            **undecided,
            "rule": 1,
            "line": 4,
            "if": {"header": {"x-job": ["/(.+)/"]}, "senderdomain": ["*.example.org"]},
            "set": {"jobid": "job-${1}", "expires": "2h", "priority": "9", "attributes": {"x": "y"}},
            "remove": ["x-job"],
            "stop": True,
        },
        {**decided, "rule": 2, "line": 8, "if": {}, "set": others, "remove": [], "stop": False},
    ]
    assert read["fields"] == ["campaign"]
    assert read["quotas"] == [
        {
            "name": "news",
            "line": 10,
            "fields": ["transportid", "jobid"],
            "groups": {},
            "conditions": [{"if": {"transportid": ["news"]}, "then": {"messages": 10, "bytes": None}}],
            "default": {"messages": None, "bytes": 2**20},
        }
    ]


async def test_the_policies_in_force_are_listed_until_they_are_read_again(world: DeliveryWorld) -> None:
    """All of the file or nothing: what is wrong with it is said with its place."""
    file = world.policies
    assert file
    async with world.client() as client:
        (one,) = (await client.get("/policies")).json()["policies"]
        file.write_text(POLICIES.replace("concurrency: 1", "concurrency: many"))
        refused = await client.post("/policies/reload")
        (same,) = (await client.get("/policies")).json()["policies"]
        file.write_text(POLICIES.replace("concurrency: 1", "rate: 100/60"))
        read = (await client.post("/policies/reload")).json()
    assert (one["policy"], one["line"], one["fields"]) == (1, 1, ["recipientdomain"])
    assert (one["conditions"][0]["if"], one["conditions"][0]["then"]["concurrency"]) == (
        {"recipientdomain": ["one.example"]},
        1,
    )
    assert (refused.status_code, same) == (409, one)
    assert "policies.yaml, line 1, column" in refused.json()["message"]
    assert read["policies"][0]["conditions"][0]["then"]["rate"] == {"count": 100, "seconds": 60.0}
    assert read["reload"] == {"kept": [{"before": 1, "now": 1}], "new": [], "dropped": []}


SENT = "transports: {bulk: {sources: [{address: 192.0.2.9, helo: b.example}], dkim: {example.org: KEYS}}}"


async def test_transports_are_taken_by_a_reload_with_their_keys_or_not_at_all(world: DeliveryWorld) -> None:
    """What waits is explained by their addresses; no answer shows where a key is."""
    assert world.policies
    (world.policies.parent / "k.pem").write_bytes(pem_of(ED25519_KEY))
    (world.policies.parent / "k.pem").chmod(0o600)
    async with world.client() as client:
        world.policies.write_text(SENT.replace("KEYS", "{selector: s, key: k.pem}"))
        read = (await client.post("/policies/reload")).json()
        world.policies.write_text(SENT.replace("KEYS", "{selector: s, key: gone.pem}").replace("2.9", "2.8"))
        refused = await client.post("/policies/reload")
        sources = [(await client.get(f"/explain?transport={name}")).json()["sources"] for name in ("bulk", "other")]
    (transport,) = read["transports"]
    listed: Any = answer_model(POLICIES_IN_FORCE).model_validate(read)
    assert len(listed.transports) == 1
    assert (transport["transport"], transport["line"], transport["dkim"]) == ("bulk", 1, {"example.org": ["s"]})
    assert transport["sources"] == [{"address": "192.0.2.9", "helo": "b.example"}]
    assert "pem" not in str(read)
    assert refused.status_code == 409
    assert "gone.pem cannot be read" in refused.json()["message"]
    assert [[source["localip"] for source in found] for found in sources] == [["192.0.2.9"], ["192.0.2.1", "192.0.2.2"]]


async def test_a_server_is_ready_while_it_takes_mails(world: DeliveryWorld) -> None:
    """Neither before nor behind it; for that no token is asked."""
    async with world.client(Access(TOKENS)) as client:
        before = await client.get("/ready")
        async with world.delivering():
            meanwhile, health = await client.get("/ready"), await client.get("/health")
        behind = await client.get("/ready")
    assert [one.status_code for one in (before, meanwhile, behind)] == [503, 200, 503]
    assert (health.status_code, health.json()["status"]) == (200, "healthy")


async def test_a_ledger_that_does_not_answer_is_seen_in_the_servers_health(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delivers on: degraded, and no address is told."""

    async def refused(*_: object) -> None:
        raise CannotReach("no node answered at 10.0.0.1")

    async with world.client() as client, world.delivering():
        monkeypatch.setattr(LedgerOrders, "of", refused)
        await world.clock.pause(6)
        health = await client.get("/health")
        failed = await client.get("/suspensions")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    assert (failed.status_code, "10.0.0.1" in failed.text + health.text) == (503, False)


async def test_a_server_is_not_ready_while_the_broker_or_cassandra_is_silent(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says which; probes ask neither, the next look does, and no address is told."""
    silent, asked = set[str](), list[str]()

    def answering(name: str) -> Callable[[], Awaitable[None]]:
        async def answer() -> None:
            asked.append(name)
            if name in silent:
                raise CannotReach("no node answered at 10.0.0.1")

        return answer

    caplog.set_level("INFO", "mailmend.delivery")
    parts = world.desk.parts
    assert sorted(parts.asks) == ["Cassandra", "RabbitMQ"]
    for ask in parts.asks.values():
        await ask()
    monkeypatch.setattr(parts, "asks", {name: answering(name) for name in parts.asks})
    async with world.client(Access(TOKENS)) as client, world.delivering():
        watching = asyncio.ensure_future(parts.watch())
        seen = list[tuple[int, dict[str, str]]]()
        for broken in ({"RabbitMQ"}, {"Cassandra"}, set[str]()):
            silent.clear()
            silent.update(broken)
            await world.clock.pause(2 * ASKED_EVERY.total_seconds())
            answer, health = await client.get("/ready"), await client.get("/health")
            assert answer.json()["checks"] == health.json()["checks"]
            assert "10.0.0.1" not in answer.text
            seen.append((answer.status_code, {c["componentName"]: c["status"] for c in answer.json()["checks"]}))
        await cancelled([watching])
        looks = len(asked)
        await client.get("/ready")
        assert len(asked) == looks

    fine = dict.fromkeys(("Queue", "Departures", "Ledger", "Cassandra", "RabbitMQ"), "healthy")
    degraded = [{**fine, name: "degraded"} for name in ("RabbitMQ", "Cassandra")]
    assert seen == [(503, degraded[0]), (503, degraded[1]), (200, fine)]
    assert [one.message for one in caplog.records if "a part" in one.message] == [
        *("a part does not answer",) * 2,
        *("a part answers again",) * 2,
    ]
