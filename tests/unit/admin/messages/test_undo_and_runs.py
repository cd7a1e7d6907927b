"""undo and runs as a person types them, and what Ctrl-C leaves for them."""

import json
from pathlib import Path

from mailmend.model.catalog.mail import MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3
from mailmend.model.errors import ExitCode
from mailmend.model.operations import Count, Put, Read
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Typed
from tests.support.mail_states import MailKeyspace
from tests.support.repairing import DAY_SECONDS, message
from tests.support.striking import Strike, everything_of, interrupted_after, of, passing


class TestUndo:
    """Taking a run back."""

    def test_counters_return_unless_they_were_used_since(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """The inverse delta, once; a message that came in between leaves them as they are."""
        mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"count": 50}))
        mended = mend()
        assert (mended.json["fixed"], self.count(mail)) == ({"AMEND": 1}, 4)

        undone = mailmend("undo", mended.json["run"], "--json")
        assert (undone.code, undone.json["fixed"], self.count(mail)) == (0, {"AMEND": 1}, 54)

        redone = mailmend("undo", undone.json["run"], "--json")
        assert (redone.code, self.count(mail)) == (0, 4)
        mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"count": 1}))
        cluster.clock.advance(1)

        late = mailmend("undo", redone.json["run"], "--json")
        assert (late.code, late.json["moved"], self.count(mail)) == (ExitCode.DRIFT, 1, 5)

    def count(self, mail: MailKeyspace) -> int:
        row = mail.get(MAILBOX_COUNTERS, (mail.mailbox,))
        assert row is not None
        return int(row["count"])

    def test_a_dry_run_speaks_of_putting_back(self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed) -> None:
        """Not of a repair, and it does not suggest one: that would be the contrary of what is wanted."""
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]

        ended = mailmend("undo", run, "--dry-run")

        assert "Nothing was written. 1 would be put back." in ended.out
        assert "repair" not in ended.out
        assert mail.mirror(mail.truths[0]) is not None

    def test_what_was_used_since_is_said_and_no_repair_is_suggested(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]
        cluster.clock.advance(1)
        mail.lose_flag_update(mail.truths[0])

        ended = mailmend("undo", run)

        assert (ended.code, "1 were changed meanwhile, and left." in ended.out) == (1, True)
        assert "Next: mailmend repair" not in ended.out

    def test_an_unknown_run_is_named(self, mailmend: CommandLine, mend: Typed) -> None:
        unknown = str(message(1))

        without = mailmend("undo", unknown)
        mend()
        with_ledger = mailmend("undo", unknown)

        assert [(one.code, unknown in one.err) for one in (without, with_ledger)] == [(2, True)] * 2

    def test_the_beginning_of_an_id_names_a_run(self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed) -> None:
        """As `mailmend runs list` shows it where a terminal is narrow."""
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]

        shown = mailmend("runs", "show", run[:13].upper(), "--json")
        undone = mailmend("undo", run[:8], "--json")

        assert (undone.code, undone.json["fixed"]) == (0, {"PROJECT": 1})
        assert mailmend("runs", "show", undone.json["run"], "--json").json["options"]["run"] == run
        assert shown.json["run"] == run

    def test_the_beginning_of_no_id_is_refused(self, mailmend: CommandLine, mend: Typed) -> None:
        mend()

        unknown = mailmend("undo", "ffffffff")
        short = mailmend("undo", "6e0")

        assert (unknown.code, short.code) == (2, 2)
        assert "holds no run of the last 30 days whose id begins with ffffffff" in unknown.err
        assert "'6e0' is not a valid UUID. The first 8 characters of a run's id are enough." in short.err


