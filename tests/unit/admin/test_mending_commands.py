"""check, repair, undo and runs as a person types them, against a cluster in memory: every promise of their options."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from admin.extras import missing_extra
from admin.services import checking
from admin.services.mending import CheckRequest, RepairRequest, given
from admin.settings import ConnectionSettings
from cql.driver import session
from cql.statements import Operation
from model.catalog.mail import IMAP_UID, MAILBOX, MAILBOX_COUNTERS, MAILBOX_PATH, MESSAGE_ID, MESSAGE_V3, MESSAGES
from model.catalog.mail_queue import BROWSE_START, CONTENT_START, ENQUEUED_MAILS, JAMES_QUEUE_TABLES
from model.errors import AccessDenied, ExitCode, MailmendError, TimedOut
from model.instants import MICROS
from model.operations import Change, Count, Level, Put, Read, Remove, Scan
from model.projections.verdicts import Verdict
from model.schema.table import Table
from repair.ledger.lags import LagJournal
from repair.ledger.runs import Ledger
from repair.mending.limits import BURST_SECONDS
from tests.support.clock import START
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace, register
from tests.support.queues import NOON
from tests.support.repairing import DAY_SECONDS, Meter, content_row, message, mirror_row, mirror_suspect
from tests.support.schemas import columns_of, with_columns, without_tables
from tests.support.writing import Faults

QUICK = ("--engine", "local", "--delay", "0")


@pytest.fixture
def mend(mailmend: CommandLine, cluster: ClusterTwin) -> Callable[..., Ended]:
    """`repair messages` at once, a second after whatever happened before."""

    def call(*arguments: str) -> Ended:
        cluster.clock.advance(1)
        return mailmend("repair", "messages", *QUICK, "--json", *arguments)

    return call


Mend = Callable[..., Ended]


def watched(cluster: ClusterTwin) -> Faults:
    """Everything that is asked of the mail from now on, and what shall go wrong with it."""
    faults = Faults()
    cluster.keyspace("mail").surround = faults
    return faults


def fail_reads_of(cluster: ClusterTwin, key: tuple[object, ...]) -> None:
    faults = watched(cluster)
    faults.fail(lambda one: isinstance(one, Read) and one.key == key, TimedOut("no answer in time"), times=100)


class TestCheck:
    """Find drift without writing anything."""

    def test_nothing_is_created_or_written_anywhere(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """No row, no ledger keyspace: a check may be pointed at production without a thought."""
        mail.lose_projection(mail.truths[0])
        asked = watched(cluster).seen

        ended = mailmend("check", *QUICK, "--json")

        assert (ended.code, ended.json["findings"]) == (1, {"messageIdTable": {"PROJECT": 1}})
        assert all(isinstance(one, Read | Scan) for one in asked)
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
        fail_reads_of(cluster, (mail.truths[0]["messageid"],))

        ended = mailmend("check", "messages", *QUICK)

        assert ended.code == ExitCode.PARTLY_FAILED
        assert "1 failed" in ended.out
        assert "no answer in time" in ended.out
        assert "No drift" not in ended.out

    def test_paths_of_mailboxes_are_checked_with_all_and_not_with_messages(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """`mailbox` follows from mailboxPathV3: one row is missing, one says another name, one has no path."""
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

    def test_paths_are_never_mended(self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend) -> None:
        """Report only: a repair neither touches them nor fails for them."""
        register(mail, 1, "INBOX", row_says=None)

        assert mend().code == 0
        assert mail.get(MAILBOX, (message(1),)) is None
        assert mailmend("check", *QUICK).code == 1


def drop_flag(cluster: ClusterTwin) -> None:
    """ALTER TABLE messageIdTable DROP flagFlagged, in the schema that the cluster tells."""
    live = cluster.keyspaces["mail"]
    kept = (one for one in columns_of(live, "messageidtable") if one.name != "flagflagged")
    cluster.keyspaces["mail"] = with_columns(live, "messageidtable", kept)


class TestMissingColumn:
    """Somebody drops a column that is compared: that is drift, and no repair writes rows that lack it."""

    def test_a_check_names_it_as_drift_in_every_form(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        mail.lose_flag_update(mail.truths[0])
        drop_flag(cluster)
        cluster.clock.advance(1)

        as_json = mailmend("check", "messages", *QUICK, "--json")
        shown = mailmend("check", "messages", *QUICK, "--report", str(tmp_path / "drift.html"))

        assert (as_json.code, shown.code) == (1, 1)
        assert as_json.json["missing_columns"] == [{"table": "messageIdTable", "column": "flagFlagged"}]
        report = (tmp_path / "drift.html").read_text()
        assert all("messageIdTable" in text and "flagFlagged" in text for text in (shown.out, report))
        assert "Next: mailmend schema verify --keyspace mail" in shown.out
        assert "No drift" not in shown.out

    @pytest.mark.parametrize("what", ["messages", "lags"])
    @pytest.mark.parametrize("options", [(), ("--dry-run",)])
    def test_a_repair_is_refused_and_names_what_mends(
        self, mailmend: CommandLine, cluster: ClusterTwin, what: str, options: tuple[str, ...]
    ) -> None:
        drop_flag(cluster)

        ended = mailmend("repair", what, "--delay", "0", *options)

        assert ended.code == ExitCode.WRONG_USE
        assert "lacks messageIdTable.flagFlagged" in ended.err
        assert "mailmend schema verify --keyspace mail; or leave it out: --without flagFlagged" in ended.err

    def test_what_is_left_out_is_neither_compared_nor_written(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
    ) -> None:
        """With the column or without it there: only modSeq differs, and only the rest of the row is written."""
        mail.lose_flag_update(mail.truths[0])
        ended = mend("--without", "FLAGFLAGGED")
        assert (ended.code, ended.json["fixed"]) == (0, {"AMEND": 1})
        assert (mail.mirror(mail.truths[0]) or {})["flagflagged"] is False
        assert ended.json["unseen"] == "Neither compared nor written: FLAGFLAGGED."

        only_the_flag = mailmend("check", *QUICK, "--without", "flagFlagged")
        whole = mailmend("check", *QUICK)
        drop_flag(cluster)

        assert (only_the_flag.code, whole.code) == (0, 1)
        assert mailmend("check", *QUICK, "--without", "flagFlagged").code == 0
        assert mend("--without", "flagFlagged").code == 0

    def test_an_unknown_column_and_a_whole_row_of_truth_do_not_go_with_it(self, mend: Mend) -> None:
        unknown, restore = mend("--without", "flagSean"), mend("--without", "flagSeen", "--dangling", "restore")

        assert (unknown.code, restore.code) == (2, 2)
        assert "'flagSean' is not a column or a table that can be left out" in unknown.err
        assert "--dangling restore does not go with --without" in restore.err


class TestWhatDecides:
    """A table, or a column of the truth by which one is decided, is dropped: drift, and all else is still checked."""

    @pytest.fixture(params=["firstUnseen", "flagSeen"])
    def lost(self, request: pytest.FixtureRequest, cluster: ClusterTwin) -> str:
        live, name = cluster.keyspaces["mail"], str(request.param)
        kept = (one for one in columns_of(live, "imapuidtable") if one.name != name.lower())
        cluster.keyspaces["mail"] = without_tables(with_columns(live, "imapuidtable", kept), name.lower(), name)
        return name

    def test_it_is_told_in_every_form_and_other_drift_is_found(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path, lost: str
    ) -> None:
        mail.lose_projection(mail.truths[0])
        cluster.clock.advance(1)

        as_json = mailmend("check", *QUICK, "--json")
        shown = mailmend("check", *QUICK, "--report", str(tmp_path / "drift.html"))

        named = (as_json.json["missing_tables"], as_json.json["missing_columns"])
        column = [{"table": "imapUidTable", "column": "flagSeen"}]
        assert named == ((["firstUnseen"], []) if lost == "firstUnseen" else ([], column))
        assert (as_json.code, shown.code, as_json.json["findings"]) == (1, 1, {"messageIdTable": {"PROJECT": 1}})
        report = (tmp_path / "drift.html").read_text()
        assert all(lost in text and "Not looked at: firstUnseen" in text for text in (shown.out + shown.err, report))
        assert "Next: mailmend schema verify --keyspace mail" in shown.out

    def test_what_writes_is_refused_until_it_is_left_out(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, lost: str
    ) -> None:
        mail.lose_projection(mail.truths[0])

        for refused in (mend(), mend("--mailbox", str(mail.mailbox)), mailmend("repair", "lags", "--delay", "0")):
            assert (refused.code, f"--without {lost}" in refused.err) == (2, True), refused.err
        assert mend("--without", lost).json["fixed"] == {"PROJECT": 1}
        assert mailmend("check", *QUICK, "--without", lost).code == 0

    def test_a_run_is_not_undone_half(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
    ) -> None:
        """Before-images hold the column: they could not be put back whole."""
        mail.lose_flag_update(mail.truths[0])
        run = mend().json["run"]
        drop_flag(cluster)

        refused = mailmend("undo", run)

        assert (refused.code, "lacks messageIdTable.flagFlagged" in refused.err) == (2, True)
        assert "--without" not in refused.err
        assert len(mailmend("runs", "list", "--json").json["runs"]) == 1


class TestYoungDamage:
    """What was changed less than the margin before a scan is not mended by it."""

    def test_a_dry_run_says_how_many_are_too_young_and_when_to_come_again(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        cluster.clock.advance(100)
        for truth in mail.truths[:2]:
            mail.lose_flag_update(truth)
        cluster.clock.advance(18)
        writers = {"MAILMEND_REPAIR_MESSAGES_NO_WRITERS": "0"}
        dry = ("repair", "messages", *QUICK, "--dry-run")

        as_json, shown = mailmend(*dry, "--json", **writers), mailmend(*dry, **writers)

        assert (as_json.code, shown.code) == (1, 1)
        assert (as_json.json["too_young"], as_json.json["again_seconds"]) == (2, 13)
        assert as_json.json["reasons"] == {"MOVED": {"too young": 2}}
        assert "2 differ and are too young to be mended: come again in 13 s" in shown.out
        assert "Next: mailmend repair messages" in shown.out
        cluster.clock.advance(13)
        again = mailmend(*dry, "--json", **writers)
        assert (again.code, again.json["due"], again.json["too_young"]) == (1, {"AMEND": 2}, 0)

    def test_each_row_that_stays_has_its_reason_in_the_findings_and_in_the_run(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, tmp_path: Path
    ) -> None:
        mail.lose_content(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])

        ended = mend("--only", "PROJECT", "--findings", str(tmp_path / "found"))

        told = {one["verdict"]: one["reason"] for one in map(json.loads, (tmp_path / "found").read_text().splitlines())}
        reasons = {
            "AMEND": {"left out by --only": 1},
            "LOST_CONTENT": {"needs --orphans quarantine, or its content back": 1},
        }
        assert {name: {reason: 1} for name, reason in told.items()} == reasons == ended.json["reasons"]
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert run["summary"]["reasons"] == reasons
        assert "left out by --only" in mailmend("runs", "show", run["run"]).out
        assert "needs --orphans quarantine" in mailmend("repair", "messages", *QUICK).out


class TestEngine:
    """Which engine scans, where nobody asks for one."""

    def test_a_small_keyspace_needs_no_spark_and_is_told_so(
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

    def test_who_asks_for_one_is_told_nothing(self, mailmend: CommandLine) -> None:
        ended = mailmend("check", *QUICK, "--json")

        assert ended.json["engine"] == {"name": "local", "why": "asked for"}
        assert "Engine:" not in ended.err

    @pytest.mark.parametrize("command", [("repair", "lags"), ("repair", "messages", "--mailbox", str(message(1)))])
    def test_targets_and_lags_need_none(
        self, mailmend: CommandLine, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
    ) -> None:
        monkeypatch.setattr("cql.driver.nodes.sizes_in", lambda *_: pytest.fail("nobody asks how large it is"))
        cluster.clock.advance(1)

        ended = mailmend(*command, "--delay", "0", "--json")

        assert (ended.code, ended.json["engine"]) == (0, None)
        assert "Engine:" not in ended.err


@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        ("repair", "messages"),
        ("repair", "messages", "--dry-run"),
        ("repair", "messages", "--mailbox", "{mailbox}", "--scan"),
        ("repair", "lags"),
    ],
    ids=" ".join,
)
def test_rows_per_second_are_rows_of_the_mail_and_of_its_images(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, command: tuple[str, ...]
) -> None:
    """Scan, second look, counters, before-images, fixes, read-backs: none is quicker than asked."""
    mail.refill(40)
    engine = () if "lags" in command else ("--engine", "local")
    assert mailmend("repair", "messages", *QUICK).code == 0  # makes the ledger
    lags = LagJournal(cluster.keyspace("mailmend"), "mail", cluster.clock)
    for truth in mail.truths[::2]:
        mail.lose_projection(truth)
        lags.journal([mirror_suspect(truth, Verdict.PROJECT)], "no answer")
    mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"unseen": 3}))
    cluster.clock.advance(1)
    cluster.keyspace("mail").surround = meter = Meter()
    began = cluster.clock.micros()

    words = [word.format(mailbox=mail.mailbox) for word in command]
    ended = mailmend(*words, *engine, "--delay", "0", "--rows-per-second", "10", "--json")

    assert ended.json["suspects"] >= 20
    assert meter.rows >= 3 * 20
    seconds = (cluster.clock.micros() - began) / MICROS
    assert seconds >= (meter.rows + 2 * sum(ended.json["fixed"].values())) / 10 - 5 * BURST_SECONDS


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

    def test_queues_that_cannot_be_looked_at_are_told_and_hide_no_message(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], CONTENT_START.name)
        mail.lose_projection(mail.truths[0])
        ended = mailmend("check", *QUICK, "--json")
        assert (ended.code, ended.json["findings"]) == (3, {"messageIdTable": {"PROJECT": 1}})
        assert "The mail queues were not looked at: keyspace 'mail' lacks contentStart" in ended.json["unseen"]
        assert mailmend("check", "messages", *QUICK).code == 1

    @pytest.mark.parametrize("refusal", [missing_extra("prometheus_client"), AccessDenied("no SELECT on browseStart")])
    def test_whoever_is_not_meant_to_look_at_queues_hears_so_and_has_the_exit_of_messages(
        self, mailmend: CommandLine, mail: MailKeyspace, monkeypatch: pytest.MonkeyPatch, refusal: MailmendError
    ) -> None:
        def refused(_: str) -> None:
            raise refusal

        monkeypatch.setattr(checking, "import_or_name_extra", refused)
        fine = mailmend("check", *QUICK, "--json")
        assert (fine.code, fine.json["queues"]) == (0, None)
        assert f"The mail queues were not looked at: {refusal.what}" in fine.json["unseen"]
        mail.lose_projection(mail.truths[0])
        assert mailmend("check", *QUICK).code == 1

    def test_a_run_that_removed_what_is_finished_is_not_offered_an_undo(
        self, mailmend: CommandLine, cluster: ClusterTwin, mend: Mend
    ) -> None:
        run = mend().json["run"]
        assert f"mailmend undo {run}" in mailmend("runs", "show", run).out
        ledger = Ledger(cluster.keyspace("mailmend"), cluster.clock)
        cleanup = ledger.finish(ledger.start("mail", "repair queues", cluster.clock.micros(), {}), {})
        assert "mailmend undo" not in mailmend("runs", "show", str(cleanup.id)).out


class TestMailbox:
    """What one mailbox's own tables show."""

    @pytest.mark.parametrize("table", [one.table for one in MESSAGES.filters], ids=lambda one: one.spelling)
    def test_stray_rows_and_counters_are_told_and_left_to_a_scan(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, table: Table
    ) -> None:
        """A message that nothing leads to may stand there: only the whole truth tells."""
        register(mail, 1, "INBOX", row_says="INBOX", mailbox=mail.mailbox)
        mail.tables.write(Put(table, table.key_row((mail.mailbox, 99))))
        mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"unseen": 3}))
        cluster.clock.advance(1)

        ended = mailmend("repair", "messages", *QUICK, "--user", "bob", "--max-fixes", "9")

        assert ended.code == 1
        assert "needs --scan" in ended.out
        assert "--engine local --delay 0s --no-writers --max-fixes 9 --user bob --scan (it reads" in ended.out
        assert mail.get(table, (mail.mailbox, 99)) is not None
        scanned = mailmend("repair", "messages", *QUICK, "--user", "bob", "--scan", "--json")
        assert scanned.json["fixed"] == {"WITHDRAW": 1, "AMEND": 1}
        assert mailmend("repair", "messages", *QUICK, "--user", "bob").code == 0
        assert mailmend("check", *QUICK).code == 0


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({}, ""),
        ({"user": ("bob", "ann o'x")}, "--user bob --user 'ann o'\"'\"'x'"),
        ({"only": (frozenset({Verdict.AMEND, Verdict.PROJECT}),)}, "--only AMEND,PROJECT"),
        ({"spark_conf": (("a.b", "1"), ("c", "d"))}, "--spark-conf a.b=1 --spark-conf c=d"),
        ({"delay": timedelta(minutes=2), "dry_run": True, "yes": True}, "--delay 2m --yes"),
        ({"mailbox": (message(1),), "level": Level.QUORUM}, f"--level QUORUM --mailbox {message(1)}"),
        ({"no_writers": True, "without": ("flagSeen",)}, "--without flagSeen --no-writers"),
    ],
)
def test_what_was_given_is_typed_again(options: dict[str, Any], typed: str) -> None:
    assert given(RepairRequest(connection=ConnectionSettings(), **options)) == typed


