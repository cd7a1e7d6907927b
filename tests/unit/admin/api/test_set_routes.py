"""Values of queued mails that are set over HTTP, and what is exceeded, over a whole queue in memory."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mailmend.admin.delivery.exceeded import EXCEEDED
from mailmend.admin.delivery.http.shared import answer_model, command_model
from mailmend.admin.delivery.set_values_document import SET_VALUES, VALUE_CHANGES
from mailmend.admin.frame.http.access import Access
from mailmend.mailqueue.queue import AffectedMails
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from tests.support.deliveries import LATER
from tests.support.delivery_desk import DeliveryWorld
from tests.unit.admin.api.test_delivery_routes import OPERATE, POLICIES, READ, TOKENS

HOUR = timedelta(hours=1)
ONE = {"selection": {"domain": ["one.example"]}, "set": {"transport": "bulk"}, "why": "ticket 12"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeliveryWorld]:
    """A deferred mail of one recipient, one of two, and one that waits."""
    (tmp_path / "policies.yaml").write_text(POLICIES)
    world = DeliveryWorld(tmp_path / "policies.yaml")
    async with world.open():
        await world.put("bob@one.example", delay=HOUR)
        await world.put("al@one.example", "cy@two.example", delay=HOUR)
        await world.put("di@one.example")
        yield world


async def test_values_are_set_and_undone_in_the_name_of_the_token(world: DeliveryWorld) -> None:
    """The answers have the form that is described; a reader may look, and set nothing."""
    async with world.client(Access(TOKENS), OPERATE) as client:
        dry = (await client.post("/entries/set", json={**ONE, "dry_run": True})).json()
        done = (await client.post("/entries/set", json=ONE)).json()
        undo = {"undo": done["change"], "why": "was wrong"}
        undone = (await client.post("/entries/set", json=undo)).json()
        changes = (await client.get("/entries/changes")).json()
    async with world.client(Access(TOKENS), READ) as client:
        refused = await client.post("/entries/set", json=ONE)
        seen = await client.get("/entries/changes?limit=1")
    for answer in (dry, done, undone):
        command_model(SET_VALUES).model_validate(answer)
    command_model(VALUE_CHANGES).model_validate(changes)
    assert (dry["would_change"], dry["changed"], done["changed"], done["active"], done["left"]) == (1, 0, 1, 1, 1)
    assert (done["exit"], done["left_mails"][0]["why"]) == (3, "1 of its 2 recipients are not chosen")
    assert (undone["changed"], undone["undoes"]) == (1, done["change"])
    assert [(one["id"], one["by"], one["recipients"]) for one in changes["changes"]] == [
        (undone["change"], "night", 1),
        (done["change"], "night", 1),
    ]
    assert (refused.status_code, len(seen.json()["changes"])) == (403, 1)


async def test_a_mail_that_becomes_due_behind_its_change_is_counted_once(
    world: DeliveryWorld, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As changed, and not as active."""
    change = RabbitMailQueue.change

    async def due_at_once(queue: RabbitMailQueue, *given: Any, **more: Any) -> AffectedMails:
        changed = await change(queue, *given, **more)
        await world.clock.pause(4000)
        await world.queue.move_due()
        return changed

    monkeypatch.setattr(RabbitMailQueue, "change", due_at_once)
    done = (await client.post("/entries/set", json={"everything": True, "set": {"job": "x"}, "why": "x"})).json()
    states = {entry["state"] for entry in (await client.get("/entries")).json()["entries"]}
    assert (done["changed"], done["active"], states) == (3, 1, {"active"})


