"""`delivery serve --processes 2` on real servers: each mail once, a worker that is killed, and the end of all."""

import signal
import smtplib
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial

import psutil
import pytest

from mailmend.admin.local.processes import free_port
from tests.support.patience import PATIENCE_SECONDS
from tests.support.real_queue import RealQueue, until
from tests.support.smtp_sink import SmtpSink

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store, pytest.mark.thorough]

HOST = "127.0.0.1"
MAILS = 10


def is_taken(port: int, recipient: str) -> bool:
    """Whether a mail for this recipient was taken, over a connection of its own."""
    try:
        with smtplib.SMTP(HOST, port, timeout=PATIENCE_SECONDS) as client:
            client.sendmail("ann@example.org", [recipient], b"Subject: x\r\n\r\nBody.\r\n")
    except (OSError, smtplib.SMTPException):
        return False
    return True


def recipients_of(sink: SmtpSink) -> Counter[str]:
    return Counter(recipient for mail in sink.mails for recipient in mail.recipients)


def test_two_processes_deliver_each_mail_once_and_lose_none_by_the_kill_of_one(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
) -> None:
    """What the killed worker had in hand comes again: with what it was sending, perhaps twice."""
    sink = sinks()
    port = free_port([HOST])
    server = serving(sink, "--listen", f"{HOST}:{port}", "--processes", "2")
    parent = psutil.Process(server.pid)
    until(lambda: len(parent.children()) == 2)
    until(lambda: is_taken(port, "first@example.com"))
    until(lambda: len(queue.line("delivery", "servers", "spool", "--json").json["servers"]) == 2)
    workers = parent.children()

    def handed_over(numbers: range) -> None:
        for number in numbers:
            until(partial(is_taken, port, f"r{number}@example.com"))

    handed_over(range(MAILS))
    until(lambda: len(recipients_of(sink)) == MAILS + 1)
    before_kill = recipients_of(sink)
    handed_over(range(MAILS, 2 * MAILS))
    workers[0].kill()
    handed_over(range(2 * MAILS, 3 * MAILS))
    until(lambda: len(recipients_of(sink)) == 3 * MAILS + 1)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    until(lambda: len(parent.children()) == 2)
    again = parent.children()
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)

    assert set(before_kill.values()) == {1}
    assert {worker.pid for worker in again} != {worker.pid for worker in workers}
    assert server.returncode == 0, said
    assert not any(worker.is_running() for worker in again)
    assert "a worker ended unasked and begins again" in said
    assert "worker=1" in said
