"""`mailmend delivery serve` with a policy file that has transports, as a person types it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mailmend.admin.delivery import connections as wiring
from mailmend.admin.delivery import serve as delivery
from mailmend.admin.delivery import serve_request
from mailmend.admin.delivery.serve_request import DeliveryRequest
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.smtp.outgoing.addresses import OwnHost
from mailmend.delivery.transports import SourceAddress, TlsLevel, Transport
from mailmend.mailqueue.codec import attribute
from mailmend.model.ids import QueueName
from tests.support.deliveries import TableHops
from tests.support.queue_commands import QueueShell, queue_shell
from tests.unit.admin.test_delivery_command import HOP, StoppingRelay, served
from tests.unit.delivery.test_dkim import ED25519_KEY, pem_of


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


@pytest.fixture
def relay(shell: QueueShell, monkeypatch: pytest.MonkeyPatch) -> StoppingRelay:
    """In place of SMTP."""
    relay = StoppingRelay(shell.clock)
    monkeypatch.setattr(delivery, "relay_of", lambda *_: relay)
    return relay


TRANSPORTS = """
transports:
  bulk: {sources: [{address: 192.0.2.9, helo: bulk.example.org}], tls: required, dkim: {example.org: KEY}}
"""


def test_mails_are_sent_as_the_transports_of_the_policy_file_say(
    shell: QueueShell, relay: StoppingRelay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names of their addresses are this host's: DNS leads no mail back to it. Others go as the options say."""
    asked = list[tuple[OwnHost, list[str]]]()

    def dns_hops(_clock: object, own: OwnHost, sources: Sequence[SourceAddress], _internal: object) -> TableHops:
        asked.append((own, [source.address for source in sources]))
        return TableHops()

    monkeypatch.setattr(serve_request, "dns_hops", dns_hops)
    (tmp_path / "k.pem").write_bytes(pem_of(ED25519_KEY))
    (tmp_path / "k.pem").chmod(0o600)
    (tmp_path / "policies.yaml").write_text(TRANSPORTS.replace("KEY", "{selector: s, key: k.pem}"))
    shell.put("one", recipients=("bob@example.org",), attributes={"transportid": attribute("bulk")})
    shell.put("two", recipients=("cy@example.org",))
    relay.wanted = 2
    ended = served(shell, "--queue", "spool", "--policies", str(tmp_path / "policies.yaml"), "--source", "192.0.2.1")
    assert ended.code == 0, ended.err
    sent = {one.recipients[0].recipient: one for _, one in relay.attempts}
    bulk, other = sent["bob@example.org"], sent["cy@example.org"]
    assert (bulk.source, bulk.tls) == (SourceAddress("192.0.2.9", "bulk.example.org"), TlsLevel.REQUIRED)
    assert (other.source, other.tls, other.signer) == (SourceAddress("192.0.2.1"), TlsLevel.OPTIONAL, None)
    assert bulk.signer
    assert bulk.signer.signed(b"From: a@example.org\r\n\r\n").startswith(b"DKIM-Signature: ")
    ((own, sources),) = asked
    assert "bulk.example.org" in own.names
    assert sources == ["192.0.2.1", "192.0.2.9"]


def test_a_transport_whose_key_cannot_be_read_starts_no_server(
    shell: QueueShell, relay: StoppingRelay, tmp_path: Path
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(TRANSPORTS.replace("KEY", "{selector: s, key: gone.pem}"))
    ended = served(shell, *HOP, "--policies", str(file))
    assert ended.code == 2
    assert f"{file}, line 3, column" in ended.err
    assert "gone.pem cannot be read: No such file or directory" in ended.err
    assert not shell.asked


def test_dns_is_asked_anew_where_the_addresses_have_changed() -> None:
    made = list[Sequence[SourceAddress]]()

    def hops(sources: Sequence[SourceAddress]) -> TableHops:
        made.append(sources)
        return TableHops()

    one, two = (SourceAddress("192.0.2.1"),), (SourceAddress("192.0.2.2"),)
    known = wiring.HopsBySources(hops, one)
    for sources in (one, two, two):
        known.know(sources)

    assert made == [one, two]


@pytest.mark.parametrize(
    ("options", "others", "asked"),
    [
        ((), (), ["", "192.0.2.9"]),
        ((), ("192.0.2.1",), ["192.0.2.1", "192.0.2.9"]),
        (("192.0.2.2",), ("192.0.2.1",), ["192.0.2.2", "192.0.2.1", "192.0.2.9"]),
        (("192.0.2.2",), (), ["192.0.2.2", "192.0.2.9"]),
    ],
)
def test_dns_is_asked_for_the_systems_choice_only_where_mails_go_from_there(
    options: Sequence[str], others: Sequence[str], asked: Sequence[str]
) -> None:
    """Transport '*' has addresses for all mails that have none."""
    transports = {"bulk": Transport(sources=(SourceAddress("192.0.2.9"),))}
    if others:
        transports["*"] = Transport(sources=tuple(map(SourceAddress, others)))
    settings = QueueSettings(ConnectionSettings(keyspace="mail"), QueueName("spool"))
    request = DeliveryRequest(settings=settings, sources=tuple(map(SourceAddress, options)))

    found = request.all_sources(PickupPolicies(transports=transports))

    assert sorted(source.address for source in found) == sorted(asked)
