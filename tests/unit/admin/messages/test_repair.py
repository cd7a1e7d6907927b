"""repair as a person types it: what it mends, what it leaves, and every promise of its options."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.messages.mending import CheckRequest, given
from mailmend.admin.messages.repair import RepairRequest
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_COUNTER, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.errors import ExitCode
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Level, Put, Read
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table
from mailmend.repair.ledger.lags import LagJournal
from mailmend.repair.mending.limits import BURST_SECONDS
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Typed
from tests.support.mail_states import MailKeyspace, register
from tests.support.repairing import Meter, content_row, message, mirror_row, mirror_suspect, truth_row


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
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, tmp_path: Path
    ) -> None:
        mail.lose_content(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])

        ended = mend("--only", "PROJECT", "--findings", str(tmp_path / "found"))

        reported = {
            one["verdict"]: one["reason"] for one in map(json.loads, (tmp_path / "found").read_text().splitlines())
        }
        reasons = {
            "AMEND": {"left out by --only": 1},
            "LOST_CONTENT": {"needs --orphans quarantine, or its content back": 1},
        }
        assert {name: {reason: 1} for name, reason in reported.items()} == reasons == ended.json["reasons"]
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        assert run["summary"]["reasons"] == reasons
        assert "left out by --only" in mailmend("runs", "show", run["run"]).out
        assert "needs --orphans quarantine" in mailmend("repair", "messages", *QUICK).out


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


class TestMailbox:
    """What one mailbox's own tables show."""

    @pytest.mark.parametrize("table", [one.table for one in MESSAGES.filters], ids=lambda one: one.spelling)
    def test_stray_rows_and_counters_are_reported_and_left_to_a_scan(
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

    def test_only_the_named_verdicts_are_mended(self, mail: MailKeyspace, mend: Typed) -> None:
        """`--only`, repeated or with commas; the rest is left and makes the exit code 1."""
        mail.lose_projection(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])
        mail.tables.write(Put(MESSAGE_ID, mirror_row({**mail.truths[2], "uid": 99})))

        ended = mend("--only", "amend,project", "--only", "PROJECT")

        assert (ended.code, ended.json["fixed"], ended.json["left"]) == (1, {"PROJECT": 1, "AMEND": 1}, {"WITHDRAW": 1})
        assert mend().json["fixed"] == {"WITHDRAW": 1}

    def test_a_verdict_that_cannot_be_mended_is_refused_by_name(self, mend: Typed) -> None:
        ended = mend("--only", "CLASH")

        assert (ended.code, "'CLASH' is not a verdict that can be mended" in ended.err) == (2, True)

    def test_help_and_error_name_the_same_verdicts(self, mailmend: CommandLine, mend: Typed) -> None:
        """Those that are taken, and no others."""
        names = "PROJECT, AMEND, WITHDRAW, LOST_CONTENT, LEAK"

        refused, shown = mend("--only", "CLASH").err, mailmend("repair", "messages", "--help").out

        assert names in " ".join(refused.split())
        assert names in " ".join(shown.split())
        assert mend("--only", names).code == 0

    def test_the_limit_of_fixes_is_a_bound_and_not_an_off_by_one(self, mail: MailKeyspace, mend: Typed) -> None:
        """Two are due: 1 refuses before the first write, 2 lets both through."""
        mail.lose_projection(mail.truths[0])
        mail.lose_projection(mail.truths[1])

        refused = mend("--max-fixes", "1")
        assert (refused.code, refused.out) == (ExitCode.DRIFT, "")
        assert "2 suspects in mail could be mended, --max-fixes allows 1; nothing was written" in refused.err
        assert mail.mirror(mail.truths[0]) is None

        assert mend("--max-fixes", "2").json["fixed"] == {"PROJECT": 2}

    def test_a_limit_does_not_hinder_a_dry_run(self, mail: MailKeyspace, mend: Typed) -> None:
        mail.lose_projection(mail.truths[0])

        assert mend("--dry-run", "--max-fixes", "0").json["due"] == {"PROJECT": 1}

    def test_a_dry_run_makes_no_ledger(self, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin) -> None:
        mail.lose_projection(mail.truths[0])

        assert (mend("--dry-run").code, cluster.carried_out, mail.mirror(mail.truths[0])) == (1, [], None)

    def test_what_was_asked_for_is_in_the_ledger(self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed) -> None:
        """In the words that were typed, the target too: afterwards somebody wants to know why so little was mended."""
        ended = mend("--only", "amend", "--mailbox", str(mail.mailbox), "--scan", "--keep", "90d")

        options = mailmend("runs", "show", ended.json["run"], "--json").json["options"]

        assert options["only"] == ["AMEND"]
        assert (options["keep"], options["mailbox"], options["scan"]) == ("90d", [str(mail.mailbox)], True)

    def test_clocks_that_differ_are_refused_and_said(
        self, mailmend: CommandLine, mend: Typed, cluster: ClusterTwin
    ) -> None:
        """A node that is 12 s ahead is more than the margin covers, unless the keyspace is quiet."""
        cluster.nodes_ahead_micros = 12 * MICROS

        refused = mailmend("repair", "messages", *QUICK, MAILMEND_REPAIR_MESSAGES_NO_WRITERS="0")

        assert (refused.code, "clocks" in refused.err) == (2, True)
        assert mend().code == 0


