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


@pytest.fixture
async def client(world: DeliveryWorld) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client