def test_a_check_hands_on_what_a_repair_takes_and_not_that_nobody_writes() -> None:
    request = CheckRequest(connection=ConnectionSettings(), engine="local", no_writers=True, no_recheck=True)
    assert given(request) == "--engine local"


class TestLimits:
    """What a repair may be kept from."""

    def test_only_the_named_verdicts_are_mended(self, mail: MailKeyspace, mend: Mend) -> None:
        """`--only`, repeated or with commas; the rest is left and makes the exit code 1."""
        mail.lose_projection(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])
        mail.tables.write(Put(MESSAGE_ID, mirror_row({**mail.truths[2], "uid": 99})))

        ended = mend("--only", "amend,project", "--only", "PROJECT")

        assert (ended.code, ended.json["fixed"], ended.json["left"]) == (1, {"PROJECT": 1, "AMEND": 1}, {"WITHDRAW": 1})
        assert mend().json["fixed"] == {"WITHDRAW": 1}

    def test_a_verdict_that_cannot_be_mended_is_refused_by_name(self, mend: Mend) -> None:
        ended = mend("--only", "CLASH")

        assert (ended.code, "'CLASH' is not a verdict that can be mended" in ended.err) == (2, True)

    def test_help_and_error_name_the_same_verdicts(self, mailmend: CommandLine, mend: Mend) -> None:
        """Those that are taken, and no others."""
        names = "PROJECT, AMEND, WITHDRAW, LOST_CONTENT, LEAK"

        refused, shown = mend("--only", "CLASH").err, mailmend("repair", "messages", "--help").out

        assert names in " ".join(refused.split())
        assert names in " ".join(shown.split())
        assert mend("--only", names).code == 0

    def test_the_limit_of_fixes_is_a_bound_and_not_an_off_by_one(self, mail: MailKeyspace, mend: Mend) -> None:
        """Two are due: 1 refuses before the first write, 2 lets both through."""
        mail.lose_projection(mail.truths[0])
        mail.lose_projection(mail.truths[1])

        refused = mend("--max-fixes", "1")
        assert (refused.code, refused.out) == (ExitCode.DRIFT, "")
        assert "2 suspects in mail could be mended, --max-fixes allows 1; nothing was written" in refused.err
        assert mail.mirror(mail.truths[0]) is None

        assert mend("--max-fixes", "2").json["fixed"] == {"PROJECT": 2}

    def test_a_limit_does_not_hinder_a_dry_run(self, mail: MailKeyspace, mend: Mend) -> None:
        mail.lose_projection(mail.truths[0])

        assert mend("--dry-run", "--max-fixes", "0").json["due"] == {"PROJECT": 1}

    def test_a_dry_run_makes_no_ledger(self, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin) -> None:
        mail.lose_projection(mail.truths[0])

        assert (mend("--dry-run").code, cluster.carried_out, mail.mirror(mail.truths[0])) == (1, [], None)

    def test_what_was_asked_for_is_in_the_ledger(self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend) -> None:
        """In the words that were typed, the target too: afterwards somebody wants to know why so little was mended."""
        ended = mend("--only", "amend", "--mailbox", str(mail.mailbox), "--scan", "--keep", "90d")

        options = mailmend("runs", "show", ended.json["run"], "--json").json["options"]

        assert options["only"] == ["AMEND"]
        assert (options["keep"], options["mailbox"], options["scan"]) == ("90d", [str(mail.mailbox)], True)

    def test_clocks_that_differ_are_refused_and_said(
        self, mailmend: CommandLine, mend: Mend, cluster: ClusterTwin
    ) -> None:
        """A node that is 12 s ahead is more than the margin covers, unless the keyspace is quiet."""
        cluster.nodes_ahead_micros = 12 * MICROS

        refused = mailmend("repair", "messages", *QUICK, MAILMEND_REPAIR_MESSAGES_NO_WRITERS="0")

        assert (refused.code, "clocks" in refused.err) == (2, True)
        assert mend().code == 0


