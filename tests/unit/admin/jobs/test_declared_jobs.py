"""Jobs as the settings file declares them: what is listed of them, and what is refused by its line."""

import re

import pytest

from mailmend.admin.jobs.declaration import FIELDS
from mailmend.cql.driver import session
from tests.support.checkout import CHECKOUT
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.jobs import NIGHTLY, NOON, Declare, Shell, only, unreachable

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
        (
            'command = "repair messages --dangling restore"\nschedule = "0 1 * * *"',
            2,
            "--dangling restore asks before it does anything",
            "Write --yes into the command too; or --plan FILE",
        ),
        (
            'command = "repair queues --garbagecollect"\nschedule = "0 1 * * *"',
            2,
            "--garbagecollect asks before it does anything",
            "Write --yes",
        ),
        (CHECK + 'tell = "me"', 4, "after which runs", 'tell = "trouble"'),
        (CHECK + 'tell_command = ""', 4, "tell_command is empty", "Leave it out"),
        (CHECK + 'tell_webhook = "ftp://a"', 4, "can be posted to", "https://"),
        (CHECK + 'tell_webhook = "https://a..b"', 4, "can be posted to", "https://"),
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


def test_a_job_with_the_name_of_a_command_is_refused_by_its_line(mailmend: CommandLine, declare: Declare) -> None:
    """It was taken for options of that command, and never ran."""
    declare(f"{NIGHTLY}\n[jobs.list]\n{CHECK}")

    ended = mailmend("jobs", "show", "nightly-repair")

    assert (ended.code, "[jobs.list] has the options of `mailmend jobs list`" in ended.err) == (2, True), ended.err
    assert "Name the job otherwise: [jobs.my-list]" in ended.err
    assert re.search(r"config\.toml, line \d+: job 'list'", ended.err)


@pytest.mark.parametrize(
    ("settings", "option", "command"),
    [
        ("[repair.messages]\ndangling = 'restore'\nyes = true", "--dangling restore", "repair messages"),
        ("[repair.messages]\norphans = 'quarantine'", "--orphans quarantine", "repair messages"),
        ("[repair.messages]\nleaks = 'collect'", "--leaks collect", "repair messages"),
        ("[repair.queues]\nmarks = 'empty'", "--marks empty", "repair queues"),
    ],
)
def test_what_destroys_is_named_in_the_jobs_own_command(
    mailmend: CommandLine, declare: Declare, settings: str, option: str, command: str
) -> None:
    job = '[jobs.bad]\ncommand = "{}"\nschedule = "0 1 * * *"\n'
    declare(f"{job.format(command)}{settings}")

    ended = mailmend("jobs", "list")

    assert (ended.code, f"line 2: job 'bad': {option} is set in the settings" in ended.err) == (2, True), ended.err
    assert f"write {option} into the command" in ended.err
    for named in (f"{command} {option} --yes", f"{command} --dry-run"):
        declare(f"{job.format(named)}{settings}")
        assert mailmend("jobs", "list").code == 0


@pytest.mark.parametrize("option", ["orphans = 'quarantine'", "leaks = 'collect'"])
def test_what_removes_rows_of_declared_tables_is_named_in_the_jobs_own_command(
    mailmend: CommandLine, declare: Declare, option: str
) -> None:
    command = "repair tables --projections /etc/mailmend/shop.toml"
    job = '[jobs.bad]\ncommand = "{}"\nschedule = "0 1 * * *"\n[repair.tables]\n{}'
    name, _, value = option.partition(" = ")
    named = f"--{name} {value.strip(chr(39))}"
    declare(job.format(command, option))

    refused = mailmend("jobs", "list")

    assert (refused.code, f"job 'bad': {named} is set in the settings" in refused.err) == (2, True), refused.err
    declare(job.format(f"{command} {named}", option))
    assert mailmend("jobs", "list").code == 0


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
    assert "line 13: job 'other': has no command" in bad.err


def test_other_commands_do_not_mind_jobs(mailmend: CommandLine, declare: Declare) -> None:
    declare(NIGHTLY.replace("30 1", "wrong"))

    assert mailmend("check", "--engine", "local", "--delay", "0").code == 0


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


def test_without_a_cluster_the_schedule_is_reported_all_the_same(
    mailmend: CommandLine, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(NIGHTLY)
    monkeypatch.setattr(session, "connect", unreachable)

    ended = mailmend("jobs", "list", "--json")

    assert (ended.code, only(ended)["state"], len(only(ended)["next"])) == (4, "UNKNOWN", 3)
    assert ended.json["unread"] == "no node answered"


def test_a_run_that_did_not_begin_is_reported(mailmend: CommandLine, declare: Declare, night: ClusterTwin) -> None:
    declare(NIGHTLY)
    mailmend("jobs", "run", "nightly-repair")
    assert only(mailmend("jobs", "list", "--json"))["state"] == "WAITING"

    night.clock.turn_to(NOON.replace(day=3))

    job = only(mailmend("jobs", "list", "--json"))
    assert (job["state"], job["missed_at"][:16]) == ("MISSED", "2026-09-02T23:30")
    assert "did not run at 2026-09-03 01:30 CEST" in mailmend("jobs", "list").out


@pytest.mark.parametrize(
    "command",
    [
        "check all --engine spark --master spark://spark1:7077",
        "repair messages --dangling report --only project,amend --no-writers",
        "repair lags --without threadid",
        "repair queues --marks old --marks-age 30d --plan queues.jsonl",
        "repair blobs --blobs s3://mail --oldest-message 7d --plan blobs.jsonl",
        "queue sweep outgoing --move-only",
    ],
)
def test_commands_with_their_options_are_jobs(mailmend: CommandLine, declare: Declare, command: str) -> None:
    declare(f'[jobs.one]\ncommand = """{command}"""\nschedule = "5 * * * *"\n')

    assert only(mailmend("jobs", "list", "--json"))["command"] == command.split()


def test_the_page_of_jobs_shows_a_whole_example(mailmend: CommandLine, declare: Declare) -> None:
    page = (CHECKOUT / "docs" / "how-to" / "schedule-jobs.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    declare(example)

    ended = mailmend("jobs", "list", "--json")

    assert ended.code == 0, ended.err
    assert set(FIELDS) == set(re.findall(r"^(\w+) =", example, re.MULTILINE)), "every field is shown"
