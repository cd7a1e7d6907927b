"""What `delivery serve` keeps where a recipient, a report or a descriptor is refused, on real servers."""

import os
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from dns import rcode

from tests.support.dns_twin import DnsTwin
from tests.support.metrics import Scraped
from tests.support.patience import PATIENCE_SECONDS
from tests.support.real_queue import LETTER, RealQueue, until
from tests.support.servers import unavailable
from tests.support.smtp_sink import STALL, SmtpSink, say

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

Serving = Callable[..., "subprocess.Popen[str]"]
TO_TWO = ("--recipient", "bob@example.org", "--recipient", "cy@example.org")


def ended(server: "subprocess.Popen[str]") -> str:
    """What a server said that ends in good order."""
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)
    assert server.returncode == 0, said
    return said


def heard_until(server: "subprocess.Popen[str]", words: str) -> None:
    """Wait until a running server says these words."""
    assert server.stderr
    source, heard = server.stderr.fileno(), bytearray()
    os.set_blocking(source, False)

    def has_come() -> bool:
        with suppress(BlockingIOError):
            heard.extend(os.read(source, 2**20))
        return words.encode() in heard

    until(has_come)
    os.set_blocking(source, True)


def recipients_of(sink: SmtpSink) -> list[str]:
    return [recipient for mail in sink.mails for recipient in mail.recipients]


def kill_between_two_recipients(queue: RealQueue, sink: SmtpSink, serving: Serving) -> None:
    """Put a mail for two, and kill the server once one of them has it and the other's attempt has begun."""
    file = queue.line.home / "letter.eml"
    file.write_bytes(LETTER)
    put = queue("enqueue", str(file), *TO_TWO, "--json")
    mail = put.json["enqueued"][0]["id"]

    def outcomes() -> list[str]:
        shown = queue.line("delivery", "show", "spool", mail, "--json")
        return [str(attempt["outcome"]) for attempt in shown.json["attempts"]] if shown.code == 0 else []

    server = serving(sink)
    until(lambda: sorted(outcomes()) == ["None", "delivered"])
    server.kill()
    server.wait()


@pytest.mark.thorough
def test_a_redrive_leaves_out_who_has_the_mail_by_the_journal(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Serving
) -> None:
    """Given a server that is killed once one of two recipients has the mail, and a consumer that rejects the mail."""
    sink = sinks(END=[say("250 2.0.0 taken"), STALL])
    kill_between_two_recipients(queue, sink, serving)
    had = recipients_of(sink)
    rejected = queue("dequeue", "--exec", "false", "--limit", "1", "--wait", "20s")
    assert rejected.code == 1, rejected.err

    looked = queue("redrive", "--dry-run", "--json")
    redriven = queue("redrive", "--json")
    second = serving(sink)
    until(lambda: len(sink.mails) == 2)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    ended(second)

    assert len(had) == 1
    assert (looked.json["redriven"], looked.json["recipients_skipped"]) == (1, 1), looked.err
    assert (redriven.code, redriven.json["redriven"], redriven.json["recipients_skipped"]) == (0, 1, 1), redriven.err
    assert sorted(recipients_of(sink)) == ["RCPT TO:<bob@example.org>", "RCPT TO:<cy@example.org>"]


@pytest.mark.thorough
def test_a_redrive_for_all_recipients_delivers_again(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Serving
) -> None:
    sink = sinks(END=[say("250 2.0.0 taken"), STALL])
    kill_between_two_recipients(queue, sink, serving)
    had = recipients_of(sink)
    assert queue("dequeue", "--exec", "false", "--limit", "1", "--wait", "20s").code == 1

    redriven = queue("redrive", "--all-recipients", "--json")
    second = serving(sink)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    ended(second)

    assert (redriven.code, redriven.json["redriven"], redriven.json["recipients_skipped"]) == (0, 1, 0), redriven.err
    assert len(had) == 1
    assert sorted(recipients_of(sink)) == sorted([*had, "RCPT TO:<bob@example.org>", "RCPT TO:<cy@example.org>"])


