"""`mailmend delivery explain` as a person types it, beside servers that answer over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from mailmend.admin.delivery.http.routes import DELIVERIES
from mailmend.admin.frame.http.access import Access, Listening, parse_tokens
from mailmend.admin.frame.http.server import listen
from mailmend.admin.local.processes import free_port
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.delivery_desk import DeliveryWorld

TOKEN: Final = "r" * 32
NOWHERE: Final = "6e0ab5e0-8d1c-41f0-9a5e-0242ac120002"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None)


@asynccontextmanager
async def answering(world: DeliveryWorld, *tokens: str) -> AsyncIterator[str]:
    """The address of a server over this world."""
    port, stop = free_port(["127.0.0.1"]), asyncio.Event()
    listening = Listening("127.0.0.1", port, Access(parse_tokens(tokens, "")))
    serving = asyncio.create_task(listen(DELIVERIES, listening, world.desk, stop))
    try:
        while not serving.done():
            with suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await serving


async def typed(line: CommandLine, *options: str, **environment: str) -> Ended:
    """Beside the server, in a thread."""
    return await asyncio.to_thread(line, "delivery", "explain", *options, **environment)


async def test_of_several_servers_the_one_that_has_the_mail_tells_why_it_waits(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that do not answer are named."""
    (tmp_path / "policies.yaml").write_text("[{default: {concurrency: 0}}]")
    has, other = DeliveryWorld(tmp_path / "policies.yaml"), DeliveryWorld()
    away = f"http://127.0.0.1:{free_port(['127.0.0.1'])}"
    async with has.open(), other.open(), has.delivering():
        name = await has.put("bob@one.example")
        await has.clock.pause(5)
        await other.put("al@one.example")
        monkeypatch.setattr(has.clock, "pause", lambda _: asyncio.sleep(0.05))  # time stands still meanwhile
        async with answering(has) as first, answering(other) as second:
            said = await typed(line, str(name), "--ask", second, "--ask", first, "--ask", away)
            found = await typed(line, f"{name}:0", "--ask", first, "--json")
            values = await typed(
                line, "--domain", "x.example", "--local-ip", "192.0.2.7", "--ask", first, "--ask", second
            )
    assert (said.code, "127.0.0.1" in said.err) == (3, True), said.err
    assert f"{name}:0, bob@one.example: waiting" in said.out
    assert "Policy 1 (line 1) counts it as every mail: none of these may begin." in said.out
    assert (found.code, [one["url"] for one in found.json["servers"]]) == (0, [first])
    assert found.json["servers"][0]["entries"][0]["sources"][0]["policies"][0]["refuses"] is True
    assert "recipientdomain x.example" in values.out
    assert ("from whichever address" in values.out, "it would go from 192.0.2.7 now" in values.out) == (True, True)


async def test_a_mail_that_no_server_has_is_explained_as_the_queue_knows_it(line: CommandLine) -> None:
    """Once, by the first that answers; what is nowhere is said, with what to type next."""
    world = DeliveryWorld()
    async with world.open():
        name = await world.put("bob@one.example", delay=timedelta(hours=1))
        async with answering(world) as url:
            said = await typed(line, str(name), "--ask", url, "--ask", url.replace("127.0.0.1", "localhost"))
            nowhere = await typed(line, NOWHERE, "--ask", url)
    assert said.code == 0, said.err
    assert said.out.count("Deferred until") == 1
    assert (nowhere.code, "mailmend delivery list outgoing" in nowhere.err) == (2, True)


async def test_a_token_is_sent_from_its_file_or_the_environment(line: CommandLine, tmp_path: Path) -> None:
    """Without one the server answers nothing, and it is said how to give it."""
    file, world = tmp_path / "token", DeliveryWorld()
    file.write_text(f"{TOKEN}\n")
    async with world.open(), answering(world, f"watcher read {TOKEN}") as url:
        options = ("--domain", "x.example", "--ask", url)
        answers = [
            await typed(line, *options),
            await typed(line, *options, "--token-file", str(file)),
            await typed(line, *options, MAILMEND_TOKEN=TOKEN),
        ]
    assert [one.code for one in answers] == [4, 0, 0]
    assert "--token-file" in answers[0].err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("x",), 2, "--ask http://127.0.0.1:8000"),
        (("--ask", "http://127.0.0.1:8000"), 2, "it is not said which mail"),
        (("x", "--domain", "y", "--ask", "http://127.0.0.1:8000"), 2, "it is not said which mail"),
        (("x", "--ask", "127.0.0.1:8000"), 2, "is no server"),
        (("x", "--ask", "http://127.0.0.1:8000/path"), 2, "is no server"),
        (("x", "--ask", "http://10..0.2:8000"), 2, "is no server"),
        (("x", "--ask", "http://mx1.example.org:8000"), 2, "in the clear"),
        (("x", "--ask", "http://127.0.0.1:1"), 4, "does not answer"),
    ],
)
def test_what_is_not_meant_is_refused(line: CommandLine, options: tuple[str, ...], code: int, said: str) -> None:
    """A token above all never leaves this machine in the clear."""
    ended = line("delivery", "explain", *options, MAILMEND_TOKEN=TOKEN)
    assert (ended.code, said in " ".join(ended.err.split())) == (code, True), ended.err


@pytest.mark.parametrize(("text", "status"), [("<html>", 200), ("[]", 500)])
def test_a_server_that_is_none_of_ours_is_named(line: CommandLine, text: str, status: int) -> None:
    """Whatever it answers."""
    with answered(text, status) as url:
        ended = line("delivery", "explain", "x", "--ask", url)
    assert (ended.code, "127.0.0.1" in ended.err) == (4, True), ended.err


@contextmanager
def answered(text: str, status: int) -> Iterator[str]:
    """A server that answers one call so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 10
        thread = Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        thread.join()
