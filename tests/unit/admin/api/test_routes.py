"""The HTTP side as a client sees it, over a ledger in memory: its errors, who may ask, where it listens."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mailmend.admin.frame.http.access import Access, Listening, TokenRole, parse_listening, parse_tokens, read_tokens
from mailmend.admin.frame.http.server import listen
from mailmend.admin.jobs.http import JOBS
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.prometheus import CONTENT_TYPE
from mailmend.model.errors import BadSettings, CannotReach, MailmendError, WrongUse
from mailmend.repair.log_fields import text_line
from tests.support.metrics import Scraped
from tests.support.task_desk import MESSAGE, TaskWorld

READ, REPAIR = "r" * 32, "w" * 32
TOKENS = parse_tokens([f"watcher read {READ}", f"nightly repair {REPAIR}  # of the script"], "tokens")


# What cannot be answered

_MESSAGES = "Supported values are [SolveInconsistencies]"


@pytest.mark.parametrize(
    ("method", "path", "status", "message", "details"),
    [
        ("POST", "/messages", 400, None, f"'task' query parameter is compulsory. {_MESSAGES}"),
        ("POST", "/messages?task=", 400, None, f"'task' query parameter cannot be empty or blank. {_MESSAGES}"),
        (
            "POST",
            "/messages?task=nope",
            400,
            None,
            f"Invalid value supplied for query parameter 'task': nope. {_MESSAGES}",
        ),
        (
            "POST",
            "/mailboxes?task=reIndex",
            400,
            None,
            (
                "Invalid value supplied for query parameter 'task': reIndex. Supported values are "
                "[SolveInconsistencies, RecomputeMailboxCounters, SolveMessageDeletedInconsistencies, "
                "SolveMessageRecentInconsistencies]"
            ),
        ),
        (
            "POST",
            "/mailboxes?task=SolveInconsistencies&maxIterations=soon",
            400,
            None,
            (
                "Illegal value supplied for query parameter 'maxIterations', "
                "expecting a strictly positive optional integer"
            ),
        ),
        (
            "POST",
            "/mailboxes?task=SolveInconsistencies&maxIterations=0",
            400,
            None,
            "'maxIterations' must be strictly positive",
        ),
        (
            "POST",
            "/messages?task=SolveInconsistencies&messagesPerSecond=abc",
            400,
            None,
            (
                "Illegal value supplied for query parameter 'messagesPerSecond', "
                "expecting a strictly positive optional integer"
            ),
        ),
        (
            "POST",
            "/messages?task=SolveInconsistencies&messagesPerSecond=0",
            400,
            None,
            "'messagesPerSecond' must be strictly positive",
        ),
        ("DELETE", "/blobs", 400, None, "'scope' is missing or must be 'unreferenced'"),
        ("DELETE", "/blobs?scope=all", 400, None, "'scope' is missing or must be 'unreferenced'"),
        (
            "DELETE",
            "/blobs?scope=unreferenced&expectedBlobCount=x",
            400,
            None,
            "'expectedBlobCount' must be numeric",
        ),
        (
            "DELETE",
            "/blobs?scope=unreferenced&associatedProbability=1",
            400,
            None,
            "'associatedProbability' must be greater than 0.0 and smaller than 1.0",
        ),
        ("GET", "/tasks?status=done", 400, "Invalid status query parameter", ...),
        ("GET", "/tasks/nothing", 400, "Invalid task id", ...),
        ("GET", f"/tasks/{MESSAGE}", 404, f"{MESSAGE} can not be found", None),
        ("GET", "/tasks/6e0ab5e0-8d1c-41f1-8003-0123456789ab/await", 404, ..., None),
        ("GET", f"/tasks/{MESSAGE}/await?timeout=soon", 400, "Invalid timeout", ...),
        ("GET", f"/tasks/{MESSAGE}/await?timeout=366d", 400, "Invalid timeout", ...),
        ("DELETE", f"/tasks/{MESSAGE}", 404, ..., None),
        ("GET", "/nowhere", 404, "Not Found", None),
        ("PUT", "/messages", 405, "Method Not Allowed", None),
    ],
)
async def test_bad_input_gets_james_error(
    world: TaskWorld, method: str, path: str, status: int, *, message: Any, details: Any
) -> None:
    async with world.client() as client:
        answer = await client.request(method, path)

    body = answer.json()
    assert (answer.status_code, body["statusCode"]) == (status, status)
    assert body["type"] == ("notFound" if status == 404 else "InvalidArgument")
    assert body["message"] == (message or "Invalid arguments supplied in the user request") or message is ...
    assert details is ... or body["details"] == details
    assert world.tasks.listed() == []


@pytest.mark.parametrize("declared", [None, "", "no", "ALL-SERVICES-ARE-ONLINE"])
async def test_mailboxes_are_not_mended_without_the_header_that_james_asks_for(
    world: TaskWorld, declared: str | None
) -> None:
    headers = {}
    if declared is not None:
        headers["I-KNOW-WHAT-I-M-DOING"] = declared
    async with world.client() as client:
        answer = await client.post("/mailboxes?task=SolveInconsistencies", headers=headers)

    assert (answer.status_code, answer.json()["type"]) == (400, "InvalidArgument")
    assert answer.json()["message"] == "Invalid arguments supplied in the user request"
    assert answer.json()["details"].startswith(
        "Due to concurrency risks, a `I-KNOW-WHAT-I-M-DOING` header should be positioned to `ALL-SERVICES-ARE-OFFLINE`"
    )
    assert world.tasks.listed() == []


@pytest.mark.parametrize("declared", ["ALL-SERVICES-ARE-OFFLINE", "all-services-are-offline"])
async def test_the_header_is_taken_in_any_case(world: TaskWorld, declared: str) -> None:
    async with world.client() as client:
        headers = {"i-know-what-i-m-doing": declared}
        answer = await client.post("/mailboxes?task=SolveInconsistencies", headers=headers)

    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("raised", "status", "expected"),
    [
        (CannotReach("no node answered at 10.0.0.1"), 503, "The cluster does not answer"),
        (MailmendError("the ledger is odd"), 500, "the ledger is odd"),
        (ValueError("secret"), 500, "This should not happen: the server's log says more"),
    ],
)
async def test_what_goes_wrong_within_is_reported_without_its_insides(
    world: TaskWorld, monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int, expected: str
) -> None:
    def refused(*_: object) -> None:
        raise raised

    monkeypatch.setattr(MemoryTables, "scan", refused)
    async with world.client() as client:
        answer = await client.get("/tasks")

    assert (answer.status_code, answer.json()["message"]) == (status, expected)


async def test_metrics_are_in_prometheus_text_format(world: TaskWorld) -> None:
    async with world.client() as client:
        answer = await client.get("/metrics")

    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    assert Scraped.of(answer.text).one("mailmend_ledger_up", keyspace="mail") == 1


# Who may ask


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        (None, "GET", "/tasks", 401),
        ("x" * 32, "GET", "/tasks", 401),
        (READ[:-1], "GET", "/tasks", 401),
        (READ, "GET", "/tasks", 200),
        (REPAIR, "GET", "/tasks", 200),
        (READ, "POST", "/messages?task=SolveInconsistencies", 403),
        (READ, "DELETE", "/blobs?scope=unreferenced", 403),
        (READ, "DELETE", f"/tasks/{MESSAGE}", 403),
        (REPAIR, "POST", "/messages?task=SolveInconsistencies", 201),
        (None, "POST", "/messages", 401),
        (None, "GET", "/metrics", 401),
        (READ, "GET", "/metrics", 200),
        (None, "GET", "/healthcheck", 200),
        (None, "GET", "/openapi.json", 200),
    ],
)
async def test_a_token_may_do_what_its_role_may(
    world: TaskWorld, token: str | None, method: str, path: str, status: int
) -> None:
    async with world.client(Access(TOKENS), token, host="jobs.example.org") as client:
        answer = await client.request(method, path)

    assert answer.status_code == status
    assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)
    if status in (401, 403):
        assert answer.json()["statusCode"] == status


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("127.0.0.1:8000", {}, 200),
        ("localhost", {}, 200),
        ("[::1]:8000", {}, 200),
        ("rebound.example.org", {}, 403),
        ("127.0.0.1:8000", {"Origin": "https://example.org"}, 403),
        ("127.0.0.1:8000", {"Sec-Fetch-Site": "none"}, 200),
        ("127.0.0.1:8000", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("127.0.0.1:8000", {"Sec-Fetch-Site": "same-site"}, 403),
        ("127.0.0.1:8000", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403),
        ("127.0.0.1:8000", {"Sec-Fetch-Site": ""}, 403),
    ],
)
async def test_without_tokens_no_web_page_may_ask(
    world: TaskWorld, host: str, headers: Mapping[str, str], status: int
) -> None:
    async with world.client(host=host) as client:
        assert (await client.get("/tasks", headers=dict(headers))).status_code == status


@pytest.mark.parametrize(
    "host",
    ["[::1", "[::1]x", "127.0.0.1:x", "127.0.0.1:", "a b", "user@127.0.0.1", "127.0.0.1/", "127.0.0.1, 127.0.0.1", ""],
)
@pytest.mark.parametrize("tokens", [(), TOKENS])
async def test_a_host_that_is_none_is_a_bad_request(world: TaskWorld, host: str, tokens: Any) -> None:
    """On each route, whoever asks."""
    async with world.client(Access(tokens), READ) as client:
        answers = [await client.get(path, headers={"Host": host}) for path in ("/tasks", "/healthcheck", "/nowhere")]

    assert [answer.status_code for answer in answers] == [400] * 3
    assert answers[0].json()["message"] == "The header field Host is not HOST or HOST:PORT"


async def test_with_tokens_a_page_is_refused_for_its_lack_of_one(world: TaskWorld) -> None:
    async with world.client(Access(TOKENS)) as client:
        assert (await client.get("/tasks", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 401


async def test_each_call_is_on_record_with_who_asked_and_no_secret(
    world: TaskWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mailmend.jobs")
    async with world.client(Access(TOKENS), REPAIR) as client:
        await client.post(f"/messages?task=SolveInconsistencies&token={REPAIR}")
        await client.get("/nowhere%0Ainjected")
        await client.get("/tasks", headers={"Authorization": "Bearer wrong"})
        await client.delete("/blobs?scope=unreferenced", headers={"Authorization": f"Bearer {READ}"})

    names = ("address", "caller", "method", "path", "status")
    calls = [tuple(vars(one)[name] for name in names) for one in caplog.records if "path" in vars(one)]
    assert calls == [
        ("127.0.0.1", "nightly", "POST", "/messages", 201),
        ("127.0.0.1", None, "GET", r"/nowhere\ninjected", 404),
        ("127.0.0.1", None, "GET", "/tasks", 401),
        ("127.0.0.1", "watcher", "DELETE", "/blobs", 403),
    ]
    assert not [one for one in caplog.records if REPAIR in text_line(one) or READ in text_line(one)]
    assert world.tasks.listed()[0].submitted_by == "nightly"


async def test_health_is_reported_without_a_token(world: TaskWorld) -> None:
    async with world.client(Access(TOKENS)) as client:
        well = await client.get("/healthcheck")
        world.unreached = "no node answered at 10.0.0.1"
        ill = await client.get("/healthcheck")

    assert (well.status_code, well.json()["status"]) == (200, "healthy")
    assert (ill.status_code, ill.json()["status"]) == (503, "unhealthy")
    assert "10.0.0.1" not in ill.text


# Tokens and addresses


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nightly repair", "line 1: this is not a token"),
        (f"nightly admin {READ}", "line 1: this is not a token"),
        ("nightly repair short", "shorter than 20 characters"),
        (f"nightly repair {READ}\nnightly read {REPAIR}", "line 2: 'nightly' has a token already"),
        ("# nothing", "holds no token"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_read_is_refused_without_showing_them(
    tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "tokens"
    file.write_text(line)
    file.chmod(0o600)

    with pytest.raises(MailmendError, match=said) as refused:
        read_tokens(file, None)

    assert READ not in str(refused.value)


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"nightly repair {REPAIR}")
    file.chmod(0o640)

    with pytest.raises(MailmendError, match="may be read by others"):
        read_tokens(file, None)
    file.chmod(0o600)
    assert [(one.name, one.role) for one in read_tokens(file, None)] == [("nightly", TokenRole.REPAIR)]
    assert read_tokens(None, f"a read {READ}")[0].name == "a"
    assert REPAIR not in repr(TOKENS)


@pytest.mark.parametrize(
    ("where", "tokens", "tls", "said"),
    [
        ("127.0.0.1:8000", False, False, None),
        ("[::1]:8000", False, False, None),
        ("localhost:8000", True, False, None),
        ("0.0.0.0:8000", True, True, None),
        ("0.0.0.0:8000", True, False, "can be reached from elsewhere"),
        ("0.0.0.0:8000", False, True, "can be reached from elsewhere"),
        ("jobs.example.org:8000", False, False, "can be reached from elsewhere"),
        ("127.0.0.1", True, True, "is not HOST:PORT"),
        ("127.0.0.1:x", True, True, "is not HOST:PORT"),
        ("127..1:80", True, True, "is not HOST:PORT"),
        ("127.0.0.1:99999", True, True, "is not HOST:PORT"),
        ("http://127.0.0.1:80", True, True, "is not HOST:PORT"),
    ],
)
def test_an_address_that_others_reach_needs_tokens_and_tls(
    tmp_path: Path, where: str, said: str | None, *, tokens: bool, tls: bool
) -> None:
    file = tmp_path / "pem"
    file.touch()
    given = (TOKENS if tokens else (), file if tls else None, file if tls else None)

    if said is None:
        assert parse_listening(where, *given).port == 8000
        return
    with pytest.raises(MailmendError, match=said):
        parse_listening(where, *given)


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MailmendError, match="go together"):
        parse_listening("127.0.0.1:8000", TOKENS, tmp_path / "cert", None)
    with pytest.raises(MailmendError, match="does not exist"):
        parse_listening("127.0.0.1:8000", TOKENS, tmp_path / "cert", tmp_path / "key")


# The server


async def test_it_answers_until_it_is_stopped(world: TaskWorld) -> None:
    stop, port = asyncio.Event(), _free_port()
    serving = asyncio.create_task(listen(JOBS, Listening("127.0.0.1", port), world.desk, stop))
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.get("/healthcheck")
        stop.set()
        await serving

    assert (answer.status_code, "server" in answer.headers) == (200, False)


async def test_a_port_that_is_taken_is_reported(world: TaskWorld) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WrongUse, match=f"cannot listen on 127.0.0.1 port {port}"):
            await listen(JOBS, Listening("127.0.0.1", port), world.desk, asyncio.Event())


async def test_a_certificate_that_is_none_is_reported(world: TaskWorld, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no certificate")
    listening = Listening("127.0.0.1", 0, Access(), file, file)

    with pytest.raises(BadSettings, match="cannot be used"):
        await listen(JOBS, listening, world.desk, asyncio.Event())


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
        return port
