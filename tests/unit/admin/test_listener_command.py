"""`mailmend delivery serve --listen` as a person types it: hooks and users of mails that come in; `delivery user`."""

import io
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailmend.admin.delivery import connections as wiring
from mailmend.admin.delivery import serve as delivery
from mailmend.admin.local.processes import free_port
from mailmend.delivery.mail.hooks import ArrivalDecision, HookedArrival, RejectMail
from tests.support.certificates import authority
from tests.support.mail_clients import client_of, handed_over
from tests.support.queue_commands import QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay, entry_point, served


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


@pytest.fixture
def relay(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> StoppingRelay:
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_, **__: relay)
    return relay


def no_ads(mail: HookedArrival) -> ArrivalDecision:
    return RejectMail("554 5.7.1 no ads") if b"Subject: ad" in mail.content else None


def test_a_hook_at_the_end_of_data_refuses_a_mail_that_comes_in(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes the next one. Without a listener it would see no mail."""
    entry_point(monkeypatch, wiring.END_OF_DATA, f"{__name__}:no_ads")
    unheard = served(shell, *HOP, "--end-of-data", "ours")
    assert (unheard.code, "no mail comes in that --end-of-data could see" in unheard.err) == (2, True)
    port = free_port(["127.0.0.1"])

    def send() -> None:
        with pytest.raises(smtplib.SMTPDataError, match="no ads"):
            handed_over(port, "bob@example.com", b"Subject: ad\r\n\r\nBuy.\r\n")
        handed_over(port, "bob@example.com", b"Subject: hello\r\n\r\nBody.\r\n")

    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(send)
        ended = served(shell, *HOP, "--listen", f"127.0.0.1:{port}", "--end-of-data", "ours")
        sent.result()
    assert ended.code == 0, ended.err
    assert [b"Subject: hello" in content for _, content in relay.taken] == [True]


def test_a_user_of_the_file_logs_in_with_the_password_that_a_line_was_made_of(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"correct horse\r\n")))
    made = shell.line("delivery", "user", "ann@example.org")
    assert (made.code, "horse" in made.out) == (0, False)
    trusted, port, users = authority(tmp_path, "authority"), free_port(["127.0.0.1"]), tmp_path / "users"
    own = trusted.signed("own", "IP:127.0.0.1")
    users.touch(0o600)
    users.write_text(made.out)

    def send() -> None:
        context = ssl.create_default_context(cafile=trusted.file)
        with client_of(lambda: smtplib.SMTP_SSL("127.0.0.1", port, "a.example", context=context)) as client:
            client.login("ann@example.org", "correct horse")
            client.sendmail("ann@example.org", ["bob@example.com"], b"Subject: hello\r\n\r\n")

    files = ("--listen-tls-cert", str(own.certificate), "--listen-tls-key", str(own.key), "--listen-users", str(users))
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(send)
        ended = served(shell, *HOP, "--listen", f"smtps://127.0.0.1:{port}", *files, "--listen-auth", "required")
        sent.result()
    assert ended.code == 0, ended.err
    assert b" with ESMTPSA id " in relay.taken[0][1]
    assert "horse" not in ended.err
