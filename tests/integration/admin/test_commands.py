"""One walk through the commands on a real Cassandra, and what only real servers and processes show of bad input.

Everything else that the commands do is told on twins, in tests/unit/admin.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.model.catalog.mail import FIRST_UNSEEN, MESSAGE_ID
from mailmend.model.operations import Put
from tests.support.checkout import CHECKOUT
from tests.support.commands import QUICK, CommandLine, Ended
from tests.support.mail_states import MailKeyspace, emptied, make_anew, register, shell_on
from tests.support.metrics import Scraped, tells_its_json
from tests.support.repairing import message, mirror_row, truth_row
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def keyspace(shared_mail: MailKeyspace) -> MailKeyspace:
    return emptied(shared_mail)


@pytest.fixture
def mail(keyspace: MailKeyspace) -> MailKeyspace:
    keyspace.refill()
    return keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


def test_a_check_finds_drift_and_writes_nothing(mailmend: CommandLine, mail: MailKeyspace) -> None:
    mail.lose_projection(mail.truths[0])

    ended = mailmend("check", "messages", "--delay", "0", "--json", "--ledger-keyspace", "g_never_made")

    assert (ended.code, ended.json["engine"]["name"]) == (1, "local"), ended.err
    assert ended.json["findings"] == {"messageIdTable": {"PROJECT": 1}}
    assert ended.json["run"] is None
    assert mail.mirror(mail.truths[0]) is None
    assert "No run is kept" in mailmend("runs", "list", "--ledger-keyspace", "g_never_made").out


def test_check_repair_undo_and_redo(mailmend: CommandLine, mail: MailKeyspace) -> None:
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


def test_reports_and_runs_say_whose_mail_it_is(mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
    """From the fields of a user type, which the server tells as one value."""
    register(mail, 1, "INBOX", row_says="INBOX", mailbox=mail.mailbox)
    register(mail, 2, "Letters", row_says="Letters")
    mail.lose_flag_update(mail.truths[1])
    mail.tables.write(Put(MESSAGE_ID, mirror_row(truth_row(9, mailboxid=message(2)))))

    found = mailmend("check", "messages", *QUICK, "--report", str(tmp_path / "r.html"))
    run = mailmend("repair", "messages", *QUICK, "--json").json["run"]

    assert found.code == 1
    shown = mailmend("runs", "show", run)
    for named in (f"bob, INBOX ({mail.mailbox})", f"bob, Letters ({message(2)})"):
        assert named in (tmp_path / "r.html").read_text(), found.err
        assert named in shown.out, shown.err
    assert "≠ flagFlagged" in shown.out
    assert run in [one["run"] for one in mailmend("runs", "trend", "--json").json["runs"]]


def test_metrics_of_a_run_are_the_numbers_of_its_json(
    mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path
) -> None:
    """Written by the run, and told by the ledger afterwards."""
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])
    file = tmp_path / "run.prom"

    found = mailmend("check", "messages", *QUICK, "--json", "--metrics-file", str(file))
    assert found.json["findings"] == {"messageIdTable": {"PROJECT": 1, "AMEND": 1}}, found.err
    tells_its_json(Scraped.of(file), found, command="check messages")

    mended = mailmend("repair", "messages", *QUICK, "--json", "--metrics-file", str(file))
    tells_its_json(Scraped.of(file), mended, command="repair messages")
    shown = mailmend("metrics", "show")

    scraped = Scraped.of(shown.out)
    assert (shown.code, scraped.one("mailmend_ledger_up"), scraped.one("mailmend_lags_waiting")) == (0, 1, 0), shown.err
    assert scraped.by("mailmend_run_fixed", "verdict", command="repair messages") == {("PROJECT",): 1, ("AMEND",): 1}
    assert scraped.one("mailmend_run_moved", command="repair messages") == mended.json["moved"]


def test_plan_and_apply(mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
    """What went apart since is left, what changed since has moved, and the table's own ids tell another cluster."""
    kept, changed, later, _ = mail.truths
    plan = str(tmp_path / "plan.jsonl")
    mail.lose_projection(kept)
    mail.lose_flag_update(changed)

    planned = mailmend("repair", "messages", *QUICK, "--plan", plan, "--json")
    assert (planned.code, planned.json["due"], planned.json["run"]) == (1, {"PROJECT": 1, "AMEND": 1}, None)
    mail.lose_projection(later)
    mail.lose_flag_update(changed)

    applied = mailmend("apply", plan, "--json")
    assert (applied.code, applied.json["fixed"], applied.json["moved"]) == (0, {"PROJECT": 1}, 1), applied.err
    assert (mail.mirror(kept) is None, mail.mirror(later)) == (False, None)
    again = mailmend("apply", plan, "--json")
    assert (again.code, again.json["fixed"], again.json["moved"]) == (0, {}, 1)
    assert mailmend("undo", applied.json["run"]).code == 0
    assert mail.mirror(kept) is None


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_what_spark_has_planned_one_process_applies(mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path) -> None:
    """Before-images of executors are those that this process sees; what was undone is not done again by the way."""
    missing, wrong, changed, _ = mail.truths
    stale, plan = mirror_row(truth_row(9)), str(tmp_path / "plan.jsonl")
    mail.lose_projection(missing)
    for truth in (wrong, changed):
        mail.lose_flag_update(truth)
    mail.tables.write(Put(MESSAGE_ID, stale))
    due = {"PROJECT": 1, "AMEND": 2, "WITHDRAW": 1}

    planned = mailmend("repair", "messages", "--engine", "spark", "--delay", "0", "--plan", plan, "--json")
    assert (planned.code, planned.json["due"], planned.json["engine"]["name"]) == (1, due, "spark"), planned.err
    assert mailmend("apply", plan, "--dry-run", "--json").json["due"] == due
    mail.lose_flag_update(changed)

    applied = mailmend("apply", plan, "--json")
    assert (applied.code, applied.json["fixed"]) == (0, {**due, "AMEND": 1}), applied.err
    assert (applied.json["moved"], applied.json["scanned"]) == (1, {})
    assert (mail.mirror(missing) is None, mail.mirror(stale)) == (False, None)
    undone = mailmend("undo", applied.json["run"], "--json").json["run"]
    _refused(mailmend("apply", plan), 2, f"mailmend undo {undone}")
    assert mailmend("undo", undone).code == 0
    assert (mailmend("apply", plan, "--json").json["moved"], mail.mirror(missing) is None) == (1, False)


