"""What a caller lends a service while it works: functions for progress, findings, remarks and questions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mailmend.model.errors import UnsafeRequest
from mailmend.model.ports import Progress, Silent
from mailmend.model.projections.findings import Excess, Finding
from mailmend.model.table import Table

Question = str | Excess
"""What a person is asked: a sentence, or more fixes than `--max-fixes` allows."""


def ignore(_: object) -> None:
    """The default for functions that are not set."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a service. The defaults fit a job without a person.

    Attributes:
        progress: receives the progress of long work.
        finding: receives every finding as it comes; a result holds only a few examples.
        item: receives each item of a long listing as it comes.
        remark: receives a sentence about an event during the work.
        ask: whether to go on; None without a terminal.
        number: asks for a number from 1 to a maximum; None without a terminal.
        report: whether a report is written, which tells in whose mailboxes the findings are.
        anonymous: whether users and mailboxes' paths are left out, in the report and elsewhere.
        stdout_is_json: whether stdout holds one JSON object, and nothing that a child process prints.
        name: who is on record as the one who ordered it; "": who runs this process.
        tables: tables by the name of their projection, for the keys in a file of findings.
    """

    progress: Progress = field(default_factory=Silent)
    finding: Callable[[Finding], None] = ignore
    item: Callable[[Any], None] = ignore
    remark: Callable[[str], None] = ignore
    ask: Callable[[Question], bool] | None = None
    number: Callable[[str, int], int] | None = None
    report: bool = False
    anonymous: bool = False
    stdout_is_json: bool = False
    name: str = ""
    tables: dict[str, Table] = field(default_factory=dict)


def ask_to_restore(caller: Caller) -> None:
    """Restoring may bring back a message whose delete was half carried out: a person has to agree.

    Raises:
        UnsafeRequest: there is no terminal to ask on, or the answer was no.
    """
    risk = "--dangling restore may bring back messages that users deleted"
    if caller.ask is None:
        raise UnsafeRequest(risk, mend="Look first with --dry-run; then say --yes. Never schedule it.")
    if not caller.ask(f"{risk}. Restore them?"):
        raise UnsafeRequest("nothing was restored", mend="Without --dangling restore they are withdrawn or reported.")
