"""The tutorials, typed as they are on their pages: `local up` starts their servers, bash reads what it prints."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from mailmend.admin.local.processes import free_port
from tests.support.checkout import CHECKOUT
from tests.support.tutorials import Terminal, Typed, exit_of, files_of, missing, terminal, tutorial

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.thorough]

READS: Final = {
    "FILE": r"To put them back: mailmend queue restore (\S+)",
    "PORT": r"It still runs: .* --port (\d+)",
    "DIR": r"Remove it: +mailmend local down --dir (\S+)",
    "ID": r"^ ([0-9a-f-]{36}:\d+) +eve@",
    "RUN": r"^ ([0-9a-f-]{36}) .* (?:repair|undo) ",
}
"""What a reader reads in an output, by the name that the page has for it."""

Walk = Callable[..., list[Typed]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def bash(home: Path) -> Iterator[Terminal]:
    """Its servers end with the test, however that ends."""
    with terminal(home, READS) as opened:
        yield opened
        opened.type("mailmend local down; mailmend local clean")
        opened.type('test -z "$DIR" || mailmend local down --dir "$DIR"')


@pytest.fixture
def walk(bash: Terminal, home: Path) -> Walk:
    """Type all commands of a page, and claim their exit codes and what the page shows of their output."""

    def through(name: str, replaced: Mapping[str, str] | None = None) -> list[Typed]:
        page = tutorial(name)
        for file, text in files_of(page).items():
            (home / file).write_text(text, encoding="utf-8")
        ended: list[Typed] = []
        for step in page.steps():
            command = step.command
            for word, other in (replaced or {}).items():
                command = command.replace(word, other)
            typed = bash.type(command)
            assert typed.code == exit_of(step.command), typed
            assert missing(step.output, typed.out) == [], typed
            ended.append(typed)
        assert page.untried == ()
        return ended

    return through


def test_the_tutorial_of_queues_goes_as_its_page_says(walk: Walk, home: Path) -> None:
    walk("your-first-queue")

    assert len(list((home / "taken").glob("*.eml"))) == 2
    assert len(list((home / "taken").glob("*.json"))) == 2


def test_the_tutorial_of_repairs_goes_as_its_page_says(walk: Walk, home: Path) -> None:
    """`make` is typed in the checkout, where its Makefile is."""
    ended = walk("see-a-repair", {"make demo": f"make -C {CHECKOUT} demo"})

    assert "== 7. Undo it, and redo it" in ended[0].out
    assert (home / "drift.html").read_text().startswith("<!doctype html>")


def test_the_tutorial_of_deliveries_goes_as_its_page_says(walk: Walk, home: Path) -> None:
    ports = {name: str(free_port(["127.0.0.1"])) for name in ("8025", "8000")}

    walk("deliver-with-a-policy", ports)

    received = (home / "received.txt").read_text()
    assert received.count("Subject: Minutes") == 2
