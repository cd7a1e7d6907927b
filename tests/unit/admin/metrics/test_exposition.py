"""`mailmend metrics show`, and what a server answers: ledger, jobs, leases and queues as metrics."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.declaration import Job, job_of
from mailmend.admin.jobs.schedule import longest_wait
from mailmend.admin.metrics import metrics
from mailmend.admin.metrics.declared import FINDING_OLDEST, METRICS, RUN_LEFT
from mailmend.admin.metrics.metrics import FRESH_MICROS, Exposition, repair_samples
from mailmend.cql.driver import nodes, session
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START
from mailmend.model.errors import AccessDenied, CannotReach
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.sizes import TableSize
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE, LeftSample
from mailmend.repair.ledger.jobs import JobRuns
from mailmend.repair.ledger.lags import LagJournal
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger, RunState
from mailmend.repair.scanners.local import LocalEngine
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.metrics import Scraped
from tests.support.repairing import mirror_suspect
from tests.support.schemas import without_tables, without_time_to_live

NIGHT = datetime(2026, 9, 1, 1, 30, tzinfo=UTC)
DAY = timedelta(days=1).total_seconds()
JOBS = """
[jobs.nightly]
command = "repair messages --engine local --delay 0"
schedule = "30 1 * * *"

[jobs.checked]
command = "check --engine local --delay 0"
schedule = "0 9-17 * * 1-5"
metrics_file = "{file}"
"""
LABELS = {"keyspace": "mail", "job_name": "nightly"}


@pytest.fixture
def shell(mailmend: CommandLine, cluster: ClusterTwin, tmp_path: Path) -> CommandLine:
    folder = mailmend.home / "config" / "mailmend"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(JOBS.format(file=tmp_path / "checked.prom"))
    cluster.clock.turn_to(NIGHT)
    return mailmend


def seen(shell: CommandLine) -> Scraped:
    ended = shell("metrics", "show")
    assert ended.code == 0, ended.err
    return Scraped.of(ended.out)


def test_of_a_keyspace_in_which_nothing_ran_it_tells_the_schedules(shell: CommandLine, cluster: ClusterTwin) -> None:
    scraped = seen(shell)

    assert scraped.by("mailmend_job_period_seconds", "job_name") == {
        ("nightly",): DAY,
        ("checked",): 2 * DAY + 16 * 3600,
    }
    assert scraped.one("mailmend_job_next_run_timestamp_seconds", **LABELS) == NIGHT.timestamp() + DAY
    assert scraped.one("mailmend_ledger_up", keyspace="mail") == 1
    assert scraped.by("mailmend_job_last_run_timestamp_seconds", "job_name") == {}
    assert "mailmend" not in cluster.keyspaces, "nothing is created by looking"


def test_a_job_that_ran_is_reported(shell: CommandLine, cluster: ClusterTwin) -> None:
    shell("jobs", "run", "nightly")
    cluster.clock.advance(3600)

    scraped = seen(shell)

    assert scraped.one("mailmend_job_last_success_timestamp_seconds", **LABELS) == NIGHT.timestamp()
    assert scraped.one("mailmend_job_last_run_exit_code", **LABELS) == 0
    assert scraped.one("mailmend_job_running", **LABELS) == 0
    assert scraped.one("mailmend_run_last_success_timestamp_seconds", command="repair messages") == NIGHT.timestamp()


def test_a_job_that_fails_keeps_its_last_success_and_a_lease_its_holder(
    shell: CommandLine, cluster: ClusterTwin
) -> None:
    """The owner's process is left out: its number is another one each time."""
    shell("jobs", "run", "nightly")
    cluster.clock.advance(DAY)
    Leases(cluster.keyspace("mailmend"), cluster.clock, "bob@elsewhere pid 4, job x").acquire("repair mail", "repair")
    assert shell("jobs", "run", "nightly").code == 3

    scraped = seen(shell)

    assert scraped.one("mailmend_job_last_run_exit_code", **LABELS) == 3
    assert scraped.one("mailmend_job_last_success_timestamp_seconds", **LABELS) == NIGHT.timestamp()
    leased = scraped.by("mailmend_lease_acquired_timestamp_seconds", "lease", "owner", keyspace="mail")
    assert leased == {("repair", "bob@elsewhere"): NIGHT.timestamp() + DAY}


