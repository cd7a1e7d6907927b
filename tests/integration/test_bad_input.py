"""Bad input: each a clear message, the right exit code, no traceback, nothing half done."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cql.driver.session import CassandraCluster, connect
from tests.support.commands import CommandLine, Ended, contact_of
from tests.support.keyspaces import dropped
from tests.support.mail_states import MailKeyspace, mail_keyspace, shell_on
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

QUICK = ("--engine", "local", "--delay", "0")
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    """A session of the tests' own."""
    with connect(contact_of(cassandra)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mail(cluster: CassandraCluster) -> Iterator[MailKeyspace]:
    """A healthy keyspace."""
    name = f"g_bad_{uuid4().hex[:8]}"
    keyspace = mail_keyspace(cluster, name)
    keyspace.refill()
    yield keyspace
    dropped(cluster, (name, f"{name}_ledger"))


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    """A shell that knows the cluster and both keyspaces."""
    return shell_on(cassandra, mail, tmp_path)


def _refused(ended: Ended, code: int, *said: str) -> None:
    """It ended with that code, said these words on stderr, and nothing else happened."""
    assert ended.code == code, ended
    assert ended.out == ""
    for words in said:
        assert words in ended.err, ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 4, ended.err


@pytest.mark.parametrize(
    "command",
    [("check", *QUICK), ("repair", "messages", *QUICK), ("schema", "verify"), ("undo", str(uuid4()))],
    ids=lambda command: command[0],
)
def test_an_unknown_keyspace(mailmend: CommandLine, command: tuple[str, ...]) -> None:
    """Named, with how to create it or to name another; a repair makes no ledger for it either."""
    _refused(mailmend(*command, "--keyspace", "g_nowhere"), 2, "keyspace 'g_nowhere' does not exist", "--keyspace")


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ("DROP TABLE {}.messageidtable", "messageIdTable"),
        ("ALTER TABLE {}.imapuidtable DROP flagseen", "imapUidTable.flagSeen"),
    ],
    ids=["table", "column"],
)
def test_what_a_check_cannot_do_without(
    mailmend: CommandLine, cluster: CassandraCluster, change: str, lacks: str
) -> None:
    """A missing table or column is named before anything is read."""
    name = f"g_lacking_{uuid4().hex[:8]}"
    mail_keyspace(cluster, name)
    cluster.execute_ddl(change.format(name))
    try:
        for command in (("check", *QUICK), ("repair", "messages", *QUICK)):
            _refused(mailmend(*command, "--keyspace", name), 2, f"{name!r} lacks", lacks, "mailmend schema verify")
    finally:
        dropped(cluster, (name,))


def test_nobody_listens(mailmend: CommandLine) -> None:
    """Which address was tried, and what to look at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]

    _refused(mailmend("check", *QUICK, "--port", str(free)), 4, f"127.0.0.1:{free}", "--host, --port")


def test_something_listens_that_never_answers(mailmend: CommandLine) -> None:
    """A time-out is no crash."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        _refused(mailmend("check", *QUICK, "--port", str(port)), 4, f"127.0.0.1:{port}")


