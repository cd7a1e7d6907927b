"""The commands that a person types, against a real Cassandra and the local engine, in this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.catalog.mail import IMAP_UID
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

QUICK = ("--engine", "local", "--delay", "0")


@pytest.fixture(scope="module")
def keyspace(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    """One keyspace for all tests, and one for their ledger."""
    with keyspace_of_its_own(cassandra, "commands") as keyspace:
        yield keyspace


@pytest.fixture
def mail(keyspace: MailKeyspace) -> MailKeyspace:
    """A healthy keyspace."""
    keyspace.refill()
    return keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    """A shell that knows the cluster and both keyspaces."""
    return shell_on(cassandra, mail, tmp_path)


def test_a_healthy_keyspace_checks_clean(mailmend: CommandLine) -> None:
    """Exit 0, and a sentence that says so."""
    ended = mailmend("check", *QUICK)

    assert (ended.code, "No drift." in ended.out) == (0, True), ended.err


def test_a_check_finds_drift_and_writes_nothing(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Exit 1, counts under the contract's names, and the row still missing."""
    mail.lose_projection(mail.truths[0])

    ended = mailmend("check", "messages", *QUICK, "--json", "--ledger-keyspace", "g_never_made")

    assert ended.code == 1
    assert ended.json["findings"] == {"messageIdTable": {"PROJECT": 1}}
    assert ended.json["run"] is None
    assert mail.mirror(mail.truths[0]) is None
    assert "No run is kept" in mailmend("runs", "list", "--ledger-keyspace", "g_never_made").out


def test_check_repair_undo_and_redo(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """The whole circle: found, looked at, mended, clean, taken back, and found again."""
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])

    dry = mailmend("repair", "messages", *QUICK, "--dry-run", "--json")
    assert (dry.code, dry.json["due"], mail.mirror(mail.truths[0])) == (1, {"PROJECT": 1, "AMEND": 1}, None)

    mended = mailmend("repair", "messages", *QUICK, "--json")
    assert (mended.code, mended.json["fixed"]) == (0, {"PROJECT": 1, "AMEND": 1}), mended.err
    assert mail.mirror(mail.truths[0]) is not None
    assert mailmend("check", *QUICK).code == 0

    run = mended.json["run"]
    shown = mailmend("runs", "show", run, "--json")
    assert (shown.json["state"], shown.json["summary"]["fixed"]) == ("DONE", {"PROJECT": 1, "AMEND": 1})

    undone = mailmend("undo", run, "--json")
    assert undone.code == 0, undone.err
    assert mail.mirror(mail.truths[0]) is None
    assert mailmend("check", *QUICK).code == 1

    assert mailmend("undo", undone.json["run"]).code == 0
    assert mailmend("check", *QUICK).code == 0


