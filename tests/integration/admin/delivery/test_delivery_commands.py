"""`mailmend delivery serve` on a real Cassandra, RabbitMQ and object store, to servers of mail on loopback."""

import signal
import smtplib
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from mailmend.admin.local.processes import free_port
from tests.support.certificates import authority
from tests.support.mail_clients import client_of
from tests.support.patience import PATIENCE_SECONDS
from tests.support.real_queue import LETTER, RealQueue, until
from tests.support.smtp_sink import STALL, Answer, SmtpSink, say

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


def _refused(client: smtplib.SMTP, transport: str) -> str | None:
    """What a mail with this header is told that has to come again; None where it was taken."""
    try:
        client.sendmail("ann@example.org", ["bob@example.org"], f"X-Transport: {transport}\r\n".encode() + LETTER)
    except smtplib.SMTPRecipientsRefused as error:
        return str(error)
    except smtplib.SMTPDataError as error:
        return str(error)
    return None


def test_what_was_refused_for_now_comes_again_and_a_failure_is_reported(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    sink = sinks(RCPT=[say("450 4.2.0 later"), say("250 fine"), say("550 5.1.1 <bob@example.org> is not here")])
    queue.put("first")
    server = serving(sink)
    until(lambda: len(sink.mails) == 1)
    queue.put("second", options=("--sender", "ann@example.org"))
    until(lambda: len(sink.mails) == 2)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)

    assert server.returncode == 0, said
    assert sink.mails[0].content == LETTER
    assert [one.split()[0:2] for one in sink.mails[1].recipients] == [["RCPT", "TO:<ann@example.org>"]]
    assert b"Final-Recipient: rfc822; bob@example.org\r\nAction: failed\r\nStatus: 5.1.1" in sink.mails[1].content
    assert sink.mails[1].sender.startswith("MAIL FROM:<>")
    assert queue.names() == []
    assert [said.count(event) for event in ("refused for now", "refused for good", "has the mail")] == [1, 1, 2]
    assert "bob@" not in said


