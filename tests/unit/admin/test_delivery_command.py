"""`mailmend delivery serve` as a person types it: a whole queue in memory, and a server that answers by a script."""

import signal
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import EntryPoint
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from mailmend.admin.delivery import connections as wiring
from mailmend.admin.delivery import serve as delivery
from mailmend.admin.delivery import serve_request
from mailmend.admin.delivery.serve_request import DeliveryRequest
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.local.processes import free_port
from mailmend.delivery.mail.attempts import BeforeContent, DeliveryAttempt, RecipientResult, at_once
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import DeleteRecipient, HookedAttempt, PostDecision
from mailmend.delivery.mail.settling import DEFAULT_SCHEDULE
from mailmend.delivery.metrics import DELIVERY_METRICS, REFUSED_BY_DOMAIN
from mailmend.delivery.smtp.outgoing.addresses import IpNetwork, OwnHost
from mailmend.delivery.transports import SourceAddress
from mailmend.mailqueue.codec import attribute
from mailmend.model.ids import QueueName
from tests.support.certificates import authority
from tests.support.commands import Ended
from tests.support.deliveries import ACCEPTED, LATER, NEVER, ScriptedRelay, TableHops
from tests.support.mail_clients import LIMIT_SECONDS, client_of, handed_over
from tests.support.metrics import Scraped
from tests.support.queue_commands import JAMES, QueueShell, queue_shell


@dataclass
class StoppingRelay(ScriptedRelay):
    """Sends the server SIGTERM once so many mails were taken."""

    wanted: int = 1
    after_each: Callable[[], None] = lambda: None
    named: list[tuple[str, Path | None, int]] = field(default_factory=list)

    async def deliver(
        self, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent = at_once
    ) -> Sequence[RecipientResult]:
        results = await super().deliver(attempt, content, before_content)
        self.after_each()
        if len(self.taken) >= self.wanted:
            signal.raise_signal(signal.SIGTERM)
        return results


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


