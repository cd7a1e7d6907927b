"""Runs of jobs as a person and a scheduler start them: when none begins, when they end, what is kept and told."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from mailmend.admin.frame import endings
from mailmend.cql.driver import session
from mailmend.cql.row_statements import Operation
from mailmend.model.operations import Scan
from mailmend.repair.ledger.jobs import JobRuns
from mailmend.repair.ledger.leases import TTL_SECONDS, Leases
from mailmend.repair.scanners.local import LocalEngine
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended
from tests.support.jobs import NIGHT, NIGHTLY, NOON, Declare, Shell, only, unreachable
from tests.support.mail_states import MailKeyspace
from tests.support.patience import PATIENCE_SECONDS


def test_a_run_does_what_its_command_does_and_is_kept(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, mail: MailKeyspace
) -> None:
    declare(NIGHTLY)

    ended = mailmend("jobs", "run", "nightly_repair")

    assert ended.code == 0, ended.err
    assert "Nothing had to be mended." in ended.out
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert (run["job"], run["state"], run["exit_code"]) == ("nightly-repair", "DONE", 0)
    assert run["command"] == "repair messages --engine local --delay 0 --max-fixes 100000 --rows-per-second 50000"
    assert run["ends_by"][:16] == "2026-09-02T03:30", "with its window"
    (repair,) = run["repairs"]
    shown = mailmend("runs", "show", repair, "--json").json
    assert (shown["options"]["job"], shown["options"]["rows_per_second"]) == ("nightly-repair", 50_000)
    assert shown["summary"]["pace"]["limit"] == 50_000
    assert repair in mailmend("jobs", "history", "nightly-repair").out


def test_a_job_may_name_a_keyspace_of_its_own(mailmend: CommandLine, declare: Declare, night: ClusterTwin) -> None:
    declare(NIGHTLY.replace("messages", "messages --keyspace mail"))
    mailmend("jobs", "run", "nightly-repair")
    night.keyspaces["elsewhere"] = night.keyspaces["mail"]
    night.clock.advance(1)

    assert mailmend("jobs", "run", "nightly-repair", MAILMEND_KEYSPACE="elsewhere").code == 0

    (run,) = mailmend("jobs", "history", "--json", MAILMEND_KEYSPACE="elsewhere").json["runs"]
    assert len(run["repairs"]) == 1


def test_the_exit_code_is_that_of_the_command(mailmend: CommandLine, declare: Declare, night: ClusterTwin) -> None:
    declare(NIGHTLY.replace("--delay 0", "--delay 0 --leaks collect --dangling report"))

    ended = mailmend("jobs", "run", "nightly-repair")

    assert ended.code == 2
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert (run["state"], run["exit_code"]) == ("FAILED", 2)


def test_what_is_typed_of_the_connection_counts_for_the_command_too(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(NIGHTLY)

    mailmend("jobs", "run", "nightly-repair", "--ledger-keyspace", "elsewhere", "--tls-hostnames")

    assert "elsewhere" in night.keyspaces
    assert "mailmend" not in night.keyspaces


def test_overlap_is_refused_by_the_lease_of_the_command(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(NIGHTLY)
    mailmend("jobs", "run", "nightly-repair")
    Leases(night.keyspace("mailmend"), night.clock, "bob@elsewhere").acquire("repair mail", "repair messages")

    ended = mailmend("jobs", "run", "nightly-repair")

    assert (ended.code, "held by bob@elsewhere" in ended.err) == (3, True), ended.err
    assert [run["exit_code"] for run in mailmend("jobs", "history", "--json").json["runs"]] == [3, 0]


@pytest.mark.parametrize("command", ["check --engine local --delay 0", "repair lags", "queue sweep --move-only"])
def test_a_job_does_not_run_twice_at_once_whatever_its_command(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, command: str
) -> None:
    declare(f'[jobs.often]\ncommand = "{command}"\nschedule = "* * * * *"\n')
    assert mailmend("jobs", "run", "often").code in (0, 2), "sweeping needs queues"
    Leases(night.keyspace("mailmend"), night.clock, "bob@elsewhere").acquire("job mail often", command)

    ended = mailmend("jobs", "run", "often")

    assert (ended.code, f"held by bob@elsewhere for {command}" in ended.err) == (3, True), ended.err
    assert len(mailmend("jobs", "history", "--json").json["runs"]) == 1
    night.clock.advance(TTL_SECONDS + 1)
    assert mailmend("jobs", "run", "often").code in (0, 2), "its holder was killed"


def test_whoever_finds_the_lease_taken_hears_which_job(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(NIGHTLY)
    owners: list[str] = []
    acquire = Leases.acquire

    def watched(leases: Leases, *given: str) -> object:
        owners.append(leases.owner)
        return acquire(leases, *given)

    monkeypatch.setattr(Leases, "acquire", watched)

    mailmend("jobs", "run", "nightly-repair")

    assert len(owners) == 2, "of the job, and of the repair"
    assert all(one.endswith(", job nightly-repair") for one in owners)


def at_start_of_scan(monkeypatch: pytest.MonkeyPatch, happening: Callable[[], None]) -> None:
    detect = LocalEngine.detect

    def detected(*given: Any) -> Any:
        happening()
        return detect(*given)

    monkeypatch.setattr(LocalEngine, "detect", detected)


class TurnedTimer:
    """A timer that is over when the test says so."""

    daemon = False
    made: "list[TurnedTimer]" = []  # noqa: RUF012 - one test makes one

    def __init__(self, seconds: float, ends: Callable[[], None]) -> None:
        self.seconds, self.ends = seconds, ends
        self.made[:] = [self]

    @classmethod
    def end(cls) -> None:
        cls.made[0].ends()

    def start(self) -> None:
        """The test does."""

    def cancel(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize(
    ("longest", "seconds", "reason"), [("4h", 7200, "its window ended"), ("1h", 3600, "its longest duration was over")]
)
def test_a_run_is_ended_in_good_order_with_its_window_or_after_its_longest_duration(
    shell: Shell, night: ClusterTwin, monkeypatch: pytest.MonkeyPatch, *, longest: str, seconds: float, reason: str
) -> None:
    mailmend, declare, _ = shell
    declare(NIGHTLY.replace("4h", longest))
    night.clock.advance(2 * 3600)
    monkeypatch.setattr(threading, "Timer", TurnedTimer)
    at_start_of_scan(monkeypatch, TurnedTimer.end)
    begins = JobRuns.start

    def begins_later(*run: Any) -> Any:
        night.clock.advance(0.001)
        return begins(*run)

    monkeypatch.setattr(JobRuns, "start", begins_later)

    ended = mailmend("jobs", "run", "nightly-repair")

    assert (ended.code, reason in ended.err) == (130, True), ended.err
    assert round(TurnedTimer.made[0].seconds) == seconds
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert (run["state"], run["reason"]) == ("INTERRUPTED", reason)
    assert [one["state"] for one in mailmend("runs", "list", "--json").json["runs"]] == ["INTERRUPTED"]


def test_a_window_that_ends_in_mid_segment_loses_that_segment_and_the_next_window_goes_on(
    shell: Shell, night: ClusterTwin, mail: MailKeyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailmend, declare, _ = shell
    mail.refill(40)
    mail.lose_projection(mail.truths[0])
    night.clock.advance(1)
    place, read = mailmend.home / "staged", list[Scan]()
    declare(NIGHTLY.replace("--delay 0", f"--delay 0 --json --staging {place}").replace("4h", "8h"))
    monkeypatch.setattr("mailmend.repair.staging.area.SEGMENTS_UNKNOWN", 3)
    monkeypatch.setattr(threading, "Timer", TurnedTimer)

    def within_a_segment(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        rows = carry_out()
        if not isinstance(operation, Scan) or operation.under or operation.limit:
            return rows
        read.append(operation)
        return ended_after_a_row(rows) if len(read) == 22 else rows

    def ended_after_a_row(rows: list[Any]) -> Iterator[Any]:
        yield from rows[:1]
        TurnedTimer.end()
        yield from rows[1:]

    night.keyspace("mail").surround = within_a_segment
    first = mailmend("jobs", "run", "nightly-repair", "--scheduled")
    assert (first.code, "its window ended" in first.err, len(read)) == (130, True, 22), first.err
    assert len(list(place.glob("*.parquet"))) == 21
    night.clock.turn_to(NIGHT + timedelta(days=1))

    second = mailmend("jobs", "run", "nightly-repair", "--scheduled")

    assert (second.code, second.json["fixed"], second.json["scanned"]["imapUidTable"]) == (0, {"PROJECT": 1}, 40)
    assert (second.json["staging"]["kept"], read[22].tokens, len(read)) == (21, read[21].tokens, 25)
    runs = mailmend("jobs", "history", "--json").json["runs"]
    assert [(run["state"], run["reason"]) for run in runs] == [("DONE", ""), ("INTERRUPTED", "its window ended")]


def test_a_run_that_a_person_interrupts_says_so(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(NIGHTLY)
    at_start_of_scan(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))

    ended = mailmend("jobs", "run", "nightly-repair")

    assert (ended.code, "it was interrupted" in ended.err) == (130, True)


def test_a_killed_run_is_running_while_it_may_be_and_then_was_killed(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(NIGHTLY)
    with monkeypatch.context() as patched:
        patched.setattr("mailmend.repair.ledger.jobs.JobRuns.finish", lambda *_: None)
        mailmend("jobs", "run", "nightly-repair")
    assert only(mailmend("jobs", "list", "--json"))["state"] == "RUNNING"

    night.clock.turn_to(NOON)

    job = only(mailmend("jobs", "list", "--json"))
    assert (job["state"], job["last"]["state"]) == ("WAITING", "INTERRUPTED")
    assert "its end was not recorded" in job["last"]["reason"]


def test_outside_of_its_window_a_job_runs_only_when_that_is_said(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(NIGHTLY)
    night.clock.turn_to(NOON)

    by_hand, scheduled = (
        mailmend("jobs", "run", "nightly-repair"),
        mailmend("jobs", "run", "nightly-repair", "--scheduled"),
    )

    assert (by_hand.code, "it opens at 2026-09-03 01:00 Europe/Berlin" in by_hand.err) == (2, True), by_hand.err
    assert (scheduled.code, scheduled.err.startswith("Nothing ran: job 'nightly-repair' may run in")) == (0, True)
    assert mailmend("jobs", "history", "--json").json["runs"] == []
    assert mailmend("jobs", "run", "nightly-repair", "--anyway").code == 0


def test_a_paused_job_does_not_run_until_it_is_resumed(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(NIGHTLY)
    assert mailmend("jobs", "pause", "nightly-repair", "--reason", "disks").code == 0
    job = only(mailmend("jobs", "list", "--json"))
    assert (job["state"], job["paused"]["reason"]) == ("PAUSED", "disks")
    assert "disks" in mailmend("jobs", "show", "nightly-repair").out

    by_hand, scheduled = (
        mailmend("jobs", "run", "nightly-repair"),
        mailmend("jobs", "run", "nightly-repair", "--scheduled"),
    )

    assert (by_hand.code, scheduled.code) == (2, 0)
    assert "was paused by" in by_hand.err
    assert ": disks" in scheduled.err
    assert mailmend("jobs", "resume", "nightly-repair", "--json").json["was_paused"]["reason"] == "disks"
    assert mailmend("jobs", "resume", "nightly-repair").out == "Job nightly-repair was not paused.\n"
    assert mailmend("jobs", "run", "nightly-repair", "--scheduled").code == 0


@pytest.mark.parametrize(("more", "code", "state"), [(["--now"], 130, "INTERRUPTED"), ([], 0, "DONE")])
@pytest.mark.usefixtures("night")
def test_a_pause_ends_what_runs_where_that_is_said(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, *, more: list[str], code: int, state: str
) -> None:
    mailmend, declare, _ = shell
    declare(NIGHTLY)
    monkeypatch.setattr(endings, "ASK_SECONDS", 0.01)
    interrupt = endings.TimeLimit._interrupt
    has_answered = threading.Event()
    said: list[Ended] = []

    def interrupt_later(limit: endings.TimeLimit, *, time_over: bool) -> None:
        """The command that pauses runs in the same thread: it is to answer before the run is interrupted."""
        has_answered.wait(PATIENCE_SECONDS)
        interrupt(limit, time_over=time_over)

    monkeypatch.setattr(endings.TimeLimit, "_interrupt", interrupt_later)

    def paused() -> None:
        said.append(mailmend("jobs", "pause", "nightly-repair", *more, "--json"))
        has_answered.set()
        signal.sigtimedwait([], 30 if more else 0.1)

    at_start_of_scan(monkeypatch, paused)

    ended = mailmend("jobs", "run", "nightly-repair")

    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert (ended.code, run["state"], run["reason"]) == (code, state, "its job was paused" if more else "")
    assert said[0].json["ended"] == (run["run"] if more else None)
    assert mailmend("jobs", "pause", "nightly-repair", "--now", "--json").json["ended"] is None, "nothing runs"


def test_a_scheduler_whose_clock_is_ahead_is_waited_for(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(NIGHTLY.replace('window = "01:00-05:30"', 'window = "01:30-05:30"'))
    night.clock.advance(-20)

    assert mailmend("jobs", "run", "nightly-repair", "--scheduled").code == 0

    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert run["started_at"][:19] == "2026-09-01T23:30:00"


def test_a_scheduled_run_begins_with_its_jitter(mailmend: CommandLine, declare: Declare, night: ClusterTwin) -> None:
    declare(NIGHTLY + 'jitter = "20m"\n')
    reported = only(mailmend("jobs", "list", "--json"))["next"][0]
    night.clock.turn_to(datetime.fromisoformat(reported["due_at"]))

    mailmend("jobs", "run", "nightly-repair", "--scheduled")

    assert reported["due_at"] < reported["start_at"]
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert run["started_at"] == reported["start_at"]


@pytest.mark.parametrize(("missed", "runs"), [("skip", 0), ("run", 1)])
def test_a_missed_run_is_made_up_for_only_where_that_is_declared(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, missed: str, runs: int
) -> None:
    declare(f'{NIGHTLY}missed = "{missed}"\n')
    night.clock.advance(2 * 3600)

    ended = mailmend("jobs", "run", "nightly-repair", "--scheduled")

    assert (ended.code, "a missed run is skipped" in ended.err) == (0, not runs), ended.err
    assert len(mailmend("jobs", "history", "--json").json["runs"]) == runs


def test_an_end_that_cannot_be_recorded_does_not_change_the_exit(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(NIGHTLY)
    monkeypatch.setattr("mailmend.repair.ledger.jobs.JobRuns.finish", unreachable)

    ended = mailmend("jobs", "run", "nightly-repair")

    assert (ended.code, "could not be recorded: no node answered" in ended.err) == (0, True)


@pytest.mark.parametrize(
    ("command", "tell", "exit_code", "said"),
    [
        ("check --engine local --delay 0", "trouble", 0, None),
        ("check --engine local --delay 0", "always", 0, "ended DONE (exit 0)"),
        ("repair messages --engine local --leaks collect --dangling report", "trouble", 2, "ended FAILED (exit 2)"),
    ],
)
def test_a_command_hears_how_a_run_ended(
    shell: Shell, night: ClusterTwin, command: str, tell: str, *, exit_code: int, said: str | None
) -> None:
    mailmend, declare, _ = shell
    note = mailmend.home / "note"
    declare(
        f"[jobs.nightly]\ncommand = '{command}'\nschedule = '30 1 * * *'\ntell = '{tell}'\n"
        f"tell_command = \"sh -c 'test -z $MAILMEND_PASSWORD && cat > {note}'\"\n"
    )

    ended = mailmend("jobs", "run", "nightly", MAILMEND_PASSWORD="secret")

    assert ended.code == exit_code, ended.err
    if said is None:
        assert not note.exists()
        return
    message = json.loads(note.read_text())
    assert message["text"] == f"mailmend: job nightly of keyspace mail {said}"
    assert (message["exit_code"], message["command"], message["keyspace"]) == (exit_code, command, "mail")
    assert message["runbook"] == ("scheduled-repair-failed" if exit_code else None)
    assert message["run"] == mailmend("jobs", "history", "--json").json["runs"][0]["run"]


def test_a_run_that_could_not_begin_is_sent_too(
    mailmend: CommandLine, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = mailmend.home / "note"
    declare(f"{NIGHTLY}tell_command = \"sh -c 'cat > {note}'\"\n")
    monkeypatch.setattr(session, "connect", unreachable)

    assert mailmend("jobs", "run", "nightly-repair", "--scheduled").code == 4
    assert json.loads(note.read_text())["text"].endswith("could not begin: no node answered")


def test_a_message_that_did_not_arrive_is_reported_and_changes_nothing(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(f'{NIGHTLY}tell = "always"\ntell_command = "/nowhere"\ntell_webhook = "http://127.0.0.1:1/secret"\n')

    ended = mailmend("jobs", "run", "nightly-repair")

    assert ended.code == 0
    assert "A message did not arrive: tell_command cannot be run: No such file or directory." in ended.err
    assert "A message did not arrive: tell_webhook at 127.0.0.1 does not answer" in ended.err
    assert "secret" not in ended.err
