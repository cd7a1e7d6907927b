"""`--metrics-file`: what a run tells node_exporter, read by the client library's own parser."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.admin.metrics import declared as run_metrics
from mailmend.admin.metrics.declared import (
    RUN_DURATION,
    RUN_END,
    RUN_FAILED,
    RUN_FINDINGS,
    RUN_LEFT,
    RUN_QUEUE_MARKS,
    RUN_ROWS_PER_SECOND,
    RUNS,
    RunName,
    RunTextfile,
    result_samples,
)
from mailmend.cql.driver import session
from mailmend.mailqueue.prometheus import samples_in
from mailmend.model.errors import CannotReach, ResultUnwritten
from mailmend.model.metrics import MetricSample
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, VirtualClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.metrics import Scraped, tells_its_json
from tests.support.skewed import SkewedClock

QUICK = ("--engine", "local", "--delay", "0")
CHECK = {"keyspace": "mail", "command": "check all"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mailmend.prom"


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No node answers, until it is undone."""

    def refused(_: object) -> None:
        raise CannotReach("no node answered")

    monkeypatch.setattr(session, "connect", refused)
    return monkeypatch


@pytest.fixture
def closed_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_run_takes_no_negative_time_where_the_wall_clock_is_set_back(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SkewedClock(VirtualClock(), timedelta(0))
    monkeypatch.setattr(run_metrics, "this_clock", lambda: clock)
    run = RunTextfile(file, RunName("mail", "check"))

    clock.sleep(90)
    clock.ahead = -timedelta(minutes=10)
    run.write(0)

    samples = {one.metric: one.value for one in samples_in(file.read_text(), RUNS)}
    assert samples[RUN_DURATION] == 90
    assert samples[RUN_END] == START / 1_000_000 + 90 - 600


def test_rows_a_second_are_those_of_the_scan_alone() -> None:
    """Not of the time that a run waits or mends."""
    json = {"scanned": {"imapUidTable": 30, "messageIdTable": 10}, "seconds": {"scan": 2.0, "delay": 60.0}}

    reported = {one.metric: one.value for one in result_samples(RunName("mail", "check"), json)}

    assert reported[RUN_ROWS_PER_SECOND] == 20
    assert RUN_ROWS_PER_SECOND not in {
        one.metric for one in result_samples(RunName("mail", "check"), json | {"seconds": {}})
    }


def test_a_check_tells_what_its_json_tells(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, file: Path
) -> None:
    mail.lose_projection(mail.truths[0])

    ended = mailmend("check", *QUICK, "--json", "--metrics-file", str(file))

    scraped, now = Scraped.of(file), cluster.clock.micros() / 1_000_000
    tells_its_json(scraped, ended, **CHECK, job_name="")
    assert (ended.code, ended.json["findings"]) == (1, {"messageIdTable": {"PROJECT": 1}})
    assert scraped.one("mailmend_run_last_success_timestamp_seconds", **CHECK) == now
    assert scraped.one("mailmend_run_end_timestamp_seconds", **CHECK) == now


def test_a_repair_and_its_dry_run_have_names_of_their_own(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, file: Path
) -> None:
    mail.lose_projection(mail.truths[0])
    cluster.clock.advance(1)
    dry = mailmend("repair", "messages", *QUICK, "--dry-run", "--json", "--metrics-file", str(file))
    tells_its_json(Scraped.of(file), dry, command="repair messages --dry-run")

    ended = mailmend("repair", "messages", *QUICK, "--json", "--metrics-file", str(file))

    scraped = Scraped.of(file)
    tells_its_json(scraped, ended, command="repair messages")
    assert scraped.by("mailmend_run_fixed", "verdict") == {("PROJECT",): 1}
    assert scraped.by("mailmend_run_exit_code", "command") == {("repair messages",): 0}, (
        "the file is the last command's"
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("repair", "lags", "--delay", "0"), "repair lags"),
        (("repair", "queues", *QUICK, "--dry-run"), "repair queues --dry-run"),
        (("queue", "sweep", "outgoing", "--move-only"), "queue sweep outgoing"),
        (("check", "queues", *QUICK), "check queues"),
    ],
)
def test_every_command_of_a_job_has_such_a_file(
    mailmend: CommandLine, file: Path, command: tuple[str, ...], name: str
) -> None:
    ended = mailmend(*command, "--metrics-file", str(file))

    assert ended.code == 0, ended.err
    assert Scraped.of(file).by("mailmend_run_exit_code", "command") == {(name,): 0}


