"""Jobs on a real Cassandra, each a process of its own, begun by the very line of its systemd unit."""

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest

from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, emptied, shell_on
from tests.support.metrics import Scraped
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

SECONDS_MAX = 120
JOB = """
{connection}
[jobs.nightly-repair]
command = "{command} --no-writers --delay {delay}"
schedule = "0 0 1 1 *"
missed = "run"
longest = "{longest}"
metrics_file = "{file}"
"""


@pytest.fixture
def mail(shared_mail: MailKeyspace) -> MailKeyspace:
    mail = emptied(shared_mail)
    mail.refill()
    mail.lose_projection(mail.truths[0])
    return mail


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


REPAIR = "repair messages --engine local"


class Begin(Protocol):
    """Begins the job as systemd does, with this delay and longest duration."""

    def __call__(self, delay: str, longest: str, command: str = REPAIR) -> "subprocess.Popen[str]": ...


@pytest.fixture
def begin(mailmend: CommandLine) -> Iterator[Begin]:
    begun: list[subprocess.Popen[str]] = []

    def start(delay: str, longest: str, command: str = REPAIR) -> "subprocess.Popen[str]":
        wanted = ("HOST", "PORT", "KEYSPACE", "LEDGER_KEYSPACE")
        given = {
            name: mailmend.environment[f"MAILMEND_{name}"]
            for name in wanted
            if f"MAILMEND_{name}" in mailmend.environment
        }
        connection = "\n".join(f'{name.lower()} = "{value}"' for name, value in given.items())
        settings = mailmend.home / "config.toml"
        settings.write_text(
            JOB.format(
                connection=connection, delay=delay, longest=longest, command=command, file=mailmend.home / "job.prom"
            )
        )
        unit = mailmend("jobs", "install", "--systemd", "--config", str(settings)).out
        (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        environment = {"HOME": str(mailmend.home), "XDG_DATA_HOME": str(mailmend.home)}
        process = subprocess.Popen(shlex.split(line), env=environment, cwd="/", text=True, stdout=-1, stderr=-1)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_a_unit_mends_what_the_command_mends_and_its_run_is_kept(
    mailmend: CommandLine, mail: MailKeyspace, begin: Begin
) -> None:
    process = begin("0s", "10m")

    _, err = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 0, err
    assert mail.mirror(mail.truths[0]) is not None
    (run,) = mailmend("jobs", "history", "nightly-repair", "--json").json["runs"]
    assert (run["state"], run["exit_code"]) == ("DONE", 0)
    (repair,) = mailmend("runs", "list", "--json").json["runs"]
    assert (run["repairs"], repair["options"]["job"]) == ([repair["run"]], "nightly-repair")
    scraped = Scraped.of(mailmend.home / "job.prom")
    assert scraped.by("mailmend_run_fixed", "job_name", "verdict") == {("nightly-repair", "PROJECT"): 1}


def test_a_second_run_is_refused_by_the_lease_and_the_first_is_ended_when_its_time_is_over(
    mailmend: CommandLine, mail: MailKeyspace, begin: Begin
) -> None:
    first = begin("10m", "12s")
    while '"RUNNING"' not in (listed := mailmend("runs", "list", "--json")).out:
        assert listed.code == 0, f"while a node makes the ledger's tables: {listed.err}"
        assert first.poll() is None, first.communicate()
        time.sleep(0.5)
    second = begin("10m", "12s")

    (_, refused), (_, ended) = second.communicate(timeout=SECONDS_MAX), first.communicate(timeout=SECONDS_MAX)

    assert (second.returncode, "job nightly-repair for repair messages" in refused) == (3, True), refused
    assert (first.returncode, "its longest duration was over" in ended, "Traceback" in ended) == (130, True, False), (
        ended
    )
    assert mail.mirror(mail.truths[0]) is None, "nothing was mended yet"
    runs = mailmend("jobs", "history", "nightly-repair", "--json").json["runs"]
    assert [run["state"] for run in runs] == ["INTERRUPTED"]
    assert [run["state"] for run in mailmend("runs", "list", "--json").json["runs"]] == ["INTERRUPTED"]
    assert Scraped.of(mailmend.home / "job.prom").one("mailmend_run_exit_code") == 130


@pytest.mark.thorough
def test_a_staged_check_whose_time_ends_in_mid_segment_is_complete_after_a_few_windows(
    mailmend: CommandLine, mail: MailKeyspace, begin: Begin
) -> None:
    """Each run ends in good order when its time is over, and the next one goes on with what stands."""
    mail.refill(150)
    mail.lose_projection(mail.truths[0])
    place = mailmend.home / "staged"
    command = f"check messages --json --engine local --pace full --rows-per-second 15 --staging {place}"
    process, stood = begin("0s", "15s", command), [0]
    environment = {"HOME": str(mailmend.home), "XDG_DATA_HOME": str(mailmend.home)}
    again = ["--anyway" if word == "--scheduled" else word for word in cast("list[str]", process.args)]
    out, err = process.communicate(timeout=SECONDS_MAX)
    while process.returncode == 130 and len(stood) < 12:
        assert "run the same command to continue" in err, err
        stood.append(len(list(place.glob("*.parquet"))))
        process = subprocess.Popen(again, env=environment, cwd="/", text=True, stdout=-1, stderr=-1)
        out, err = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 1, err
    document = json.loads(out)
    assert document["findings"] == {"messageIdTable": {"PROJECT": 1}}
    assert (len(stood) > 2, document["staging"]["kept"], stood) == (True, stood[-1], sorted(stood))
    runs = mailmend("jobs", "history", "nightly-repair", "--json").json["runs"]
    assert [run["state"] for run in runs] == ["DONE", *["INTERRUPTED"] * (len(stood) - 1)]


@pytest.mark.parametrize(
    ("engine", "seconds"),
    [("local", 100), pytest.param("spark", 120, marks=[pytest.mark.thorough, pytest.mark.spark])],
)
def test_a_limit_that_is_set_reaches_a_running_check_within_seconds(
    mailmend: CommandLine, mail: MailKeyspace, begin: Begin, *, engine: str, seconds: float
) -> None:
    """At a row a second, as it was declared, the check would take more than five minutes.

    The patience is far below that and far above what a busy machine takes for the rest.
    """
    mail.refill(100)
    process = begin("0s", "10m", f"check messages --json --engine {engine} --rows-per-second 1")
    if engine == "spark":
        assert process.stderr is not None
        assert next(line for line in process.stderr if line.startswith("scan: ")), "its tasks read"
    while (set_now := mailmend("jobs", "set", "nightly-repair", "--rows-per-second", "50000", "--json")).code:
        assert process.poll() is None, process.communicate()
        assert "no job 'nightly-repair' runs" in set_now.err
        time.sleep(0.5)
    out, err = process.communicate(timeout=seconds)

    assert process.returncode == 0, err
    result = json.loads(out)
    assert (result["run"], result["pace"]["limit"]) == (None, 50_000), "a check writes nothing"
    assert set_now.json["before"]["rows_per_second"] == 1


@pytest.mark.thorough
def test_a_pause_ends_a_run_while_it_mends_and_the_next_one_mends_the_rest(
    mailmend: CommandLine, mail: MailKeyspace, begin: Begin
) -> None:
    """In good order: true sums, no lease left behind; the sums of both runs are all that was wrong."""
    mail.refill(100)
    for truth in mail.truths:
        mail.lose_projection(truth)
    process = begin("0s", "10m", f"{REPAIR} --json --rows-per-second 60")
    settings = {"MAILMEND_CONFIG": str(mailmend.home / "config.toml")}
    while not _mended(mail):
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)

    paused = mailmend("jobs", "pause", "nightly-repair", "--now", "--reason", "disks", "--json", **settings)
    _, err = process.communicate(timeout=20)

    assert (process.returncode, "its job was paused" in err, "Traceback" in err) == (130, True, False), err
    in_fact = _mended(mail)
    (run,) = mailmend("jobs", "history", "nightly-repair", "--json", **settings).json["runs"]
    assert (run["run"], run["state"], run["reason"]) == (paused.json["ended"], "INTERRUPTED", "its job was paused")
    (repair,) = mailmend("runs", "list", "--json").json["runs"]
    assert (repair["state"], repair["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": in_fact})
    assert 0 < in_fact < len(mail.truths)
    refused = mailmend("jobs", "run", "nightly-repair", **settings)
    assert (refused.code, ": disks" in refused.err) == (2, True), refused.err

    assert mailmend("jobs", "resume", "nightly-repair", **settings).code == 0
    again = ["--anyway" if word == "--scheduled" else word for word in cast("list[str]", process.args)]
    environment = {"HOME": str(mailmend.home), "XDG_DATA_HOME": str(mailmend.home)}
    ended = subprocess.run(again, env=environment, cwd="/", text=True, capture_output=True, check=False)
    assert (ended.returncode, json.loads(ended.stdout)["fixed"]) == (0, {"PROJECT": len(mail.truths) - in_fact})
    states = mailmend("jobs", "history", "nightly-repair", "--json", **settings).json["runs"]
    assert [one["state"] for one in states] == ["DONE", "INTERRUPTED"]


def _mended(mail: MailKeyspace) -> int:
    return sum(mail.mirror(truth) is not None for truth in mail.truths)