def test_a_job_without_any_success_says_so(shell: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert compares: what is not there never fires."""

    def failed(*_: object) -> None:
        raise CannotReach("the node went away")

    monkeypatch.setattr(LocalEngine, "detect", failed)
    shell("jobs", "run", "nightly")

    assert seen(shell).one("mailmend_job_last_success_timestamp_seconds", **LABELS) == 0


def test_a_paused_job_is_reported(shell: CommandLine) -> None:
    shell("jobs", "pause", "nightly")

    assert seen(shell).by("mailmend_job_paused", "job_name") == {("nightly",): 1, ("checked",): 0}


def test_findings_of_a_check_come_from_the_file_of_its_job(shell: CommandLine, mail: MailKeyspace) -> None:
    mail.lose_projection(mail.truths[0])
    assert shell("jobs", "run", "checked").code == 1

    scraped = seen(shell)

    assert scraped.one("mailmend_run_findings", command="check all", job_name="checked", verdict="PROJECT") == 1


def test_of_two_that_tell_of_a_run_the_newer_counts(
    shell: CommandLine, cluster: ClusterTwin, mail: MailKeyspace, tmp_path: Path
) -> None:
    """Another server may have run the job last."""
    settings = shell.home / "config" / "mailmend" / "config.toml"
    settings.write_text(f"{JOBS.partition('[jobs.checked]')[0]}metrics_file = '{tmp_path / 'x.prom'}'\n")
    shell("jobs", "run", "nightly")
    cluster.clock.advance(DAY)
    ledger = Ledger(cluster.keyspace("mailmend"), cluster.clock, job="nightly")
    ledger.finish(ledger.start("mail", "repair", 1, {}), {"findings": {"messageIdTable": {"AMEND": 5}}, "exit": 0})

    scraped = seen(shell)

    assert scraped.by("mailmend_run_findings", "verdict", command="repair messages") == {("AMEND",): 5}
    assert scraped.one("mailmend_run_end_timestamp_seconds", job_name="nightly") == NIGHT.timestamp() + DAY


def test_what_every_repair_leaves_is_as_old_as_the_first_of_them(cluster: ClusterTwin) -> None:
    """A repair of one message, an undo and one that failed say nothing of the whole keyspace."""
    cluster.keyspaces["mailmend"] = cluster.keyspaces["mail"]
    ledger, began = Ledger(cluster.keyspace("mailmend"), cluster.clock), list[float]()

    def repair(left: list[str], state: RunState = RunState.DONE, **given: Any) -> None:
        cluster.clock.advance(3600)
        began.append(cluster.clock.micros() / 1_000_000)
        sample = LeftSample()
        for verdict, key in (one.split() for one in left):
            sample.add(verdict, "messageIdTable", key)
        sums = {"left": Counter(one.split()[0] for one in left), LEFT_SAMPLE: sample.keys, "exit": 1}
        ledger.finish(ledger.start("mail", "repair", 1, given), sums, state)

    for left in (["CLASH a", "TORN b"], ["TORN b", "TORN c"], ["TORN c", "CLASH a", "CLASH d"], ["TORN c", "AHEAD e"]):
        repair(left)
    repair([], message=["x"])
    repair([], RunState.FAILED)

    reported = list(repair_samples("mail", ledger.newest_runs("mail")))

    oldest = {one.labels[3]: one.value for one in reported if one.metric is FINDING_OLDEST}
    assert oldest == {"TORN": began[1], "AHEAD": began[3]}, "b was mended, c stays"
    newest = {one.labels[3]: one.value for one in reported if one.metric is RUN_LEFT}
    assert newest == {"TORN": 1, "AHEAD": 1}


def test_lags_are_counted_and_the_oldest_is_reported(
    shell: CommandLine, cluster: ClusterTwin, mail: MailKeyspace
) -> None:
    shell("jobs", "run", "nightly")
    journal = LagJournal(cluster.keyspace("mailmend"), "mail", cluster.clock)
    at = cluster.clock.micros() / 1_000_000
    for truth in mail.truths[:3]:
        journal.journal([mirror_suspect(truth, Verdict.PROJECT)], "")
        cluster.clock.advance(DAY)

    scraped = seen(shell)

    assert scraped.one("mailmend_lags_waiting", keyspace="mail") == 3
    assert scraped.one("mailmend_lag_oldest_timestamp_seconds", keyspace="mail") == pytest.approx(at)
    assert journal.waiting(2)[0] == 2


def test_queues_tell_their_starts_and_marks_that_stay(shell: CommandLine, cluster: ClusterTwin) -> None:
    cluster.keyspaces["mail"] = without_time_to_live(cluster.keyspaces["mail"])
    tables, now = cluster.keyspace("mail"), instant_of(cluster.clock.micros())
    tables.write(Put(BROWSE_START, {"queuename": "outgoing", "browsestart": now - timedelta(days=8)}))
    tables.write(Put(CONTENT_START, {"queuename": "outgoing", "contentstart": now - timedelta(days=9)}))
    cluster.rows_recorded = 1_000_000

    scraped = seen(shell)

    assert scraped.one("mailmend_queue_browse_start_age_seconds", queue="outgoing") == 8 * DAY
    assert scraped.one("mailmend_queue_content_start_lag_seconds", queue="outgoing") == DAY
    faults = {("browse_start_old",): 1, ("moved_back",): 0, ("not_swept",): 0, ("marks_expire_first",): 0}
    assert scraped.by("mailmend_queue_trouble", "trouble", queue="outgoing") == faults
    assert scraped.one("mailmend_queue_marks_kept", keyspace="mail") == 1_000_000
    assert scraped.by("mailmend_queue_mails", "queue") == {}, "no mail was looked at"


def test_the_nodes_are_asked_once_how_many_marks_there_are(
    shell: CommandLine, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.keyspaces["mail"] = without_time_to_live(cluster.keyspaces["mail"])
    asked = list[str]()

    def sizes(_: object, keyspace: str) -> dict[str, TableSize]:
        asked.append(keyspace)
        return cluster.sizes(_, keyspace)

    monkeypatch.setattr(nodes, "sizes_in", sizes)

    seen(shell)

    assert asked == ["mail"]


def test_what_cannot_be_read_hides_nothing_else(shell: CommandLine, cluster: ClusterTwin) -> None:
    shell("jobs", "run", "nightly")
    cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], CONTENT_START.name)

    ended = shell("metrics", "show")

    scraped = Scraped.of(ended.out)
    assert (ended.code, "Not all could be read: keyspace 'mail' lacks contentStart" in ended.err) == (4, True), (
        ended.err
    )
    assert scraped.one("mailmend_job_last_run_exit_code", **LABELS) == 0
    assert scraped.one("mailmend_ledger_up", keyspace="mail") == 0
    assert scraped.by("mailmend_ledger_read_timestamp_seconds", "keyspace") == {}


def test_who_may_not_look_at_queues_sees_the_rest(
    shell: CommandLine, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AccessDenied("no SELECT on browseStart")

    monkeypatch.setattr(metrics, "with_queues", refused)

    assert seen(shell).one("mailmend_ledger_up", keyspace="mail") == 1


def test_who_may_not_read_the_runs_sees_the_rest_and_why(
    shell: CommandLine, cluster: ClusterTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AccessDenied("no SELECT on job_run")

    shell("jobs", "run", "nightly")
    monkeypatch.setattr(JobRuns, "last", refused)

    ended = shell("metrics", "show")

    scraped = Scraped.of(ended.out)
    assert (ended.code, "no SELECT on job_run" in ended.err) == (4, True), ended.err
    assert (scraped.one("mailmend_ledger_up"), scraped.one("mailmend_lags_waiting")) == (0, 0)


def test_without_a_cluster_the_declarations_are_reported(
    shell: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_: object) -> None:
        raise CannotReach("no node answered")

    monkeypatch.setattr(session, "connect", refused)
    file = tmp_path / "mailmend.prom"

    ended = shell("metrics", "show", "--output", str(file))

    assert (ended.code, ended.out, "no node answered" in ended.err) == (4, "", True)
    scraped = Scraped.of(file)
    assert (scraped.one("mailmend_ledger_up"), scraped.one("mailmend_job_period_seconds", **LABELS)) == (0, DAY)


def test_a_file_that_cannot_be_written_is_refused(shell: CommandLine) -> None:
    assert shell("metrics", "show", "--output", "/none/x.prom").code == 2


def test_metrics_are_those_of_the_table(shell: CommandLine, mail: MailKeyspace) -> None:
    mail.lose_projection(mail.truths[0])
    shell("jobs", "run", "checked")
    shell("jobs", "run", "nightly")
    declared = {one.name: one for one in METRICS}

    for family in seen(shell).families:
        metric = declared[family.name]
        assert (family.documentation, family.type) == (metric.meaning, metric.kind)
        assert all(set(sample.labels) == set(metric.labels) for sample in family.samples)


def test_a_server_measures_once_in_half_a_minute(cluster: ClusterTwin) -> None:
    opened = OpenCluster(ConnectionSettings(keyspace="mail"), cast("Any", cluster), cast("Any", cluster.clock))
    asked = list[int]()

    def jobs() -> Sequence[Job]:
        asked.append(1)
        return ()

    exposition = Exposition(opened, jobs)

    first, again = exposition.text(), exposition.text()
    cluster.clock.advance(FRESH_MICROS / 1_000_000)

    assert (first is again, len(asked)) == (True, 1)
    assert Scraped.of(exposition.text().decode()).one("mailmend_ledger_up", keyspace="mail") == 1
    assert len(asked) == 2


# The longest wait


@pytest.mark.parametrize(
    ("schedule", "window", "wait"),
    [
        ("30 1 * * *", None, timedelta(days=1)),
        ("*/10 * * * *", None, timedelta(minutes=10)),
        ("*/10 * * * *", "01:00-05:30", timedelta(hours=19, minutes=40)),
        ("0 9-17 * * 1-5", None, timedelta(days=2, hours=16)),
        ("0 3 * * 1", None, timedelta(days=7)),
        ("0 0 1 1 *", None, timedelta(days=365)),
    ],
)
def test_the_longest_wait_between_two_runs(schedule: str, window: str | None, wait: timedelta) -> None:
    given = {"command": "check", "schedule": schedule, **({"window": window} if window else {})}
    assert longest_wait(job_of("x", given), NIGHT) == wait