def test_a_run_that_failed_says_so_and_keeps_what_was_reported_before(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, file: Path, away: pytest.MonkeyPatch
) -> None:
    away.setattr(session, "connect", lambda _: cluster)
    mail.lose_projection(mail.truths[0])
    found = mailmend("check", *QUICK, "--json", "--metrics-file", str(file))
    at = cluster.clock.micros() / 1_000_000
    cluster.clock.advance(3600)
    away.undo()

    ended = mailmend("check", *QUICK, "--metrics-file", str(file))

    scraped = Scraped.of(file)
    assert (found.code, ended.code, scraped.one("mailmend_run_exit_code", **CHECK)) == (1, 4, 4)
    assert scraped.one("mailmend_run_findings", **CHECK, verdict="PROJECT") == 1
    assert scraped.one("mailmend_run_last_success_timestamp_seconds", **CHECK) == at


def test_what_is_mended_is_not_reported_any_more(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, file: Path
) -> None:
    mail.lose_projection(mail.truths[0])
    cluster.clock.advance(1)
    mailmend("check", *QUICK, "--metrics-file", str(file))
    mailmend("repair", "messages", *QUICK)

    mailmend("check", *QUICK, "--metrics-file", str(file))

    assert Scraped.of(file).by("mailmend_run_findings", "verdict") == {}


def test_a_run_that_was_refused_is_reported(mailmend: CommandLine, file: Path) -> None:
    """It lacks a setting: nobody is there to read its message."""
    ended = mailmend("repair", "queues", *QUICK, "--metrics-file", str(file))

    assert (ended.code, "where the contents of mails are" in ended.err) == (2, True), ended.err
    assert Scraped.of(file).one("mailmend_run_exit_code", command="repair queues") == 2


def test_a_finding_is_as_old_as_the_first_run_that_left_it(
    mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, file: Path
) -> None:
    """Also where others of its verdict come and go; until a run does not find it."""
    began = list[float]()

    def oldest() -> dict[tuple[str, ...], float]:
        cluster.clock.advance(3600)
        began.append(cluster.clock.micros() / 1_000_000)
        mailmend("check", "messages", *QUICK, "--metrics-file", str(file))
        return Scraped.of(file).by("mailmend_finding_oldest_timestamp_seconds", "verdict")

    mail.lose_projection(mail.truths[0])
    assert oldest() == {("PROJECT",): began[0]}
    mail.lose_flag_update(mail.truths[1])
    assert oldest() == {("PROJECT",): began[0], ("AMEND",): began[1]}
    mailmend("repair", "messages", *QUICK, "--only", "PROJECT")
    assert oldest() == {("AMEND",): began[1]}
    mail.lose_projection(mail.truths[2])
    assert oldest() == {("PROJECT",): began[3], ("AMEND",): began[1]}
    mail.lose_flag_update(mail.truths[3])
    assert oldest() == {("PROJECT",): began[3], ("AMEND",): began[1]}
    mailmend("repair", "messages", *QUICK, "--message", str(mail.truths[1]["messageid"]))
    assert oldest() == {("PROJECT",): began[3], ("AMEND",): began[4]}, "one was mended, another of its verdict is there"


def test_an_interrupted_run_is_reported(mailmend: CommandLine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalEngine, "detect", interrupted)

    assert mailmend("check", *QUICK, "--metrics-file", str(file)).code == 130
    assert Scraped.of(file).one("mailmend_run_exit_code", **CHECK) == 130


@pytest.mark.parametrize("before", ["no metrics\n", 'mailmend_run_exit_code{keyspace="mail"} x\n', "\udcff"])
def test_a_file_that_cannot_be_read_is_written_anew(mailmend: CommandLine, file: Path, before: str) -> None:
    file.write_bytes(before.encode(errors="surrogateescape"))

    assert mailmend("check", *QUICK, "--metrics-file", str(file)).code == 0
    assert Scraped.of(file).one("mailmend_run_exit_code", **CHECK) == 0


@pytest.mark.usefixtures("closed_umask")
def test_another_user_may_read_it_and_nothing_else_is_left(mailmend: CommandLine, file: Path) -> None:
    mailmend("check", *QUICK, "--metrics-file", str(file))

    assert file.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in file.parent.iterdir() if one.is_file()] == [file.name]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    mailmend: CommandLine, mail: MailKeyspace, file: Path
) -> None:
    mail.lose_projection(mail.truths[0])

    ended = mailmend("repair", "messages", *QUICK, "--metrics-file", str(file.parent / "none" / "x.prom"))

    assert (ended.code, "none/x.prom cannot be written" in ended.err) == (2, True), ended.err
    assert mail.mirror(mail.truths[0]) is None


