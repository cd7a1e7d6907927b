"""Classes of replies and automatic limits, as a server of deliveries with a policy file answers over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mailmend.admin.delivery.desk import use_classes
from mailmend.admin.delivery.http.shared import answer_model
from mailmend.admin.delivery.policies_in_force import POLICIES_IN_FORCE
from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.mailqueue.prometheus import metrics_text
from tests.support.deliveries import ACCEPTED
from tests.support.delivery_desk import DeliveryWorld
from tests.support.metrics import Scraped

BUSY = SmtpReply(421, "4.7.0", "too many connections")
POLICIES = """\
policies:
  - fields: [recipientdomain]
    default: {concurrency: 1}
classes:
  - {class: Closed, code: 45x, reply: [closed today, /holiday/]}
automation:
  - name: busy
    class: [TooManyConnections, Closed]
    if: {recipientdomain: '*.example'}
    fields: [recipientdomain]
    trigger: 5/600
    then: suspend
    for: 10m
  - {name: slow, class: Closed, fields: [recipientdomain], trigger: 9/60, then: {concurrency: 1}, for: 1h}
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeliveryWorld]:
    (tmp_path / "policies.yaml").write_text(POLICIES)
    world = DeliveryWorld(tmp_path / "policies.yaml")
    async with world.open():
        use_classes(world.desk.server, world.desk.policies.said)
        yield world


@pytest.fixture
async def client(world: DeliveryWorld) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


async def test_a_domain_that_answers_421_five_times_is_suspended_and_explained(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    """A mail for another domain goes; the sixth mail waits, and is told which rule holds it, by which reply."""
    for number in range(5):
        world.relay.scripts[f"{number}@busy.example"] = [BUSY]
        await world.put(f"{number}@busy.example")
    sixth = await world.put("sixth@busy.example")
    async with world.delivering():
        await world.clock.pause(30)
        await world.put("bob@other.example")
        await world.clock.pause(5)
        (waits,) = (await client.get(f"/explain/{sixth}")).json()["entries"]
        listed = (await client.get("/suspensions")).json()["suspensions"]
        scraped = Scraped.of(metrics_text(world.desk.samples()))
        await client.delete(f"/suspensions/{listed[0]['id']}")
        await world.clock.pause(10)
    assert world.relay.had == ["bob@other.example", "sixth@busy.example"]
    said = next(line for line in waits["why"] if "Suspended by automatic rule busy since " in line)
    assert "Closed or TooManyConnections 5 times in 600 s; the last reply: 421 4.7.0 too many connections" in said
    assert [(one["owner"], one["fields"]) for one in listed] == [
        ("automatic rule busy", {"recipientdomain": ["busy.example"]})
    ]
    refused = "mailmend_delivery_refused_attempts_total"
    assert scraped.one(refused, **{"queue": "outgoing", "class": "TooManyConnections"}) == 5
    assert scraped.one(refused, **{"queue": "outgoing", "class": "Closed"}) == 0
    of_domain = {"queue": "outgoing", "domain": "busy.example", "class": "TooManyConnections"}
    assert scraped.one("mailmend_delivery_domain_refused_recipients", **of_domain) == 5


async def test_what_is_shown_of_a_mail_has_the_class_of_the_server_s_own_file(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    world.relay.scripts["bob@one.example"] = [SmtpReply(450, "", "Closed today"), ACCEPTED]
    mail = await world.put("bob@one.example", "cy@two.example")
    async with world.delivering():
        await world.clock.pause(5)
        shown = (await client.get(f"/entries/{mail}")).json()
    assert [(one["recipient"], one["reply"], one["class"]) for one in shown["entries"]] == [
        ("bob@one.example", "450 Closed today", "Closed")
    ]


async def test_classes_and_automatic_rules_in_force_are_spelled_as_in_the_file(
    world: DeliveryWorld, client: httpx2.AsyncClient
) -> None:
    read = (await client.get("/policies")).json()
    listed: Any = answer_model(POLICIES_IN_FORCE).model_validate(read)
    (closed,) = [one.model_dump(by_alias=True, mode="json") for one in listed.classes]
    busy, slow = [one.model_dump(by_alias=True, mode="json") for one in listed.automation]
    assert closed == {
        "rule": 1,
        "line": 5,
        "class": "Closed",
        "code": ["45x"],
        "enhanced": [],
        "reply": ["closed today", "/holiday/"],
    }
    assert busy == {
        "line": 7,
        "name": "busy",
        "class": ["Closed", "TooManyConnections"],
        "if": {"recipientdomain": ["*.example"]},
        "fields": ["recipientdomain"],
        "trigger": {"count": 5, "seconds": 600.0},
        "then": None,
        "for_seconds": 600.0,
    }
    assert (slow["then"]["concurrency"], slow["for_seconds"]) == (1, 3600.0)


async def test_a_reload_brings_other_classes(world: DeliveryWorld, client: httpx2.AsyncClient) -> None:
    """For replies from then on; where the file cannot be used all stays as it was."""
    assert world.policies
    world.policies.write_text(POLICIES.replace("closed today", "shut today"))
    assert (await client.post("/policies/reload")).status_code == 200
    world.policies.write_text(POLICIES.replace("Closed]", "Opened]"))
    assert (await client.post("/policies/reload")).status_code == 409
    world.relay.scripts["bob@one.example"] = [SmtpReply(450, "", "shut today")]
    mail = await world.put("bob@one.example")
    async with world.delivering():
        await world.clock.pause(5)
        shown = (await client.get(f"/entries/{mail}")).json()
    assert shown["entries"][0]["class"] == "Closed"