def test_something_listens_that_is_no_cassandra(mailmend: CommandLine) -> None:
    """Another service's port, for example."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            for _ in range(20):
                server.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            os._exit(0)
        try:
            _refused(mailmend("check", *QUICK, "--port", str(port)), 4, f"127.0.0.1:{port}")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_an_unknown_data_centre(mailmend: CommandLine) -> None:
    """Named as what it is: the address was right."""
    _refused(mailmend("check", *QUICK, "--local-dc", "nowhere"), 4, "nowhere")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--keyspace", "a;drop"), "'a;drop' is not a valid keyspace"),
        (("--ledger-keyspace", "1x"), "'1x' is not a valid keyspace"),
        (("--delay", "400d"), "longer than 1d"),
        (("--delay", "-1s"), "is not a duration"),
        (("--delay", "soon"), "is not a duration"),
        (("--clock-skew", "2 moons"), "is not a duration"),
        (("--rows-per-second", "0"), "--rows-per-second"),
        (("--engine", "duck"), "--engine"),
        (("--level", "ALL"), "--level"),
        (("--port", "99999"), "not a port"),
        (("--report", "/no/where/r.html"), "there is no folder"),
        (("--findings", "/no/where/f.jsonl"), "cannot be written"),
        (("--report", "/"), "is a folder"),
        (("queues",), "queues"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_wrong_option_is_refused_before_the_cluster_is_asked(
    mailmend: CommandLine, arguments: tuple[str, ...], said: str
) -> None:
    """Exit 2, also where no cluster could be reached at all."""
    ended = mailmend("check", *arguments, MAILMEND_PORT="1")

    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "CLASH"), "not a verdict that can be mended"),
        (("--keep", "0"), "no time at all"),
        (("--margin", "2d"), "longer than 1d"),
        (("--max-fixes", "-1"), "--max-fixes"),
        (("--leaks", "collect", "--dangling", "report"), "--leaks collect"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_wrong_wish_of_a_repair(mailmend: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    """Refused before anything is written, the ledger included."""
    ended = mailmend("repair", "messages", *QUICK, *arguments, "--ledger-keyspace", "g_never_made")

    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert "No run is kept" in mailmend("runs", "list", "--ledger-keyspace", "g_never_made").out


@pytest.mark.parametrize("command", [("undo",), ("runs", "show")], ids=" ".join)
def test_an_unknown_run(mailmend: CommandLine, command: tuple[str, ...]) -> None:
    """With the command that lists those that there are."""
    run = "6e0ab5e0-8d1c-11f0-8000-000000000001"
    mailmend("repair", "messages", *QUICK)

    _refused(mailmend(*command, run), 2, f"no run {run}", "mailmend runs list")
    _refused(mailmend(*command, run, "--ledger-keyspace", "g_never_made"), 2, "--ledger-keyspace")
    assert mailmend(*command, "not-a-run").code == 2


def test_a_run_of_another_keyspace_is_not_undone_here(
    mailmend: CommandLine, mail: MailKeyspace, cluster: CassandraCluster
) -> None:
    """The before-images belong elsewhere."""
    run = mailmend("repair", "messages", *QUICK, "--json").json["run"]
    other = mail_keyspace(cluster, f"{mail.name}_other")
    try:
        _refused(mailmend("undo", run, "--keyspace", other.name), 2, mail.name)
    finally:
        dropped(cluster, (other.name,))


def test_a_full_disk_for_the_report(mailmend: CommandLine) -> None:
    """The results were shown; the report was not written, and that is said."""
    ended = mailmend("check", *QUICK, "--report", "/dev/full")

    assert (ended.code, "No space left on device" in ended.err) == (2, True), ended.err
    assert "No drift." in ended.out


def test_a_full_disk_for_the_findings(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Findings that nobody can read are no success."""
    mail.lose_projection(mail.truths[0])
    try:
        ended = mailmend("check", *QUICK, "--findings", "/dev/full")
    finally:
        mail.refill()

    assert (ended.code, "No space left on device" in ended.err) == (2, True), ended.err


def _shell(mailmend: CommandLine, command: str) -> "subprocess.Popen[str]":
    """The command in a process of its own, behind a real shell."""
    environment = {**os.environ, **mailmend.environment, "HOME": str(mailmend.home), "PYTHONPATH": str(CHECKOUT)}
    line = command.replace("mailmend", f"{sys.executable} -m mailmend", 1)
    return subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", line],
        env=environment,
        cwd=mailmend.home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_reader_that_goes_away_early(mailmend: CommandLine) -> None:
    """`| head` ends in silence: no traceback, and not with 1, which would mean drift."""
    with _shell(mailmend, "mailmend check --help | true") as process:
        _, err = process.communicate(timeout=60)

    assert (process.returncode in {0, 141}, err) == (True, "")


def test_ctrl_c_says_how_to_go_on_and_leaves_a_consistent_ledger(mailmend: CommandLine, mail: MailKeyspace) -> None:
    """Interrupted while it waited: exit 130, the run INTERRUPTED, the row as it was, and the same command goes on."""
    mail.lose_projection(mail.truths[0])
    with _shell(mailmend, "exec mailmend repair messages --engine local --delay 1h") as process:
        _until_waiting(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, "To go on" in err, "Traceback" in err) == (130, True, False), err
    (newest, *_) = mailmend("runs", "list", "--json").json["runs"]
    assert newest["state"] == "INTERRUPTED"
    assert mail.mirror(mail.truths[0]) is None
    assert mailmend("repair", "messages", *QUICK).code == 0
    assert mail.mirror(mail.truths[0]) is not None


def _until_waiting(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    began = time.monotonic()
    for line in process.stderr:
        if line.startswith("waiting"):
            return
        assert time.monotonic() - began < 60
    pytest.fail("it never came to the wait")
