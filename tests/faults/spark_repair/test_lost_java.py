"""The Java process of a repair in Spark is killed, for want of memory say: it says so, and the same command goes on."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mailmend.model.errors import SparkFailed
from mailmend.spark_repair.jvm import java_process
from mailmend.spark_repair.session import SparkSettings, session_for_a_command
from tests.support.apart import MAILMEND, ON_EXECUTORS, SPARK, all_gone, begun, java_of, wait_until
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.thorough]

REPAIR = ("repair", "messages", "--delay", "0s", "--json", *SPARK)
OF_EXECUTORS = 8_000
"""Two batches of a thousand that are mended at once, by each of two tasks, and as many again."""


@pytest.fixture
def mail(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with keyspace_of_its_own(cassandra, "lost_java") as keyspace:
        yield keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


@pytest.mark.parametrize("staged", [True, False], ids=["staged", "not staged"])
def test_it_is_killed_while_it_reads(
    mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path, *, staged: bool
) -> None:
    mail.refill(100)
    for truth in mail.truths[:3]:
        mail.lose_projection(truth)
    place = tmp_path / "staged"
    words = (*REPAIR, "--rows-per-second", "30", *(("--staging", str(place)) if staged else ()))

    def reading() -> bool:
        return len(list(place.glob("*.parquet"))) >= 3 if staged else _is_running(mailmend)

    _run_is_lost(mailmend, MAILMEND, words, reading)
    stood = len(list(place.glob("*.parquet")))

    assert mail.mirrored() == 97
    assert (_newest(mailmend)["state"], _newest(mailmend)["summary"]["fixed"]) == ("FAILED", {})
    again = _said(mailmend, MAILMEND, words)
    assert again["fixed"] == {"PROJECT": 3}
    assert (again["staging"]["kept"] if staged else 0) == stood


def test_it_is_killed_while_executors_mend(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Their Python ends with it, so nothing is mended after the sums were taken; what was done stays done."""
    mail.refill(OF_EXECUTORS)
    for truth in mail.truths:
        mail.lose_projection(truth)

    # The pace leaves time for the look that finds the first rows mended, and for the kill.
    _run_is_lost(mailmend, ON_EXECUTORS, (*REPAIR, "--rows-per-second", "1000"), mail.mirrored)

    in_fact = mail.mirrored()
    assert 0 < in_fact < OF_EXECUTORS
    assert (_newest(mailmend)["state"], _newest(mailmend)["summary"]["fixed"]) == ("FAILED", {"PROJECT": in_fact})
    assert _said(mailmend, ON_EXECUTORS, REPAIR)["fixed"] == {"PROJECT": OF_EXECUTORS - in_fact}
    assert mail.mirrored() == OF_EXECUTORS


def test_only_the_test_that_lost_its_java_process_fails(shared_spark: Callable[[], SparkSession]) -> None:
    assert shared_spark().range(3).count() == 3
    java = java_process()
    assert java is not None

    with pytest.raises(SparkFailed, match="its Java process ended"):
        _work_without(java)

    assert shared_spark().range(3).count() == 3


def _work_without(java: "subprocess.Popen[bytes]") -> None:
    with session_for_a_command(SparkSettings()) as session:
        java.kill()
        session.range(3).count()


def _run_is_lost(mailmend: CommandLine, program: str, words: Sequence[str], happened: Callable[[], object]) -> None:
    """The command's Java process is killed once that has happened; how the command ends then, and its record."""
    process = begun(mailmend, program, *words)
    wait_until(happened, process)
    os.kill(java_of(process), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    all_gone(process)

    assert (process.returncode, out) == (3, ""), err
    assert "mailmend: Spark failed: its Java process ended (SIGKILL)" in err
    assert "what is staged (--staging) is not read again" in err
    assert "mailmend runbook show spark-job-died" in err
    assert ("Traceback" in err, "should not happen" in err, "Warning" in err) == (False, False, False), err
    shown = mailmend("runs", "show", _newest(mailmend)["run"])
    assert (shown.code, "FAILED" in shown.out) == (0, True)


def _is_running(mailmend: CommandLine) -> bool:
    return '"RUNNING"' in mailmend("runs", "list", "--json").out


def _newest(mailmend: CommandLine) -> dict[str, Any]:
    run: dict[str, Any] = mailmend("runs", "list", "--json").json["runs"][0]
    return run


def _said(mailmend: CommandLine, program: str, words: Sequence[str]) -> dict[str, Any]:
    process = begun(mailmend, program, *words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    said: dict[str, Any] = json.loads(out)
    return said
