"""What other schedulers are given to run jobs, judged by themselves where they can be had: systemd, Kubernetes."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import kubernetes_validate
import pytest
import yaml

from mailmend.admin.jobs.cron import parse_cron
from mailmend.admin.jobs.declaration import Job, job_of
from mailmend.admin.jobs.install import IMAGE, SPARK_IMAGE, airflow_dags, crontab, kubernetes_cronjobs
from mailmend.admin.jobs.systemd import on_calendar, server_units, systemd_units
from mailmend.admin.jobs.units import STOP_SECONDS, UnitPlace, limit_seconds, server_command
from mailmend.admin.main import mailmend as mailmend_group
from mailmend.model.errors import WrongUse
from mailmend.repair.ledger.jobs import ENDING
from tests.support.commands import CommandLine, command_line
from tests.support.servers import unavailable

NIGHTLY = job_of(
    "nightly-repair",
    {
        "command": "repair messages --engine local --user 'a \"b\" 100%'",
        "schedule": "30 1 * * mon-fri",
        "time_zone": "Europe/Berlin",
        "jitter": "10m",
        "window": "01:00-05:30",
        "longest": "4h",
        "missed": "run",
        "max_fixes": 100000,
    },
)
CHECK = job_of("check", {"command": "check", "schedule": "*/15 * 1,15 * 5"})
PLACE = UnitPlace(
    program=(sys.executable, "-m", "mailmend"), settings='/etc/mail mend/$x 100% "quoted".toml', profile="night"
)
WORDS = PLACE.words(NIGHTLY)


@pytest.fixture(scope="module")
def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    return found or unavailable("systemd-analyze is not installed")


def asked(*words: str) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_a_unit_starts_the_job_as_a_scheduler_does() -> None:
    assert WORDS[3:] == [
        *("jobs", "run", "nightly-repair", "--scheduled", "--config", PLACE.settings, "--profile", "night")
    ]  # fmt: skip
    assert limit_seconds(NIGHTLY) == 4 * 3600 + 600 + 300, "a scheduler ends it later than it would end by itself"


# systemd


def test_systemd_finds_nothing_wrong_with_its_units(systemd_analyze: str, tmp_path: Path) -> None:
    files = systemd_units([NIGHTLY, CHECK], PLACE)
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    reported = asked(systemd_analyze, "verify", "--man=no", *(str(tmp_path / name) for name in files))

    assert "mailmend" not in reported
    assert len(files) == 4


def test_a_unit_is_as_locked_up_as_systemd_would_have_it(systemd_analyze: str, tmp_path: Path) -> None:
    (tmp_path / "mailmend-check.service").write_text(systemd_units([CHECK], PLACE)["mailmend-check.service"])

    asked(systemd_analyze, "security", "--offline=true", "--threshold=25", str(tmp_path / "mailmend-check.service"))


def test_a_service_has_its_time_and_says_how_it_is_ended() -> None:
    service = systemd_units([NIGHTLY], PLACE)["mailmend-nightly-repair.service"]

    for line in ("Type=oneshot", "TimeoutStartSec=15300", "KillMode=mixed", "SuccessExitStatus=130", "User=mailmend"):
        assert f"\n{line}\n" in service
    (start,) = re.findall(r"^ExecStart=(.*)$", service, re.MULTILINE)
    assert shlex.split(start.replace("%%", "%").replace("$$", "$")) == WORDS


def test_a_service_may_write_its_metrics(systemd_analyze: str, tmp_path: Path) -> None:
    job = replace(CHECK, metrics_file="/var/lib/node exporter/check.prom")
    text = systemd_units([job], PLACE)["mailmend-check.service"]
    (tmp_path / "mailmend-check.service").write_text(text)

    assert 'ProtectSystem=strict\nReadWritePaths="-/var/lib/node exporter"\n' in text
    assert "mailmend" not in asked(systemd_analyze, "verify", "--man=no", str(tmp_path / "mailmend-check.service"))


@pytest.mark.parametrize(("job", "persistent"), [(NIGHTLY, "true"), (CHECK, "false")])
def test_a_timer_makes_up_for_what_was_missed_where_that_is_declared(job: Job, persistent: str) -> None:
    assert f"\nPersistent={persistent}\n" in systemd_units([job], PLACE)[f"mailmend-{job.name}.timer"]


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("30 2 * * *", "UTC"),
        ("*/20 1-3 * jan,jul mon-fri", "Europe/Berlin"),
        ("0 0 1,15 * FRI", "America/New_York"),
        ("5,35 */6 28-31 * *", "Australia/Lord_Howe"),
        ("30 2 * * *", "Europe/Berlin"),
        ("0 12 * 2 7", "Asia/Kolkata"),
    ],
)
def test_systemd_reads_a_schedule_as_it_is_meant(systemd_analyze: str, text: str, zone: str) -> None:
    at, cron = datetime(2026, 10, 20, tzinfo=UTC), parse_cron(text)  # clocks change five days later
    wanted = list(islice(cron.after(at, ZoneInfo(zone)), 8))

    lines = [
        asked(systemd_analyze, "calendar", "--iterations=8", f"--base-time={at:%Y-%m-%d %H:%M:%S} UTC", line)
        for line in on_calendar(cron, zone)
    ]

    found = {datetime.fromisoformat(f"{one}+00:00") for reported in lines for one in _elapses(reported)}
    assert sorted(found)[:8] == wanted


def _elapses(expected: str) -> Iterator[str]:
    marks = r"(?:Next elapse|\(in UTC\)|Iter\. #\d+): "
    found = re.findall(marks + r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", expected)
    yield from found


# systemd's services for servers


SETTINGS_ONLY = UnitPlace(program=("/opt/mailmend/bin/mailmend",), settings="/etc/mailmend/config.toml")
SERVER_COMMANDS = (
    ("jobs serve --listen 127.0.0.1:8000", "mailmend-jobs-serve"),
    ("delivery serve outgoing --server out1 --listen 10.0.0.5:25", "mailmend-delivery-serve-outgoing-out1"),
    ("queue tend --all --metrics-file /var/lib/metrics/tend.prom", "mailmend-queue-tend"),
)


def server_unit(text: str) -> str:
    with click.Context(mailmend_group) as context:
        (unit,) = server_units([server_command(text, context)], SETTINGS_ONLY).values()
    return unit


def test_systemd_finds_nothing_wrong_with_the_services_of_servers(systemd_analyze: str, tmp_path: Path) -> None:
    place = replace(SETTINGS_ONLY, program=PLACE.program)
    with click.Context(mailmend_group) as context:
        servers = [server_command(text, context) for text, _ in SERVER_COMMANDS]
    files = server_units(servers, place)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in files]

    reported = asked(systemd_analyze, "verify", "--man=no", *paths)

    assert list(files) == [f"{name}.service" for _, name in SERVER_COMMANDS]
    assert "mailmend" not in reported
    asked(systemd_analyze, "security", "--offline=true", "--threshold=25", *paths)


def test_a_server_starts_again_and_again_until_it_is_stopped() -> None:
    unit = server_unit("jobs serve --listen 127.0.0.1:8000")

    assert (
        "\nExecStart=/opt/mailmend/bin/mailmend jobs serve --listen 127.0.0.1:8000 --config /etc/mailmend/config.toml\n"
    ) in unit
    for line in ("Type=exec", "Restart=on-failure", "RestartSec=10", "StartLimitIntervalSec=0", "KillMode=mixed"):
        assert f"\n{line}\n" in unit
    assert "\nEnvironmentFile=-/etc/mailmend/environment\n" in unit
    assert "\n[Install]\nWantedBy=multi-user.target\n" in unit


def test_a_server_of_jobs_has_more_time_to_end_than_its_runs() -> None:
    assert ENDING.total_seconds() == STOP_SECONDS
    assert "\nTimeoutStopSec=330\n" in server_unit("jobs serve")


def test_only_a_server_that_hears_sighup_is_sent_it() -> None:
    reload = "\nExecReload=/bin/kill -HUP $MAINPID\n"

    assert [reload in server_unit(text) for text, _ in SERVER_COMMANDS] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("delivery serve outgoing --listen 10.0.0.5:25", "CAP_NET_BIND_SERVICE"),
        ("delivery serve outgoing --listen 10.0.0.5:1023", "CAP_NET_BIND_SERVICE"),
        ("delivery serve outgoing --listen 10.0.0.5:1024", ""),
        ("delivery serve outgoing --http 10.0.0.5:443", "CAP_NET_BIND_SERVICE"),
        ("jobs serve --listen [::1]:443", "CAP_NET_BIND_SERVICE"),
        ("jobs serve --listen 127.0.0.1:8000", ""),
        ("queue tend", ""),
    ],
)
def test_a_server_has_one_capability_where_its_port_needs_it_and_else_none(text: str, capability: str) -> None:
    unit = server_unit(text)

    assert f"\nCapabilityBoundingSet={capability}\n" in unit
    assert ("\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n" in unit) == bool(capability)


def test_a_server_may_write_its_metrics() -> None:
    assert "\nReadWritePaths=-/var/lib/metrics\n" in server_unit("queue tend --metrics-file /var/lib/metrics/t.prom")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("repair messages", "not a command that runs until it is stopped"),
        ("", "not a command that runs until it is stopped"),
        ("queue tend --once", "ends, and is not a server"),
        ("queue tend --dry-run", "ends, and is not a server"),
        ("delivery serve outgoing --broker amqp://ann:secret@broker.example.org", "there is a password in --service"),
        ("delivery serve 'out", "cannot be read"),
        ("delivery serve 'a\nb'", "a line break"),
        ("jobs serve --no-such", "No such option"),
        ("jobs serve --config /etc/other.toml", "--config does not go into --service"),
        ("jobs serve --profile=night", "--profile does not go into --service"),
    ],
)
def test_what_is_no_server_is_refused(text: str, what: str) -> None:
    with pytest.raises(WrongUse, match=re.escape(what)) as caught:
        server_unit(text)

    assert caught.value.mend
    assert "secret" not in str(caught.value)


# cron


def test_a_crontab_has_a_line_for_each_job_that_starts_it_within_its_time() -> None:
    (text,) = crontab([NIGHTLY, CHECK], PLACE).values()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]

    assert lines[0::2] == ["CRON_TZ=Europe/Berlin", "CRON_TZ=UTC"]
    for line, job in zip(lines[1::2], (NIGHTLY, CHECK), strict=True):
        *fields, command = line.split(" ", 5)
        assert parse_cron(" ".join(fields)).plain == job.schedule.plain
        assert not re.search(r"(?<!\\)%", command), "an unescaped % ends cron's command"
        limit = str(limit_seconds(job))
        assert shlex.split(command.replace("\\%", "%")) == ["timeout", "--kill-after=300", limit, *PLACE.words(job)]


# Kubernetes


@pytest.mark.parametrize("job", [NIGHTLY, CHECK], ids=lambda one: one.name)
@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_own_schema_takes_a_cronjob(job: Job, version: str) -> None:
    (text,) = kubernetes_cronjobs([job], PLACE).values()

    kubernetes_validate.validate(yaml.safe_load(text), version, strict=True)


def test_a_cronjob_never_runs_twice_at_once_and_has_a_deadline() -> None:
    found = yaml.safe_load(kubernetes_cronjobs([NIGHTLY], PLACE)["mailmend-nightly-repair.yaml"])["spec"]
    pod = found["jobTemplate"]["spec"]

    assert (found["schedule"], found["timeZone"]) == ("30 1 * * 1,2,3,4,5", "Europe/Berlin")
    assert (found["concurrencyPolicy"], pod["activeDeadlineSeconds"], pod["backoffLimit"]) == ("Forbid", 15300, 0)
    assert found["startingDeadlineSeconds"] == 8 * 3600, "a missed run runs"
    assert pod["template"]["spec"]["enableServiceLinks"] is False, "a Service `mailmend` would set MAILMEND_PORT"
    (container,) = pod["template"]["spec"]["containers"]
    folders = {variable["name"]: variable["value"] for variable in container["env"]}
    assert folders["XDG_CACHE_HOME"].startswith("/var/lib/mailmend/"), "jars are fetched there, and / is read-only"
    assert container["command"][:4] == ["mailmend", "jobs", "run", "nightly-repair"]


@pytest.mark.parametrize(
    ("command", "image"),
    [
        ("repair messages", IMAGE),
        ("repair messages --engine local", IMAGE),
        ("repair messages --engine spark", SPARK_IMAGE),
        ("check --engine=spark", SPARK_IMAGE),
        ("check --master 'local[4]'", SPARK_IMAGE),
    ],
)
def test_a_cronjob_has_the_image_of_this_version_with_java_where_spark_is_named(command: str, image: str) -> None:
    job = job_of("it", {"command": command, "schedule": "0 1 * * *"})

    (own,) = kubernetes_cronjobs([job], PLACE).values()
    (other,) = kubernetes_cronjobs([job], replace(PLACE, image="registry.example.org/mailmend:7")).values()

    assert f'\n              image: "{image}:{version("mailmend")}"\n' in own
    assert '\n              image: "registry.example.org/mailmend:7"\n' in other


# Airflow (imported by itself: tests/integration/admin/jobs/test_airflow.py)


def test_a_dag_runs_the_job_once_at_a_time_and_within_its_time() -> None:
    ((name, text),) = airflow_dags([NIGHTLY], PLACE).items()

    compile(text, name, "exec")

    assert name == "mailmend_nightly_repair.py"
    for line in ('dag_id="mailmend_nightly_repair"', "catchup=False", "max_active_runs=1", "retries=0"):
        assert f" {line},\n" in text
    assert 'CronTriggerTimetable("30 1 * * 1,2,3,4,5", timezone="Europe/Berlin")' in text
    assert "execution_timeout=timedelta(seconds=15300)" in text
    assert json.dumps("exec " + shlex.join(WORDS) + " ") in text


# The command


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    folder = tmp_path / "config" / "mailmend"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[jobs.check]\ncommand = "check"\nschedule = "5 * * * *"\n')
    return command_line(tmp_path)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("systemd", ["mailmend-check.service", "mailmend-check.timer"]),
        ("cron", ["mailmend.crontab"]),
        ("kubernetes", ["mailmend-check.yaml"]),
        ("airflow", ["mailmend_check.py"]),
    ],
)
def test_install_writes_the_files_or_shows_them(
    mailmend: CommandLine, tmp_path: Path, kind: str, names: list[str]
) -> None:
    there = tmp_path / "units"
    there.mkdir()

    shown, written = (
        mailmend("jobs", "install", f"--{kind}"),
        mailmend("jobs", "install", f"--{kind}", "--dir", str(there)),
    )

    assert (shown.code, written.code) == (0, 0), written.err
    assert sorted(one.name for one in there.iterdir()) == names
    for name in names:
        assert (there / name).read_text() in shown.out
        assert f"Written: {there / name}" in written.out
    assert str(tmp_path / "config" / "mailmend" / "config.toml") in shown.out or kind == "kubernetes"
    assert set(json.loads(mailmend("jobs", "install", f"--{kind}", "--json").out)["files"]) == set(names)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no scheduler is named\nName one: --systemd, --cron, --kubernetes, --airflow."),
        (["--cron", "other"], "no job 'other' is declared\nDeclared are: check."),
        (["--cron", "--dir", "/dev/null/units"], "the folder /dev/null/units cannot be made"),
        (["--cron", "--service", "jobs serve"], "--service is for --systemd, not for --cron"),
        (
            ["--systemd", "--service", "queue tend", "--service", "queue tend --all"],
            "have the name mailmend-queue-tend",
        ),
        (["--systemd", "--run-as", "a\nb"], "a line break"),
    ],
)
def test_what_cannot_be_installed_is_refused(mailmend: CommandLine, arguments: list[str], said: str) -> None:
    ended = mailmend("jobs", "install", *arguments)

    assert (ended.code, said in ended.err) == (2, True), ended.err


def test_servers_are_installed_alone_or_with_the_jobs_that_are_named(mailmend: CommandLine, tmp_path: Path) -> None:
    servers = ("--service", "jobs serve", "--service", "queue tend --all")

    alone = mailmend("jobs", "install", "--systemd", *servers, "--dir", str(tmp_path / "new" / "units"))
    together = mailmend("jobs", "install", "--systemd", "check", *servers, "--json")

    names = ["mailmend-jobs-serve.service", "mailmend-queue-tend.service"]
    assert sorted(file.name for file in (tmp_path / "new" / "units").iterdir()) == names
    assert f"systemctl enable --now {' '.join(names)}" in alone.out
    assert list(together.json["files"]) == ["mailmend-check.service", "mailmend-check.timer", *names]
    settings = tmp_path / "config" / "mailmend" / "config.toml"
    assert f"mailmend jobs serve --config {settings}\n" in together.json["files"]["mailmend-jobs-serve.service"]


def test_a_timer_is_enabled_and_not_its_service(mailmend: CommandLine, tmp_path: Path) -> None:
    ended = mailmend(
        "jobs", "install", "--systemd", "check", "--service", "queue tend", "--dir", str(tmp_path / "units")
    )

    assert "enable --now mailmend-check.timer mailmend-queue-tend.service" in ended.out


def test_a_server_needs_no_declared_job(tmp_path: Path) -> None:
    ended = command_line(tmp_path)("jobs", "install", "--systemd", "--service", "delivery serve outgoing", "--json")

    (text,) = ended.json["files"].values()
    assert text.count("-m mailmend delivery serve outgoing\n") == 1
