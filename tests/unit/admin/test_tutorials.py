"""The tutorials: their commands, typed from the page on parts in memory, show what the page shows."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from mailmend.admin.delivery import serve
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.runbooks import RunbookStep
from mailmend.admin.local import demo
from mailmend.admin.local.processes import free_port
from tests.support.cluster_twin import cluster_in_memory
from tests.support.commands import Ended, command_line
from tests.support.queue_commands import QueueShell, queue_shell
from tests.support.tutorials import exit_of, files_of, missing, shape, tutorial
from tests.unit.admin.test_delivery_command import StoppingRelay
from tests.unit.admin.test_demo import InProcess

OF_SERVERS = ("eval ", "export ", "make ", "mailmend demo ", "mailmend local ", "mailmend schema ")
"""How commands begin that start servers, stop them or say where they are: tables in memory need none."""


def typed(queue: QueueShell, step: RunbookStep, file: str) -> Ended:
    """Type a command of the page; `$FILE` is what a person reads in the output before."""
    words = shlex.split(step.command.replace("$FILE", file), comments=True)
    assert words[:2] == ["mailmend", "queue"]
    queue.clock.advance(1)
    return queue(*words[2:])


def write_mail(command: str) -> None:
    """What `printf TEXT > FILE` does."""
    _, text, _, file = shlex.split(command)
    Path(file).write_text(text.replace("\\n", "\n"))


def test_the_tutorial_of_queues_goes_as_its_page_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    queue = queue_shell(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    kept = ""

    for step in tutorial("your-first-queue").steps():
        if step.command.startswith("printf "):
            write_mail(step.command)
            continue
        if step.command.startswith(OF_SERVERS):
            continue
        ended = typed(queue, step, kept)
        assert ended.code == 0, (step.command, ended)
        assert missing(step.output, ended.out) == [], step.command
        if " delete " in step.command and "--dry-run" not in step.command:
            (file,) = (queue.line.home / "data").rglob("*.jsonl.gz")
            kept = str(file)
            assert file.name in ended.out + ended.err

    taken = sorted(Path("taken").glob("*.eml"))
    assert len(taken) == 2
    assert queue.names() == []


@dataclass(slots=True)
class RecordingShell:
    """A shell of the demo that only notes the commands."""

    folder: Path
    port: int = 9042
    commands: list[str] = field(default_factory=list)

    def type(self, *words: str, expect: Sequence[int] = (0,)) -> None:
        assert expect
        self.commands.append(" ".join(words[:2]))

    def last_run(self) -> str:
        return "RUN"


def test_the_tutorial_of_repairs_has_each_command_of_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the demo's order; `test_demo.py` runs the commands."""
    monkeypatch.setattr(demo, "break_everything", lambda _port: [])
    shell = RecordingShell(tmp_path)

    demo.play(cast("demo.Shell", shell), demo.DemoRequest(engine="local"), Caller())

    played = [re.sub(r"^load .*", "load", command) for command in shell.commands]
    table = tutorial("see-a-repair").text.partition("| step |")[2].partition("\n\n")[0]
    on_page = [" ".join(name.split()) for name in re.findall(r"`mailmend (\w+(?: \w+)?)`", table)]
    assert list(dict.fromkeys(["local up", *played])) == list(dict.fromkeys(on_page))


def test_the_tutorial_of_repairs_goes_as_its_page_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the demo: what it has left is found again, and its runs are there."""
    cluster = cluster_in_memory(monkeypatch)
    cluster.keyspaces.clear()
    shell = InProcess(command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1"), cluster, tmp_path)
    monkeypatch.chdir(tmp_path)
    demo.play(cast("demo.Shell", shell), demo.DemoRequest(messages=demo.MESSAGES_MIN), Caller())

    for step in tutorial("see-a-repair").steps():
        if step.command.startswith(OF_SERVERS):
            continue
        words = shlex.split(step.command.replace("$RUN", shell.last_run()), comments=True)
        ended = shell.run(*words[1:])
        assert ended.code == exit_of(step.command), ended
        assert missing(step.output, ended.out) == [], ended

    assert Path("drift.html").read_text().startswith("<!doctype html>")


def recipients_of(relay: StoppingRelay) -> list[str]:
    return [entry.recipient for _, attempt in relay.attempts for entry in attempt.recipients]


def test_the_tutorial_of_deliveries_goes_as_its_page_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server is stopped after each mail, and goes on after the order; only `explain --ask` needs one that runs."""
    queue = queue_shell(monkeypatch, tmp_path)
    relay = StoppingRelay(queue.clock)
    monkeypatch.setattr(serve, "relay_of", lambda *_: relay)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    page = tutorial("deliver-with-a-policy")
    for name, text in files_of(page).items():
        Path(name).write_text(text)
    serving: list[str] = []

    for step in page.steps():
        if step.command.startswith("printf "):
            write_mail(step.command)
        if not step.command.startswith("mailmend ") or step.command.startswith(
            (*OF_SERVERS, "mailmend delivery explain")
        ):
            continue
        words = shlex.split(re.split(" > | &", step.command)[0])[1:]
        if "serve" in words:
            words[words.index("--http") + 1] = f"127.0.0.1:{free_port(['127.0.0.1'])}"
            serving = words
        queue.clock.advance(1)
        ended = queue.line(*words, MAILMEND_QUEUE="outgoing")
        assert ended.code == 0, ended
        assert missing(step.output, ended.out) == [], ended
    assert recipients_of(relay) == ["bob@example.net"]

    relay.wanted = 2
    assert queue.line(*serving, MAILMEND_QUEUE="outgoing").code == 0
    assert recipients_of(relay) == ["bob@example.net", "eve@example.org"]


def test_a_line_is_the_same_in_shape_whatever_its_ids_numbers_and_widths() -> None:
    assert shape(" 12   spool  2026-08-29 10:40") == shape("7 spool 2025-01-01 9:01")
    said = "Mails\n id  a@example.org  letter  waiting\nbye 7\n"

    assert missing(("Mails", "…  a@example.org  waiting", "bye 8"), said) == []
    assert missing(("bye 8", "Mails"), said) == ["Mails"]
    assert missing(("…  b@example.org", "Mail"), said) == ["…  b@example.org", "Mail"]
