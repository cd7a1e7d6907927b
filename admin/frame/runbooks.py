"""The runbooks: pages for the questions of an operator; a terminal shows them, a test executes them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from mailmend.model.errors import WrongUse

SECTIONS: Final = ("When", "Check", "Do", "Verify", "Undo")
"""The sections of every page, in this order."""

_FENCE: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"^\$ (.+)$")
_PLACEHOLDER: Final = re.compile(r"\$([A-Z][A-Z_]*)")


class RunbookStep(NamedTuple):
    """A command of a page, and lines of its output as the page shows them."""

    command: str
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunbookPage:
    """One runbook page."""

    name: str
    text: str

    @property
    def title(self) -> str:
        return self.text.splitlines()[0].lstrip("# ").strip()

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(line[3:].strip() for line in self.text.splitlines() if line.startswith("## "))

    def commands(self, section: str | None = None) -> tuple[str, ...]:
        """The commands in console blocks, of one section or of the whole page, in order."""
        return tuple(step.command for step in self.steps(section))

    def steps(self, section: str | None = None) -> tuple["RunbookStep", ...]:
        """The commands, each with the lines of its output that stand below it."""
        text = self.text
        if section is not None:
            text = self.section(section)
        return tuple(_steps(text, "console"))

    @property
    def untried(self) -> tuple[str, ...]:
        """The commands in blocks of no language: no test executes them, for they need what a test has not."""
        return tuple(step.command for step in _steps(self.text, ""))

    @property
    def placeholders(self) -> frozenset[str]:
        return frozenset(name for command in self.commands() for name in _PLACEHOLDER.findall(command))

    def section(self, name: str) -> str:
        parts = re.split(r"^## (.+)$", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True)).get(name, "")


def pages() -> list[RunbookPage]:
    found = [file for file in _folder().iterdir() if _is_page(file.name)]
    read = [RunbookPage(PurePath(file.name).stem, file.read_text(encoding="utf-8")) for file in found]
    return sorted(read, key=lambda page: page.name)


def page_named(name: str) -> RunbookPage:
    """The page of that name.

    Raises:
        WrongUse: no such page.
    """
    for page in pages():
        if page.name == name.removesuffix(".md"):
            return page
    raise WrongUse(f"there is no runbook {name!r}", mend="List them with: mailmend runbook list")


def _steps(text: str, language: str) -> Iterator[RunbookStep]:
    """Lines that begin with `$ ` in blocks of that language; a backslash at the end continues the line."""
    for named, block in _FENCE.findall(text):
        if named != language:
            continue
        for part in re.split(r"^(?=\$ )", block.replace("\\\n", " "), flags=re.MULTILINE):
            first, *lines = part.splitlines() or [""]
            if found := _COMMAND.match(first):
                yield RunbookStep(" ".join(found[1].split()), tuple(line for line in lines if line.strip()))


def _is_page(name: str) -> bool:
    return name.endswith(".md") and name != "README.md"


def _folder() -> Traversable:
    """In an installed wheel or zip the pages are inside it; in a checkout, in the top folder."""
    installed = files("mailmend.admin") / "runbooks"
    if installed.is_dir():
        return installed
    return Path(__file__).resolve().parents[2] / "runbooks"