async def test_an_active_recipient_that_is_deferred_before_its_turn_is_counted_as_set_alone(
    world: DeliveryWorld, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a server that refuses for a while what was active as the command began."""
    change = RabbitMailQueue.change
    world.relay.scripts["di@one.example"] = [LATER]

    async def deferred_before(queue: RabbitMailQueue, *given: Any, **more: Any) -> AffectedMails:
        async with world.delivering():
            await world.clock.pause(60)
        return await change(queue, *given, **more)

    monkeypatch.setattr(RabbitMailQueue, "change", deferred_before)
    body = {"selection": {"recipient": ["di@one.example"]}, "set": {"job": "x"}, "why": "x"}
    done = (await client.post("/entries/set", json=body)).json()
    assert (done["changed"], done["active"]) == (1, 0)


async def test_an_active_recipient_that_has_the_values_is_not_counted(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """It is not to be held again for them, as it was before it became active."""
    body = {"everything": True, "set": {"job": "x"}, "why": "x"}
    first = (await client.post("/entries/set", json=body)).json()
    await world.clock.pause(4000)
    await world.queue.move_due()
    again = (await client.post("/entries/set", json=body)).json()
    assert (first["changed"], first["active"]) == (3, 1)
    assert (again["changed"], again["active"]) == (0, 1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"set": {"job": "x"}, "why": "x"}, "nothing is selected"),
        ({"everything": True, "set": {"jobs": "x"}, "why": "x"}, "'jobs' is no value"),
        ({"everything": True, "set": {"priority": "x"}, "why": "x"}, "priority: 'x' is not a priority"),
        ({"everything": True, "why": "x"}, "it is not said which value is set"),
        ({"everything": True, "unset": ["recipient"], "why": "x"}, "cannot be removed"),
        ({"everything": True, "set": {"job": "x"}}, "why"),
        ({"everything": True, "set": {"job": None}, "why": "x"}, "set.job"),
    ],
)
async def test_what_cannot_be_set_is_refused(world: DeliveryWorld, body: Any, said: str) -> None:
    async with world.client() as client:
        refused = await client.post("/entries/set", json=body)
    assert (refused.status_code, said in refused.text.replace("\\u0027", "'")) == (400, True), refused.text


async def test_the_log_has_no_addresses_of_what_was_set(world: DeliveryWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Only the names of the values."""
    body = {**ONE, "selection": {"recipient": ["bob@one.example"]}, "set": {"recipient": "eve@one.example"}}
    async with world.client() as client:
        with caplog.at_level("INFO", "mailmend.delivery"):
            assert (await client.post("/entries/set", json=body)).json()["changed"] == 1
    (record,) = [record for record in caplog.records if record.message == "values of queued mails were set"]
    assert "@" not in repr(vars(record))
    assert vars(record)["names"] == "recipient"


async def test_what_is_exceeded_is_answered(world: DeliveryWorld, client: httpx2.AsyncClient) -> None:
    """As many entries as are asked for, and how many there are."""
    world.relay.seconds = 900
    async with world.delivering():
        await world.put("ed@one.example")
        await world.clock.pause(5)
        found = (await client.get("/suspensions/exceeded?limit=1")).json()
        many = await client.get("/suspensions/exceeded?limit=0")
    answer_model(EXCEEDED).model_validate(found)
    (entry,) = found["exceeded"]
    assert (found["count"], entry["key"], entry["waiting"]) == (1, {"recipientdomain": "one.example"}, 1)
    assert many.status_code == 400


@pytest.mark.parametrize("text", [None, "[{recipientdomain: x.example}]"])
async def test_the_default_limit_of_a_domain_is_named_where_no_file_has_policies(
    tmp_path: Path, text: str | None
) -> None:
    """Without a file, or with one of suspensions alone."""
    file = None
    if text:
        file = tmp_path / "suspends.yaml"
        file.write_text(text)
    world = DeliveryWorld(file)
    world.relay.seconds = 900
    async with world.open(), world.client() as client:
        world.desk.policies.domain_concurrency = 1
        said = world.desk.policies.said
        world.desk.server.limit(said.policies, said.suspensions)
        for name in ("al", "bob"):
            await world.put(f"{name}@one.example")
        async with world.delivering():
            await world.clock.pause(5)
            (entry,) = (await client.get("/suspensions/exceeded")).json()["exceeded"]
            explained = (await client.get("/explain?domain=one.example")).json()
    why = "The default limit (--domain-concurrency) counts it as recipientdomain one.example"
    assert (entry["line"], entry["waiting"]) == (0, 1)
    assert entry["why"] == f"{why}: 1 of 1 deliveries go on, and one has to end first."
    assert entry["why"] in explained["why"]


@pytest.fixture
async def client(world: DeliveryWorld) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client