@pytest.fixture
def relay(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> StoppingRelay:
    relay = StoppingRelay(shell.clock)

    def relay_of(host_name: str, authorities: Path | None, mails_per_connection: int) -> StoppingRelay:
        relay.named.append((host_name, authorities, mails_per_connection))
        return relay

    monkeypatch.setattr(delivery, "relay_of", relay_of)
    return relay


def served(shell: QueueShell, *options: str) -> Ended:
    return shell.line("delivery", "serve", *options)


HOP = ("spool", "--next-hop", "127.0.0.1:2525")


def test_the_mails_of_a_queue_go_to_the_next_server_until_it_is_stopped(
    shell: QueueShell, relay: StoppingRelay
) -> None:
    """Each recipient by itself; the sums are told, and the queue is empty."""
    shell.put("one", recipients=("bob@example.org", "cy@example.com"))
    relay.wanted = 2
    ended = served(shell, *HOP, "--json", "--concurrency", "1")
    assert ended.code == 0, ended.err
    assert ended.json["recipients"] == {
        "delivered": 2,
        "refused": 0,
        "failed": 0,
        "expired": 0,
        "returned": 0,
        "deleted": 0,
    }
    assert {(str(one.hop), one.source.address) for _, one in relay.attempts} == {("127.0.0.1:2525", "")}
    assert shell.names() == []
    assert "Delivering spool by 127.0.0.1:2525 until SIGTERM or Ctrl-C." in ended.err


def test_a_mail_that_was_refused_for_now_comes_again_by_the_schedule_that_was_typed(
    shell: QueueShell, relay: StoppingRelay
) -> None:
    """For its transport, which is an attribute of the mail; due mails move without another command."""
    relay.scripts["bob@example.org"] = [LATER, LATER, ACCEPTED]
    shell.put(
        "one",
        recipients=("bob@example.org",),
        attributes={"transportid": attribute("alerts")},
    )
    ended = served(shell, *HOP, "--retry", "1h", "--retry", "alerts=2m,10m")
    assert ended.code == 0, ended.err
    first, second, third = [at for at, _ in relay.attempts]
    assert timedelta(minutes=2) <= timedelta(seconds=second - first) < timedelta(minutes=3)
    assert timedelta(minutes=10) <= timedelta(seconds=third - second) < timedelta(minutes=12)
    assert shell.names() == []
    assert ended.err.count("a recipient was refused for now") == 2


def test_retries_have_a_number_an_age_and_a_jitter_for_each_transport() -> None:
    """A transport has what is said for all others of what is not said for it."""
    request = DeliveryRequest(
        settings=QueueSettings(ConnectionSettings(keyspace="mail"), QueueName("spool")),
        retry_counts={"": 3, "alerts": 0},
        longest_ages={"alerts": timedelta(hours=1)},
        retry_jitters={"": 0.0},
    )
    settings = request.delivery()
    alerts = settings.schedule("alerts")
    bulk = settings.schedule("bulk")
    assert (alerts.count, alerts.longest_age, alerts.jitter) == (0, timedelta(hours=1), 0.0)
    assert (bulk.count, bulk.longest_age, bulk.jitter) == (3, timedelta(days=5), 0.0)
    assert alerts.intervals == bulk.intervals == DEFAULT_SCHEDULE.intervals


def test_up_to_50000_attempts_may_be_made_at_once(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may need two open files, its own connection and the next one."""
    monkeypatch.setattr(delivery, "allow_open_files", lambda wanted: wanted)
    settings = QueueSettings(ConnectionSettings(keyspace="mail"), QueueName("spool"))
    more = served(shell, *HOP, "--concurrency", "50001")
    assert DeliveryRequest(settings=settings, concurrency=50_000).open_files > 100_000
    shell.put("one", recipients=("bob@example.org",))
    most = served(shell, *HOP, "--concurrency", "50000", "--prefetch", "50000", "--domain-concurrency", "50000")
    assert (more.code, "50001 is not in the range 1<=x<=50000" in more.err) == (2, True)
    assert (most.code, relay.had) == (0, ["bob@example.org"])


def test_a_mail_has_failed_after_its_last_retry(shell: QueueShell, relay: StoppingRelay) -> None:
    """As many as were typed for its transport."""
    relay.scripts["bob@example.org"] = [LATER, LATER, LATER]
    transport = {"transportid": attribute("alerts")}
    shell.put("one", recipients=("bob@example.org",), sender="ann@example.org", attributes=transport)
    ended = served(shell, *HOP, "--retry-count", "alerts=1", "--retry-count", "5")
    assert ended.code == 0, ended.err
    assert relay.recipients.count("bob@example.org") == 2
    assert relay.reports() == [("bob@example.org", "failed")]


def test_the_sender_of_a_failure_is_written_to(shell: QueueShell, relay: StoppingRelay) -> None:
    """By the name that was typed for this host; the report goes the same way."""
    relay.scripts["bob@example.org"] = [NEVER]
    shell.put("one", recipients=("bob@example.org",), sender="ann@example.org")
    ended = served(shell, *HOP, "--helo", "out.example.org")
    assert ended.code == 0, ended.err
    assert relay.reports() == [("bob@example.org", "failed")]
    assert b"From: Mail Delivery System <MAILER-DAEMON@out.example.org>" in relay.taken[0][1]
    assert relay.named == [("out.example.org", None, 1)]


def test_mails_are_sent_from_the_addresses_that_were_typed(shell: QueueShell, relay: StoppingRelay) -> None:
    """In turn, each with its name."""
    for name in ("one", "two"):
        shell.put(name, recipients=("bob@example.org",))
    relay.wanted = 2
    served(shell, *HOP, "--source", "192.0.2.1=a.example.org", "--source", "192.0.2.2", "--smtp-tls", "required")
    assert {(one.source.address, one.source.helo) for _, one in relay.attempts} == {
        ("192.0.2.1", "a.example.org"),
        ("192.0.2.2", ""),
    }
    assert {one.tls.value for _, one in relay.attempts} == {"required"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*HOP, "--pre-delivery", "routing"), "no installed package has an entry point 'routing'"),
        (("--next-hop", "relay"), "it is not said which queue is delivered"),
        (("--next-hop", "a:b:c"), "is not HOST:PORT"),
        (("--next-hop", "a..b:25"), "is not HOST:PORT"),
        (("--next-hop", "relay:99999"), "port"),
        ((*HOP, "--source", "nowhere"), "is no address"),
        ((*HOP, "--retry", "1m,soon"), "is not a duration"),
        ((*HOP, "--retry", ""), "is not a duration"),
        ((*HOP, "--retry-count", "alerts=-1"), "is no number of retries"),
        ((*HOP, "--longest-age", "0s"), "is no time at all"),
        ((*HOP, "--retry-jitter", "150%"), "is no percentage"),
        ((*HOP, "--waiting-max", "1h"), "longer than 20m"),
        ((*HOP, "--listen", "2525"), "is no place to listen at"),
        ((*HOP, "--listen", "http://127.0.0.1:2525"), "is no place to listen at"),
        ((*HOP, "--listen", "127.0.0.1:99999"), "is not a port"),
        ((*HOP, "--listen", "smtps://127.0.0.1:2525"), "smtps://127.0.0.1:2525 needs a certificate and its key"),
        ((*HOP, "--listen-tls", "required"), "--listen-tls required needs a certificate and its key"),
        ((*HOP, "--listen-tls-cert", "a.pem"), "TLS needs a certificate and its key"),
        ((*HOP, "--listen-tls-client-ca", "a.pem"), "TLS needs a certificate and its key"),
        ((*HOP, "--listen-tls-cert", "a.pem", "--listen-tls-key", "b.pem"), "a.pem cannot be used with the key b.pem"),
        ((*HOP, "--listen-users", "users"), "--listen-users needs a certificate and its key"),
        ((*HOP, "--listen-auth", "required"), "--listen-auth required has no users"),
        ((*HOP, "--end-of-data", "gate"), "no installed package has an entry point 'gate'"),
        ((*HOP, "--relay-from", "192.0.2.1/24"), "is no network"),
        ((*HOP, "--relay-from", "0.0.0.0/0"), "would be an open relay"),
    ],
)
def test_options_that_cannot_be_are_refused(
    shell: QueueShell, relay: StoppingRelay, options: tuple[str, ...], said: str
) -> None:
    """Before anything is connected to."""
    ended = served(shell, *options)
    assert ended.code == 2
    assert said in ended.err
    assert not shell.asked


def test_a_keyspace_without_delayed_mails_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relay: StoppingRelay
) -> None:
    """As nothing could be tried again: James's own tables have none."""
    ended = served(queue_shell(monkeypatch, tmp_path, JAMES), *HOP)
    assert ended.code == 2
    assert "dueMails" in ended.err


def test_the_protocol_and_the_mails_of_a_connection_are_as_typed(shell: QueueShell, relay: StoppingRelay) -> None:
    """LMTP, and fifty over one."""
    shell.put("one", recipients=("bob@example.org",))
    served(shell, *HOP, "--protocol", "lmtp", "--mails-per-connection", "50", "--helo", "a.example.org")
    assert [one.protocol.value for _, one in relay.attempts] == ["lmtp"]
    assert relay.named == [("a.example.org", None, 50)]


def test_the_limits_of_a_policy_file_hold(shell: QueueShell, relay: StoppingRelay, tmp_path: Path) -> None:
    """Two at once to a domain."""
    file = tmp_path / "policies.yaml"
    file.write_text("- fields: [recipientdomain]\n  default: {concurrency: 2}\n")
    for number in range(6):
        shell.put(str(number), recipients=("bob@example.org",))
    relay.wanted = 6
    ended = served(shell, *HOP, "--policies", str(file))
    assert ended.code == 0, ended.err
    assert relay.most == {"example.org": 2}


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ((), 20),
        (("--concurrency", "10"), 5),
        (("--concurrency", "1"), 1),
        (("--domain-concurrency", "7"), 7),
        (("--domain-concurrency", "0"), 30),
    ],
    ids=["20", "half of all", "one", "as typed", "no limit"],
)
def test_without_a_policy_a_domain_has_its_share_of_the_attempts(
    shell: QueueShell, relay: StoppingRelay, options: Sequence[str], most: int
) -> None:
    for number in range(30):
        shell.put(str(number), recipients=("bob@example.org",))
    relay.wanted = 30
    ended = served(shell, *HOP, *options)
    assert ended.code == 0, ended.err
    assert relay.most == {"example.org": most}


