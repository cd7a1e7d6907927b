"""runbooks/slow-down-a-repair.md: a scheduled repair is at work by day, users wait, and somebody is called."""

import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID
from mailmend.model.operations import Read, Scan
from tests.support.apart import MAILMEND, begun, wait_until
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

JOB = """
[jobs.nightly-repair]
command = "repair messages --engine local --pace full --rows-per-second 300"
schedule = "0 0 1 1 *"
"""
MESSAGES = 800
"""Of which each takes some rows to mend: it lasts half a minute at that pace."""

SLOW = 20


@pytest.fixture
def mail(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with keyspace_of_its_own(cassandra, "too_much") as keyspace:
        keyspace.refill(MESSAGES)
        for truth in keyspace.truths:
            keyspace.lose_projection(truth)
        yield keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    settings = tmp_path / "config.toml"
    settings.write_text(JOB)
    quick = {"MAILMEND_REPAIR_MESSAGES_DELAY": "0", "MAILMEND_CHECK_DELAY": "0", "MAILMEND_CONFIG": str(settings)}
    shell = shell_on(cassandra, mail, tmp_path)
    return CommandLine(shell.home, {**shell.environment, **quick})


def test_who_knows_the_page_alone_makes_it_slower_ends_it_and_lets_it_go_on(
    mailmend: CommandLine, mail: MailKeyspace
) -> None:
    """Each command of the page as it stands there, while users read; what was mended before its end stays mended."""
    page, run = page_named("slow-down-a-repair"), ""

    def typed(command: str) -> Ended:
        _, *words = shlex.split(command.replace("$KEYSPACE", mail.name).replace("$RUN", run))
        ended = mailmend(*words)
        assert ended.code == 0, f"{command}\n{ended.out}\n{ended.err}"
        return ended

    slower, end, again, resume = page.commands("Do")
    with _users(mail) as answered:
        process = begun(mailmend, MAILMEND, "jobs", "run", "nightly-repair")
        wait_until(lambda: mended(mail), process)

        jobs, runs, metrics = (typed(command).out for command in page.commands("Check"))
        assert ("RUNNING" in jobs, "RUNNING" in runs) == (True, True)
        held = [line for line in metrics.splitlines() if line.startswith("mailmend_lease_acquired")]
        assert any('lease="repair"' in line for line in held), held

        typed(slower.replace("2000", f"{SLOW}"))
        time.sleep(4)  # it hears within two, and goes on with what is in hand
        before = mended(mail)
        time.sleep(4)
        slowly = mended(mail) - before
        assert (process.poll(), slowly <= 5 * SLOW) == (None, True), slowly

        typed(end)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, "its job was paused" in err, "Traceback" in err) == (130, True, False), err
    in_fact = mended(mail)
    stopped = mailmend("runs", "list", "--json").json["runs"][0]
    assert (stopped["state"], stopped["summary"]["fixed"]) == ("INTERRUPTED", {"PROJECT": in_fact})
    assert (len(answered) > 100, 0 < in_fact < MESSAGES) == (True, True)

    typed(again)
    run = mailmend("runs", "list", "--json").json["runs"][0]["run"]
    typed(resume)
    assert (mended(mail), mailmend("jobs", "list", "--json").json["jobs"][0]["state"]) == (MESSAGES, "WAITING")
    for command in (*page.commands("Verify"), *page.commands("Undo")):
        typed(command)
    assert mended(mail) == in_fact


def mended(mail: MailKeyspace) -> int:
    return sum(1 for _ in mail.tables.scan(Scan(MESSAGE_ID, ("uid",))))


@contextmanager
def _users(mail: MailKeyspace) -> Iterator[list[int]]:
    """They read all the time; how many rows each read brought."""
    answered: list[int] = []
    done = threading.Event()

    def read() -> None:
        for truth in cycle(mail.truths):
            if done.wait(0.01):
                return
            answered.append(len(mail.tables.read(Read(IMAP_UID, IMAP_UID.key_of(truth)))))

    users = threading.Thread(target=read)
    users.start()
    try:
        yield answered
    finally:
        done.set()
        users.join()
    assert set(answered) == {1}