def test_every_form_of_result_at_once(mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
    """JSON on stdout, a report, the findings: and stdout holds nothing but the JSON."""
    mail.lose_truth(mail.truths[0])
    report, findings = tmp_path / "r.html", tmp_path / "f.jsonl"

    ended = mailmend("check", *QUICK, "--json", "--report", str(report), "--findings", str(findings))

    lines = [json.loads(line) for line in findings.read_text().splitlines()]
    withdrawn = [line for line in lines if line["projection"] == "messageIdTable"]
    assert [(line["verdict"], line["key"]["uid"]) for line in withdrawn] == [("WITHDRAW", 1)]
    assert "WITHDRAW" in report.read_text()
    assert ended.out.count("\n") == 1
    assert ended.json["last_traces"] >= 1


def test_raw_suspects_at_once(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """`--no-recheck` neither waits nor looks again."""
    mail.lose_projection(mail.truths[0])

    ended = mailmend("check", "messages", "--engine", "local", "--no-recheck", "--json")

    assert (ended.code, "delay" in ended.json["seconds"], "recheck" in ended.json["seconds"]) == (1, False, False)


def test_only_some_verdicts(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """What is not named is left, and the exit code says that drift is left."""
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])

    ended = mailmend("repair", "messages", *QUICK, "--only", "amend", "--json")

    assert (ended.code, ended.json["fixed"], ended.json["left"]) == (1, {"AMEND": 1}, {"PROJECT": 1})


def test_too_many_fixes_stop_before_the_first(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Nothing was written, and the message says how to go on."""
    mail.lose_projection(mail.truths[0])
    mail.lose_projection(mail.truths[1])

    ended = mailmend("repair", "messages", *QUICK, "--max-fixes", "1")

    assert (ended.code, ended.out) == (1, "")
    assert "--max-fixes" in ended.err
    assert mail.mirror(mail.truths[0]) is None


def test_restoring_asks_and_is_never_scheduled(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Without a terminal it needs --yes; with it the truth returns."""
    mail.lose_truth(mail.truths[0])

    refused = mailmend("repair", "messages", *QUICK, "--dangling", "restore")
    assert (refused.code, "--yes" in refused.err) == (2, True)

    restored = mailmend("repair", "messages", *QUICK, "--dangling", "restore", "--yes", "--json")
    assert restored.json["fixed"].get("WITHDRAW", 0) >= 1, restored.err
    assert mail.get(IMAP_UID, IMAP_UID.key_of(mail.truths[0])) is not None
    mailmend("repair", "messages", *QUICK)  # what else had been withdrawn with it returns in the next run
    assert mailmend("check", "messages", *QUICK).code == 0


def test_a_margin_below_the_law_is_refused(mailmend: CommandLine) -> None:
    """Unless the keyspace is declared quiet."""
    refused = mailmend("repair", "messages", *QUICK, "--margin", "5s", MAILMEND_REPAIR_MESSAGES_NO_WRITERS="0")

    assert (refused.code, "--no-writers" in refused.err) == (2, True)
    assert mailmend("repair", "messages", *QUICK, "--margin", "5s", "--no-writers").code == 0


def test_runs_are_listed_for_people_and_for_scripts(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Newest first; every finding of a run can be had as JSON lines."""
    mail.lose_projection(mail.truths[0])
    first = mailmend("repair", "messages", *QUICK, "--json").json["run"]
    second = mailmend("repair", "messages", *QUICK, "--json").json["run"]

    listed = mailmend("runs", "list", "--json").json["runs"]
    assert [run["run"] for run in listed][:2] == [second, first]
    assert first in mailmend("runs", "list").out
    assert "PROJECT" in mailmend("runs", "show", first).out
    (line,) = mailmend("runs", "show", first, "--findings").out.splitlines()
    assert json.loads(line)["verdict"] == "PROJECT"


def test_no_secret_reaches_the_ledger_or_a_report(mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
    """The password is for the driver alone."""
    mail.lose_projection(mail.truths[0])
    report = tmp_path / "r.html"

    ended = mailmend(
        "repair", "messages", *QUICK, "--report", str(report), "--username", "u", MAILMEND_PASSWORD="hunter2"
    )

    shown = mailmend("runs", "list", "--json").out
    assert ended.code == 0
    assert "hunter2" not in ended.out + ended.err + shown + report.read_text()


def test_one_message_at_once(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Exact, without any scan: its lost projection returns, another message's stays lost."""
    one, other = mail.truths[:2]
    mail.lose_projection(one)
    mail.lose_projection(other)

    ended = mailmend("repair", "messages", "--delay", "0", "--message", str(one["messageid"]), "--json")

    assert (ended.code, ended.json["fixed"]) == (0, {"PROJECT": 1}), ended.err
    assert mail.mirror(one) is not None
    assert mail.mirror(other) is None


def test_one_mailbox_shows_what_its_own_rows_show_and_says_so(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """AMEND and WITHDRAW without a scan; a missing row needs `--scan`."""
    mail.lose_flag_update(mail.truths[0])
    mail.lose_projection(mail.truths[1])
    here = ("repair", "messages", "--delay", "0", "--mailbox", str(mail.mailbox))

    seen = mailmend(*here, "--json")
    assert seen.json["fixed"] == {"AMEND": 1}
    assert "--scan" in seen.err
    assert mail.mirror(mail.truths[1]) is None

    scanned = mailmend(*here, "--scan", "--json")
    assert scanned.json["fixed"] == {"PROJECT": 1}, scanned.err
    assert mailmend("check", "messages", *QUICK).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--user", "nobody"), "'nobody' has no mailbox"),
        (("--scan",), "--scan goes with"),
        (("--message", "x"), "not a valid UUID"),
    ],
)
def test_a_target_that_cannot_be_is_refused(mailmend: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    """Before anything is written."""
    ended = mailmend("repair", "messages", "--delay", "0", *arguments)

    assert (ended.code, said in ended.err) == (2, True), ended.err