class TestRuns:
    """The ledger as a person reads it."""

    def test_a_run_that_is_kept_longer_is_found_later(
        self, mailmend: CommandLine, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """`--keep 365d`, looked for after two months: only `--since` reaches back so far."""
        run = mend("--keep", "365d").json["run"]
        cluster.clock.advance(60 * DAY_SECONDS)

        assert mailmend("runs", "list", "--json").json == {"runs": []}
        assert [one["run"] for one in mailmend("runs", "list", "--since", "90d", "--json").json["runs"]] == [run]

    def test_people_see_sums_and_the_newest_first(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """With the command that shows the newest; where nothing was ever repaired that is said."""
        assert "No run is kept" in mailmend("runs", "list").out
        mail.lose_projection(mail.truths[0])
        older = mend().json["run"]
        cluster.clock.advance(1)
        newer = mailmend("undo", older, "--json").json["run"]

        listed = mailmend("runs", "list").out

        assert listed.index(newer) < listed.index(older)
        assert f"Next: mailmend runs show {newer}" in listed
        shown = mailmend("runs", "show", newer, "--json").json
        assert (shown["undoes"], shown["command"], shown["state"]) == (older, "undo", "DONE")

    def test_no_secret_is_kept_or_shown(self, mailmend: CommandLine, mend: Typed, tmp_path: Path) -> None:
        """The password is for the driver alone: not in the ledger, the report, the findings, nor on the terminal."""
        report, findings = tmp_path / "r.html", tmp_path / "f.jsonl"
        (tmp_path / "secret").write_text("hunter2\n")

        ended = mend(
            "--username", "me", "--password-file", str(tmp_path / "secret"), "--report", str(report),
            "--findings", str(findings),
        )  # fmt: skip
        shown = mailmend("runs", "show", ended.json["run"], "--json")

        for text in (ended.out, ended.err, shown.out, report.read_text(), findings.read_text()):
            assert "hunter2" not in text

    def test_other_keyspaces_are_listed_on_demand(self, mailmend: CommandLine, mend: Typed) -> None:
        run = mend().json["run"]

        assert mailmend("runs", "list", "--json", "--keyspace", "other").json == {"runs": []}
        every = mailmend("runs", "list", "--json", "--all", "--keyspace", "other").json["runs"]
        assert [one["run"] for one in every] == [run]

    def test_a_run_is_shown_with_examples_and_how_to_undo_it(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]

        shown = mailmend("runs", "show", run)
        lines = mailmend("runs", "show", run, "--findings").out.splitlines()

        assert "PROJECT" in shown.out
        assert f"mailmend undo {run} --keyspace mail" in shown.out
        assert [(one["verdict"], one["result"]) for one in map(json.loads, lines)] == [("PROJECT", "FIXED")]


class TestInterruption:
    """Ctrl-C, wherever it comes."""

    def test_during_the_second_look_it_leaves_a_ledger_that_says_so(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Exit 130, the run INTERRUPTED without an exit code of its own, no half findings file, the lease free."""
        mail.lose_projection(mail.truths[0])
        files = set(tmp_path.iterdir())
        cluster.keyspace("mail").surround = Strike(of(Read, MESSAGE_V3), KeyboardInterrupt())
        ended = mend("--findings", str(tmp_path / "f.jsonl"), "--report", str(tmp_path / "r.html"))

        assert (ended.code, "type the same command again" in ended.err, ended.out) == (130, True, "")
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert (run["state"], run["summary"]["suspects"], "exit" in run["summary"]) == ("INTERRUPTED", 1, False)
        assert set(tmp_path.iterdir()) == files

        cluster.keyspace("mail").surround = passing
        assert mend().json["fixed"] == {"PROJECT": 1}

    def test_a_fix_that_was_written_and_not_yet_settled_is_counted(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """Interrupted before its result was noted: the row shows that it was mended, and the ledger then says so."""
        for truth in mail.truths[:2]:
            mail.lose_projection(truth)
        cluster.keyspace("mail").surround = interrupted_after(MESSAGE_ID)
        assert mend().code == 130

        (run,) = mailmend("runs", "list", "--json").json["runs"]
        mended = sum(mail.mirror(truth) is not None for truth in mail.truths[:2])
        assert (run["state"], run["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": mended})
        assert mended > 0

    def test_what_was_mended_before_it_can_be_taken_back(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """Interrupted between the write and its result: the before-image is there, so undo finds it."""
        mail.lose_projection(mail.truths[0])
        tables = cluster.keyspace("mail")

        def interrupt() -> None:
            tables.surround = Strike(everything_of(), KeyboardInterrupt())

        tables.surround = Strike(of(Put, MESSAGE_ID), then=interrupt, times=1)
        assert mend().code == 130
        cluster.keyspace("mail").surround = passing
        assert mail.mirror(mail.truths[0]) is not None

        (run,) = mailmend("runs", "list", "--json").json["runs"]
        undone = mailmend("undo", run["run"], "--json")

        assert (undone.code, undone.json["fixed"], mail.mirror(mail.truths[0])) == (0, {"PROJECT": 1}, None)
