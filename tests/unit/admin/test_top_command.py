"""`mailmend delivery top`: it asks running servers, and draws what they answer again and again."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from mailmend.admin.delivery.top import summed_rows
from mailmend.admin.local.processes import free_port
from tests.support.commands import CommandLine, command_line
from tests.support.delivery_desk import DeliveryWorld
from tests.unit.admin.test_explain_command import answering

TOKEN: Final = "r" * 32
NO_REPLY: Final = None


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None)


def row(domain: str, waiting: int, *, why: str = "", replied_at: str = "", text: str = "421 busy") -> dict[str, Any]:
    reply = NO_REPLY
    if replied_at:
        reply = {"at": replied_at, "outcome": "refused for now", "status": "", "text": text, "host": "mx"}
    return {
        "values": {"domain": domain, "tenant": ""},
        "waiting": waiting,
        "in_hand": 0,
        "backlog": waiting,
        "going": 1,
        "delivered": 3,
        "refused": 0,
        "failed": 0,
        "sources": ["192.0.2.1"],
        "reply": reply,
        "cause": why,
        "why": [why],
        "until": None,
    }


def answer(server: str, *rows: dict[str, Any], queue: str = "outgoing") -> dict[str, Any]:
    return {
        "server": server,
        "at": "2026-12-01T08:00:00.000Z",
        "queue": queue,
        "by": ["domain", "tenant"],
        "waiting": sum(one["waiting"] for one in rows),
        "going": len(rows),
        "counted_seconds": 60,
        "sub_queues": list(rows),
        "left_out": 0,
    }


@contextmanager
def answered(body: Any, status: int = 200) -> Iterator[str]:
    """A server that answers every call so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def test_one_look_shows_the_sub_queues_of_a_server(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limit that holds their mails."""
    (tmp_path / "policies.yaml").write_text("[{fields: [recipientdomain], default: {concurrency: 0}}]")
    world = DeliveryWorld(tmp_path / "policies.yaml")
    async with world.open(), world.delivering():
        await world.put("bob@one.example")
        await world.clock.pause(5)
        monkeypatch.setattr(world.clock, "pause", lambda _: asyncio.sleep(0.05))  # time stands still meanwhile
        async with answering(world) as url:
            ended = await asyncio.to_thread(line, "delivery", "top", "outgoing", "--once", "--ask", url)
    assert ended.code == 0, ended.err
    assert "Waiting 1, going 0." in ended.out
    assert "one.example" in ended.out
    assert "policy 1 (line 1), recipientdomain one.example: none may begin" in " ".join(ended.out.split())


def test_several_servers_are_added_up_and_the_one_that_is_silent_is_named(line: CommandLine) -> None:
    away = f"http://127.0.0.1:{free_port(['127.0.0.1'])}"
    with answered(answer("mx1", row("a", 3), row("b", 1))) as first, answered(answer("mx2", row("b", 9))) as second:
        servers = [word for url in (first, second, away) for word in ("--ask", url)]
        ended = line("delivery", "top", "outgoing", "--once", "--json", *servers)
        shown = line("delivery", "top", "outgoing", "--once", *servers)
    assert (ended.code, shown.code) == (3, 3), ended.err
    rows = [(one["values"]["domain"], one["waiting"], one["servers"]) for one in ended.json["sub_queues"]]
    assert rows == [("b", 10, ["mx1", "mx2"]), ("a", 3, ["mx1"])]
    assert (ended.json["waiting"], ended.json["going"], list(ended.json["unreached"])) == (13, 3, [away])
    assert f"No answer: {away}" in shown.out


def test_sums_have_the_last_reply_and_the_reason_of_the_server_with_the_most_waiting_mails() -> None:
    few = answer("mx1", row("a", 1, why="few", replied_at="2026-12-01T08:00:02.000Z", text="last"))
    many = answer("mx2", row("a", 2, why="many", replied_at="2026-12-01T08:00:01.000Z", text="first"))
    for answers in ((few, many), (many, few)):
        (summed,) = summed_rows(answers, ["domain", "tenant"])
        assert (summed["waiting"], summed["delivered"], summed["cause"], summed["why"]) == (3, 6, "many", ["many"])
        assert summed["reply"]["text"] == "last"


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_no_text_of_a_server_steers_the_terminal(line: CommandLine, options: tuple[str, ...]) -> None:
    hostile = row("a\x1b]0;x\x07", 1, why="w\x1b[2J", replied_at="2026-12-01T08:00:00.000Z", text="421 \x1b[31m\r\n")
    with answered(answer("mx\x1b[H", hostile)) as url:
        ended = line("delivery", "top", "outgoing", "--once", "--ask", url, *options)
    assert ended.code == 0, ended.err
    assert ended.out.count("421") == 1
    assert not [char for char in ended.out if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        (answer("mx1", queue="spool"), 200, 2, "delivers spool, not outgoing"),
        ({"message": "no"}, 401, 4, "--token-file"),
        ({"message": "no such route"}, 404, 4, "no such route"),
        ([], 200, 4, "is not a server of deliveries"),
    ],
)
def test_a_server_that_cannot_answer_is_named(line: CommandLine, body: Any, status: int, code: int, said: str) -> None:
    with answered(body, status) as url:
        ended = line("delivery", "top", "outgoing", "--ask", url)
    assert (ended.code, said in " ".join(ended.err.split())) == (code, True), ended.err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "--ask http://127.0.0.1:8000"),
        (("--ask", "http://mx1.example.org:8000"), 2, "in the clear"),
        (("--ask", "http://127.0.0.1:1"), 4, "does not answer"),
        (("--once", "--interval", "1s", "--ask", "http://127.0.0.1:1"), 2, "--interval has no effect with --once"),
    ],
)
def test_what_cannot_be_is_refused(line: CommandLine, options: tuple[str, ...], code: int, said: str) -> None:
    ended = line("delivery", "top", "outgoing", *options, MAILMEND_TOKEN=TOKEN)
    assert (ended.code, said in " ".join(ended.err.split())) == (code, True), ended.err


def typed(url: str, *options: str) -> Sequence[str]:
    return [sys.executable, "-m", "mailmend", "delivery", "top", "outgoing", "--interval", "1s", "--ask", url, *options]


def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
    kept |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    return {**kept, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_a_terminal_each_look_is_a_block_without_control_codes_and_ctrl_c_ends_well(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """As JSON each is one line, and the last line says how many there were."""
    with (
        answered(answer("mx1", row("a.example", 3))) as url,
        subprocess.Popen(
            typed(url, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment(tmp_path), "FORCE_COLOR": "1"},
        ) as command,
    ):
        assert command.stdout is not None
        seen = ""
        while seen.count("a.example") < 2:
            seen += command.stdout.readline()
        command.send_signal(signal.SIGINT)
        seen += command.stdout.read()
        code = command.wait()
    assert (code, "\x1b" in seen) == (0, False), seen
    if options:
        *looks, last = [json.loads(text) for text in seen.splitlines()]
        assert last == {"queue": "outgoing", "looks": len(looks), "exit": 0}
        assert all(one["sub_queues"][0]["waiting"] == 3 for one in looks)


def test_on_a_terminal_the_table_is_drawn_in_its_place_and_q_ends_it(tmp_path: Path) -> None:
    """The terminal gets its screen back, with the last look on it."""
    ours, theirs = pty.openpty()
    with (
        answered(answer("mx1", row("a.example", 3))) as url,
        subprocess.Popen(typed(url), stdin=theirs, stdout=theirs, stderr=theirs, env=environment(tmp_path)) as command,
    ):
        os.close(theirs)
        drawn = read(ours, b"a.example")
        os.write(ours, b"q")
        behind = read(ours, None)
        code = command.wait()
    os.close(ours)
    assert code == 0, behind
    assert b"\x1b[?1049h" in drawn
    left, _, shown = (drawn + behind).partition(b"\x1b[?1049l")
    assert b"a.example" in left
    assert b"a.example" in shown


def read(terminal: int, words: bytes | None) -> bytes:
    """What is written until the words are there; None: until the end."""
    seen = b""
    while words is None or words not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        if not ready:
            break
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        seen += part
    return seen
