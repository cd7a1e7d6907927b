"""runbooks/repair-was-interrupted.md: a repair that somebody, or a scheduler, stopped while it mended."""

import os
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.spark_repair import message_inconsistencies
from tests.support.apart import MAILMEND, ON_EXECUTORS, SECONDS_MAX, SPARK, all_gone, begun
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, emptied, shell_on
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

MESSAGES, OF_EXECUTORS = 3_000, 8_000
"""More than are mended at once: two batches of a thousand, by each of two tasks on executors."""

LOCAL = ("--engine", "local")


@dataclass(frozen=True, slots=True)
class Way:
    """A repair, the signal that stops it, and the engine with which its page is walked; with none it is not."""

    program: str
    engine: tuple[str, ...]
    stop: signal.Signals
    again: tuple[str, ...] = ()


@pytest.fixture
def mail(shared_mail: MailKeyspace, way: Way) -> MailKeyspace:
    """Every row of messageIdTable is missing."""
    mail = emptied(shared_mail)
    mail.refill(OF_EXECUTORS if way.program == ON_EXECUTORS else MESSAGES)
    for truth in mail.truths:
        mail.lose_projection(truth)
    return mail


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(Way(MAILMEND, LOCAL, signal.SIGTERM, LOCAL), id="local"),
        pytest.param(Way(MAILMEND, SPARK, signal.SIGINT), id="driver", marks=(pytest.mark.spark, pytest.mark.thorough)),
        pytest.param(
            Way(MAILMEND, SPARK, signal.SIGTERM, SPARK),
            id="driver, whole page",
            marks=(pytest.mark.spark, pytest.mark.thorough),
        ),
        pytest.param(
            Way(ON_EXECUTORS, SPARK, signal.SIGTERM, SPARK),
            id="executors, whole page",
            marks=(pytest.mark.spark, pytest.mark.thorough),
        ),
    ],
)
def test_it_ends_with_true_sums_and_its_page_leads_to_the_end(
    mailmend: CommandLine, mail: MailKeyspace, way: Way, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 130, INTERRUPTED with what is mended indeed, nothing left running; the page mends the rest.

    Its undo takes back what the interrupted run mended, and nothing else.
    """
    code, err = _stopped(mailmend, mail, way)

    assert (code, "To go on" in err, "mailmend runs list" in err) == (130, True, True), err
    assert ("Traceback" in err, "Error" in err) == (False, False), err
    (run,) = mailmend("runs", "list", "--json").json["runs"]
    in_fact = mail.mirrored()
    assert (run["state"], run["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": in_fact})
    assert 0 < in_fact < len(mail.truths)

    if not way.again:
        ended = mailmend("undo", run["run"])
        assert (ended.code, mail.mirrored()) == (0, 0), f"{ended.out}\n{ended.err}"
        return
    if way.again == SPARK:
        request.getfixturevalue("spark")
        in_driver_max = 0 if way.program == ON_EXECUTORS else message_inconsistencies.IN_DRIVER_MAX
        monkeypatch.setattr(message_inconsistencies, "IN_DRIVER_MAX", in_driver_max)
    listed, shown, again, checked, undone = _walked(mailmend, mail, run["run"], way.again)
    assert ("INTERRUPTED" in listed, f"{in_fact:,}" in listed, f"PROJECT {in_fact}" in shown) == (True, True, True)
    assert (f"PROJECT {len(mail.truths) - in_fact:,}" in again, "No drift." in checked) == (True, True), again
    assert mail.mirrored() == len(mail.truths) - in_fact, undone


def _walked(mailmend: CommandLine, mail: MailKeyspace, run: str, engine: tuple[str, ...]) -> list[str]:
    """What each command of the page prints, as it stands there; repair and check with the engine that is at hand."""
    printed = []
    for command in page_named("repair-was-interrupted").commands():
        _, *words = shlex.split(command.replace("$KEYSPACE", mail.name).replace("$RUN", run))
        with_it = (*engine, "--delay", "0s") if words[0] in {"repair", "check"} else ()
        ended = mailmend(*words, *with_it)
        kept_images = ended.code == 1 and words[0] == "undo" and "changed since that run" in ended.out
        assert ended.code == 0 or kept_images, f"{command}\n{ended.out}\n{ended.err}"
        printed.append(" ".join(ended.out.split()))
    return printed


def _stopped(mailmend: CommandLine, mail: MailKeyspace, way: Way) -> tuple[int, str]:
    """The command's exit code and stderr, signalled like a whole terminal once it has mended something."""
    process = begun(mailmend, way.program, "repair", "messages", "--delay", "0s", *way.engine)
    began = time.monotonic()
    while process.poll() is None and not mail.mirrored():
        assert time.monotonic() - began < SECONDS_MAX, "it mended nothing"
        time.sleep(0.2)
    os.killpg(process.pid, way.stop)
    _, err = process.communicate(timeout=60)
    all_gone(process)
    return process.returncode, err
