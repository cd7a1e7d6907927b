"""The findings file: every finding as a line of JSON, whole or not at all."""

import json
import os
from pathlib import Path

import pytest

from mailmend.admin.frame.output import finding_json, findings_file
from mailmend.model.errors import ResultUnwritten, WrongUse
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from tests.unit.admin.outcomes import MAILBOX, MESSAGE, outcome


def test_a_finding_names_its_key_columns_rows_and_times() -> None:
    assert finding_json(outcome(Verdict.AMEND, Verdict.FIXED)) == {
        "projection": "messageIdTable",
        "verdict": "AMEND",
        "result": "FIXED",
        "key": {"mailboxid": str(MAILBOX), "uid": 7},
        "truths": [
            {
                "row": {"messageid": str(MESSAGE), "userflags": ["a", "b"], "flagseen": True},
                "written_at": {"flagseen": 42},
            }
        ],
        "projected": {
            "row": {"mailboxid": str(MAILBOX), "uid": 7, "internaldate": "2026-01-02T00:00:00.000Z"},
            "written_at": {},
        },
        "last_trace": False,
        "reason": None,
        "error": None,
    }


def test_a_key_of_an_unknown_projection_is_a_list() -> None:
    found = finding_json(Finding(Suspect("mine", (MAILBOX, 1), Verdict.PROJECT), Verdict.PROJECT))

    assert (found["key"], found["projected"]) == ([str(MAILBOX), 1], None)


def test_each_finding_is_a_line_and_what_settled_is_none(tmp_path: Path) -> None:
    with findings_file(tmp_path / "f.jsonl") as write:
        for one in (outcome(), outcome(Verdict.AGREE), outcome(Verdict.AGREE, error="timed out")):
            write(one)

    lines = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()]
    assert [line["error"] for line in lines] == [None, "timed out"]


def test_a_new_file_is_for_its_owner_alone_and_an_old_one_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared.jsonl"
    shared.touch()
    shared.chmod(0o664)

    for file, mode in ((tmp_path / "f.jsonl", 0o600), (shared, 0o664)):
        with findings_file(file) as write:
            write(outcome())
        assert file.stat().st_mode & 0o777 == mode


def test_a_stop_half_way_leaves_no_file(tmp_path: Path) -> None:
    def interrupted() -> None:
        with findings_file(tmp_path / "f.jsonl") as write:
            write(outcome())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="cannot be written"), findings_file(tmp_path / "no" / "f.jsonl"):
        pytest.fail("work began all the same")


def test_what_fails_elsewhere_meanwhile_is_not_this_files_fault(tmp_path: Path) -> None:
    """The file is open for as long as the whole command: a broken connection must not read as a full disk."""

    def work() -> None:
        with findings_file(tmp_path / "f.jsonl") as write:
            write(outcome())
            raise ConnectionResetError("the gateway went away")

    with pytest.raises(ConnectionResetError):
        work()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
def test_a_disk_that_fills_up_in_the_midst_is_named() -> None:
    full = Path("/dev/full")

    def work() -> None:
        with findings_file(full) as write:
            for _ in range(10_000):
                write(outcome())

    with pytest.raises(ResultUnwritten, match="/dev/full cannot be written: No space left"):
        work()