def test_a_plan_of_tables_that_were_made_anew_is_refused(
    mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.jsonl")
    mail.lose_projection(mail.truths[0])
    assert mailmend("repair", "messages", *QUICK, "--plan", plan).code == 1
    assert mailmend("apply", plan, "--dry-run").code == 1

    make_anew(mail, FIRST_UNSEEN)

    _refused(mailmend("apply", plan), 2, "made anew", "--plan FILE")


def _refused(ended: Ended, code: int, *said: str) -> None:
    assert ended.code == code, ended
    assert ended.out == ""
    for words in said:
        assert words in ended.err, ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 4, ended.err


def test_an_unknown_keyspace(mailmend: CommandLine) -> None:
    """Named, with how to create it or to name another; a repair makes no ledger for it either."""
    for command in (("repair", "messages", *QUICK), ("schema", "verify"), ("undo", str(uuid4()))):
        _refused(mailmend(*command, "--keyspace", "g_nowhere"), 2, "keyspace 'g_nowhere' does not exist", "--keyspace")


def test_nobody_listens(mailmend: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]

    _refused(mailmend("check", *QUICK, "--port", str(free)), 4, f"127.0.0.1:{free}", "--host, --port")


def test_something_listens_that_never_answers(mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailmend.admin.frame.cluster.Contact", partial(Contact, request_seconds=1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        _refused(mailmend("check", *QUICK, "--port", str(port)), 4, f"127.0.0.1:{port}")


def test_something_listens_that_is_no_cassandra(mailmend: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            for _ in range(20):
                server.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            os._exit(0)
        try:
            _refused(mailmend("check", *QUICK, "--port", str(port)), 4, f"127.0.0.1:{port}")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _shell(mailmend: CommandLine, command: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **mailmend.environment, "HOME": str(mailmend.home), "PYTHONPATH": str(CHECKOUT)}
    line = command.replace("mailmend", f"{sys.executable} -m mailmend", 1)
    return subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", line],
        env=environment,
        cwd=mailmend.home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_reader_that_goes_away_early(mailmend: CommandLine) -> None:
    with _shell(mailmend, "mailmend check --help | true") as process:
        _, err = process.communicate(timeout=60)

    assert (process.returncode in {0, 141}, err) == (True, "")


def test_ctrl_c_says_how_to_go_on_and_leaves_a_consistent_ledger(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Interrupted while it waited: exit 130, the run INTERRUPTED, the row as it was, and the same command goes on."""
    mail.lose_projection(mail.truths[0])
    with _shell(mailmend, "exec mailmend repair messages --engine local --delay 1h") as process:
        _until_waiting(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, "To go on" in err, "Traceback" in err) == (130, True, False), err
    (newest, *_) = mailmend("runs", "list", "--json").json["runs"]
    assert newest["state"] == "INTERRUPTED"
    assert mail.mirror(mail.truths[0]) is None
    assert mailmend("repair", "messages", *QUICK).code == 0
    assert mail.mirror(mail.truths[0]) is not None


def _until_waiting(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    began = time.monotonic()
    for line in process.stderr:
        if line.startswith("waiting"):
            return
        assert time.monotonic() - began < 60
    pytest.fail("it never came to the wait")
