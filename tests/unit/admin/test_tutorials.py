"""The tutorials: their commands, typed from the page on parts in memory, show what the page shows."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.runbooks import RunbookPage, RunbookStep
from mailmend.admin.local import demo
from tests.support.checkout import CHECKOUT
from tests.support.commands import Ended
from tests.support.queue_commands import QueueShell, queue_shell

FOLDER = CHECKOUT / "docs" / "tutorials"


def tutorial(name: str) -> RunbookPage:
    return RunbookPage(name, (FOLDER / f"{name}.md").read_text())


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
        ended = typed(queue, step, kept)
        assert ended.code == 0, (step.command, ended)
        for line in step.output:
            assert line in ended.out, step.command
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
