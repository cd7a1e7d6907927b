"""Queues, deliveries, jobs and taking over where the names of keyspaces need double quotes: typed on real servers."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import connect
from tests.support.brokers import Broker
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.james import SCHEMA_FILE
from tests.support.keyspaces import dropped
from tests.support.real_queue import LETTER, RealQueue, real_queue, until
from tests.support.servers import CassandraServer
from tests.support.smtp_sink import SmtpSink

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

JOB = """
[jobs.nightly]
command = "check messages --engine local --delay 0"
schedule = "30 1 * * *"
"""


@pytest.fixture(scope="module")
def names(cassandra: CassandraServer) -> Iterator[tuple[str, str]]:
    """Of the mail keyspace and of the ledger, as CQL spells them."""
    suffix = uuid4().hex[:6]
    mail, ledger = f'"MailData_{suffix}"', f'"MailLedger_{suffix}"'
    yield mail, ledger
    with connect(contact_of(cassandra)) as cluster:
        dropped(cluster, (mail, ledger))


@pytest.fixture(scope="module")
def mailmend(
    cassandra: CassandraServer, names: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> CommandLine:
    mail, ledger = names
    home = tmp_path_factory.mktemp("home")
    line = command_line(home, cassandra, MAILMEND_KEYSPACE=mail, MAILMEND_LEDGER_KEYSPACE=ledger)
    applied = line("schema", "apply", "--replication-factor", "1")
    assert applied.code == 0, applied.err
    return line


@pytest.fixture
def queue(
    mailmend: CommandLine, cassandra: CassandraServer, rabbitmq: Broker, names: tuple[str, str]
) -> Iterator[RealQueue]:
    blobs = {"MAILMEND_BLOBS": "cassandra:"}
    with real_queue(cassandra, rabbitmq, mailmend.home, blobs, keyspace=names[0]) as made:
        environment = {**made.line.environment, "MAILMEND_LEDGER_KEYSPACE": names[1]}
        yield replace(made, line=replace(made.line, environment=environment))


def well(queue: RealQueue, words: str, *more: str, code: int = 0) -> str:
    """What a command says that ends as it should."""
    ended = queue.line(*words.split(), *more)
    assert ended.code == code, (words, ended.code, ended.err, ended.out)
    assert "Traceback" not in ended.err
    return ended.out


def test_every_command_of_a_queue_takes_them(queue: RealQueue, tmp_path: Path) -> None:
    queue.put("first", "second", "third")
    queue.put("later", options=("--due-in", "1h"))

    assert json.loads(well(queue, "queue size --json"))["mails"] == 3
    assert queue.names() == ["first", "second", "third", "later"]
    assert [found["queue"] for found in json.loads(well(queue, "queue list --json"))["queues"]] == ["spool"]
    kept = json.loads(well(queue, "queue delete --name second --json"))["kept"]
    well(queue, "queue restore", kept)
    well(queue, "queue sweep")
    well(queue, "queue tend --once")
    well(queue, "queue reconcile --no-blobs")
    well(queue, "queue republish --older-than 1h")
    well(queue, "queue flush")
    well(queue, "queue configure --json")
    well(queue, "queue advise --json")
    well(queue, "queue health", code=1)
    well(queue, "queue metrics --over 0 --output", str(tmp_path / "queue.prom"))
    well(queue, "queue dequeue --exec false --limit 1 --wait 20s", code=1)
    assert json.loads(well(queue, "queue redrive --json"))["redriven"] == 1
    out = tmp_path / "out"
    taken = json.loads(well(queue, "queue dequeue --wait 5s --json --dir", str(out)))
    assert taken["acked"] == 4
    assert {file.read_bytes() for file in out.glob("*.eml")} == {LETTER}
    assert json.loads(well(queue, "queue purge --yes --json"))["removed"] == 0
    well(queue, "check queues --engine local")


def test_deliveries_and_their_orders_take_them(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    sink = sinks()
    (mail,) = queue.put("first")
    well(queue, "suspend add spool --all --why looked --json")
    (suspended,) = json.loads(well(queue, "suspend list spool --json"))["suspensions"]
    server = serving(sink)
    until(lambda: json.loads(well(queue, "delivery servers spool --json"))["servers"] != [])
    well(queue, "suspend remove spool", suspended["id"])
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    server.terminate()
    assert server.wait(30) == 0
    shown = json.loads(well(queue, "delivery show spool --json", mail))
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["delivered"]
    well(queue, "delivery list spool --json")
    well(queue, "delivery group spool --by domain --json")
    made = json.loads(well(queue, "policy add spool --fields recipientdomain --all --concurrency 7 --why x --json"))
    well(queue, "policy remove spool", made["condition"]["id"])


def test_jobs_take_them(mailmend: CommandLine) -> None:
    folder = mailmend.home / "config" / "mailmend"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(JOB)

    ran = mailmend("jobs", "run", "nightly")
    assert ran.code == 0, ran.err
    for words in ("list", "show nightly", "pause nightly", "resume nightly", "history nightly"):
        ended = mailmend("jobs", *words.split(), "--json")
        assert ended.code == 0, (words, ended.err, ended.out)
    assert [run["job"] for run in ended.json["runs"]] == ["nightly"]
    units = mailmend.home / "units"
    units.mkdir()
    installed = mailmend("jobs", "install", "--systemd", "--dir", str(units))
    assert installed.code == 0, installed.err


def test_a_keyspace_of_james_is_taken_over(mailmend: CommandLine, cassandra: CassandraServer) -> None:
    name = f'"JamesMail_{uuid4().hex[:6]}"'
    with connect(contact_of(cassandra)) as cluster:
        try:
            for statement in SCHEMA_FILE.read_text(encoding="utf-8").split(";"):
                if statement.strip():
                    cluster.execute_ddl(statement.replace("apache_james", name))
            looked = mailmend("schema", "adopt", "--dry-run", "--keyspace", name)
            adopted = mailmend("schema", "adopt", "--keyspace", name, "--json")
            verified = mailmend("schema", "verify", "--keyspace", name)
        finally:
            dropped(cluster, (name,))
    assert looked.code == 0, looked.err
    assert (adopted.code, adopted.json["keyspace"]) == (0, name), adopted.err
    assert name in verified.out
