"""The server of jobs as a process of its own, on a real Cassandra; its tasks, asked for by a plain HTTP client."""

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mailmend.admin.local.processes import free_port
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.operations import Put, Scan
from mailmend.repair.ledger.leases import TTL_SECONDS
from tests.support.certificates import authority
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, emptied, shell_on
from tests.support.metrics import Scraped
from tests.support.repairing import content_row
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

SECONDS_MAX = 120
JOB = """
[jobs.often]
command = "check messages --engine local --no-writers --delay 0s"
schedule = "{schedule}"

[repair.messages]
engine = "local"
delay = "0s"

[repair.blobs]
blobs = "cassandra:"
engine = "local"
delay = "0s"
no-broker = true
"""
READ, REPAIR = "r" * 40, "w" * 40


@pytest.fixture
def mail(shared_mail: MailKeyspace) -> MailKeyspace:
    mail = emptied(shared_mail)
    mail.refill()
    return mail


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(mailmend: CommandLine, tmp_path: Path) -> Iterator[Serve]:
    """Begin a server whose stderr is in a file of that name."""
    begun: list[subprocess.Popen[str]] = []

    def start(name: str, *options: str, schedule: str = "*/5 * * * *") -> "subprocess.Popen[str]":
        settings = tmp_path / "config.toml"
        settings.write_text(JOB.format(schedule=schedule))
        words = [sys.executable, "-m", "mailmend", "--config", str(settings), "jobs", "serve", *options]
        environment = {**os.environ, **mailmend.environment, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        with (tmp_path / name).open("w") as log:
            process = subprocess.Popen(words, env=environment, text=True, stdout=log, stderr=log)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()


def history(mailmend: CommandLine) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = mailmend(
        "jobs", "history", "--json", "--config", str(mailmend.home / "config.toml")
    ).json["runs"]
    return runs


def until(happened: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.5)


def test_a_scheduled_check_runs_by_itself_and_the_server_ends_in_good_order(
    mailmend: CommandLine, serve: Serve, tmp_path: Path
) -> None:
    server = serve("log")

    until(lambda: "a job ended job=often exit=0" in (tmp_path / "log").read_text())
    server.send_signal(signal.SIGTERM)

    assert server.wait(SECONDS_MAX) == 0, (tmp_path / "log").read_text()
    said = (tmp_path / "log").read_text()
    assert said.endswith("Stopped on request; what ran has ended.\n"), said
    run = history(mailmend)[-1]
    assert (run["job"], run["state"], run["exit_code"]) == ("often", "DONE", 0)


def test_james_task_over_tls_mends_a_damage_and_tells_it_in_james_words(
    mailmend: CommandLine, mail: MailKeyspace, serve: Serve, tmp_path: Path
) -> None:
    mail.lose_projection(mail.truths[0])
    signer = authority(tmp_path, "authority")
    own = signer.signed("server", "IP:127.0.0.1")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"watcher read {READ}\nnightly repair {REPAIR}\n")
    tokens.chmod(0o600)
    port = free_port(["127.0.0.1"])
    server = serve(
        "log",
        *("--listen", f"127.0.0.1:{port}", "--tokens-file", str(tokens)),
        *("--listen-tls-cert", str(own.certificate), "--listen-tls-key", str(own.key)),
    )
    client = httpx2.Client(
        base_url=f"https://127.0.0.1:{port}",
        verify=ssl.create_default_context(cafile=signer.file),
        headers={"Authorization": f"Bearer {REPAIR}"},
        timeout=SECONDS_MAX,
    )

    with client:
        until(lambda: _answers(client))
        refused = client.post("/messages?task=SolveInconsistencies", headers={"Authorization": f"Bearer {READ}"})
        posted = client.post("/messages?task=SolveInconsistencies&messagesPerSecond=1000")
        task = client.get(f"{posted.headers['location']}/await?timeout=100s").json()
        scraped = Scraped.of(client.get("/metrics").text)
    server.send_signal(signal.SIGTERM)

    assert (refused.status_code, posted.status_code, task["status"]) == (403, 201, "completed"), task
    assert mail.mirror(mail.truths[0]) is not None
    assert (scraped.one("mailmend_ledger_up"), scraped.one("mailmend_job_period_seconds", job_name="often")) == (1, 300)
    assert ("serve",) in scraped.by("mailmend_lease_acquired_timestamp_seconds", "lease")
    assert scraped.by("mailmend_run_fixed", "command", "verdict") == {("repair messages", "PROJECT"): 1}
    truth, reported = mail.truths[0], task["additionalInformation"]
    fixed = {"mailboxId": str(truth["mailboxid"]), "messageId": str(truth["messageid"]), "uid": truth["uid"]}
    assert (reported["addedMessageIdEntries"], reported["fixedInconsistencies"], reported["errors"]) == (1, [fixed], [])
    assert reported["processedImapUidEntries"] == len(mail.truths)
    assert reported["run"] in {run["run"] for run in mailmend("runs", "list", "--json").json["runs"]}
    assert server.wait(SECONDS_MAX) == 0
    said = (tmp_path / "log").read_text()
    assert "caller=watcher method=POST path=/messages status=403" in said
    assert "caller=nightly method=POST path=/messages status=201" in said
    assert READ not in said
    assert REPAIR not in said


