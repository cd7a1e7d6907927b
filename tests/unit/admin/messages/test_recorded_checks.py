"""`mailmend check --record`: what the ledger keeps of a check, how it is shown, and what it leaves alone."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.model.catalog.ledger import REPAIR_FINDING, REPAIR_LEASE, REPAIR_RUN, KeyspaceLease
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.errors import ExitCode, TimedOut
from mailmend.model.operations import Put, Read, Scan
from mailmend.model.table import Table
from mailmend.repair.ledger.leases import TTL_SECONDS, Leases
from mailmend.repair.mending.check_records import check_lease
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import DAY_SECONDS
from tests.support.striking import Strike, of, passing
from tests.support.writing import Faults

LEDGER = "mailmend"
RECORD = ("check", "messages", *QUICK, "--record", "--json")


class TestRecord:
    """What is kept."""

    def test_a_recorded_check_has_its_sums_and_findings_in_the_ledger(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """The mail keyspace is only read; `runs show` has both rows of each finding, also after they were mended."""
        mail.lose_projection(mail.truths[0])
        asked = cluster.keyspace("mail").surround = Faults()

        checked = mailmend(*RECORD)

        assert all(isinstance(one, Read | Scan) for one in asked.seen)
        record = checked.json["record"]
        assert (checked.code, record["sample"], record["error"]) == (1, {"kept": 1, "found": 1}, None)
        shown = mailmend("runs", "show", record["run"], "--json").json
        assert (shown["command"], shown["state"], shown["options"]["what"]) == ("check", "DONE", "messages")
        assert shown["summary"]["findings"] == checked.json["findings"] == {"messageIdTable": {"PROJECT": 1}}
        assert shown["summary"]["scanned"] == checked.json["scanned"]
        lines = mailmend("runs", "show", record["run"], "--findings").out.splitlines()
        assert [(one["verdict"], one["result"]) for one in map(json.loads, lines)] == [("PROJECT", None)]

    @pytest.mark.parametrize(
        "what", ["messages", "queues", "all", "imapUidTable messageIdTable", "--projections james"]
    )
    def test_each_kind_of_check_can_be_kept(self, mailmend: CommandLine, what: str) -> None:
        checked = mailmend("check", *what.split(), *QUICK, "--record", "--json")

        shown = mailmend("runs", "show", checked.json["record"]["run"])
        (listed,) = mailmend("runs", "trend", "--json").json["runs"]

        assert (checked.code, shown.code) == (0, 0), checked.err + shown.err
        assert (listed["what"], listed["state"]) == (f"check {what}", "DONE")

    def test_a_check_of_blobs_keeps_its_sums(self, mailmend: CommandLine) -> None:
        """Which blobs are missing is in the file of `--missing`, not in the ledger."""
        words = ("check", "blobs", *QUICK, "--blobs", "cassandra:", "--no-broker")

        checked = mailmend(*words, "--record", "--json")
        kept = mailmend("runs", "show", checked.json["record"]["run"], "--json").json

        missing = checked.json["left"]["MISSING"]
        assert missing > 0, "no content was stored with these messages"
        assert (checked.code, kept["command"], kept["options"]["what"]) == (1, "check", "blobs")
        assert kept["summary"]["findings"] == {"blobs": {"MISSING": missing}}
        assert (kept["summary"]["scanned"]["blobs"], kept["shares"]["blobs"]) == (0, 1.0)
        assert mailmend("runs", "show", kept["run"], "--findings").out == ""

    def test_the_sample_is_bounded_and_says_of_how_many(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        for truth in mail.truths[:3]:
            mail.lose_projection(truth)

        checked = mailmend("check", "messages", *QUICK, "--record", "--record-findings", "2")

        assert "Recorded with its sums and a sample of 2 of 3 findings." in checked.out
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert (run["summary"]["findings"], run["summary"]["sample"]) == (
            {"messageIdTable": {"PROJECT": 3}},
            {"kept": 2, "found": 3},
        )
        assert len(mailmend("runs", "show", run["run"], "--findings").out.splitlines()) == 2
        assert "a sample of 2 of 3 findings" in mailmend("runs", "show", run["run"]).out

    def test_a_check_by_hand_says_how_to_keep_it(self, mailmend: CommandLine) -> None:
        """On stderr for people; a script that reads JSON gets null."""
        by_hand = mailmend("check", "messages", *QUICK)
        for_script = mailmend("check", "messages", *QUICK, "--json")

        assert "add --record" in by_hand.err
        assert ("--record" in for_script.err, for_script.json["record"]) == (False, None)
        assert mailmend("runs", "list", "--json").json == {"runs": []}

    def test_it_is_kept_as_long_as_asked(self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin) -> None:
        """Run and findings expire together."""
        mail.lose_projection(mail.truths[0])
        ledger_is_made = mailmend(*RECORD, "--keep", "2d")
        run = ledger_is_made.json["record"]["run"]

        cluster.clock.advance(DAY_SECONDS)
        assert mailmend("runs", "show", run, "--findings").out
        cluster.clock.advance(2 * DAY_SECONDS)

        assert mailmend("runs", "list", "--json").json == {"runs": []}
        assert list(cluster.keyspace(LEDGER).scan(Scan(REPAIR_FINDING, ("run",)))) == []

    def test_no_secret_is_kept(self, mailmend: CommandLine, cluster: ClusterTwin) -> None:
        checked = mailmend(
            "check", "all", *QUICK, "--record", "--json", "--blobs", "s3://mail?endpoint=http://127.0.0.1:9",
            MAILMEND_S3_ACCESS_KEY="AKhunter2", MAILMEND_S3_SECRET_KEY="hunter2", MAILMEND_PASSWORD="hunter2",
        )  # fmt: skip

        kept = list(cluster.keyspace(LEDGER).scan(Scan(REPAIR_RUN, REPAIR_RUN.names)))
        assert (len(kept), "hunter2" in repr(kept)) == (1, False), checked.err


class TestLeftAlone:
    """What a record must not touch."""

    def test_a_check_cannot_be_undone(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        """Exit 2, what to do instead, and no row of mail is written."""
        mail.lose_projection(mail.truths[0])
        run = mailmend(*RECORD).json["record"]["run"]

        refused = mailmend("undo", run)
        shown = mailmend("runs", "show", run)

        assert (refused.code, "was a check: it changed nothing" in refused.err) == (2, True)
        assert "mailmend undo" not in shown.out
        assert mail.mirror(mail.truths[0]) is None

    def test_a_check_is_recorded_while_a_repair_is_at_work(
        self, mailmend: CommandLine, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """It needs no lease of repairs, and leaves the one that is held as it is."""
        mend()
        leases = Leases(cluster.keyspace(LEDGER), cluster.clock, "a repair")
        held = leases.acquire(KeyspaceLease.REPAIR.of("mail"), "repair")

        assert mailmend(*RECORD).code == 0
        assert leases.holder(held.name) == held
        assert len(list(cluster.keyspace(LEDGER).scan(Scan(REPAIR_LEASE, ("name",))))) == 1, "its own row is gone"

    def test_a_repair_after_a_recorded_check_mends_as_ever(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """And its undo puts back what it mended, not what the check saw."""
        mail.lose_projection(mail.truths[0])
        mailmend(*RECORD)
        cluster.clock.advance(1)
        mended = mend()

        undone = mailmend("undo", mended.json["run"], "--json")

        assert (mended.json["fixed"], undone.json["fixed"]) == ({"PROJECT": 1}, {"PROJECT": 1})
        assert mail.mirror(mail.truths[0]) is None


class TestFailures:
    """A check that ends before its time, and a ledger that refuses."""

    def test_an_interrupted_check_keeps_what_it_found_until_then(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        mail.lose_projection(mail.truths[0])
        cluster.keyspace("mail").surround = Strike(of(Read, MESSAGE_V3), KeyboardInterrupt())

        ended = mailmend(*RECORD)

        cluster.keyspace("mail").surround = passing
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert (ended.code, run["state"], "exit" in run["summary"]) == (130, "INTERRUPTED", False)
        assert run["ended_at"] is not None

    def test_a_check_that_fails_is_on_record_as_failed(self, mailmend: CommandLine, cluster: ClusterTwin) -> None:
        cluster.keyspace("mail").surround = Strike(of(Scan), TimedOut("no answer in time"))

        assert mailmend(*RECORD).code == ExitCode.CANNOT_REACH
        cluster.keyspace("mail").surround = passing
        assert [one["state"] for one in mailmend("runs", "list", "--json").json["runs"]] == ["FAILED"]

    def test_a_killed_check_is_shown_as_interrupted_and_a_living_one_as_running(
        self, mailmend: CommandLine, cluster: ClusterTwin
    ) -> None:
        """A killed one has no end; both are known by the row that a living process keeps."""
        with open_cluster(ConnectionSettings(keyspace="mail")) as opened:
            ledger = opened.ledger()
            runs = [ledger.start("mail", "check", 1, {"what": "messages"}) for _ in range(2)]
        cluster.clock.advance(TTL_SECONDS + 1)
        living, killed = (run.id for run in runs)
        Leases(cluster.keyspace(LEDGER), cluster.clock, "x").acquire(check_lease(living), "check")

        listed = mailmend("runs", "list", "--json").json["runs"]
        shown = mailmend("runs", "show", str(killed))

        assert {UUID(one["run"]): one["state"] for one in listed} == {living: "RUNNING", killed: "INTERRUPTED"}
        assert "its process was killed" in shown.out

    @pytest.mark.parametrize("table", [REPAIR_RUN, REPAIR_FINDING], ids=["run", "findings"])
    def test_a_ledger_that_refuses_does_not_hide_the_result(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, table: Table
    ) -> None:
        """The findings are shown, stderr says that they are not recorded and why, and the exit code is 3."""
        mailmend(*RECORD)
        mail.lose_projection(mail.truths[0])
        cluster.keyspace(LEDGER).surround = Strike(of(Put, table), TimedOut("no answer in time"))

        checked = mailmend(*RECORD)

        assert checked.code == ExitCode.PARTLY_FAILED
        assert (checked.json["findings"], checked.json["exit"]) == ({"messageIdTable": {"PROJECT": 1}}, 3)
        assert checked.json["record"]["error"] == "no answer in time"
        assert "could not be recorded: no answer in time" in checked.err


class TestJobs:
    """A job keeps its checks unless it says otherwise."""

    @pytest.mark.parametrize(("words", "kept"), [("", 1), (" --no-record", 0)])
    def test_a_job_records_its_check(self, mailmend: CommandLine, tmp_path: Path, words: str, kept: int) -> None:
        settings = tmp_path / "settings.toml"
        settings.write_text(
            f'[jobs.nightly]\ncommand = "check messages {" ".join(QUICK)}{words}"\nschedule = "30 2 * * *"\n'
        )

        ended = mailmend("--config", str(settings), "jobs", "run", "nightly")

        runs = mailmend("runs", "list", "--json").json["runs"]
        assert (ended.code, [run["options"]["job"] for run in runs]) == (0, ["nightly"] * kept), ended.err
        history = mailmend("--config", str(settings), "jobs", "history", "nightly", "--json").json["runs"]
        assert [len(run["checks"]) for run in history] == [kept]
        assert history[0]["repairs"] == []


class TestTrend:
    """Drift over time."""

    def test_drift_is_shown_by_table_and_verdict_with_the_share_of_rows(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """Checks and repairs by what they found; 4 messages of which one has no projection: 25 %."""
        mail.lose_projection(mail.truths[0])
        mailmend(*RECORD)
        mend()
        cluster.clock.advance(1)
        mailmend(*RECORD)

        trend = mailmend("runs", "trend", "--json").json["runs"]
        text = mailmend("runs", "trend").out

        rows = len(mail.truths)
        assert [(one["command"], one["what"]) for one in trend] == [
            ("check", "check messages"),
            ("repair", "repair"),
            ("check", "check messages"),
        ]
        assert [one["shares"]["messageIdTable"] for one in trend] == [1 / rows, 1 / rows, 0]
        assert [one["scanned"]["messageIdTable"] for one in trend] == [rows - 1, rows - 1, rows]
        assert "Drift by table" in text
        assert "25 %" in text

    def test_an_undo_puts_back_and_finds_and_fixes_nothing(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]
        cluster.clock.advance(1)

        undone = mailmend("undo", run)
        (undo, _) = mailmend("runs", "list", "--json").json["runs"]
        shown = mailmend("runs", "show", undo["run"]).out
        listed = mailmend("runs", "list").out

        assert ("FIXED" in undone.out, "(put back)" in undone.out) == (False, True)
        assert ("FIXED" in shown, "put back" in shown) == (False, True)
        (line,) = (line for line in listed.splitlines() if undo["run"] in line and "Next" not in line)
        assert line.split()[-3:] == ["DONE", "1", "0"], "nothing found, nothing fixed"
        (_, of_undo) = mailmend("runs", "trend", "--json").json["runs"]
        assert of_undo["put_back"] == {"PROJECT": 1}


def test_a_check_of_a_snapshot_is_not_recorded(mailmend: CommandLine, tmp_path: Path) -> None:
    ended = mailmend("check", "messages", "--record", "--snapshot", str(tmp_path))

    assert ended.code == 2
    assert "--record keeps checks of the cluster" in ended.err