def test_a_reply_in_any_bytes_is_kept_and_a_report_on_the_content_is_delivered(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Given a server that answers in Latin-1, takes 7 bits alone, and refuses the third mail for its content."""
    not_so = say("554 5.6.1 8 bit data is not taken here")
    taken = say("250 2.0.0 taken")
    sink = sinks(RCPT=[Answer(b"451 4.7.1 Empf\xe4nger: sp\xe4ter\r\n")], END=[taken, taken, not_so])
    sink.extensions = ("SIZE 9999999",)
    letter = queue.line.home / "grüße.eml"
    letter.write_bytes("Subject: a\r\n\r\nGrüße\r\n".encode())
    envelope = ("--recipient", "bob@example.org", "--sender", "ann@example.org")
    assert queue("enqueue", str(letter), *envelope, "--recipient", "cy@example.org").code == 0
    server = serving(sink, "--retry", "1h")
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue.line("delivery", "list", "spool", "--in-state", "defer", "--json").json["entries"] != [])
    (put_off,) = queue.line("delivery", "list", "spool", "--in-state", "defer", "--json").json["entries"]
    assert queue.line("delivery", "retry", "spool", "--all", "--json").json["changed"] == 1
    until(lambda: len(sink.mails) == 2)
    assert queue("enqueue", str(letter), *envelope).code == 0
    until(lambda: len(sink.mails) == 3)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)

    assert server.returncode == 0, said
    assert put_off["reply"] == "451 4.7.1 Empf\ufffdnger: sp\ufffdter"
    assert sorted(str(one.recipients) for one in sink.mails[:2]) == [
        "['RCPT TO:<bob@example.org>']",
        "['RCPT TO:<cy@example.org>']",
    ]
    assert all(one.content.endswith(b"\r\n\r\nGr=C3=BC=C3=9Fe\r\n") for one in sink.mails[:2])
    report = sink.mails[2]
    assert report.sender.startswith("MAIL FROM:<> ")
    assert report.recipients == ["RCPT TO:<ann@example.org>"]
    assert b"Status: 5.6.1" in report.content
    assert b"Content-Type: text/rfc822-headers" in report.content
    assert report.content.isascii()
    assert queue("redrive", "--dry-run", "--json").json["redriven"] == 0


def test_a_server_that_is_killed_in_an_attempt_loses_no_mail(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Given one that dies when all of a mail is sent and no answer came, the next one holds it, as it is told to.

    Once it is released it is delivered, and both attempts are shown.
    """
    sink = sinks(END=[STALL])
    (mail,) = queue.put("first")

    def tried() -> list[dict[str, object]]:
        shown = queue.line("delivery", "show", "spool", mail, "--json")
        return shown.json["attempts"] if shown.code == 0 else []

    server = serving(sink)
    until(lambda: bool(tried()))
    server.kill()
    server.wait()
    assert (sink.mails, [one["outcome"] for one in tried()]) == ([], [None])

    following = serving(sink, "--uncertain", "hold")
    until(lambda: queue.line("delivery", "list", "spool", "--in-state", "hold", "--json").json["entries"] != [])
    (held,) = queue.line("delivery", "list", "spool", "--in-state", "hold", "--json").json["entries"]
    assert held["order"]["why"].startswith("127.0.0.1 may have the mail: an attempt of 2")
    assert not sink.mails
    assert queue.line("delivery", "release", "spool", "--all").code == 0
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    following.send_signal(signal.SIGTERM)
    assert following.wait(PATIENCE_SECONDS) == 0
    assert sink.mails[0].content == LETTER
    assert [one["outcome"] for one in tried()] == [None, "delivered"]


@pytest.mark.thorough
def test_mails_that_are_being_put_off_when_their_server_is_killed_are_delivered_once(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Whichever of them the queue has again at that moment: the next server puts the same ones off."""
    names = [f"{number}" for number in range(12)]
    sink = sinks(RCPT=[say("450 4.2.0 later")] * len(names))
    queue.put(*names)

    server = serving(sink, "--uncertain", "hold", "--retry", "3s")
    until(lambda: sum(line.startswith("RCPT") for line in sink.lines) >= len(names) // 2)
    server.kill()
    server.wait()
    following = serving(sink, "--uncertain", "hold", "--retry", "3s")
    until(lambda: len(sink.mails) >= len(names))
    until(lambda: queue.names() == [])
    following.send_signal(signal.SIGTERM)

    assert following.wait(PATIENCE_SECONDS) == 0
    assert len(sink.mails) == len(names)


@pytest.mark.thorough
def test_who_is_started_where_a_server_was_killed_has_its_name_and_its_part_at_once(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    """Given a limit of one, and an attempt that lasts: both mails go out at once; were the rate spent, in 36 s."""
    sink, policies = sinks(END=[STALL]), tmp_path / "policies.yaml"
    policies.write_text("[{fields: [recipientdomain], default: {concurrency: 1, rate: 100/3600}}]")
    first = serving(sink, "--policies", str(policies))
    queue.put("first", "second")
    until(lambda: sink.lines.count("DATA") == 1)
    (before,) = queue.line("delivery", "servers", "spool", "--json").json["servers"]
    first.kill()
    first.wait()
    killed_at = time.monotonic()
    second = serving(sink, "--policies", str(policies))
    until(lambda: len(sink.mails) == 2)
    assert time.monotonic() - killed_at < 40
    (after,) = queue.line("delivery", "servers", "spool", "--json").json["servers"]
    assert (after["name"], after["owner"] != before["owner"]) == (before["name"], True)
    second.send_signal(signal.SIGTERM)  # one that is killed keeps its part of what the next test shares for a minute
    assert second.wait(PATIENCE_SECONDS) == 0


@pytest.mark.thorough
def test_the_part_of_a_server_that_is_killed_is_the_others_a_minute_later(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    """Given a limit of two, of which each has one, and two attempts that last: until then nothing more begins."""
    sink, policies = sinks(END=[STALL, STALL]), tmp_path / "policies.yaml"
    policies.write_text("[{fields: [recipientdomain], default: {concurrency: 2}}]")
    first, second = (serving(sink, "--policies", str(policies), "--server", name) for name in "ab")

    def serving_now() -> list[str]:
        shown = queue.line("delivery", "servers", "spool", "--json").json
        return [one["name"] for one in shown["servers"] if one["state"] == "serving" and shown["settled"]]

    until(lambda: serving_now() == ["a", "b"])
    queue.put(*(f"mail{number}" for number in range(6)))
    until(lambda: sink.lines.count("DATA") == 2)
    first.kill()
    killed_at = time.monotonic()
    while not sink.mails:
        assert time.monotonic() - killed_at < 100
        time.sleep(0.2)
    assert time.monotonic() - killed_at > 50
    assert serving_now() == ["b"]
    until(lambda: len(sink.mails) == 5)
    second.kill()


def test_a_mail_that_a_client_hands_over_is_delivered(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    """By TLS, and tried again as the transport says that a rule of the policy file gave it by its header.

    It is refused for now until the queue was counted, and so is one of a transport whose quota is full.
    """
    sink, port = sinks(RCPT=[say("450 4.2.0 later"), say("250 fine")]), free_port(["127.0.0.1"])
    own = authority(tmp_path, "authority").signed("own", "IP:127.0.0.1")
    tls = ("--listen-tls", "required", "--listen-tls-cert", str(own.certificate), "--listen-tls-key", str(own.key))
    policies = tmp_path / "policies.yaml"
    policies.write_text(
        "incoming: [{if: {client: 127.0.0.1, header: {X-Transport: '/(.+)/'}}, set: {transportid: '${1}'},"
        " remove: X-Transport}]\nquotas: [{name: per-transport, fields: [transportid],"
        " conditions: [{if: {transportid: closed}, then: {messages: 0}}], default: {messages: 1}}]"
    )
    retries = ("--retry", "1h", "--retry", "fast=1s")
    server = serving(sink, "--listen", f"127.0.0.1:{port}", *tls, *retries, "--policies", str(policies))

    with client_of(lambda: smtplib.SMTP("127.0.0.1", port, "client.example")) as client:
        client.starttls()
        until(lambda: not _refused(client, "fast"))
        assert "(452, b'4.3.1 the quota per-transport is full;" in str(_refused(client, "closed"))
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)
    assert server.returncode == 0, said
    assert sink.mails[0].content.startswith(b"Received: from client.example ([127.0.0.1])")
    assert sink.mails[0].content.endswith(LETTER)
    assert "a mail was taken" in said


def _said(port: int, sent: bytes) -> bytes:
    """What a client hears that waits for the greeting, sends this, and ends its input at once."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as client:
        said = client.recv(1000)
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        while data := client.recv(65536):
            said += data
    return said


@pytest.mark.thorough
def test_a_client_that_ends_its_input_is_answered_and_hides_no_field(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    """Given a lone CR in a header, by SMTP and by `queue enqueue`; a mail behind an HTTP request is none."""
    sink, port, policies = sinks(), free_port(["127.0.0.1"]), tmp_path / "policies.yaml"
    policies.write_text("incoming: [{remove: X-Internal-Auth}]")
    server = serving(sink, "--listen", f"127.0.0.1:{port}", "--policies", str(policies))
    with client_of(lambda: smtplib.SMTP("127.0.0.1", port, "client.example")):
        pass
    odd = b"Subject: hi\rX-Internal-Auth: yes\r\n\r\nbody\n.\r\nend\r\n"
    talk = b"HELO a.example\r\nMAIL FROM:<ann@example.org>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\n" + odd + b".\r\n"
    answered = _said(port, talk)
    refused = _said(port, b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + talk)
    until(lambda: len(sink.mails) == 1)
    file = tmp_path / "odd.eml"
    file.write_bytes(odd)
    assert queue("enqueue", str(file), "--recipient", "bob@example.org").code == 0
    until(lambda: len(sink.mails) == 2)
    until(lambda: queue("size", "--json").json["mails"] == 0)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)

    assert server.returncode == 0, said
    assert answered.count(b"\r\n250 2.0.0 taken as ") == 1
    assert refused.splitlines()[1:] == [b"500 5.5.2 this is no command of SMTP; the connection ends"]
    assert sink.mails[0].content.endswith(b"\r\nSubject: hi\r\n\r\nbody\r\n.\r\nend\r\n")
    assert b"X-Internal-Auth" not in sink.mails[0].content
    assert sink.mails[1].content == b"Subject: hi\r\nX-Internal-Auth: yes\r\n\r\nbody\r\n.\r\nend\r\n"


@pytest.mark.thorough
def test_patterns_that_took_for_ever_leave_a_server_that_delivers(
    queue: RealQueue,
    sinks: Callable[..., SmtpSink],
    serving: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
) -> None:
    """Given an expression with nested repetition and a header of 26 letters; and 100 stars of a token that may read."""
    sink, port, policies, tokens = sinks(), free_port(["127.0.0.1"]), tmp_path / "policies.yaml", tmp_path / "tokens"
    where, token = f"127.0.0.1:{free_port(['127.0.0.1'])}", "r" * 32
    policies.write_text("incoming: [{if: {header: {X-Job: '/^(([a-z0-9]+)[-_.]?)+$/'}}, set: {jobid: a}}]")
    tokens.write_text(f"watcher read {token}\n")
    tokens.chmod(0o600)
    queue.put("waits", options=("--due-in", "1h"))
    listening = ("--listen", f"127.0.0.1:{port}", "--policies", str(policies))
    server = serving(sink, *listening, "--http", where, "--tokens-file", str(tokens))
    with client_of(lambda: smtplib.SMTP("127.0.0.1", port, "client.example")) as client:
        client.sendmail("ann@example.org", ["bob@example.org"], b"X-Job: " + b"a" * 26 + b"!\r\n" + LETTER)
    until(lambda: len(sink.mails) == 1)
    query = {"recipient": "*" * 100 + "x"}
    answer = httpx2.get(f"http://{where}/entries", params=query, headers={"Authorization": f"Bearer {token}"})
    queue.put("after")
    until(lambda: len(sink.mails) == 2)
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=PATIENCE_SECONDS)

    assert server.returncode == 0, said
    assert sink.mails[0].content.endswith(b"X-Job: " + b"a" * 26 + b"!\r\n" + LETTER)
    assert (answer.status_code, answer.json()["entries"]) == (200, [])
    assert sink.mails[1].content == LETTER


def test_what_is_held_waits_until_it_is_released(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Although a flush lets everything else go; its bytes are those that were put in."""
    sink = sinks()
    queue.put("held", options=("--due-in", "1h"))
    held = queue.line("delivery", "hold", "spool", "--all", "--why", "spam?", "--json")
    assert (held.code, held.json and held.json["changed"]) == (0, 1), held.err
    queue.put("goes", options=("--due-in", "1h"))
    server = serving(sink)
    assert queue("flush").code == 0
    until(lambda: len(sink.mails) == 1)
    until(lambda: queue.line("delivery", "list", "spool", "--json").json["entries"][0]["due_at"] is None)
    released = queue.line("delivery", "release", "spool", "--all", "--json")
    until(lambda: queue.line("delivery", "release", "spool", "--all", "--json").json["changed"] == 0)
    assert released.code == 0, released.err
    until(lambda: len(sink.mails) == 2)
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE_SECONDS) == 0
    assert sink.mails[1].content == LETTER


def test_what_is_suspended_or_limited_waits_on_every_server_until_that_is_removed(
    queue: RealQueue, sinks: Callable[..., SmtpSink], serving: Callable[..., "subprocess.Popen[str]"]
) -> None:
    """Given two servers one after the other, both let other domains go; what is let go goes within seconds.

    Asked over HTTP, the server that has a mail says why it waits, and takes orders as commands do. The history has each
    change.
    """
    sink, file, why = sinks(), queue.line.home / "policies.yaml", ("--why", "they throttle us", "--json")
    file.write_text("policies: [{fields: [recipientdomain]}]")
    limit = ("--fields", "recipientdomain", "--if", "recipientdomain=example.net", "--concurrency", "0")
    suspended = queue.line("suspend", "add", "spool", "--domain", "example.org", "--for", "1h", *why)
    limited = queue.line("policy", "add", "spool", *limit, *why)
    assert (suspended.code, limited.code) == (0, 0), (suspended.err, limited.err)
    (held,) = queue.put("suspended")
    where = f"127.0.0.1:{free_port(['127.0.0.1'])}"

    def put(recipient: str) -> None:
        ended = queue("enqueue", str(queue.line.home / "letter.eml"), "--recipient", recipient)
        assert ended.code == 0, ended.err

    def served_another(count: int) -> "subprocess.Popen[str]":
        server = serving(sink, "--suspensions-every", "1s", "--policies", str(file), "--http", where)
        put("cy@example.com")
        until(lambda: len(sink.mails) == count)
        return server

    def said_at_the_end(server: "subprocess.Popen[str]") -> list[int]:
        server.send_signal(signal.SIGTERM)
        said = server.communicate(timeout=PATIENCE_SECONDS)[1]
        events = ("mails are suspended", "a condition sets limits", "a suspension is over", "a condition is over")
        return [said.count(event) for event in events]

    put("dan@example.net")
    assert said_at_the_end(served_another(1)) == [1, 1, 0, 0]
    second = served_another(2)
    listed = queue.line("policy", "list", "spool", "--json").json["conditions"]
    heeded = {server["server"]: server["parked"] for one in listed for server in one["servers"]}
    assert [parked for name, parked in heeded.items() if name.endswith(f" pid {second.pid}")] == [None]
    until(lambda: "they throttle us" in queue.line("delivery", "explain", held, "--ask", f"http://{where}").out)
    removed = queue.line("suspend", "remove", "spool", suspended.json["suspension"]["id"])
    assert removed.code == 0, removed.err
    until(lambda: len(sink.mails) == 3)
    with httpx2.Client(base_url=f"http://{where}") as client:
        entries = client.get("/entries").json()["entries"]
        assert [(one["recipient"], one["state"]) for one in entries] == [("dan@example.net", "active")]
        gone = client.delete(f"/conditions/{limited.json['condition']['id']}")
        assert (gone.status_code, client.get("/ready").json()["ready"]) == (200, True)
    until(lambda: len(sink.mails) == 4)
    for kind, noun, made in (("suspend", "suspension", suspended), ("policy", "condition", limited)):
        history = queue.line(kind, "list", "spool", "--history", "--json").json["history"]
        changes = [change for change in history if change[noun]["id"] == made.json[noun]["id"]]
        assert [change["event"] for change in changes] == ["removed", "added"]
    assert said_at_the_end(second) == [1, 1, 1, 1]
    assert [mail.recipients[0].split()[1] for mail in sink.mails] == [
        *["TO:<cy@example.com>"] * 2,
        "TO:<bob@example.org>",
        "TO:<dan@example.net>",
    ]