class TestAhead:
    """Cells from the future."""

    def test_they_are_left_until_they_are_to_be_beaten(
        self, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin
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

    def test_time_heals_them_too(self, mail: MailKeyspace, mend: Typed, cluster: ClusterTwin) -> None:
        """Once T has passed the cell it is a difference like any other."""
        future = cluster.clock.micros() + 60 * MICROS
        mail.tables.write(Put(MESSAGE_ID, mirror_row(mail.truths[0], modseq=9), at=future))
        assert mend().json["left"] == {"AHEAD": 1}

        cluster.clock.advance(120)

        assert mend().json["fixed"] == {"AMEND": 1}


class TestTargets:
    """Without a scan, and without Spark."""

    def test_a_users_mailboxes_are_looked_at_and_what_cannot_be_seen_is_said(
        self, mail: MailKeyspace, mend: Typed
    ) -> None:
        """A wrong row is mended; a missing one needs --scan, and the command says so on stderr, with exit code 1."""
        register(mail, 1, "INBOX", row_says="INBOX", mailbox=mail.mailbox)
        mail.lose_projection(mail.truths[0])
        mail.lose_flag_update(mail.truths[1])

        seen = mend("--user", "bob")
        assert (seen.code, seen.json["fixed"], "--scan" in seen.err) == (1, {"AMEND": 1}, True)

        scanned = mend("--user", "bob", "--scan")
        assert (scanned.code, scanned.json["fixed"], "--scan" in scanned.err) == (0, {"PROJECT": 1}, False)

    @pytest.mark.parametrize("beside", [(), ("--dry-run",)], ids=" ".join)
    def test_a_message_of_which_only_the_truth_knows_is_never_called_fine(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, beside: tuple[str, ...]
    ) -> None:
        """Its writer died after the truth: neither row nor count. The uid that it was given is told, with exit 1."""
        here = ("--mailbox", str(mail.mailbox))
        mail.tables.write(Put(MESSAGE_COUNTER, {"mailboxid": mail.mailbox, "nextuid": 5}))
        deleted = mend(*here, *beside)  # it looks the same
        mail.tables.write(Put(IMAP_UID, truth_row(5)))
        mail.tables.write(Put(MESSAGE_V3, content_row(message(5))))

        blind = mend(*here, *beside)
        ended = mailmend("repair", "messages", *QUICK, *here, *beside)

        assert (deleted.code, blind.code, blind.json["findings"], blind.json["gaps"]) == (1, 1, {}, 1)
        assert "counters show was looked at. 1 of the uids" in blind.json["unseen"]
        assert blind.json["unseen"] in blind.err
        assert f"{' '.join(here)} --scan (it reads the whole source of truth" in ended.out
        scanned = mend(*here, "--scan")
        assert (scanned.code, scanned.json["fixed"]) == (0, {"PROJECT": 2, "AMEND": 1})
        assert (scanned.json["gaps"], scanned.json["unseen"]) == (0, None)
        full = mend(*here, *beside)
        assert (full.code, full.json["gaps"], full.json["unseen"]) == (0, 0, None)

    def test_what_a_message_cannot_show_is_said_in_the_json_too(self, mail: MailKeyspace, mend: Typed) -> None:
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
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed, beside: tuple[str, ...]
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
        self, mail: MailKeyspace, mend: Typed
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
        self, mailmend: CommandLine, mend: Typed, arguments: tuple[str, ...], said: str
    ) -> None:
        ended = mend(*arguments)

        assert (ended.code, said in ended.err) == (2, True), ended.err
        assert mailmend("runs", "list", "--json").json == {"runs": []}

    def test_one_mended_message_can_be_undone_like_any_run(
        self, mailmend: CommandLine, mail: MailKeyspace, mend: Typed
    ) -> None:
        mail.lose_projection(mail.truths[0])
        mail.lose_projection(mail.truths[1])

        mended = mend("--message", str(mail.truths[0]["messageid"]))
        assert (mended.json["fixed"], mail.mirror(mail.truths[1])) == ({"PROJECT": 1}, None)

        mailmend("undo", mended.json["run"])
        assert mail.mirror(mail.truths[0]) is None
