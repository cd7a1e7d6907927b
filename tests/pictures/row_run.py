"""The life of one row, by a run on tables in memory: what both tables hold at each step, and what is said of it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGES
from mailmend.model.instants import MICROS
from mailmend.model.operations import Read
from mailmend.model.table import Key, Row, Table
from tests.support.cluster_twin import ClusterTwin, cluster_in_memory
from tests.support.commands import CommandLine, command_line
from tests.support.mail_states import MailKeyspace

HOUR_SECONDS: Final = 3600
TEN_MINUTES: Final = 600
LOCAL: Final = ("--engine", "local")


@dataclass(frozen=True, slots=True)
class Cell:
    """What one table holds of the message.

    Attributes:
        flagged: whether it says that the message is flagged.
        written_at: the timestamp of its modSeq, in seconds since the scan of the repair began.
    """

    flagged: bool
    modseq: int
    written_at: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the life of the row.

    Attributes:
        at: when it was over, in seconds since the scan of the repair began.
        command: what was typed; "" where another program wrote.
        verdict: what the command's findings say of the row.
    """

    at: float
    command: str
    truth: Cell
    projection: Cell
    verdict: str = ""
    result: str = ""


@contextmanager
def mail_in_memory() -> Iterator[tuple[ClusterTwin, MailKeyspace, CommandLine]]:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        cluster = cluster_in_memory(patch)
        mail = MailKeyspace("mail", cluster.keyspace("mail"))  # type: ignore[arg-type] # the twin of a real one
        mail.refill()
        line = command_line(Path(folder), None, MAILMEND_HOST="127.0.0.1", MAILMEND_KEYSPACE="mail")
        yield cluster, mail, line


def steps() -> list[Step]:
    """Write, drift, check (scan, delay, recheck), repair, undo."""
    with mail_in_memory() as (cluster, mail, mailmend):
        truth = mail.truths[1]
        clock = cluster.clock
        seen: list[Step] = []
        began = clock.micros() + 2 * HOUR_SECONDS * MICROS

        def note(command: str = "", found: Mapping[str, Any] | None = None) -> None:
            at = (clock.micros() - began) / MICROS
            upper = _cell(mail, IMAP_UID, IMAP_UID.key_of(truth), began)
            lower = _cell(mail, MESSAGE_ID, MESSAGES.mirror.key_of(truth), began)
            verdict = ""
            result = ""
            if found:
                verdict = str(found["verdict"])
                result = str(found["result"] or "")
            seen.append(Step(at, command, upper, lower, verdict, result))

        def find(command: str) -> None:
            ended = mailmend(command, "messages", *LOCAL, "--findings", str(findings))
            assert ended.code in {0, 1}, ended.err
            found = json.loads(findings.read_text(encoding="utf-8").splitlines()[0])
            note(f"mailmend {command} messages", found)

        findings = mailmend.home / "findings.jsonl"
        note()
        clock.advance(HOUR_SECONDS)
        mail.lose_flag_update(truth)
        note()
        clock.advance(HOUR_SECONDS - TEN_MINUTES)
        find("check")
        clock.advance((began - clock.micros()) / MICROS)
        find("repair")
        clock.advance(TEN_MINUTES)
        run = mailmend("runs", "list", "--json").json["runs"][0]["run"]
        assert mailmend("undo", run).code == 0
        note("mailmend undo RUN")
        return seen


def _cell(mail: MailKeyspace, table: Table, key: Key, began: int) -> Cell:
    (seen,) = mail.tables.read(Read(table, key, times=True))
    row: Row = seen.row
    written = (seen.written_at["modseq"] - began) / MICROS
    return Cell(bool(row["flagflagged"]), int(row["modseq"]), written)