def test_where_the_disk_is_full_the_result_stands_all_the_same(
    mailmend: CommandLine, mail: MailKeyspace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise ResultUnwritten(f"{file} cannot be written: No space left on device")

    monkeypatch.setattr(run_metrics, "write_text", full)
    mail.lose_projection(mail.truths[0])

    ended = mailmend("check", *QUICK, "--json", "--metrics-file", str(file))

    assert (ended.code, "No space left on device" in ended.err, file.exists()) == (3, True, False), ended.err
    assert ended.json["findings"] == {"messageIdTable": {"PROJECT": 1}}


def test_metrics_are_those_of_the_table(mailmend: CommandLine, mail: MailKeyspace, file: Path) -> None:
    mail.lose_projection(mail.truths[0])
    mailmend("repair", "messages", *QUICK, "--metrics-file", str(file))
    declared = {one.name: one for one in RUNS}

    for family in Scraped.of(file).families:
        metric = declared[family.name]
        assert (family.documentation, family.type) == (metric.meaning, metric.kind)
        assert all(set(sample.labels) == set(metric.labels) for sample in family.samples)


def test_blobs_have_no_projection_and_queues_their_marks() -> None:
    """In the JSON of `check blobs` findings are not parted, what failed is a list, and seconds are one number."""
    name = RunName("mail", "check blobs")
    blobs = {"findings": {"KEEP": 5, "MISSING": 1}, "left": {"MISSING": 1}, "failed": ["a", "b"], "seconds": 1.5}
    queues = {"findings": {}, "queues": [{"queue": "spool", "marks": 7, "rows": 3}], "failed": 0, "seconds": {}}

    assert {(one.metric, one.labels[3:], one.value) for one in result_samples(name, blobs)} == {
        (RUN_FINDINGS, ("blobs", "KEEP"), 5),
        (RUN_FINDINGS, ("blobs", "MISSING"), 1),
        (RUN_LEFT, ("MISSING",), 1),
        (RUN_FAILED, (), 2),
    }
    assert MetricSample(RUN_QUEUE_MARKS, (*name, "spool"), 7) in list(result_samples(name, queues))


# Jobs

JOB = """
[jobs.nightly]
command = "check --engine local --delay 0"
schedule = "30 1 * * *"
metrics_file = "{file}"
"""


@pytest.fixture
def declared(mailmend: CommandLine, file: Path) -> str:
    folder = mailmend.home / "config" / "mailmend"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(JOB.format(file=file))
    return "nightly"


def test_a_job_has_its_file_in_its_declaration(
    mailmend: CommandLine, mail: MailKeyspace, declared: str, file: Path
) -> None:
    mail.lose_projection(mail.truths[0])

    ended = mailmend("jobs", "run", declared)

    scraped = Scraped.of(file)
    assert (ended.code, scraped.one("mailmend_run_exit_code", **CHECK, job_name="nightly")) == (1, 1)
    assert scraped.one("mailmend_run_findings", **CHECK, job_name="nightly", verdict="PROJECT") == 1


def test_what_is_typed_outweighs_the_declaration(
    mailmend: CommandLine, declared: str, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.prom"

    assert mailmend("jobs", "run", declared, "--metrics-file", str(other)).code == 0

    assert (file.exists(), Scraped.of(other).one("mailmend_run_exit_code", job_name="nightly")) == (False, 0)


def test_a_job_that_could_not_begin_says_so_too(
    mailmend: CommandLine, cluster: ClusterTwin, declared: str, file: Path
) -> None:
    mailmend("jobs", "run", declared)
    Leases(cluster.keyspace("mailmend"), cluster.clock, "bob@elsewhere").acquire("job mail nightly", "check")
    at = Scraped.of(file).one("mailmend_run_last_success_timestamp_seconds")
    cluster.clock.advance(20)

    ended = mailmend("jobs", "run", declared)

    scraped = Scraped.of(file)
    assert (ended.code, scraped.one("mailmend_run_exit_code", **CHECK, job_name="nightly")) == (3, 3)
    assert scraped.one("mailmend_run_last_success_timestamp_seconds") == at


def test_a_file_of_a_job_is_a_text(mailmend: CommandLine, declared: str) -> None:
    settings = mailmend.home / "config" / "mailmend" / "config.toml"
    settings.write_text(settings.read_text().replace("metrics_file = ", "metrics_file = 5 # "))

    ended = mailmend("jobs", "list")

    assert (ended.code, "line 5: job 'nightly': metrics_file is not a text" in ended.err) == (2, True), ended.err
