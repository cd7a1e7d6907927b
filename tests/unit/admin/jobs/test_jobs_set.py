"""mailmend jobs set: a run that is at work hears of new limits; what does not run is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mailmend.repair.ledger.leases import TTL_SECONDS
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.scanners.local import LocalEngine
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace

JOB = """
[jobs.nightly-repair]
command = "{command}"
schedule = "30 1 * * *"
"""
REPAIR = "repair messages --engine local --delay 0 --no-writers"
BY_HAND = ("repair", "messages", "--engine", "local", "--delay", "0", "--no-writers")


@pytest.fixture
def during_the_scan(monkeypatch: pytest.MonkeyPatch) -> "Arrange":
    def arrange(happening: Callable[[], object]) -> None:
        detect = LocalEngine.detect

        def detected(*given: Any) -> Any:
            happening()
            return detect(*given)

        monkeypatch.setattr(LocalEngine, "detect", detected)

    return arrange


Arrange = Callable[[Callable[[], object]], None]


def declared(mailmend: CommandLine, command: str = REPAIR) -> None:
    folder = mailmend.home / "config" / "mailmend"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(JOB.format(command=command))


@pytest.fixture
def drifted(mail: MailKeyspace, cluster: ClusterTwin) -> None:
    mail.refill(40)
    for truth in mail.truths[::2]:
        mail.lose_projection(truth)
    cluster.clock.advance(1)


def running(mailmend: CommandLine) -> str:
    (run,) = (one for one in mailmend("runs", "list", "--json").json["runs"] if one["state"] == "RUNNING")
    return str(run["run"])


@pytest.mark.usefixtures("drifted")
@pytest.mark.parametrize("named_by", ["job", "run"])
def test_the_run_of_a_job_hears_of_it_by_the_jobs_name_and_by_its_own_id(
    mailmend: CommandLine, during_the_scan: Arrange, named_by: str
) -> None:
    declared(mailmend, f"{REPAIR} --rows-per-second 5000")
    said: list[Ended] = []

    def slow_down() -> None:
        name = "nightly-repair" if named_by == "job" else running(mailmend)
        said.append(mailmend("jobs", "set", name, "--rows-per-second", "20", "--json"))

    during_the_scan(slow_down)

    assert mailmend("jobs", "run", "nightly-repair").code == 0

    document = said[0].json
    assert said[0].code == 0, said[0].err
    assert document["before"] == {"rows_per_second": 5000, "max_fixes": None}
    assert document["now"] == {"rows_per_second": 20, "max_fixes": None}
    assert 0 < document["heard_within_seconds"] <= 5
    (run,) = mailmend("runs", "list", "--json").json["runs"]
    assert (run["summary"]["pace"]["limit"], run["summary"]["pace"]["lowest"]) == (20, 20)
    assert run["summary"]["pace"]["set"][0]["by"]
    assert "limit 20" in mailmend("runs", "show", run["run"]).out


@pytest.mark.usefixtures("drifted")
def test_a_run_by_hand_hears_of_more_fixes_before_it_mends_anything(
    mailmend: CommandLine, during_the_scan: Arrange
) -> None:
    said: list[Ended] = []
    during_the_scan(lambda: said.append(mailmend("jobs", "set", running(mailmend), "--max-fixes", "100")))

    ended = mailmend(*BY_HAND, "--max-fixes", "1", "--json")

    assert said[0].code == 0, said[0].err
    assert "before it mends anything" in said[0].out
    assert (ended.code, ended.json["fixed"]) == (0, {"PROJECT": 20})


@pytest.mark.usefixtures("mail")
def test_without_a_job_and_without_a_word_nothing_changes_the_pace(mailmend: CommandLine) -> None:
    ended = mailmend("check", "messages", "--engine", "local", "--delay", "0", "--json")
    assert (ended.code, ended.json["pace"]) == (0, None)


@pytest.mark.usefixtures("mail")
def test_with_a_pace_of_auto_a_check_says_what_rates_it_had(mailmend: CommandLine, cluster: ClusterTwin) -> None:
    cluster.compactions = 3
    gentle = ("check", "messages", "--engine", "local", "--delay", "0", "--pace", "auto", "--rows-per-second", "500")
    pace = mailmend(*gentle, "--json").json["pace"]
    assert pace.pop("rows") > 0
    assert pace == {
        "auto": True,
        "limit": 500,
        "lowest": 500,
        "last": 500,
        "slowed": {},
        "set": [],
    }
    assert "Pace: 500 rows/s; limit 500 rows/s." in mailmend(*gentle).out


class TestRefused:
    """With exit code 2, and what to do."""

    @pytest.mark.usefixtures("mail")
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (("nightly-repair",), "no limit is given"),
            (("nightly-repair", "--rows-per-second", "5"), "no job 'nightly-repair' runs in keyspace 'mail'"),
            (("nightli", "--rows-per-second", "5"), "no job 'nightli' runs"),
            (("6e0ab5e0-8d1c-11f0-9a5e-0242ac120002", "--rows-per-second", "5"), "there is no run 6e0ab5e0"),
            (("nightly-repair", "--rows-per-second", "0"), "range"),
        ],
    )
    def test_what_does_not_run(self, mailmend: CommandLine, given: tuple[str, ...], said: str) -> None:
        declared(mailmend)
        ended = mailmend("jobs", "set", *given)
        assert (ended.code, said in ended.err, "Traceback" in ended.err) == (2, True, False), ended.err

    @pytest.mark.usefixtures("drifted")
    def test_what_has_ended_or_was_killed(
        self, mailmend: CommandLine, cluster: ClusterTwin, during_the_scan: Arrange
    ) -> None:
        declared(mailmend)
        assert mailmend("jobs", "run", "nightly-repair").code == 0
        (run,) = mailmend("runs", "list", "--json").json["runs"]
        ended = mailmend("jobs", "set", run["run"], "--rows-per-second", "5")
        assert (ended.code, "does not run any more: DONE" in ended.err) == (2, True), ended.err
        killed = Ledger(cluster.keyspace("mailmend"), cluster.clock).start("mail", "repair", 0, {})
        ended = mailmend("jobs", "set", str(killed.id), "--rows-per-second", "5")
        assert (ended.code, "its process was killed" in ended.err) == (2, True), ended.err

        def lose_the_lease() -> None:
            cluster.clock.advance(TTL_SECONDS + 1)
            ended = mailmend("jobs", "set", "nightly-repair", "--rows-per-second", "5")
            assert (ended.code, "its process was killed" in ended.err) == (2, True), ended.err

        during_the_scan(lose_the_lease)
        mailmend("jobs", "run", "nightly-repair")

    @pytest.mark.usefixtures("mail")
    def test_a_limit_that_the_command_does_not_have(self, mailmend: CommandLine, during_the_scan: Arrange) -> None:
        declared(mailmend, "check messages --engine local --delay 0")
        said: list[Ended] = []
        during_the_scan(lambda: said.append(mailmend("jobs", "set", "nightly-repair", "--max-fixes", "5")))
        assert mailmend("jobs", "run", "nightly-repair").code == 0
        assert (said[0].code, "has no --max-fixes" in said[0].err) == (2, True), said[0].err


def test_a_check_that_a_job_began_hears_of_it_and_writes_nothing(
    mailmend: CommandLine, mail: MailKeyspace, during_the_scan: Arrange
) -> None:
    mail.refill(40)
    declared(mailmend, "check messages --engine local --delay 0 --json")
    during_the_scan(lambda: mailmend("jobs", "set", "nightly-repair", "--rows-per-second", "20"))

    ended = mailmend("jobs", "run", "nightly-repair")

    found = json.loads(ended.out)
    assert (ended.code, found["run"], found["pace"]["limit"]) == (0, None, 20)