@pytest.mark.thorough
def test_james_collection_removes_the_blobs_that_nothing_refers_to(
    mail: MailKeyspace, serve: Serve, tmp_path: Path
) -> None:
    needed = content_row(uuid4())["headercontent"]
    stored_at = round((datetime.now(UTC) - timedelta(days=30)).timestamp() * 1e6)
    for one in (needed, *(f"1_600_{number:043}" for number in range(3))):
        mail.tables.write(Put(BLOB_PARTS, {"id": one, "chunknumber": 0, "data": b"x"}, at=stored_at))
        mail.tables.write(Put(BLOBS.with_columns(BLOBS.key), {"id": one, "position": 1}, at=stored_at))
    port = free_port(["127.0.0.1"])
    serve("log", "--listen", f"127.0.0.1:{port}")

    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS_MAX) as client:
        until(lambda: _answers(client))
        posted = client.delete("/blobs?scope=unreferenced")
        task = client.get(f"{posted.headers['location']}/await?timeout=100s").json()

    reported = task["additionalInformation"]
    assert (posted.status_code, task["type"], task["status"]) == (201, "BlobGCTask", "completed"), task
    assert (reported["blobCount"], reported["gcedBlobCount"], reported["errorCount"]) == (4, 3, 0)
    assert {row["id"] for row in mail.tables.scan(Scan(BLOBS, ("id",)))} == {needed}


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/healthcheck").status_code == 200
    except httpx2.ConnectError:
        return False


@pytest.mark.thorough
def test_a_killed_server_is_followed_and_no_planned_run_is_run_twice(
    mailmend: CommandLine, serve: Serve, tmp_path: Path
) -> None:
    """On real leases and a real clock: three minutes, one kill, one run a minute at most."""
    first = serve("first", schedule="* * * * *")
    until(lambda: "this server leads" in (tmp_path / "first").read_text())
    serve("second", schedule="* * * * *")
    until(lambda: "stands by" in (tmp_path / "second").read_text())

    first.kill()
    first.wait()
    until(lambda: "this server leads" in (tmp_path / "second").read_text(), TTL_SECONDS + 30)
    # Two runs take up to three minutes: the kill may come before the first run is recorded, and a server that begins
    # to lead late in a minute runs the next minute's run only.
    until(lambda: len(history(mailmend)) >= 2, 3 * 60 + SECONDS_MAX)

    minutes = [run["started_at"][:16] for run in history(mailmend)]
    assert len(set(minutes)) == len(minutes) >= 2, minutes
