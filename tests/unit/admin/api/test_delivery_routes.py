"""The HTTP side of a server of deliveries as a client sees it, over a whole queue in memory."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mailmend.admin.delivery.desk import READERS_MAX
from mailmend.admin.frame.http.access import Access, parse_tokens
from mailmend.admin.frame.http.application import BODY_BYTES_MAX
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.mailqueue.prometheus import CONTENT_TYPE
from mailmend.model.errors import CannotReach
from mailmend.repair.log_fields import text_line
from tests.support.delivery_desk import DeliveryWorld
from tests.support.metrics import Scraped

HOUR = timedelta(hours=1)
READ, OPERATE = "r" * 32, "w" * 32
TOKENS = parse_tokens([f"watcher read {READ}", f"night operate {OPERATE}"], "tokens")
POLICIES = "[{fields: [recipientdomain], conditions: [{if: {recipientdomain: one.example}, then: {concurrency: 1}}]}]"
ONE = {"selection": {"domain": ["one.example"]}}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DeliveryWorld]:
    """Two deferred recipients of one mail, and one that waits."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "policies.yaml").write_text(POLICIES)
    world = DeliveryWorld(tmp_path / "policies.yaml")
    async with world.open():
        await world.put("bob@one.example", "cy@two.example", delay=HOUR)
        await world.put("al@one.example")
        yield world


@pytest.fixture
async def client(world: DeliveryWorld) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.client() as client:
        yield client


async def recipients(client: httpx2.AsyncClient, query: str = "") -> list[tuple[str, str]]:
    answer = await client.get(f"/entries?{query}")
    assert answer.status_code == 200, answer.text
    return [(one["recipient"], one["state"]) for one in answer.json()["entries"]]


# Recipients


async def test_recipients_are_listed_page_by_page(client: httpx2.AsyncClient) -> None:
    """A mail's stay together; conditions of one kind are alternatives, those of several must all hold."""
    page = (await client.get("/entries?limit=1")).json()
    assert [one["recipient"] for one in page["entries"]] == ["al@one.example"]
    assert await recipients(client, f"after={page['next']}") == [
        ("bob@one.example", "defer"),
        ("cy@two.example", "defer"),
    ]
    assert await recipients(client, "domain=one.example&domain=two.example&in_state=defer&older_than=1h") == []
    assert await recipients(client, "domain=one.example&in_state=defer&retries=0&newer_than=1h") == [
        ("bob@one.example", "defer")
    ]


async def test_a_recipient_is_shown_by_its_id(client: httpx2.AsyncClient) -> None:
    """And one that is not there is 404, with what to do."""
    listed = (await client.get("/entries?domain=two.example")).json()["entries"][0]
    shown = await client.get(f"/entries/{listed['id']}")
    missing = await client.get("/entries/nothing")
    assert shown.json()["entries"] == [{**listed, "class": None}]
    assert (missing.status_code, "delivery list outgoing" in missing.json()["details"]) == (404, True)


async def test_recipients_are_counted_by_what_they_have_in_common(client: httpx2.AsyncClient) -> None:
    """By domain, unless something else is said."""
    groups = (await client.get("/entries/groups")).json()["groups"]
    assert [(one["values"], one["recipients"], one["active"]) for one in groups] == [
        ({"domain": "one.example"}, 2, 1),
        ({"domain": "two.example"}, 1, 0),
    ]
    by = (await client.get("/entries/groups?by=sender-domain&in_state=defer")).json()["groups"]
    assert [(one["values"], one["recipients"]) for one in by] == [({"sender-domain": "example.org"}, 2)]


