"""mailmend jobs as a person and a scheduler type it, against a cluster in memory and a clock that is turned by hand."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from admin.jobs.declaration import FIELDS
from cql.driver import session
from model.errors import CannotReach
from repair.ledger.leases import TTL_SECONDS, Leases
from repair.scanners.local import LocalEngine
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace

NIGHTLY = """
[jobs.nightly-repair]
command = "repair messages --engine local --delay 0"
schedule = "30 1 * * *"
time_zone = "Europe/Berlin"
window = "01:00-05:30"
longest = "4h"
max_fixes = 100000
"""
NIGHT = datetime(2026, 9, 1, 23, 30, tzinfo=UTC)  # 01:30 in Berlin
NOON = datetime(2026, 9, 2, 12, tzinfo=UTC)

Declare = Callable[[str], None]


@pytest.fixture
def declare(mailmend: CommandLine) -> Declare:
    def write(text: str) -> None:
        folder = mailmend.home / "config" / "mailmend"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    return write


Shell = tuple[CommandLine, Declare, ClusterTwin]


@pytest.fixture
def shell(mailmend: CommandLine, declare: Declare, cluster: ClusterTwin) -> Shell:
    return mailmend, declare, cluster


@pytest.fixture
def night(cluster: ClusterTwin, mail: MailKeyspace) -> ClusterTwin:
    cluster.clock.turn_to(NIGHT)
    return cluster


def only(ended: Ended) -> dict[str, Any]:
    (job,) = ended.json["jobs"]
    assert isinstance(job, dict)
    return job


# Declarations

CHECK = 'command = "check"\nschedule = "0 1 * * *"\n'


@pytest.mark.parametrize(
    ("declared", "line", "said", "mend"),
    [
        ('command = "check"', 1, "has no schedule", 'schedule = "30 2 * * *"'),
        ('schedule = "0 1 * * *"', 1, "has no command", 'command = "repair messages"'),
        ('command = "check"\nschedule = "@daily"', 3, "has 1 fields", "five fields"),
        ('command = "check"\nschedule = 5', 3, "schedule is not a text", 'schedule = "30 2 * * *"'),
        ('command = "check"\nschedul = "0 1 * * *"', 3, "'schedul' is not a field", "Did you mean 'schedule'?"),
        (
            'command = "undo X"\nschedule = "0 1 * * *"',
            2,
            "not a command that a job can have",
            "begins with one of: check",
        ),
        ('command = "mailmend check"\nschedule = "0 1 * * *"', 2, "not a command that", "begins with one of: check"),
        ('command = "check \'x"\nschedule = "0 1 * * *"', 2, "cannot be read", "Close each quote"),
        ('command = "check \'a\\nb\'"\nschedule = "0 1 * * *"', 2, "a line break within quotes", "Leave it out"),
        ('command = "check --config x"\nschedule = "0 1 * * *"', 2, "--config does not go", "mailmend jobs"),
        ('command = "check --wrong"\nschedule = "0 1 * * *"', 2, "No such option", "mailmend check --help"),
        ('command = "check --delay soon"\nschedule = "0 1 * * *"', 2, "is not a duration", "mailmend check --help"),
        ('command = "repair messages x"\nschedule = "0 1 * * *"', 2, "unexpected extra argument", "messages --help"),
        (CHECK + "max_fixes = 5", 4, "No such option '--max-fixes'", "check --help"),
        (CHECK + 'max_fixes = "5"', 4, "max_fixes is not a number", "max_fixes = 10000"),
        (CHECK + "rows_per_second = 0", 4, "not a number from 1", "rows_per_second ="),
        (CHECK + 'time_zone = "Berlin"', 4, "is not a time zone", "Europe/Berlin"),
        (CHECK + 'time_zone = "../UTC"', 4, "is not a time zone", "UTC"),
        (CHECK + 'time_zone = "Europe"', 4, "is not a time zone", "Europe"),
        (CHECK + 'window = "1-5"', 4, "'1-5' is not a window", "22:00-06:00"),
        (CHECK + 'window = "01:00-01:00"', 4, "is empty", "Leave it out"),
        (
            'command = "check"\nschedule = "0 9 * * *"\nwindow = "01:00-05:00"',
            4,
            "it would never run",
            "Begin the window",
        ),
        (CHECK + 'longest = "8d"', 4, "longer than 7d", ""),
        (CHECK + "jitter = true", 4, "jitter is not a duration", 'jitter = "90m"'),
        (CHECK + 'missed = "later"', 4, "what a missed run means", 'missed = "skip"'),
        (
            'command = "queue sweep --broker amqp://a:hidden@b"\nschedule = "0 1 * * *"',
            2,
            "there is a password in the command",
            "[queue]",
        ),
        (CHECK + 'tell = "me"', 4, "after which runs", 'tell = "trouble"'),
        (CHECK + 'tell_command = ""', 4, "tell_command is empty", "Leave it out"),
        (CHECK + 'tell_webhook = "ftp://a"', 4, "can be posted to", "https://"),
        (CHECK + 'tell_webhook = "https://a:b@c"', 4, "can be posted to", "without user"),
    ],
)
@pytest.mark.parametrize("command", [["list"], ["run", "good"]])
def test_a_wrong_declaration_is_refused_by_its_line_and_nothing_runs(
    shell: Shell, command: list[str], declared: str, line: int, *, said: str, mend: str
) -> None:
    mailmend, declare, cluster = shell
    good = '[jobs.good]\ncommand = "check --engine local --delay 0"\nschedule = "30 2 * * *"\n'
    declare(f"[jobs.bad]\n{declared}\n{good}")

    ended = mailmend("jobs", *command)

    assert ended.code == 2
    assert re.search(rf"config\.toml, line {line}: job 'bad': .*{re.escape(said)}", ended.err), ended.err
    assert mend in ended.err
    assert "hidden" not in ended.err
    assert ended.out == ""
    assert "mailmend" not in cluster.keyspaces


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[jobs]\ntime_zone = 'UTC'", 2, "is a value, not a job"),
        ("[jobs.Nightly]\ncommand = 'check'", 1, "is no name of a job"),
        ("[jobs.list]\nschedule = '5'", 2, "'schedule' is not a setting of `list`"),
    ],
)
def test_what_is_no_job_is_refused(mailmend: CommandLine, declare: Declare, text: str, line: int, said: str) -> None:
    declare(text)

    ended = mailmend("jobs", "list")

    assert (ended.code, f"line {line}: " in ended.err, said in ended.err) == (2, True, True), ended.err


def test_a_job_that_is_not_declared_is_refused_with_those_that_are(mailmend: CommandLine, declare: Declare) -> None:
    assert "How to declare one: mailmend jobs --help" in mailmend("jobs", "show", "nightly").err
    declare(NIGHTLY)

    ended = mailmend("jobs", "show", "nightly")

    assert (ended.code, ended.err) == (2, "mailmend: no job 'nightly' is declared\nDeclared are: nightly-repair.\n")


def test_a_profile_may_have_jobs_of_its_own(mailmend: CommandLine, declare: Declare) -> None:
    declare(f"{NIGHTLY}\n[profiles.test.jobs.nightly-repair]\nlongest = '1h'\n[profiles.bad.jobs.other]\nwindow = '1'")

    job, bad = (
        only(mailmend("jobs", "list", "--json", "--profile", "test")),
        mailmend("jobs", "list", "--profile", "bad"),
    )

    assert (job["longest_seconds"], job["window"]) == (3600, "01:00-05:30")
    assert "line 12: job 'other': has no command" in bad.err


def test_other_commands_do_not_mind_jobs(mailmend: CommandLine, declare: Declare) -> None:
    declare(NIGHTLY.replace("30 1", "wrong"))

    assert mailmend("check", "--engine", "local", "--delay", "0").code == 0


# What is to come


def test_a_list_tells_the_next_runs_the_window_and_the_state(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(NIGHTLY)

    job, text = only(mailmend("jobs", "list", "--json")), mailmend("jobs", "list").out

    assert [turn["due_at"][:16] for turn in job["next"]] == ["2026-09-02T23:30", "2026-09-03T23:30", "2026-09-04T23:30"]
    assert (job["window"], job["window_open"], job["window_changes_at"][:16]) == (
        "01:00-05:30",
        True,
        "2026-09-02T03:30",
    )
    assert (job["state"], job["last"]) == ("WAITING", None)
    assert "2026-09-03 01:30 CEST" in text
    assert "mailmend" not in night.keyspaces, "nothing is created by looking"


def test_without_a_cluster_the_schedule_is_told_all_the_same(
    mailmend: CommandLine, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise CannotReach("no node answered")

    declare(NIGHTLY)
    monkeypatch.setattr(session, "connect", refused)

    ended = mailmend("jobs", "list", "--json")

    assert (ended.code, only(ended)["state"], len(only(ended)["next"])) == (4, "UNKNOWN", 3)
    assert ended.json["unread"] == "no node answered"


def test_a_run_that_did_not_begin_is_told(mailmend: CommandLine, declare: Declare, night: ClusterTwin) -> None:
    declare(NIGHTLY)
    mailmend("jobs", "run", "nightly-repair")
    assert only(mailmend("jobs", "list", "--json"))["state"] == "WAITING"

    night.clock.turn_to(NOON.replace(day=3))

    job = only(mailmend("jobs", "list", "--json"))
    assert (job["state"], job["missed_at"][:16]) == ("MISSED", "2026-09-02T23:30")
    assert "did not run at 2026-09-03 01:30 CEST" in mailmend("jobs", "list").out


# Runs


def test_a_run_does_what_its_command_does_and_is_kept(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin, mail: MailKeyspace
) -> None:
    declare(NIGHTLY)

    ended = mailmend("jobs", "run", "nightly_repair")

    assert ended.code == 0, ended.err
    assert "What became of them" in ended.out
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert (run["job"], run["state"], run["exit_code"]) == ("nightly-repair", "DONE", 0)
    assert run["command"] == "repair messages --engine local --delay 0 --max-fixes 100000"
    assert run["ends_by"][:16] == "2026-09-02T03:30", "with its window"
    (repair,) = run["repairs"]
    assert mailmend("runs", "show", repair, "--json").json["options"]["job"] == "nightly-repair"
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
    declare(NIGHTLY.replace("--delay 0", "--delay 0 --dangling restore"))

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


@pytest.mark.parametrize(
    "command",
    [
        "check all --engine spark --master spark://spark1:7077",
        "repair messages --dangling report --only project,amend --no-writers",
        "repair lags --without threadid",
        "repair queues --marks old --marks-age 30d",
        "repair blobs --blobs s3://mail --oldest-message 7d",
        "queue sweep outgoing --move-only",
    ],
)
def test_commands_with_their_options_are_jobs(mailmend: CommandLine, declare: Declare, command: str) -> None:
    declare(f'[jobs.one]\ncommand = """{command}"""\nschedule = "5 * * * *"\n')

    assert only(mailmend("jobs", "list", "--json"))["command"] == command.split()


def test_whoever_finds_the_lease_taken_is_told_the_job(
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

    ended = mailmend("jobs", "run", "nightly-repair")

    assert (ended.code, reason in ended.err) == (130, True), ended.err
    assert TurnedTimer.made[0].seconds == seconds
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert (run["state"], run["reason"]) == ("INTERRUPTED", reason)
    assert [one["state"] for one in mailmend("runs", "list", "--json").json["runs"]] == ["INTERRUPTED"]


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
        patched.setattr("repair.ledger.jobs.JobRuns.finish", lambda *_: None)
        mailmend("jobs", "run", "nightly-repair")
    assert only(mailmend("jobs", "list", "--json"))["state"] == "RUNNING"

    night.clock.turn_to(NOON)

    job = only(mailmend("jobs", "list", "--json"))
    assert (job["state"], job["last"]["state"]) == ("WAITING", "INTERRUPTED")
    assert "its end was not recorded" in job["last"]["reason"]


# Windows, pauses, schedulers


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
    told = only(mailmend("jobs", "list", "--json"))["next"][0]
    night.clock.turn_to(datetime.fromisoformat(told["due_at"]))

    mailmend("jobs", "run", "nightly-repair", "--scheduled")

    assert told["due_at"] < told["start_at"]
    (run,) = mailmend("jobs", "history", "--json").json["runs"]
    assert run["started_at"] == told["start_at"]


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
    def refused(*_: object) -> None:
        raise CannotReach("no node answered")

    declare(NIGHTLY)
    monkeypatch.setattr("repair.ledger.jobs.JobRuns.finish", refused)

    ended = mailmend("jobs", "run", "nightly-repair")

    assert (ended.code, "could not be recorded: no node answered" in ended.err) == (0, True)


@pytest.mark.parametrize(
    ("command", "tell", "exit_code", "said"),
    [
        ("check --engine local --delay 0", "trouble", 0, None),
        ("check --engine local --delay 0", "always", 0, "ended DONE (exit 0)"),
        ("repair messages --engine local --dangling restore", "trouble", 2, "ended FAILED (exit 2)"),
    ],
)
def test_a_command_is_told_how_a_run_ended(
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


def test_a_run_that_could_not_begin_is_told_of(
    mailmend: CommandLine, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise CannotReach("no node answered")

    note = mailmend.home / "note"
    declare(f"{NIGHTLY}tell_command = \"sh -c 'cat > {note}'\"\n")
    monkeypatch.setattr(session, "connect", refused)

    assert mailmend("jobs", "run", "nightly-repair", "--scheduled").code == 4
    assert json.loads(note.read_text())["text"].endswith("could not begin: no node answered")


def test_who_could_not_be_told_is_said_and_changes_nothing(
    mailmend: CommandLine, declare: Declare, night: ClusterTwin
) -> None:
    declare(f'{NIGHTLY}tell = "always"\ntell_command = "/nowhere"\ntell_webhook = "http://127.0.0.1:1/secret"\n')

    ended = mailmend("jobs", "run", "nightly-repair")

    assert ended.code == 0
    assert "Somebody was not told: tell_command cannot be run: No such file or directory." in ended.err
    assert "Somebody was not told: tell_webhook at 127.0.0.1 does not answer" in ended.err
    assert "secret" not in ended.err


def test_the_readme_shows_a_whole_example(mailmend: CommandLine, declare: Declare) -> None:
    readme = (Path(__file__).parents[4] / "README.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    declare(example)

    ended = mailmend("jobs", "list", "--json")

    assert ended.code == 0, ended.err
    assert set(FIELDS) == set(re.findall(r"^(\w+) =", example, re.MULTILINE)), "every field is shown"
