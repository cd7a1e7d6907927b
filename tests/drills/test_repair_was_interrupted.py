"""runbooks/repair-was-interrupted.md: a repair that somebody, or a scheduler, stopped while it mended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.catalog.mail import MESSAGE_ID
from model.operations import Scan
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

CHECKOUT = Path(__file__).parents[2]
MESSAGES, OF_EXECUTORS = 3_000, 8_000
"""More than are mended at once: two batches of a thousand, by each of two tasks on executors."""

SECONDS_MAX = 400
MAILMEND = "from admin.cli import main; main()"
ON_EXECUTORS = f"from spark_repair import message_inconsistencies as it; it.IN_DRIVER_MAX = 0; {MAILMEND}"
SPARK = ("--engine", "spark", "--master", "local[2]")


@pytest.fixture
def mail(cassandra: CassandraServer, how: tuple[str, tuple[str, ...], signal.Signals]) -> Iterator[MailKeyspace]:
    """Every row of messageIdTable is missing."""
    with keyspace_of_its_own(cassandra, "interrupted") as keyspace:
        keyspace.refill(OF_EXECUTORS if how[0] == ON_EXECUTORS else MESSAGES)
        for truth in keyspace.truths:
            keyspace.lose_projection(truth)
        yield keyspace


def mended(mail: MailKeyspace) -> int:
    return sum(1 for _ in mail.tables.scan(Scan(MESSAGE_ID, ("uid",))))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            (ON_EXECUTORS, SPARK, signal.SIGTERM), id="executors", marks=(pytest.mark.spark, pytest.mark.thorough)
        ),
        pytest.param((MAILMEND, SPARK, signal.SIGINT), id="driver", marks=pytest.mark.spark),
        pytest.param((MAILMEND, ("--engine", "local"), signal.SIGTERM), id="local"),
    ],
)
def test_it_ends_with_true_sums_and_can_be_taken_back(
    cassandra: CassandraServer,
    mail: MailKeyspace,
    tmp_path: Path,
    how: tuple[str, tuple[str, ...], signal.Signals],
) -> None:
    """Exit 130, INTERRUPTED with what is mended indeed, nothing left running, and undo puts all of it back."""
    mailmend, (program, engine, stop) = shell_on(cassandra, mail, tmp_path), how
    code, err = _stopped(mailmend, mail, program, ("repair", "messages", "--delay", "0s", *engine), stop)

    assert (code, "To go on" in err, "Traceback" in err, "Error" in err) == (130, True, False, False), err
    (run,) = mailmend("runs", "list", "--json").json["runs"]
    in_fact = mended(mail)
    assert (run["state"], run["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": in_fact})
    assert 0 < in_fact < len(mail.truths)

    undone = mailmend("undo", run["run"])
    assert (undone.code, mended(mail)) == (0, 0), undone.err


def _stopped(
    mailmend: CommandLine, mail: MailKeyspace, program: str, words: tuple[str, ...], stop: signal.Signals
) -> tuple[int, str]:
    """The command's exit code and stderr, signalled like a whole terminal once it has mended something."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
    caches = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}  # of Spark's jars
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env={**kept, **caches, **mailmend.environment, "HOME": str(mailmend.home), "PYTHONPATH": str(CHECKOUT)},
        cwd=mailmend.home,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    began = time.monotonic()
    while process.poll() is None and not mended(mail):
        assert time.monotonic() - began < SECONDS_MAX, "it mended nothing"
        time.sleep(0.2)
    os.killpg(process.pid, stop)
    _, err = process.communicate(timeout=60)
    _all_gone(process.pid)
    return process.returncode, err


def _all_gone(session: int) -> None:
    """Neither the JVM nor a Python worker outlives the command."""
    until = time.monotonic() + 10
    while living := _living(session):
        assert time.monotonic() < until, living
        time.sleep(0.1)


def _living(session: int) -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "stat=,args=", "-g", str(session)], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if not line.startswith("Z")]