class TestAhead:
    """Cells from the future."""

    def test_they_are_left_until_they_are_to_be_beaten(
        self, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
    ) -> None:
        truth = mail.truths[0]
        future = cluster.clock.micros() + 3600 * MICROS
        mail.tables.write(Put(MESSAGE_ID, mirror_row(truth, modseq=9), at=future))

        left = mend()
        assert (left.code, left.json["left"], left.json["fixed"]) == (1, {"AHEAD": 1}, {})

        beaten = mend("--beat-ahead")
        assert (beaten.code, beaten.json["fixed"]) == (0, {"AMEND": 1})
        (seen,) = mail.tables.read(Read(MESSAGE_ID, (truth["mailboxid"], truth["uid"]), times=True))
        assert (seen.row["modseq"], seen.newest) == (truth["modseq"], future + 1)

    def test_time_heals_them_too(self, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin) -> None:
        """Once T has passed the cell it is a difference like any other."""
        future = cluster.clock.micros() + 60 * MICROS
        mail.tables.write(Put(MESSAGE_ID, mirror_row(mail.truths[0], modseq=9), at=future))
        assert mend().json["left"] == {"AHEAD": 1}

        cluster.clock.advance(120)

        assert mend().json["fixed"] == {"AMEND": 1}


class TestDangling:
    """Projections without truth."""

    @pytest.fixture(autouse=True)
    def _half_deleted(self, mail: MailKeyspace) -> None:
        mail.lose_truth(mail.truths[0])

    def is_back(self, mail: MailKeyspace) -> bool:
        return mail.get(IMAP_UID, IMAP_UID.key_of(mail.truths[0])) is not None

    def test_withdrawn_they_are_counted_as_last_traces(self, mail: MailKeyspace, mend: Mend) -> None:
        """The content still exists: a person may want to look before it is a leak."""
        ended = mend()

        assert (ended.json["last_traces"], mail.mirror(mail.truths[0])) == (1, None)
        assert not self.is_back(mail)

    def test_reported_they_stay(self, mail: MailKeyspace, mend: Mend) -> None:
        ended = mend("--dangling", "report", "--only", "WITHDRAW")

        assert (ended.code, ended.json["left"].get("WITHDRAW", 0) >= 1) == (1, True)
        assert mail.mirror(mail.truths[0]) is not None

    def test_restoring_needs_a_person(self, mail: MailKeyspace, mend: Mend) -> None:
        """Nobody at the terminal: refused before anything is dialled; a dry run and --yes are fine."""
        refused = mend("--dangling", "restore")
        assert (refused.code, "--yes" in refused.err, self.is_back(mail)) == (2, True, False)

        assert mend("--dangling", "restore", "--dry-run").json["due"]["WITHDRAW"] >= 1
        assert not self.is_back(mail)

        assert mend("--dangling", "restore", "--yes").code in {0, 1}
        assert self.is_back(mail)

    @pytest.mark.parametrize(("answer", "code", "back"), [("n\n", 2, False), ("\n", 2, False), ("y\n", 0, True)])
    def test_a_person_at_a_terminal_is_asked(  # noqa: PLR0917 - fixtures
        self, mail: MailKeyspace, mend: Mend, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, back: bool
    ) -> None:
        monkeypatch.setattr("admin.cli.asking.someone_is_there", lambda: True)
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda *_: answer.strip())

        ended = mend("--dangling", "restore", "--only", "WITHDRAW")

        assert (ended.code, self.is_back(mail)) == (code, back), ended.err