async def test_recipients_are_held_and_released_in_the_name_of_the_token(
    world: DeliveryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """With who, from where, what and how many on record; a dry run changes nothing, and is no change."""
    caplog.set_level(logging.INFO, "mailmend.delivery")
    async with world.client(Access(TOKENS), OPERATE) as client:
        dry = await client.post("/entries/hold", json={**ONE, "why": "spam", "dry_run": True})
        assert (dry.json()["would_change"], dry.json()["changed"], dry.json()["active"]) == (1, 0, 1)
        assert await recipients(client, "in_state=hold") == []
        only = {"selection": {"recipient": ["bob@one.example"]}}
        held = await client.post("/entries/hold", json={**only, "why": "spam"})
        (one,) = (await client.get("/entries?in_state=hold")).json()["entries"]
        assert (await client.post("/entries/release", json=ONE)).json()["changed"] == 1
        assert await recipients(client, "in_state=hold") == []
    assert (held.json()["changed"], one["order"]["owner"], one["order"]["why"]) == (1, "night", "spam")
    changes = [vars(line) for line in caplog.records if line.message == "recipients were changed"]
    shown = [tuple(one[name] for name in ("caller", "address", "action", "which", "count")) for one in changes]
    assert shown == [
        ("night", "127.0.0.1", "hold", '{"recipient":["(address)"]}', 1),
        ("night", "127.0.0.1", "release", '{"domain":["one.example"]}', 1),
    ]
    assert not [line for line in caplog.records if "bob@" in text_line(line) or OPERATE in text_line(line)]


async def test_what_is_to_follow_the_attempt_of_an_active_recipient_is_ordered(client: httpx2.AsyncClient) -> None:
    """And shown with it."""
    active = {"selection": {"recipient": ["al@one.example"]}, "why": "ticket 12", "after_attempt": True}
    ordered = (await client.post("/entries/hold", json=active)).json()
    (one,) = (await client.get("/entries?recipient=al@one.example")).json()["entries"]
    assert (ordered["changed"], ordered["after_attempt"], one["after_attempt"]["kind"]) == (0, 1, "hold")


async def test_a_next_attempt_is_moved(client: httpx2.AsyncClient) -> None:
    """To a time from now, or to now; what was ordered of the active one is taken back."""
    moved = (await client.post("/entries/defer", json={"everything": True, "for": "3h"})).json()
    assert {one["due_at"] for one in (await client.get("/entries?in_state=defer")).json()["entries"]} == {
        moved["until"]
    }
    assert (moved["changed"], moved["ordered"]) == (2, 1)
    assert (await client.post("/entries/retry", json={"everything": True})).json()["changed"] == 3


@pytest.mark.parametrize(("action", "more"), [("bounce", {"why": "wrong list"}), ("delete", {})])
async def test_what_ends_is_refused_with_the_count_until_it_is_confirmed(
    client: httpx2.AsyncClient, action: str, more: dict[str, str]
) -> None:
    """A copy is kept."""
    refused = await client.post(f"/entries/{action}", json={"everything": True, **more})
    assert refused.status_code == 409
    assert "2 recipients of outgoing" in refused.json()["message"]
    assert '"confirm": true' in refused.json()["details"]
    assert len(await recipients(client)) == 3
    done = await client.post(f"/entries/{action}", json={"everything": True, **more, "confirm": True})
    assert (done.json()["changed"], Path(done.json()["kept"]).exists()) == (2, True)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/entries/hold", {"selection": {"domian": ["x"]}, "why": "x"}, "body.selection.domian"),
        ("/entries/hold", {"why": "x"}, "nothing is selected"),
        ("/entries/hold", {**ONE, "everything": True, "why": "x"}, "--all is every recipient"),
        ("/entries/hold", {**ONE}, "body.why"),
        ("/entries/defer", {**ONE, "for": "soon"}, "body.for"),
        ("/suspensions", {"why": "x"}, "it is not said which mails"),
        (
            "/suspensions",
            {"fields": {"localip": ["::1", "nowhere"]}, "why": "x"},
            "/fields/localip/1: 'nowhere' is no addr",
        ),
        ("/suspensions", {"fields": {"recipientdomain": [".a.org"]}, "why": "x"}, "Did you mean '*.a.org'?"),
        (
            "/conditions",
            {"fields": ["jobid"], "if": {"jobid": ["/a(?=b)/"]}, "then": {"concurrency": 1}, "why": "x"},
            "/if/jobid/0: /a(?=b)/ has a look-ahead",
        ),
        (
            "/entries/hold",
            {"selection": {"domain": ["a.org:25"]}, "why": "x"},
            "/selection/domain/0: 'a.org:25' is no dom",
        ),
        (
            "/entries/hold",
            {"selection": {"domain": ["a.org"], "newer_than": None}, "why": "x"},
            "newer_than is null, which is no value of it: leave it out",
        ),
        ("/suspensions", {"everything": True, "ttl": 0, "why": "x"}, "body.ttl"),
        ("/conditions", {"fields": [], "then": {"concurrency": 1}, "why": "x"}, "it is not said for which values"),
        ("/conditions", {"fields": [], "everything": True, "then": {}, "why": "x"}, "it is not said which limits"),
        ("/conditions", {"fields": [], "everything": True, "then": {"concurency": 1}, "why": "x"}, "body.then"),
    ],
)
async def test_what_is_not_meant_is_refused(client: httpx2.AsyncClient, path: str, body: Any, said: str) -> None:
    """A slip in a name above all: it would select more."""
    answer = await client.post(path, json=body)
    assert (answer.status_code, said in answer.text) == (400, True), answer.text