def test_a_policy_file_is_read_again_all_or_nothing(shell: QueueShell, relay: StoppingRelay, tmp_path: Path) -> None:
    """One domain is suspended; a file that is broken or needs a new start changes nothing, a right one lets it go."""
    file = tmp_path / "policies.yaml"
    file.write_text("suspends: [{recipientdomain: b.org}]\n")
    for domain in ("a.org", "b.org", "c.org", "d.org"):
        shell.put(domain, recipients=(f"bob@{domain}",))
    texts = ["suspends: [{domain: b.org}]", "rate: {algorithm: sliding}", "suspends: []\ntenants: {acme: 3}"]
    relay.wanted = 4

    def changed() -> None:
        if texts:
            file.write_text(texts.pop(0))
            signal.raise_signal(signal.SIGHUP)

    relay.after_each = changed
    ended = served(shell, *HOP, "--policies", str(file), "--concurrency", "1")

    assert ended.code == 0, ended.err
    assert relay.most.keys() == {"a.org", "b.org", "c.org", "d.org"}
    assert ended.err.count("the policies stay as they were") == 2
    assert ended.err.count("the policies were read again") == 1


def test_a_policy_file_that_cannot_be_used_is_refused(shell: QueueShell, relay: StoppingRelay, tmp_path: Path) -> None:
    """With line and column, before anything is connected to."""
    file = tmp_path / "policies.yaml"
    file.write_text("- fields: [domain]\n")
    ended = served(shell, *HOP, "--policies", str(file))
    assert ended.code == 2
    assert f"{file}, line 1, column 12: 'domain' is no field" in ended.err
    assert not shell.asked


