"""A tutorial, and whether an output has what its page shows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mailmend.admin.frame.runbooks import RunbookPage
from tests.support.checkout import CHECKOUT

FOLDER: Final = CHECKOUT / "docs" / "tutorials"
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER: Final = re.compile(r"\d[\d,.:]*")
_FILE: Final = re.compile(r"Save as `([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXIT: Final = re.compile(r"#\s*exit (\d+)")


def tutorial(name: str) -> RunbookPage:
    return RunbookPage(name, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))


def files_of(page: RunbookPage) -> Mapping[str, str]:
    """The files that a reader is told to save, by name."""
    return dict(_FILE.findall(page.text))


def exit_of(command: str) -> int:
    """The exit code that the comment behind a command promises; 0 without one."""
    promised = _EXIT.search(command)
    if promised is None:
        return 0
    return int(promised[1])


def shape(line: str) -> str:
    """A line without what differs from one run to the next: ids, numbers and the width of columns."""
    return " ".join(_NUMBER.sub("N", UUID.sub("ID", line)).split())


def missing(shown: Sequence[str], said: str) -> list[str]:
    """The lines of a page that an output lacks, in their order.

    `...` stands for any lines, and `…` for columns that the page leaves out.
    """
    lines = iter([shape(line).split() for line in said.splitlines()])
    return [line for line in shown if line.strip() != "..." and not _is_in(line, lines)]


def _is_in(line: str, lines: Iterator[list[str]]) -> bool:
    """Whether one of the next lines has the words of this one; it and those before it are used up."""
    parts = [part.split() for part in shape(line).split("…")]
    whole = "…" not in line
    for said in lines:
        if whole and said == parts[0]:
            return True
        rest = iter(said)
        if not whole and all(word in rest for part in parts for word in part):
            return True
    return False