class TestLeaks:
    """Content that no truth names."""

    def leak(self, mail: MailKeyspace, age_seconds: int) -> tuple[Any, ...]:
        """Content of a message that nobody names, born and written so long ago."""
        born = START - age_seconds * MICROS
        row = content_row(message(77, born))
        mail.tables.write(Put(MESSAGE_V3, row, at=born))
        return (row["messageid"],)

    def test_they_are_reported_and_never_fail_a_check(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        self.leak(mail, 10 * DAY_SECONDS)

        ended = mailmend("check", *QUICK, "--json")

        assert (ended.code, ended.json["findings"]) == (0, {"messageV3": {"LEAK": 1}})

    def test_collected_they_go_and_can_be_brought_back(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend
    ) -> None:
        key = self.leak(mail, 10 * DAY_SECONDS)
        before = mail.get(MESSAGE_V3, key)

        ended = mend("--leaks", "collect")
        assert (ended.json["fixed"], mail.get(MESSAGE_V3, key)) == ({"LEAK": 1}, None)

        assert mailmend("undo", ended.json["run"]).code == 0
        assert mail.get(MESSAGE_V3, key) == before

    def test_young_ones_are_left(self, mail: MailKeyspace, mend: Mend) -> None:
        key = self.leak(mail, DAY_SECONDS // 2)

        ended = mend("--leaks", "collect")

        assert (ended.json["fixed"], mail.get(MESSAGE_V3, key) is not None) == ({}, True)

    def test_a_truth_that_comes_between_the_two_looks_saves_it(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        """A copy of an old message: its content is named again before the second look."""
        key = self.leak(mail, 10 * DAY_SECONDS)
        sleep = cluster.clock.sleep

        def copied_meanwhile(seconds: float) -> None:
            sleep(seconds)
            copy = {**mail.truths[0], "messageid": key[0], "uid": 50}
            mail.tables.write(Put(IMAP_UID, copy))

        cluster.clock.sleep = copied_meanwhile  # type: ignore[method-assign]

        ended = mailmend("repair", "messages", "--engine", "local", "--delay", "1", "--leaks", "collect", "--json")

        assert ended.json["fixed"].get("LEAK") is None
        assert mail.get(MESSAGE_V3, key) is not None


class TestUndo:
    """Taking a run back."""

    def test_counters_return_unless_they_were_used_since(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
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

    def test_a_dry_run_speaks_of_putting_back(self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend) -> None:
        """Not of a repair, and it does not suggest one: that would be the contrary of what is wanted."""
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]

        ended = mailmend("undo", run, "--dry-run")

        assert "Nothing was written. 1 would be put back." in ended.out
        assert "repair" not in ended.out
        assert mail.mirror(mail.truths[0]) is not None

    def test_what_was_used_since_is_said_and_no_repair_is_suggested(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
    ) -> None:
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]
        cluster.clock.advance(1)
        mail.lose_flag_update(mail.truths[0])

        ended = mailmend("undo", run)

        assert (ended.code, "1 were changed meanwhile, and left." in ended.out) == (1, True)
        assert "Next: mailmend repair" not in ended.out

    def test_an_unknown_run_is_named(self, mailmend: CommandLine, mend: Mend) -> None:
        unknown = str(message(1))

        without = mailmend("undo", unknown)
        mend()
        with_ledger = mailmend("undo", unknown)

        assert [(one.code, unknown in one.err) for one in (without, with_ledger)] == [(2, True)] * 2


class TestRuns:
    """The ledger as a person reads it."""

    def test_a_run_that_is_kept_longer_is_found_later(
        self, mailmend: CommandLine, mend: Mend, cluster: ClusterTwin
    ) -> None:
        """`--keep 365d`, looked for after two months: only `--since` reaches back so far."""
        run = mend("--keep", "365d").json["run"]
        cluster.clock.advance(60 * DAY_SECONDS)

        assert mailmend("runs", "list", "--json").json == {"runs": []}
        assert [one["run"] for one in mailmend("runs", "list", "--since", "90d", "--json").json["runs"]] == [run]

    def test_people_see_sums_and_the_newest_first(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
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

    def test_no_secret_is_kept_or_shown(self, mailmend: CommandLine, mend: Mend, tmp_path: Path) -> None:
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

    def test_other_keyspaces_are_listed_on_demand(self, mailmend: CommandLine, mend: Mend) -> None:
        run = mend().json["run"]

        assert mailmend("runs", "list", "--json", "--keyspace", "other").json == {"runs": []}
        every = mailmend("runs", "list", "--json", "--all", "--keyspace", "other").json["runs"]
        assert [one["run"] for one in every] == [run]

    def test_a_run_is_shown_with_examples_and_how_to_undo_it(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend
    ) -> None:
        mail.lose_projection(mail.truths[0])
        run = mend().json["run"]

        shown = mailmend("runs", "show", run)
        lines = mailmend("runs", "show", run, "--findings").out.splitlines()

        assert "PROJECT" in shown.out
        assert f"mailmend undo {run} --keyspace mail" in shown.out
        assert [(one["verdict"], one["result"]) for one in map(json.loads, lines)] == [("PROJECT", "FIXED")]


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
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend
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
        asked = watched(cluster).seen

        for option in ("--report", "--findings"):
            ended = mailmend("check", *QUICK, option, str(tmp_path / "no" / "file"))
            assert (ended.code, "cannot be written" in ended.err) == (2, True)
        assert asked == []


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

    def test_a_folder_that_takes_no_files_is_found_out_before_the_work(
        self, mailmend: CommandLine, cluster: ClusterTwin
    ) -> None:
        """Permissions alone do not tell: the superuser may write to /proc, and cannot."""
        asked = watched(cluster).seen
        for option in ("--report", "--findings"):
            assert mailmend("check", *QUICK, option, "/proc/file").code == 2
        assert asked == []


class TestInterruption:
    """Ctrl-C, wherever it comes."""

    def test_during_the_second_look_it_leaves_a_ledger_that_says_so(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        """Exit 130, the run INTERRUPTED without an exit code of its own, no half findings file, the lease free."""
        mail.lose_projection(mail.truths[0])
        files = set(tmp_path.iterdir())

        def interrupt(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, Read) and operation.table.name == MESSAGE_V3.name:
                raise KeyboardInterrupt
            return carry_out()

        cluster.keyspace("mail").surround = interrupt
        ended = mend("--findings", str(tmp_path / "f.jsonl"), "--report", str(tmp_path / "r.html"))

        assert (ended.code, "type the same command again" in ended.err, ended.out) == (130, True, "")
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert (run["state"], run["summary"]["suspects"], "exit" in run["summary"]) == ("INTERRUPTED", 1, False)
        assert set(tmp_path.iterdir()) == files

        cluster.keyspace("mail").surround = lambda _, carry_out: carry_out()
        assert mend().json["fixed"] == {"PROJECT": 1}

    def test_a_fix_that_was_written_and_not_yet_settled_is_counted(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
    ) -> None:
        """Interrupted before its result was noted: the row shows that it was mended, and the ledger then says so."""
        for truth in mail.truths[:2]:
            mail.lose_projection(truth)
        interruptions = [KeyboardInterrupt()]

        def interrupt(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            answer = carry_out()
            if isinstance(operation, Put) and operation.table.name == MESSAGE_ID.name and interruptions:
                raise interruptions.pop()
            return answer

        cluster.keyspace("mail").surround = interrupt
        assert mend().code == 130

        (run,) = mailmend("runs", "list", "--json").json["runs"]
        mended = sum(mail.mirror(truth) is not None for truth in mail.truths[:2])
        assert (run["state"], run["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": mended})
        assert mended > 0

    def test_what_was_mended_before_it_can_be_taken_back(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, cluster: ClusterTwin
    ) -> None:
        """Interrupted between the write and its result: the before-image is there, so undo finds it."""
        mail.lose_projection(mail.truths[0])
        written: list[bool] = []

        def interrupt(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if written:
                raise KeyboardInterrupt
            answer = carry_out()
            if isinstance(operation, Put) and operation.table.name == MESSAGE_ID.name:
                written.append(True)
            return answer

        cluster.keyspace("mail").surround = interrupt
        assert mend().code == 130
        cluster.keyspace("mail").surround = lambda _, carry_out: carry_out()
        assert mail.mirror(mail.truths[0]) is not None

        (run,) = mailmend("runs", "list", "--json").json["runs"]
        undone = mailmend("undo", run["run"], "--json")

        assert (undone.code, undone.json["fixed"], mail.mirror(mail.truths[0])) == (0, {"PROJECT": 1}, None)


class TestTargets:
    """Without a scan, and without Spark."""

    def test_a_users_mailboxes_are_looked_at_and_what_cannot_be_seen_is_said(
        self, mail: MailKeyspace, mend: Mend
    ) -> None:
        """A wrong row is mended; a missing one needs --scan, and the command says so on stderr."""
        path = {"namespace": "#private", "user": "bob", "mailboxname": "INBOX", "mailboxid": mail.mailbox}
        mail.tables.write(Put(MAILBOX_PATH, path))
        mail.lose_projection(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])

        seen = mend("--user", "bob")
        assert (seen.json["fixed"], "--scan" in seen.err) == ({"AMEND": 1}, True)

        scanned = mend("--user", "bob", "--scan")
        assert (scanned.json["fixed"], "--scan" in scanned.err) == ({"PROJECT": 1}, False)

    def test_what_a_message_cannot_show_is_said_in_the_json_too(self, mail: MailKeyspace, mend: Mend) -> None:
        """A stale row in a mailbox: unseen by the message alone, mended with the mailbox beside it."""
        message_id = str(mail.truths[0]["messageid"])
        mail.tables.write(Put(MESSAGE_ID, mirror_row({**mail.truths[0], "uid": 99})))

        alone = mend("--message", message_id)
        beside = mend("--message", message_id, "--mailbox", str(mail.mailbox))
        scanned = mend("--message", message_id, "--scan")

        assert (alone.json["fixed"], alone.json["unseen"] in alone.err) == ({}, True)
        assert beside.json["fixed"] == {"WITHDRAW": 1}
        assert "elsewhere" in beside.json["unseen"]
        assert (scanned.json["fixed"], scanned.json["unseen"]) == ({}, None)

    @pytest.mark.parametrize("beside", [(), ("--dry-run",), ("--scan",), ("--mailbox", "{mailbox}")], ids=" ".join)
    def test_an_unknown_message_is_named_and_none_of_the_others_is_mended(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend, beside: tuple[str, ...]
    ) -> None:
        mail.lose_projection(mail.truths[0])
        known, *unknown = str(mail.truths[0]["messageid"]), str(message(77)), str(message(78))

        options = [one.format(mailbox=mail.mailbox) for one in beside]
        ended = mend("--message", known, "--message", unknown[0], "--message", unknown[1], *options)

        assert (ended.code, ended.out) == (2, "")
        assert f"names message {', '.join(unknown)}: nothing was done" in ended.err
        assert "mistyped" in ended.err
        assert ("--mailbox, --user or --scan" in ended.err) == ("--scan" not in beside)
        assert mail.mirror(mail.truths[0]) is None
        assert mailmend("runs", "list", "--json").json == {"runs": []}

    def test_a_message_is_known_by_its_content_or_by_a_row_that_is_looked_at(
        self, mail: MailKeyspace, mend: Mend
    ) -> None:
        """Content that nothing names; and a row of messageIdTable alone, which its mailbox or a scan leads to."""
        mail.tables.write(Put(MESSAGE_V3, content_row(message(77))))
        mail.tables.write(Put(MESSAGE_ID, mirror_row({**mail.truths[0], "messageid": message(78), "uid": 99})))

        assert mend("--message", str(message(77))).code == 0
        assert mend("--message", str(message(78))).code == 2
        for beside in (("--mailbox", str(mail.mailbox), "--dry-run"), ("--scan",)):
            found = mend("--message", str(message(78)), *beside)
            assert found.json["findings"] == {"messageIdTable": {"WITHDRAW": 1}}, found.err

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--scan",), "--scan goes with"),
            (("--user", "nobody"), "user 'nobody' has no mailbox"),
            (("--leaks", "collect", "--dangling", "report"), "last trace"),
        ],
    )
    def test_what_cannot_be_is_refused_and_leaves_no_run(
        self, mailmend: CommandLine, mend: Mend, arguments: tuple[str, ...], said: str
    ) -> None:
        ended = mend(*arguments)

        assert (ended.code, said in ended.err) == (2, True), ended.err
        assert mailmend("runs", "list", "--json").json == {"runs": []}

    def test_one_mended_message_can_be_undone_like_any_run(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend
    ) -> None:
        mail.lose_projection(mail.truths[0])
        mail.lose_projection(mail.truths[1])

        mended = mend("--message", str(mail.truths[0]["messageid"]))
        assert (mended.json["fixed"], mail.mirror(mail.truths[1])) == ({"PROJECT": 1}, None)

        mailmend("undo", mended.json["run"])
        assert mail.mirror(mail.truths[0]) is None


class TestOrphans:
    """Truth rows whose content is lost."""

    def test_quarantine_takes_only_old_ones_and_undo_brings_them_back(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Mend
    ) -> None:
        """They leave truth, mirror and filters; each has its before-image."""
        truth = mail.truths[0]
        mail.lose_content(truth)
        assert mend().json["left"] == {"LOST_CONTENT": 1}

        ended = mend("--orphans", "quarantine")
        assert ended.json["fixed"]["LOST_CONTENT"] == 1, ended.err
        assert mail.get(IMAP_UID, IMAP_UID.key_of(truth)) is None
        assert mail.mirror(truth) is None

        assert mailmend("undo", ended.json["run"]).code == 0
        assert mail.get(IMAP_UID, IMAP_UID.key_of(truth)) is not None

    def test_torn_rows_are_reported_or_accepted(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        key = IMAP_UID.key_of(mail.truths[0])
        mail.tables.write(Change(IMAP_UID, key, assign={"headercontent": None}))
        mail.tables.write(Change(MESSAGE_ID, (mail.mailbox, 1), assign={"headercontent": None}))

        torn = mailmend("check", "messages", *QUICK, "--json")
        accepted = mailmend("check", "messages", *QUICK, "--json", "--torn", "accept")

        assert torn.json["findings"].get("messageIdTable") == {"TORN": 1}
        assert (accepted.code, accepted.json["findings"]) == (0, {})


def test_a_lost_delete_is_withdrawn_with_its_filters(mail: MailKeyspace, mend: Mend) -> None:
    mail.lose_truth(mail.truths[0])
    mail.tables.write(Remove(MESSAGE_V3, (mail.truths[0]["messageid"],)))

    ended = mend()

    assert ended.json["fixed"]["WITHDRAW"] == 2
    assert ended.json["last_traces"] == 0
    assert mend().json["suspects"] == 0


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
def test_a_report_that_does_not_fit_leaves_the_mending_as_it_is(
    mailmend: CommandLine, mail: MailKeyspace, mend: Mend
) -> None:
    """The sums are on stdout, the run is DONE and can be undone; the message names the file, the exit code is 3."""
    mail.lose_projection(mail.truths[0])

    ended = mend("--report", "/dev/full")

    assert (ended.code, ended.json["fixed"]) == (3, {"PROJECT": 1})
    assert "/dev/full cannot be written: No space left on device" in ended.err
    assert mailmend("runs", "show", ended.json["run"], "--json").json["state"] == "DONE"