def test_of_several_errors_of_a_policy_file_the_server_says_the_first_and_the_command_for_the_others(
    shell: QueueShell, relay: StoppingRelay, tmp_path: Path
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text("- fields: [domain]\n- {default: {rate: 0}}\n")

    ended = served(shell, *HOP, "--policies", str(file))

    assert ended.code == 2
    assert f"{file}, line 1, column 12: 'domain' is no field" in ended.err
    assert "line 2" not in ended.err
    assert f"The file has 1 more error. To see all of them: mailmend policy lint {file}" in ended.err


def test_metrics_tell_what_became_of_recipients_and_what_is_at_work(
    shell: QueueShell, relay: StoppingRelay, tmp_path: Path
) -> None:
    """Every name of the table, by queue; at the end nothing is at work, and no domain has refused within a minute."""
    file = tmp_path / "delivery.prom"
    relay.scripts["bob@example.org"] = [LATER, ACCEPTED]
    shell.put("one", recipients=("bob@example.org",))
    ended = served(shell, *HOP, "--metrics-file", str(file))
    assert ended.code == 0, ended.err
    scraped = Scraped.of(file.read_text())
    recipients = "mailmend_delivery_recipients_total"
    assert scraped.one(recipients, queue="spool", end="delivered") == 1
    assert scraped.one(recipients, queue="spool", end="refused") == 1
    turns = "mailmend_delivery_pickup_turns_total"
    assert [scraped.one(turns, queue="spool", end=end) for end in ("picked", "refused")] == [2, 0]
    assert scraped.one("mailmend_delivery_active_recipients", queue="spool", stage="delivering") == 0
    assert {one.name for one in DELIVERY_METRICS} - {REFUSED_BY_DOMAIN.name} == {
        line.split("{")[0] for line in file.read_text().splitlines() if not line.startswith("#")
    }


def test_a_file_of_metrics_that_cannot_be_written_is_refused(
    shell: QueueShell, relay: StoppingRelay, tmp_path: Path
) -> None:
    """Before anything is connected to."""
    ended = served(shell, *HOP, "--metrics-file", str(tmp_path / "nowhere" / "delivery.prom"))
    assert ended.code == 2
    assert not shell.asked


def entry_point(monkeypatch: pytest.MonkeyPatch, group: str, place: str) -> None:
    found = EntryPoint("ours", place, group)
    monkeypatch.setattr(wiring, "entry_points", lambda group: [found] if group == found.group else [])


async def delete_failed(attempt: HookedAttempt) -> PostDecision:
    return DeleteRecipient() if attempt.end is EntryEnd.FAILED else None


def test_a_hook_of_an_installed_package_decides(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of its entry point."""
    entry_point(monkeypatch, wiring.POST_DELIVERY, f"{__name__}:delete_failed")
    relay.scripts |= {"bob@example.org": [NEVER], "cy@example.org": [LATER, ACCEPTED]}
    shell.put("one", recipients=("bob@example.org",), sender="ann@example.org")
    shell.put("two", recipients=("cy@example.org",))
    ended = served(shell, *HOP, "--post-delivery", "ours", "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["recipients"]["deleted"], ended.json["recipients"]["failed"]) == (1, 0)
    assert relay.reports() == []


@pytest.mark.parametrize("place", ["nowhere:hook", f"{__name__}:HOP", f"{__name__}:nothing"])
def test_a_hook_that_cannot_be_called_is_refused(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """No such module, no such name, no function."""
    entry_point(monkeypatch, wiring.PRE_DELIVERY, place)
    ended = served(shell, *HOP, "--pre-delivery", "ours")
    assert ended.code == 2
    assert "the entry point 'ours' of mailmend.pre_delivery" in ended.err
    assert not shell.asked


def test_without_a_next_server_mail_goes_to_the_servers_of_each_domain(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As DNS names them; this host itself is none of them, by whichever name, and private networks only if named."""
    asked = list[tuple[OwnHost, int, Sequence[IpNetwork]]]()

    def dns_hops(
        _clock: object, own: OwnHost, sources: Sequence[SourceAddress], internal: Sequence[IpNetwork]
    ) -> TableHops:
        asked.append((own, len(sources), internal))
        return TableHops()

    monkeypatch.setattr(serve_request, "dns_hops", dns_hops)
    shell.put("one", recipients=("bob@example.org",))
    words = ("--helo", "out.example.org", "--own-host", "mx.example.net", "--own-host", "203.0.113.5")
    ended = served(shell, "--queue", "spool", *words, "--next-hops-in", "10.0.0.0/8")
    assert ended.code == 0, ended.err
    assert [one.hop.host for _, one in relay.attempts] == ["mx.example.org"]
    ((own, sources, internal),) = asked
    assert {"out.example.org", "mx.example.net"} <= own.names
    assert own.addresses == {ip_address("203.0.113.5")}
    assert (sources, internal) == (1, (ip_network("10.0.0.0/8"),))
    assert "by the servers of each domain" in ended.err


def test_a_next_server_of_ipv6_is_written_in_brackets(shell: QueueShell, relay: StoppingRelay) -> None:
    """With its port behind them."""
    shell.put("one", recipients=("bob@example.org",))
    ended = served(shell, "spool", "--next-hop", "[::1]:2525")
    assert ended.code == 0, ended.err
    assert [(one.hop.address, one.hop.port) for _, one in relay.attempts] == [("::1", 2525)]


def test_a_mail_that_comes_in_by_smtp_goes_out(shell: QueueShell, relay: StoppingRelay) -> None:
    """Through the queue, with the header field of its coming, which bears the name that was typed."""
    port = free_port(["127.0.0.1"])
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(handed_over, port, "bob@example.com", b"Subject: hello\r\n\r\nBody.\r\n")
        ended = served(shell, *HOP, "--listen", f"127.0.0.1:{port}", "--helo", "in.example.org")
        sent.result()

    assert ended.code == 0, ended.err
    ((_, content),) = relay.taken
    assert b"by in.example.org with ESMTP" in content
    assert content.endswith(b"\r\nSubject: hello\r\n\r\nBody.\r\n")
    assert f"Taking mails at smtp://127.0.0.1:{port} from 127.0.0.0/8, ::1/128." in ended.err
    assert shell.names() == []


def test_rules_for_mails_that_come_in_are_read_again(shell: QueueShell, relay: StoppingRelay, tmp_path: Path) -> None:
    """The first mail loses one header field, the next the other."""
    file, changed, port = tmp_path / "policies.yaml", threading.Event(), free_port(["127.0.0.1"])
    file.write_text("incoming: [{remove: X-A}]\n")
    relay.wanted = 2

    def change() -> None:
        file.write_text("incoming: [{remove: X-B}]\n")
        signal.raise_signal(signal.SIGHUP)
        changed.set()

    def send() -> None:
        for _ in range(2):
            handed_over(port, "bob@example.com", b"X-A: 1\r\nX-B: 2\r\n\r\nBody.\r\n")
            assert changed.wait(LIMIT_SECONDS)

    relay.after_each = change
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(send)
        ended = served(shell, *HOP, "--listen", f"127.0.0.1:{port}", "--policies", str(file))
        sent.result()

    assert ended.code == 0, ended.err
    assert [[name in content for name in (b"X-A", b"X-B")] for _, content in relay.taken] == [
        [False, True],
        [True, False],
    ]


def test_the_certificate_of_the_listener_is_read_again(shell: QueueShell, relay: StoppingRelay, tmp_path: Path) -> None:
    """One that was broken changes nothing; the mails come by TLS from the first byte."""
    trusted, port = authority(tmp_path, "authority"), free_port(["127.0.0.1"])
    first, renewed = (trusted.signed(name, "IP:127.0.0.1") for name in ("first", "renewed"))
    is_renewed, changes, changed = list[bool](), [b"garbage", renewed.certificate.read_bytes()], threading.Semaphore(0)
    relay.wanted = 3

    def change() -> None:
        if changes:
            if len(changes) == 1:
                renewed.key.replace(first.key)
            first.certificate.write_bytes(changes.pop(0))
            signal.raise_signal(signal.SIGHUP)
            changed.release()

    def send() -> None:
        context = ssl.create_default_context(cafile=trusted.file)
        for number in range(3):
            with client_of(lambda: smtplib.SMTP_SSL("127.0.0.1", port, "a.example", context=context)) as client:
                assert isinstance(client.sock, ssl.SSLSocket)
                is_renewed.append("renewed" in str(client.sock.getpeercert()))
                client.sendmail("ann@example.org", ["bob@example.com"], b"Subject: hello\r\n\r\n")
            assert number == 2 or changed.acquire(timeout=LIMIT_SECONDS)

    relay.after_each = change
    files = ("--listen-tls-cert", str(first.certificate), "--listen-tls-key", str(first.key))
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(send)
        ended = served(shell, *HOP, "--listen", f"smtps://127.0.0.1:{port}", *files)
        sent.result()

    assert ended.code == 0, ended.err
    assert is_renewed == [False, False, True]
    assert ended.err.count("the listener's certificate stays as it was") == 1
    assert ended.err.count("the listener's certificate was read again") == 1
    assert all(b" with ESMTPS id " in content for _, content in relay.taken)


def test_an_address_where_another_program_listens_is_refused(shell: QueueShell, relay: StoppingRelay) -> None:
    """By its name, and nothing is delivered."""
    shell.put("one", recipients=("bob@example.org",))
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"lmtp://127.0.0.1:{other.getsockname()[1]}"
        ended = served(shell, *HOP, "--listen", place)
    assert ended.code == 2
    assert f"mails cannot be taken at {place}" in ended.err
    assert shell.names() == ["one"]