# Suspensions and policies


async def test_a_reason_with_half_a_surrogate_pair_is_kept_with_the_rest_of_its_words(world: DeliveryWorld) -> None:
    """JSON can say it, and no store can keep it: mails are held back all the same."""
    async with world.client(Access(TOKENS), OPERATE) as client:
        body = '{"everything": true, "why": "sp\\ud800ter"}'
        answer = await client.post("/suspensions", content=body, headers={"Content-Type": "application/json"})
        (listed,) = (await client.get("/suspensions")).json()["suspensions"]
    assert (answer.status_code, listed["why"]) == (200, "sp\ufffdter")


@pytest.mark.parametrize("path", ["/suspensions", "/conditions", "/entries/hold", "/entries/retry"])
@pytest.mark.parametrize(
    "body",
    [
        "[" * 20_000,
        "[" * 20_000 + "]" * 20_000,
        '{"a":' * 20_000 + "1" + "}" * 20_000,
        '{"why": "x", "fields": ' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"why": "x", "everything": true, "ttl": ' + "9" * 5_000 + "}",
        '{"why": "x", "everything": true, "ttl": 1e' + "9" * 5_000 + "}",
        '{"why": "x", "fields": {"recipientdomain": ["\\ud800.example"]}}',
        '{"why": "x", "fields": {"\\ud800": ["a.example"]}}',
        "\ud800",
    ],
    ids=("open", "lists", "objects", "fields", "digits", "exponent", "half a domain", "half a field", "half alone"),
)
async def test_json_beyond_every_limit_is_refused_in_words(client: httpx2.AsyncClient, path: str, body: str) -> None:
    """Deep brackets, long numbers, halves of surrogate pairs; nothing is changed."""
    content = body.encode("utf-8", "surrogatepass")
    answer = await client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["message"], answer.text
    assert (await client.get("/suspensions")).json()["suspensions"] == []


async def test_mails_are_suspended_and_go_again_in_the_name_of_the_token(world: DeliveryWorld) -> None:
    """The server that was asked heeds it like the others; so says the history too."""
    async with world.client(Access(TOKENS), OPERATE) as client:
        body = {"fields": {"recipientdomain": ["*.b.org"]}, "ttl": 7200, "why": "they throttle us"}
        made = (await client.post("/suspensions", json=body)).json()["suspension"]
        listed = (await client.get("/suspensions")).json()["suspensions"]
        lifted = await client.delete(f"/suspensions/{made['id']}")
        again = await client.delete(f"/suspensions/{made['id']}")
        assert (await client.get("/suspensions")).json()["suspensions"] == []
        history = (await client.get("/suspensions/history")).json()["history"]
        (newest,) = (await client.get("/suspensions/history?limit=1")).json()["history"]
        beyond = await client.get("/suspensions/history?limit=0")
    assert (listed, made["owner"], made["fields"]) == ([made], "night", {"recipientdomain": ["*.b.org"]})
    assert (lifted.status_code, again.status_code, beyond.status_code) == (200, 404, 400)
    assert [(one["event"], one["by"], one["suspension"]) for one in history] == [
        ("removed", "night", made),
        ("added", "night", made),
    ]
    assert newest == history[0]


