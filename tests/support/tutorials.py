"""A tutorial as its reader works through it: each command of the page, typed as it is there into one bash."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mailmend.admin.frame.runbooks import RunbookPage
from mailmend.admin.local.folders import cache_home
from tests.support.checkout import CHECKOUT

FOLDER: Final = CHECKOUT / "docs" / "tutorials"
MARK: Final = "the command has ended with"
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


@dataclass(frozen=True, slots=True)
class Typed:
    """How a command ended; `out` has stdout and stderr."""

    command: str
    code: int
    out: str


@dataclass(slots=True)
class Terminal:
    """A bash that types one command after the other.

    Attributes:
        reads: by the name of a shell variable, where in an output its value is: what a reader reads there.
    """

    shell: "subprocess.Popen[str]"
    reads: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def type(self, command: str) -> Typed:
        """Type it, and have the variables that its output tells."""
        said = self._ask(command)
        for name, pattern in self.reads.items():
            if found := pattern.search(said.out):
                self._ask(f"{name}={found[1]}")
        return said

    def _ask(self, command: str) -> Typed:
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f"{command}\nprintf '\\n%s %s\\n' '{MARK}' $?\n")
        self.shell.stdin.flush()
        lines: list[str] = []
        for line in self.shell.stdout:
            if line.startswith(MARK):
                return Typed(command, int(line.split()[-1]), "".join(lines))
            lines.append(line)
        raise AssertionError(f"the shell has ended at: {command}\n{''.join(lines)}")


@contextmanager
def terminal(home: Path, reads: Mapping[str, str]) -> Iterator[Terminal]:
    """A terminal in an empty home, with `mailmend` and what this user has downloaded; its processes end with it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
    environment = {
        **kept,
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(cache_home(os.environ, Path.home())),
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
    }
    patterns = {name: re.compile(pattern, re.MULTILINE) for name, pattern in reads.items()}
    with subprocess.Popen(
        ["bash", "--norc"],
        cwd=home,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            yield Terminal(shell, patterns)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
