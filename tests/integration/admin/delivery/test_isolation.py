"""A sub-queue that may not go holds up no other, on a real Cassandra, RabbitMQ and object store.

A mail behind 200 suspended ones went out after 261 seconds where a server had 20 of them in hand (docs/adr/0081).
"""

import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from mailmend.model.catalog.mail_queue import BACKLOG_MAILS
from mailmend.model.operations import Scan
from tests.support.patience import PATIENCE_SECONDS
from tests.support.real_queue import LETTER, RealQueue, until
from tests.support.smtp_sink import SmtpSink

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

JAMMED = 200
HELD = 3
FEW = ("--prefetch", "20")

BLOCKED = 1_000
BEHIND_SECONDS = 30.0
"""How long a mail of another domain takes behind `BLOCKED` mails, at most, on a machine at work.

It was 100 to 274 seconds before backlogs were kept; `python -m tests.bench --only isolation` measures
what it is now.
"""

NEXT_SECONDS = 10.0
"""How long the next one takes, at most."""


def put(queue: RealQueue, recipient: str, count: int = 1) -> None:
    file = queue.line.home / "letter.eml"
    file.write_bytes(LETTER)
    ended = queue("enqueue", *[str(file)] * count, "--recipient", recipient)
    assert ended.code == 0, ended.err


def in_backlogs(queue: RealQueue) -> int:
    return len(list(queue.keyspace.scan(Scan(BACKLOG_MAILS, ("place",)))))


def states(queue: RealQueue) -> list[str]:
    """Of the recipients that are in the queue."""
    entries = queue.line("delivery", "list", "spool", "--json").json["entries"]
    return [entry["state"] for entry in entries]


def delivered(sink: SmtpSink) -> list[str]:
    """To whom, in order."""
    return [mail.recipients[0].split()[1] for mail in sink.mails]


def test_a_mail_behind_many_suspended_ones_goes_out_and_no_kill_loses_or_doubles_any(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Given a server that is killed while it holds some of them, and another one that goes on.

    Some are held meanwhile: those in hand within seconds, those in a backlog when they come to hand.
    """
    sink = sinks()
    why = ("--why", "they throttle us", "--json")
    suspended = queue.line("suspend", "add", "spool", "--domain", "jam.example", "--for", "1h", *why)
    put(queue, "dan@jam.example", HELD)
    put(queue, "bob@jam.example", JAMMED)
    put(queue, "dan@jam.example", HELD)
    put(queue, "ann@free.example")

    killed = serving(sink, *FEW)
    until(lambda: delivered(sink) == ["TO:<ann@free.example>"])
    until(lambda: in_backlogs(queue) > JAMMED // 2)
    until(lambda: queue("size", "--json").json["mails"] == JAMMED + 2 * HELD)
    held = queue.line("delivery", "hold", "spool", "--recipient", "dan@jam.example", *why).json
    assert (held["changed"], held["ordered"], held["left"]) == (HELD, HELD, 0)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=PATIENCE_SECONDS)

    put(queue, "cy@free.example")
    server = serving(sink, *FEW, "--suspensions-every", "1s")
    until(lambda: len(sink.mails) == 2)
    assert queue.line("suspend", "remove", "spool", suspended.json["suspension"]["id"]).code == 0
    until(lambda: len(sink.mails) == JAMMED + 2)
    until(lambda: states(queue) == ["hold"] * 2 * HELD)
    server.send_signal(signal.SIGTERM)
    said = server.communicate(timeout=PATIENCE_SECONDS)[1]

    assert server.returncode == 0, said
    assert delivered(sink).count("TO:<bob@jam.example>") == JAMMED
    assert "TO:<dan@jam.example>" not in delivered(sink)
    assert states(queue) == ["hold"] * 2 * HELD
    assert in_backlogs(queue) == 0


@pytest.mark.thorough
def test_behind_a_thousand_blocked_mails_another_one_goes_out_in_seconds(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """With all settings as they are by default; the next one goes out at once.

    The server stands still while the mails are enqueued: all of them are at the broker when it goes on.
    """
    sink = sinks()
    blocked = ("--domain", "jam.example", "--why", "they throttle us")
    suspended = queue.line("suspend", "add", "spool", *blocked, "--for", "1h")
    assert suspended.code == 0, suspended.err
    server = serving(sink)
    put(queue, "ann@free.example")
    until(lambda: len(sink.mails) == 1)

    server.send_signal(signal.SIGSTOP)
    put(queue, "bob@jam.example", BLOCKED)
    put(queue, "cy@free.example")
    server.send_signal(signal.SIGCONT)
    behind = seconds_until_taken(sink, 2)
    put(queue, "dan@free.example")
    following = seconds_until_taken(sink, 3)

    assert delivered(sink)[1:] == ["TO:<cy@free.example>", "TO:<dan@free.example>"]
    assert (behind <= BEHIND_SECONDS, following <= NEXT_SECONDS) == (True, True), (behind, following)


def seconds_until_taken(sink: SmtpSink, count: int) -> float:
    """How long it takes until the sink has that many mails."""
    began_at = time.monotonic()
    while len(sink.mails) < count:
        assert time.monotonic() - began_at < PATIENCE_SECONDS
        time.sleep(0.01)
    return time.monotonic() - began_at
