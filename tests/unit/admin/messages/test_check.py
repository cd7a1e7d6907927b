"""check as a person types it, against a cluster in memory: it finds drift, in queues too, and writes nothing."""

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from mailmend.admin.frame.extras import missing_extra
from mailmend.admin.messages import check
from mailmend.cql.driver import session
from mailmend.model.catalog.james_tables import EMAIL_QUERY_VIEW, THREAD
from mailmend.model.catalog.mail import MAILBOX, MAILBOX_PATH, MESSAGE_COUNTER, MODSEQ
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, ENQUEUED_MAILS, JAMES_QUEUE_TABLES
from mailmend.model.errors import AccessDenied, ExitCode, MailmendError, TimedOut
from mailmend.model.operations import Put, Read, Scan
from mailmend.repair.ledger.runs import Ledger
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Typed
from tests.support.mail_states import MailKeyspace, register
from tests.support.queues import NOON
from tests.support.repairing import message
from tests.support.schemas import without_tables
from tests.support.striking import Strike, of
from tests.support.writing import Faults


class TestCheck:
    """Find drift without writing anything."""

    def test_nothing_is_created_or_written_anywhere(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """No row, no ledger keyspace: a check may be pointed at production without a thought."""
        mail.lose_projection(mail.truths[0])
        asked = cluster.keyspace("mail").surround = Faults()

        ended = mailmend("check", *QUICK, "--json")

        assert (ended.code, ended.json["findings"]) == (1, {"messageIdTable": {"PROJECT": 1}})
        assert all(isinstance(one, Read | Scan) for one in asked.seen)
        assert (cluster.carried_out, set(cluster.keyspaces)) == ([], {"mail"})

    @pytest.mark.parametrize("skew", ["0s", "5s", "10s", "2m"])
    def test_any_clock_skew_may_be_stated(self, mailmend: CommandLine, mail: MailKeyspace, skew: str) -> None:
        """A check dates nothing, so no margin has to cover the skew; there is no option for one either."""
        mail.lose_projection(mail.truths[0])

        assert mailmend("check", *QUICK, "--clock-skew", skew, MAILMEND_CHECK_NO_WRITERS="0").code == 1

    def test_a_look_that_failed_is_not_taken_for_no_drift(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """Exit 3, the number of failures, the reason: and never the words of a clean keyspace."""
        mail.lose_projection(mail.truths[0])
        reads, key = of(Read), (mail.truths[0]["messageid"],)
        silent = Strike(lambda one: reads(one) and one.key == key, TimedOut("no answer in time"))
        cluster.keyspace("mail").surround = silent

        ended = mailmend("check", "messages", *QUICK)

        assert ended.code == ExitCode.PARTLY_FAILED
        assert "1 failed" in ended.out
        assert "no answer in time" in ended.out
        assert "No drift" not in ended.out

    def test_generators_behind_the_messages_are_named_with_the_statement_that_raises_them(
        self, mailmend: CommandLine, mail: MailKeyspace
    ) -> None:
        """As after `messageCounter` was restored from a backup; a repair raises them, and then all is well."""
        mail.tables.write(Put(MESSAGE_COUNTER, {"mailboxid": mail.mailbox, "nextuid": 2}))
        mail.tables.write(Put(MODSEQ, {"mailboxid": mail.mailbox, "nextmodseq": 7}))

        checked = mailmend("check", "messages", *QUICK, "--json")
        shown = mailmend("check", "messages", *QUICK)
        near = mailmend("repair", "messages", "--mailbox", str(mail.mailbox), "--dry-run", "--json")
        mended = mailmend("repair", "messages", *QUICK, "--json")
        after = mailmend("check", "messages", *QUICK)

        statement = (
            f"UPDATE {mail.name}.messageCounter SET nextUid = 4 WHERE mailboxId = {mail.mailbox} IF nextUid = 2;"
        )
        behind = {
            "table": "messageCounter",
            "mailbox": str(mail.mailbox),
            "last": 2,
            "in_use": 4,
            "statement": statement,
            "raised": False,
        }
        assert (checked.code, checked.json["findings"], checked.json["generators"]) == (1, {}, [behind]), checked.err
        assert "mailmend runbook show table-was-restored" in shown.out
        assert f"    {statement}\n" in shown.out, "a statement on one line can be copied"
        assert (near.code, near.json["generators"]) == (1, [behind])
        assert (mended.code, mended.json["generators"]) == (0, [behind | {"raised": True}])
        assert (after.code, "No drift." in after.out) == (0, True)
        (seen,) = mail.tables.read(Read(MESSAGE_COUNTER, (mail.mailbox,)))
        assert seen.row["nextuid"] == 4

    def test_a_run_keeps_the_generators_that_it_raised_and_its_undo_says_that_they_stay(
        self, mailmend: CommandLine, mail: MailKeyspace
    ) -> None:
        """A lowered generator would give a number twice: the one fix that is not taken back."""
        mail.tables.write(Put(MESSAGE_COUNTER, {"mailboxid": mail.mailbox, "nextuid": 2}))
        mail.lose_projection(mail.truths[0])
        run = mailmend("repair", "messages", *QUICK, "--json").json["run"]

        kept = mailmend("runs", "show", run, "--json")
        shown = mailmend("undo", run, "--dry-run")
        undone = mailmend("undo", run, "--json")
        redone = mailmend("undo", undone.json["run"], "--json")

        generator, of_modseqs = kept.json["summary"]["generators"]
        wanted = {"table": "messageCounter", "mailbox": str(mail.mailbox), "last": 2, "in_use": 4, "raised": True}
        assert (generator, of_modseqs["table"]) == (wanted, "modseq")
        assert "Generators that stay raised" in shown.out
        assert (undone.code, [found["raised"] for found in undone.json["generators"]]) == (0, [True, True])
        assert (redone.code, redone.json["generators"]) == (0, [])
        (seen,) = mail.tables.read(Read(MESSAGE_COUNTER, (mail.mailbox,)))
        assert seen.row["nextuid"] == 4

    @pytest.mark.usefixtures("mail")
    def test_denormalised_tables_that_it_did_not_look_at_are_named_with_the_reason(
        self, mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """They are told next to "No drift", and change no exit code."""
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], THREAD.name)

        shown = mailmend("check", "messages", *QUICK, "--report", str(tmp_path / "drift.html"))
        as_json = mailmend("check", "messages", *QUICK, "--json")

        names = [left["table"] for left in as_json.json["left_tables"]]
        assert {"mailbox", "UserMailboxACL", "email_query_view_received_at", "browseStart"} <= set(names)
        assert THREAD.spelling not in names, "the keyspace lacks it"
        assert (shown.code, as_json.code) == (0, 0)
        assert f"{len(names)} denormalised tables were not looked at:" in shown.out
        assert "James's task recomputeFastViewProjectionItems makes it true again." in shown.out
        assert shown.out.rstrip().endswith("No drift.")
        assert "Denormalised tables that were not looked at" in (tmp_path / "drift.html").read_text()

    @pytest.mark.usefixtures("mail")
    def test_tables_that_another_part_of_the_check_looked_at_are_not_named(self, mailmend: CommandLine) -> None:
        ended = mailmend("check", *QUICK, "--json")

        words = {left["check"] for left in ended.json["left_tables"]}
        assert words == {"", "--projections james", "attachmentV2 --projections james", "blobs"}

    def test_a_query_view_that_james_does_not_fill_is_left_and_said_so(
        self, mailmend: CommandLine, mail: MailKeyspace
    ) -> None:
        """Every message would be missing there, while no program reads the view."""
        view = EMAIL_QUERY_VIEW.spelling
        left = mailmend("check", "--projections", "james", *QUICK, "--json")
        refused = mailmend("check", view, "--projections", "james", *QUICK)
        for truth in mail.truths[1:]:
            cells = {name: truth[name] for name in ("mailboxid", "messageid")}
            mail.tables.write(Put(EMAIL_QUERY_VIEW, {**cells, "receivedat": truth["internaldate"]}))

        filled = mailmend("check", "--projections", "james", *QUICK, "--json")

        assert ([table["table"] for table in left.json["left_tables"]], left.code) == ([view], 0)
        assert (refused.code, f"{view} is not looked at" in refused.err) == (2, True)
        assert (filled.json["left_tables"], filled.json["findings"]) == ([], {view: {"PROJECT": 1}})

    @pytest.mark.parametrize("near", [False, True], ids=["a scan", "one mailbox"])
    def test_a_mailbox_that_lost_its_generators_is_named(
        self, mailmend: CommandLine, mail: MailKeyspace, *, near: bool
    ) -> None:
        """Its rows alone, or the whole tables: what is left is the path of the mailbox, so James adds to it."""
        path = {"namespace": "#private", "user": "bob", "mailboxname": "INBOX", "mailboxid": mail.mailbox}
        mail.tables.write(Put(MAILBOX_PATH, path))
        target = ("--user", "bob") if near else QUICK

        looked = mailmend("repair", "messages", *target, "--dry-run", "--json")

        highest = max(truth["modseq"] for truth in mail.truths)
        place = f"VALUES ({mail.mailbox}, "
        assert looked.code == 1, looked.err
        assert [(one["table"], one["last"], one["in_use"], one["statement"]) for one in looked.json["generators"]] == [
            ("messageCounter", 0, 4, f"INSERT INTO mail.messageCounter (mailboxId, nextUid) {place}4) IF NOT EXISTS;"),
            ("modseq", 0, highest, f"INSERT INTO mail.modseq (mailboxId, nextModseq) {place}{highest}) IF NOT EXISTS;"),
        ]

    @pytest.mark.parametrize("near", [False, True], ids=["a scan", "one mailbox with --scan"])
    def test_a_uid_that_the_truth_alone_shows_is_in_use(
        self, mailmend: CommandLine, mail: MailKeyspace, *, near: bool
    ) -> None:
        """The generator is behind a message that the mirror does not show, and the next message would get its uid."""
        mail.tables.write(Put(MESSAGE_COUNTER, {"mailboxid": mail.mailbox, "nextuid": 3}))
        mail.tables.write(Put(MODSEQ, {"mailboxid": mail.mailbox, "nextmodseq": 100}))
        mail.lose_projection(mail.truths[3])
        target = ("--mailbox", str(mail.mailbox), "--scan") if near else QUICK

        looked = mailmend("repair", "messages", *target, "--dry-run", "--json")

        behind = [(one["table"], one["last"], one["in_use"]) for one in looked.json["generators"]]
        assert (looked.code, behind) == (1, [("messageCounter", 3, 4)]), looked.err

    def test_paths_of_mailboxes_are_checked_with_all_and_not_with_messages(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """`mailbox` follows from mailboxPathV3: one row is missing, one says another name, one has no path."""
        mail.tables.write(Put(MESSAGE_COUNTER, {"mailboxid": mail.mailbox, "nextuid": 4}))
        mail.tables.write(Put(MODSEQ, {"mailboxid": mail.mailbox, "nextmodseq": 100}))
        for number, name in enumerate(("missing", "renamed", "sound")):
            register(mail, number, name, row_says={"missing": None, "renamed": "old name"}.get(name, name))
        base = {"namespace": "#private", "user": "bob"}
        mail.tables.write(Put(MAILBOX, {"id": message(9), "mailboxbase": base, "name": "stray"}))
        cluster.clock.advance(1)

        everything = mailmend("check", *QUICK, "--json")
        messages = mailmend("check", "messages", *QUICK, "--json")

        assert everything.json["findings"] == {"mailbox": {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 1}}
        assert (everything.code, everything.json["left"]) == (1, {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 1})
        assert (messages.code, messages.json["findings"]) == (0, {})

    def test_mailboxes_without_a_path_have_no_repair_as_next_command(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        base = {"namespace": "#private", "user": "bob"}
        mail.tables.write(Put(MAILBOX, {"id": message(9), "mailboxbase": base, "name": "stray"}))
        cluster.clock.advance(1)

        for once in ((), ("--no-recheck",)):
            checked = mailmend("check", *QUICK, *once)
            assert checked.code == 1, checked.err
            assert "Next: mailmend repair" not in checked.out
            assert "would change nothing: only reported (" in checked.out

    def test_a_repair_of_messages_leaves_mailboxes(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        """It neither touches them nor fails for them."""
        register(mail, 1, "INBOX", row_says=None)

        assert mend().code == 0
        assert mail.get(MAILBOX, (message(1),)) is None
        assert mailmend("check", *QUICK).code == 1


class TestEngine:
    """Which engine scans, where nobody asks for one."""

    def test_a_small_keyspace_needs_no_spark_and_it_says_so(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """On stderr, in the result, in the ledger; the "Next:" line repeats no engine that nobody typed."""
        mail.lose_projection(mail.truths[0])
        cluster.rows_recorded = 6
        cluster.clock.advance(1)
        why = "about 6 rows, Spark pays from 1,000,000"

        checked = mailmend("check", "--delay", "0", "--json")
        next_line = mailmend("check", "--delay", "0").out.splitlines()[-1]
        repaired = mailmend("repair", "messages", "--delay", "0", "--json")

        for ended, command in ((checked, "check"), (repaired, "repair")):
            assert ended.json["command"] == command
            assert ended.json["engine"] == {"name": "local", "why": why}
            assert f"Engine: local ({why}).\n" in ended.err
        assert "--engine" not in next_line
        assert mailmend("runs", "show", repaired.json["run"], "--json").json["options"]["engine"] == "local"

    def test_who_asks_for_one_hears_nothing(self, mailmend: CommandLine) -> None:
        ended = mailmend("check", *QUICK, "--json")

        assert ended.json["engine"] == {"name": "local", "why": "asked for"}
        assert "Engine:" not in ended.err

    @pytest.mark.parametrize("command", [("repair", "lags"), ("repair", "messages", "--mailbox", str(message(1)))])
    def test_targets_and_lags_need_none(
        self, mailmend: CommandLine, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
    ) -> None:
        monkeypatch.setattr("mailmend.cql.driver.nodes.sizes_in", lambda *_: pytest.fail("nobody asks how large it is"))
        cluster.clock.advance(1)

        ended = mailmend(*command, "--delay", "0", "--json")

        assert (ended.code, ended.json["engine"]) == (0, None)
        assert "Engine:" not in ended.err


class TestQueues:
    """`check` looks at mail queues too, where the keyspace has their tables."""

    def stranded(self, mail: MailKeyspace) -> None:
        """A mail before the browse start, which nobody will ever list."""
        row = {"queuename": "spool", "timerangestart": NOON, "bucketid": 0, "enqueueid": UUID(int=1)}
        mail.tables.write(Put(ENQUEUED_MAILS, row))
        for table, column in ((BROWSE_START, "browsestart"), (CONTENT_START, "contentstart")):
            mail.tables.write(Put(table, {"queuename": "spool", column: NOON + timedelta(days=9000)}))

    def test_their_findings_stand_beside_those_of_messages(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        self.stranded(mail)
        mail.lose_projection(mail.truths[0])
        both, messages, queues = (
            mailmend("check", *what, *QUICK, "--json") for what in ((), ("messages",), ("queues",))
        )
        assert [one.code for one in (both, messages, queues)] == [1, 1, 1]
        assert messages.json["findings"] == {"messageIdTable": {"PROJECT": 1}}
        assert queues.json["findings"] == {"enqueuedMailsV4": {"STRANDED": 1}}
        assert both.json["findings"] == messages.json["findings"] | queues.json["findings"]
        assert both.json["scanned"] == both.json["scanned"] | messages.json["scanned"] | {
            "enqueuedMailsV4": 1,
            "deletedMailsV2": 0,
        }
        assert both.json["queues"] == queues.json["queues"]
        assert messages.json["queues"] is None
        assert both.json["left"] == {"PROJECT": 1, "STRANDED": 1}
        shown = mailmend("check", *QUICK)
        assert "Next: mailmend queue sweep QUEUE --keyspace mail" in shown.out
        assert "Next: mailmend repair messages" in shown.out

    @pytest.mark.parametrize(
        ("messages_drift", "queues_drift", "slept"),
        [(True, True, 90), (True, False, 90), (False, True, 90), (False, False, 0)],
    )
    def test_both_wait_at_the_same_time_over_one_connection(  # noqa: PLR0917 - the twins, and the columns of the table above
        self,
        mailmend: CommandLine,
        mail: MailKeyspace,
        cluster: ClusterTwin,
        monkeypatch: pytest.MonkeyPatch,
        messages_drift: bool,
        queues_drift: bool,
        slept: int,
    ) -> None:
        """The second look at each is a whole delay after its first; the seconds of the parts are those of the whole."""
        connected = list[object]()

        def connect(contact: object) -> ClusterTwin:
            connected.append(contact)
            return cluster

        monkeypatch.setattr(session, "connect", connect)
        if messages_drift:
            mail.lose_projection(mail.truths[0])
        if queues_drift:
            self.stranded(mail)
        ended = mailmend("check", "--engine", "local", "--delay", "90s", "--json")
        assert ended.code == (messages_drift or queues_drift)
        assert (len(connected), sum(cluster.clock.slept)) == (1, slept)
        assert sum(ended.json["seconds"].values()) == slept

    def test_a_keyspace_without_queues_is_checked_as_before(self, mailmend: CommandLine, cluster: ClusterTwin) -> None:
        lacking = {table.name for table in JAMES_QUEUE_TABLES}
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], *lacking)
        ended = mailmend("check", *QUICK, "--json")
        assert (ended.code, ended.json["queues"], ended.json["unseen"]) == (0, None, None)

    def test_queues_that_cannot_be_looked_at_are_reported_and_hide_no_message(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], CONTENT_START.name)
        mail.lose_projection(mail.truths[0])
        ended = mailmend("check", *QUICK, "--json")
        assert (ended.code, ended.json["findings"]) == (3, {"messageIdTable": {"PROJECT": 1}})
        assert "The mail queues were not looked at: keyspace 'mail' lacks contentStart" in ended.json["unseen"]
        assert mailmend("check", "messages", *QUICK).code == 1

    @pytest.mark.parametrize("refusal", [missing_extra("obstore"), AccessDenied("no SELECT on browseStart")])
    def test_whoever_is_not_meant_to_look_at_queues_hears_so_and_has_the_exit_of_messages(
        self, mailmend: CommandLine, mail: MailKeyspace, monkeypatch: pytest.MonkeyPatch, refusal: MailmendError
    ) -> None:
        def refused(_: str) -> None:
            raise refusal

        monkeypatch.setattr(check, "import_or_name_extra", refused)
        fine = mailmend("check", *QUICK, "--json")
        assert (fine.code, fine.json["queues"]) == (0, None)
        assert f"The mail queues were not looked at: {refusal.what}" in fine.json["unseen"]
        mail.lose_projection(mail.truths[0])
        assert mailmend("check", *QUICK).code == 1

    def test_a_run_that_removed_what_is_finished_is_not_offered_an_undo(
        self, mailmend: CommandLine, cluster: ClusterTwin, mend: Typed
    ) -> None:
        run = mend().json["run"]
        assert f"mailmend undo {run}" in mailmend("runs", "show", run).out
        ledger = Ledger(cluster.keyspace("mailmend"), cluster.clock)
        cleanup = ledger.finish(ledger.start("mail", "repair queues", cluster.clock.micros(), {}), {})
        assert "mailmend undo" not in mailmend("runs", "show", str(cleanup.id)).out