async def test_what_cannot_be_written_into_the_history_is_in_the_log(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And is done all the same."""

    async def refused(*_: object) -> None:
        raise CannotReach("no node answered")

    monkeypatch.setattr(LedgerOrders, "put_record", refused)
    answer = await client.post("/suspensions", json={"everything": True, "why": "x"})
    assert answer.status_code == 200
    assert len((await client.get("/suspensions")).json()["suspensions"]) == 1
    assert any("the history" in text_line(one) for one in caplog.records)


async def test_limits_are_set_for_a_while_in_the_name_of_the_token(world: DeliveryWorld) -> None:
    """What they are to each server is told, once the server has read them; they are explained, and removed."""
    body = {
        "fields": ["recipientdomain"],
        "if": {"recipientdomain": ["one.example"]},
        "then": {"concurrency": 0, "rate": {"count": 100, "seconds": 60}, "cluster": False},
        "ttl": 7200,
        "why": "they throttle us",
    }
    async with world.client(Access(TOKENS), OPERATE) as client, world.delivering():
        made = (await client.post("/conditions", json=body)).json()["condition"]
        again = (await client.post("/conditions", json={**body, "why": "still"})).json()["condition"]
        await world.clock.pause(6)
        (listed,) = (await client.get("/conditions")).json()["conditions"]
        explained = (await client.get("/explain?domain=one.example")).json()
        of_others = (await client.get("/explain?domain=two.example")).json()
        removed = await client.delete(f"/conditions/{made['id']}")
        assert (await client.delete(f"/conditions/{made['id']}")).status_code == 404
        assert (await client.get("/conditions")).json()["conditions"] == []
        history = (await client.get("/conditions/history")).json()["history"]
    assert [(one["event"], one["by"], one["condition"]["why"]) for one in history] == [
        ("removed", "night", "still"),
        ("renewed", "night", "still"),
        ("added", "night", "they throttle us"),
    ]
    assert (made["owner"], again["id"], listed["why"]) == ("night", made["id"], "still")
    assert (listed["then"]["rate"], listed["then"]["cluster"]) == ({"count": 100, "seconds": 60.0}, False)
    assert (listed["parked"], [one["server"] for one in listed["servers"]]) == (None, ["mx1"])
    share = explained["sources"][0]["policies"][0]
    assert (share["set_by"]["id"], share["condition"], share["limits_line"]) == (made["id"], None, None)
    assert "with limits that night set until" in explained["why"][0]
    assert (of_others["sources"][0]["policies"][0]["set_by"], removed.status_code) == (None, 200)


async def test_a_condition_of_the_file_behind_one_that_was_set_keeps_its_number(world: DeliveryWorld) -> None:
    """As it stands in the file, with its line."""
    body = {"fields": ["recipientdomain"], "if": {"recipientdomain": ["x.example"]}, "then": {}, "unlimited": True}
    async with world.client() as client, world.delivering():
        assert (await client.post("/conditions", json={**body, "why": "x"})).status_code == 200
        await world.clock.pause(6)
        share = (await client.get("/explain?domain=one.example")).json()["sources"][0]["policies"][0]
    assert (share["condition"], share["limits_line"], share["concurrency"], share["set_by"]) == (1, 1, 1, None)


# Health, metrics, limits


async def test_metrics_are_those_of_the_server(world: DeliveryWorld, client: httpx2.AsyncClient) -> None:
    async with world.delivering():
        await world.clock.pause(5)
        answer = await client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    delivered = Scraped.of(answer.text).one("mailmend_delivery_recipients_total", queue="outgoing", end="delivered")
    assert delivered == 1


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        (None, "GET", "/entries", 401),
        (READ, "GET", "/entries", 200),
        (READ, "POST", "/entries/hold", 403),
        (READ, "POST", "/suspensions", 403),
        (None, "GET", "/conditions/history", 401),
        (READ, "GET", "/conditions/history", 200),
        (READ, "POST", "/policies/reload", 403),
        (OPERATE, "POST", "/policies/reload", 200),
        (READ, "GET", "/metrics", 200),
        (None, "GET", "/metrics", 401),
        (None, "GET", "/health", 200),
    ],
)
async def test_a_token_may_do_what_its_role_may(
    world: DeliveryWorld, token: str | None, method: str, path: str, status: int
) -> None:
    async with world.client(Access(TOKENS), token, host="mx.example.org") as client:
        body = {"everything": True, "why": "x"} if path == "/entries/hold" else None
        answer = await client.request(method, path, json=body)
    assert answer.status_code == status


async def test_a_body_that_is_too_large_is_not_read(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/entries/hold", content=b" " * (BODY_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["statusCode"]) == (413, 413)


async def test_few_calls_read_the_queue_through_at_once(world: DeliveryWorld, client: httpx2.AsyncClient) -> None:
    """The others are to ask again; what reads little is answered."""
    world.desk._reading = READERS_MAX
    refused = await client.get("/entries")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert (await client.get("/suspensions")).status_code == 200
