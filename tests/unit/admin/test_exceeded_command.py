"""`mailmend suspend list --exceeded` as a person types it, next to servers that answer over HTTP."""

import asyncio
from pathlib import Path

import pytest

from mailmend.admin.local.processes import free_port
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.delivery_desk import DeliveryWorld
from tests.unit.admin.test_explain_command import TOKEN, answered, answering

POLICIES = "[{fields: [recipientdomain], default: {rate: 1/86400}}]"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None)


async def typed(line: CommandLine, *options: str) -> Ended:
    """Next to the server, in a thread."""
    return await asyncio.to_thread(line, "suspend", "list", "outgoing", "--exceeded", *options)


async def test_what_is_exceeded_is_listed_of_each_server_that_is_asked(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a server that delivers one mail a day to each domain, an idle one, and one that is away."""
    (tmp_path / "policies.yaml").write_text(POLICIES)
    busy, idle = DeliveryWorld(tmp_path / "policies.yaml"), DeliveryWorld()
    away = f"http://127.0.0.1:{free_port(['127.0.0.1'])}"
    async with busy.open(), idle.open(), busy.delivering():
        for _ in range(3):
            await busy.put("bob@one.example")
        await busy.clock.pause(5)
        monkeypatch.setattr(busy.clock, "pause", lambda _: asyncio.sleep(0.05))  # time does not pass meanwhile
        async with answering(busy) as first, answering(idle) as second:
            said = await typed(line, "--ask", first, "--ask", second, "--ask", away)
            found = await typed(line, "--ask", first, "--json")
            busy_alone = (await typed(line, "--ask", second)).out
    assert said.code == 3, said.err
    assert "127.0.0.1" in said.err
    assert ("recipientdomain" in said.out, "what is exceeded" in said.out) == (True, True), said.out
    assert f"({second})" in busy_alone
    assert busy_alone.endswith("no threshold is exceeded.\n")
    assert found.code == 0
    (server,) = found.json["servers"]
    (entry,) = server["exceeded"]
    assert (server["url"], server["queue"], server["count"]) == (first, "outgoing", 1)
    assert (entry["policy"], entry["key"], entry["concurrency"]) == (1, {"recipientdomain": "one.example"}, None)
    assert (entry["rate"]["count"], entry["waiting"], entry["refuses"]) == (1, 2, True)
    assert entry["since"] <= server["at"] < entry["free_at"]
    assert entry["why"].startswith(
        "Policy 1 (line 1) counts it as recipientdomain one.example: 1 in 86400 s may begin, the next one at "
    )


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--exceeded",), 2, "--ask http://127.0.0.1:8000"),
        (("--exceeded", "--history", "--ask", "http://127.0.0.1:1"), 2, "--history has no effect with --exceeded"),
        (("--ask", "http://127.0.0.1:1"), 2, "--exceeded"),
        (("--token-file", "token"), 2, "are for servers that are asked"),
        (("--ask-tls-ca", "ca.pem"), 2, "are for servers that are asked"),
        (("--exceeded", "--ask", "http://127.0.0.1:1"), 4, "does not answer"),
        (("--exceeded", "--ask", "http://mx1.example.org:8000"), 2, "in the clear"),
    ],
)
def test_servers_are_named_for_what_is_exceeded_alone(
    line: CommandLine, options: tuple[str, ...], code: int, said: str
) -> None:
    ended = line("suspend", "list", "outgoing", *options, MAILMEND_TOKEN=TOKEN)
    assert (ended.code, said in " ".join(ended.err.split())) == (code, True), ended.err


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("[]", 200, "does not deliver the queue outgoing"),
        ('{"queue": "spool", "exceeded": []}', 200, "does not deliver the queue outgoing"),
        ('{"message": "no such page"}', 404, "no such page"),
        ('{"queue": "outgoing"}', 200, "gave an answer that this version cannot read"),
        (
            '{"queue": "outgoing", "server": "a", "at": "now", "count": 1, "exceeded": [{"waiting": 1}]}',
            200,
            "gave an answer that this version cannot read",
        ),
    ],
)
def test_a_server_of_another_queue_or_version_is_named(line: CommandLine, text: str, status: int, said: str) -> None:
    with answered(text, status) as url:
        ended = line("suspend", "list", "outgoing", "--exceeded", "--ask", url)
    assert ended.code in {2, 4}
    assert said in " ".join(ended.err.split())


def test_a_server_that_refuses_the_token_hides_no_answer_of_another(line: CommandLine) -> None:
    """It is named; the exit code is that of a server that does not answer."""
    none = '{"queue": "outgoing", "server": "mx1", "at": "2026-08-29T12:00:00Z", "count": 0, "exceeded": []}'
    with answered('{"message": "who is that"}', 401) as refusing, answered(none, 200) as url:
        ended = line("suspend", "list", "outgoing", "--exceeded", "--ask", refusing, "--ask", url)
    with answered('{"message": "who is that"}', 401) as refusing:
        alone = line("suspend", "list", "outgoing", "--exceeded", "--ask", refusing)
    assert (ended.code, "no threshold is exceeded" in ended.out) == (3, True), ended.err
    assert "who is that" in ended.err
    assert (alone.code, "--token-file" in alone.err) == (4, True), alone.err
