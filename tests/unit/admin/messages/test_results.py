"""What a script reads and a person keeps of check and repair; and where that cannot be written."""

import json
import os
from itertools import product
from pathlib import Path

import pytest

from mailmend.model.errors import ExitCode
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.writing import Faults


class TestResults:
    """What a script reads and what a person keeps."""

    def test_stdout_holds_one_object_and_files_hold_everything(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Progress and remarks are on stderr; every finding is a line; the report names the verdict."""
        mail.lose_truth(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])
        cluster.clock.advance(1)
        report, findings = tmp_path / "r.html", tmp_path / "f.jsonl"

        ended = mailmend("check", *QUICK, "--json", "--report", str(report), "--findings", str(findings))

        lines = [json.loads(line) for line in findings.read_text().splitlines()]
        assert ended.out.count("\n") == 1
        assert len(lines) == sum(sum(counts.values()) for counts in ended.json["findings"].values())
        assert {line["verdict"] for line in lines} == {"WITHDRAW", "AMEND", "LEAK"}
        assert all(verdict in report.read_text() for verdict in ("WITHDRAW", "AMEND", "LEAK"))
        assert (f"Report: {report}" in ended.err, f"Findings: {findings}" in ended.err) == (True, True)

    def test_the_names_of_the_contract_are_the_same_for_every_command(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        """check, repair, its dry run, undo and repair lags: a script needs one reader."""
        mail.lose_projection(mail.truths[0])
        checked, dry = mailmend("check", *QUICK, "--json").json, mend("--dry-run").json
        mended = mend().json
        undone = mailmend("undo", mended["run"], "--json").json
        lags = mailmend("repair", "lags", "--delay", "0", "--json").json

        assert set(checked) == set(dry) == set(mended) == set(undone) == set(lags)
        assert [one["command"] for one in (checked, mended, undone, lags)] == ["check", "repair", "undo", "repair lags"]

    def test_raw_suspects_are_reported_without_waiting(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """`--no-recheck` neither waits nor looks again; with a recheck the delay is waited for once."""
        mail.lose_projection(mail.truths[0])

        raw = mailmend("check", "--engine", "local", "--no-recheck", "--delay", "90s", "--json")
        assert (raw.code, set(raw.json["seconds"]), cluster.clock.slept) == (1, {"scan", "queues"}, [])

        looked = mailmend("check", "--engine", "local", "--delay", "90s", "--json")
        assert (looked.code, looked.json["seconds"]["delay"], sum(cluster.clock.slept)) == (1, 90.0, 90.0)

    def test_a_place_that_cannot_be_written_is_refused_before_the_scan(
        self, mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Permissions alone do not tell: the superuser may write to /proc, and cannot."""
        asked = cluster.keyspace("mail").surround = Faults()

        for option, file in product(("--report", "--findings"), (str(tmp_path / "no" / "file"), "/proc/file")):
            ended = mailmend("check", *QUICK, option, file)
            assert (ended.code, "cannot be written" in ended.err) == (2, True), ended.err
        assert asked.seen == []


class TestAResultThatCannotBeWritten:
    """A full disk, or a bad place, at the end of the work: exit 3, and the summary on stderr says what was found."""

    @pytest.mark.parametrize("form", [("--json",), ()])
    def test_stdout_is_full(self, mailmend: CommandLine, mail: MailKeyspace, form: tuple[str, ...]) -> None:
        mail.lose_projection(mail.truths[0])
        with Path("/dev/full").open("w") as full:
            ended = mailmend.into(full, "check", *QUICK, *form)

        assert ended.code == ExitCode.PARTLY_FAILED
        for said in ("stdout cannot be written: No space left", "messageIdTable", "PROJECT", "with 1 (drift)"):
            assert said in ended.err, ended.err
        assert "crash" not in ended.err

    @pytest.mark.parametrize("option", ["--report", "--findings"])
    def test_a_file_is_full(self, mailmend: CommandLine, mail: MailKeyspace, option: str) -> None:
        mail.lose_projection(mail.truths[0])
        ended = mailmend("check", *QUICK, "--json", option, "/dev/full")

        assert (ended.code, ended.json["findings"]) == (3, {"messageIdTable": {"PROJECT": 1}})
        for said in ("/dev/full cannot be written: No space left", "PROJECT", "with 1 (drift)"):
            assert said in ended.err, ended.err

    def test_findings_that_stdout_refuses_end_the_work(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        mail.lose_projection(mail.truths[0])
        with Path("/dev/full").open("w") as full:
            ended = mailmend.into(full, "check", *QUICK, "--findings", "-")
        assert (ended.code, "stdout cannot be written" in ended.err, "crash" in ended.err) == (3, True, False)


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
def test_a_report_that_does_not_fit_leaves_the_mending_as_it_is(
    mailmend: CommandLine, mail: MailKeyspace, mend: Typed
) -> None:
    """The sums are on stdout, the run is DONE and can be undone; the message names the file, the exit code is 3."""
    mail.lose_projection(mail.truths[0])

    ended = mend("--report", "/dev/full")

    assert (ended.code, ended.json["fixed"]) == (3, {"PROJECT": 1})
    assert "/dev/full cannot be written: No space left on device" in ended.err
    assert mailmend("runs", "show", ended.json["run"], "--json").json["state"] == "DONE"