@pytest.mark.thorough
def test_a_report_that_is_refused_reaches_the_postmaster_and_is_counted(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Serving, tmp_path: Path
) -> None:
    sink = sinks(RCPT=[say("550 5.1.1 bob is not here"), say("550 5.1.1 ann is not here")])
    metrics = tmp_path / "delivery.prom"
    queue.put("first", options=("--sender", "ann@example.org"))

    server = serving(sink, "--postmaster", "postmaster@out.example.org", "--metrics-file", str(metrics))
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    ended(server)

    (report,) = sink.mails
    assert (report.sender.split()[1], report.recipients) == ("FROM:<>", ["RCPT TO:<postmaster@out.example.org>"])
    assert b"Final-Recipient: rfc822; ann@example.org" in report.content
    lost = Scraped.of(metrics).by("mailmend_delivery_lost_reports_total", "told")
    assert lost == {("postmaster",): 1, ("nobody",): 0}


@pytest.mark.thorough
def test_without_free_descriptors_mails_wait_and_go_out_once_there_are_some(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Serving
) -> None:
    """Given a running server whose limit of open files falls to what it has open, and rises again."""
    sink, names = sinks(), [f"mail{number}" for number in range(20)]
    server = serving(sink)
    queue.put("before")
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)

    open_now = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
    queue.put(*names, options=("--sender", "ann@example.org"))
    heard_until(server, "Too many open files")
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
    until(lambda: len(sink.mails) == 1 + len(names))
    until(lambda: queue.names() == [])
    ended(server)

    assert recipients_of(sink) == ["RCPT TO:<bob@example.org>"] * (1 + len(names))
    assert queue("redrive", "--dry-run", "--json").json["redriven"] == 0


DNS_SERVER, MAIL_SERVER = ("127.0.0.77", 53), ("127.0.0.5", 25)
ZONES = {
    ("nx6.test", "MX"): ["10 mx.nx6.test."],
    ("mx.nx6.test", "A"): [MAIL_SERVER[0]],
    ("fail6.test", "MX"): ["10 mx.fail6.test."],
    ("mx.fail6.test", "A"): [MAIL_SERVER[0]],
    ("loop1.test", "MX"): ["10 localhost."],
    ("localhost", "A"): ["127.0.0.1"],
}


def own_resolver(folder: Path) -> tuple[str, ...]:
    """The words before a command for which DNS is ours."""
    program = shutil.which("unshare")
    try:
        for place in (DNS_SERVER, MAIL_SERVER):
            with socket.create_server(place):
                pass
        settings = folder / "resolv.conf"
        settings.write_text(f"nameserver {DNS_SERVER[0]}\n")
        words = (program or "unshare", "-m", "sh", "-c", f'mount --bind {settings} /etc/resolv.conf && exec "$@"', "sh")
        subprocess.run([*words, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        unavailable(f"ports 25 and 53, and a mount of one's own, are for root: {error}")
    return words


@pytest.mark.thorough
def test_domains_whose_servers_have_no_address_of_one_kind_get_their_mail(
    queue: RealQueue, beside: Callable[[SmtpSink | DnsTwin], None], serving: Serving, tmp_path: Path
) -> None:
    """Given NXDOMAIN and SERVFAIL to questions for AAAA; and a domain whose server is this host, which loops."""
    within = own_resolver(tmp_path)
    failing = {("mx.nx6.test", "AAAA"): rcode.NXDOMAIN, ("mx.fail6.test", "AAAA"): rcode.SERVFAIL}
    twin = DnsTwin(ZONES, failing, host=DNS_SERVER[0], port=DNS_SERVER[1])
    sink = SmtpSink(host=MAIL_SERVER[0], port=MAIL_SERVER[1])
    beside(twin)
    beside(sink)
    file = queue.line.home / "letter.eml"
    file.write_bytes(LETTER)
    recipients = ("bob@nx6.test", "cy@fail6.test", "dan@loop1.test")
    words = [word for recipient in recipients for word in ("--recipient", recipient)]
    assert queue("enqueue", str(file), "--sender", "ann@nx6.test", *words).code == 0

    server = serving(None, "--source", "127.0.0.1", "--source", "::1", within=within)
    until(lambda: len(sink.mails) == 3)
    until(lambda: queue.names() == [])
    said = ended(server)

    assert sorted(recipients_of(sink)) == [
        "RCPT TO:<ann@nx6.test>",
        "RCPT TO:<bob@nx6.test>",
        "RCPT TO:<cy@fail6.test>",
    ]
    (report,) = (mail for mail in sink.mails if mail.sender.startswith("MAIL FROM:<>"))
    assert b"Final-Recipient: rfc822; dan@loop1.test\r\nAction: failed\r\nStatus: 5.4.6" in report.content
    assert said.count("refused for now") == 0
    assert twin.asked["mx.nx6.test", "AAAA"] >= 1
    assert twin.asked["mx.fail6.test", "AAAA"] >= 1
