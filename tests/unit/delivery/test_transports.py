"""`transports` of a policy file: what it says, what it does not say, and the secrets that it names."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mailmend.admin.delivery.transport_secrets import FileSecrets
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of, read_policies
from mailmend.delivery.policy.file.transport_forms import TRANSPORT
from mailmend.delivery.smtp.outgoing.signing import PrivateKey, private_key
from mailmend.delivery.transports import (
    ConnectionReuse,
    DeliveryProtocol,
    SendingSettings,
    SmtpLogin,
    SourceAddress,
    StageTimeouts,
    TlsLevel,
    Transport,
    TransportHop,
    Transports,
    sending_of,
    transport_with,
)
from tests.unit.delivery.test_dkim import ED25519_KEY, MAIL, pem_of

FILE = """
transports:
  '*':
    tls: required
    dkim: {Example.org: {selector: S2026, key: keys/example.pem}}
  bulk:
    sources: [{address: 192.0.2.10, helo: bulk1.example.org}, {address: '2001:DB8::1'}]
    timeouts: {connect: 10, end: .5}
    reuse: {mails: 50, idle: 30}
  partner:
    nexthop: {host: SMTP.example.net, port: 587, user: ann, passwordenv: PARTNER}
    tls: required-and-verified
  mailboxes: {nexthop: {host: 127.0.0.1}, protocol: lmtp, dkim: {}}
"""
OPTIONS = SendingSettings((SourceAddress("192.0.2.1"),))


def said(text: str) -> Transports:
    return policies_of(text, "policies.yaml").said.transports


def test_a_transport_says_how_its_mails_are_sent() -> None:
    transports = said(FILE)
    assert list(transports) == ["*", "bulk", "partner", "mailboxes"]
    assert transports["bulk"] == Transport(
        sources=(SourceAddress("192.0.2.10", "bulk1.example.org"), SourceAddress("2001:db8::1")),
        timeouts=StageTimeouts(connect=timedelta(seconds=10), end=timedelta(seconds=0.5)),
        reuse=ConnectionReuse(50, timedelta(seconds=30)),
    )
    login = SmtpLogin("ann", password_variable="PARTNER")
    assert transports["partner"].next_hop == TransportHop("smtp.example.net", 587, login)
    assert transports["mailboxes"].next_hop == TransportHop("127.0.0.1", 25)


@pytest.mark.parametrize(
    ("transport", "source", "tls", "protocol"),
    [
        ("bulk", "192.0.2.10", TlsLevel.REQUIRED, DeliveryProtocol.SMTP),
        ("partner", "192.0.2.1", TlsLevel.VERIFIED, DeliveryProtocol.SMTP),
        ("mailboxes", "192.0.2.1", TlsLevel.REQUIRED, DeliveryProtocol.LMTP),
        ("other", "192.0.2.1", TlsLevel.REQUIRED, DeliveryProtocol.SMTP),
        ("", "192.0.2.1", TlsLevel.REQUIRED, DeliveryProtocol.SMTP),
    ],
)
def test_what_a_transport_does_not_say_the_one_of_all_others_says(
    transport: str, source: str, tls: TlsLevel, protocol: DeliveryProtocol
) -> None:
    """And what neither says, the options of the server."""
    sending = sending_of(transport, said(FILE), OPTIONS)
    assert (sending.sources[0].address, sending.tls, sending.protocol) == (source, tls, protocol)


def test_without_transports_the_options_of_the_server_hold() -> None:
    assert sending_of("bulk", said("[]"), OPTIONS) is OPTIONS


@pytest.mark.parametrize(
    ("transport", "part", "where"),
    [("bulk", "tls", "*"), ("bulk", "sources", "bulk"), ("x", "sources", None), ("mailboxes", "keys", "mailboxes")],
)
def test_it_is_known_which_transport_says_a_part(transport: str, part: str, where: str | None) -> None:
    assert transport_with(part, transport, said(FILE)) == where


@pytest.mark.parametrize(
    ("text", "column", "problem", "mend"),
    [
        ("[]", 13, "transports has entries like 'name: value'", ""),
        ("{a: {sources: []}}", 27, "there are no sources", "address: 192.0.2.1"),
        ("{a: {sources: [{helo: a.example}]}}", 28, "a source lacks its address", "Write address:"),
        ("{a: {sources: [{address: 192.0.2.256}]}}", 38, "'192.0.2.256' is no address", "192.0.2.1"),
        ("{a: {sources: [{address: 192.0.2.1}, {address: 192.0.2.1}]}}", 50, "192.0.2.1 is there twice", ""),
        ("{a: {sources: [{address: 192.0.2.1, helo: a b}]}}", 55, "'a b' is no domain", "example.org"),
        ("{a: {tls: always}}", 23, "'always' is no level of TLS", "required-and-verified"),
        ("{a: {protocol: http}}", 28, "'http' is no protocol here", "smtp, lmtp"),
        ("{a: {timeouts: {connect: 0}}}", 38, "'0' is no time limit", "more than 0"),
        ("{a: {timeouts: {connects: 1}}}", 29, "timeouts has no 'connects'", "Did you mean 'connect'?"),
        ("{a: {reuse: {mails: 10001}}}", 33, "'10001' is no number of mails", "1"),
        ("{a: {nexthop: {port: 25}}}", 27, "nexthop lacks its host", "Write host:"),
        ("{a: {nexthop: {host: a, port: 65536}}}", 43, "'65536' is no port", "65535"),
        ("{a: {nexthop: {host: a, user: b}}}", 43, "the password of the user is not named", "passwordfile"),
        ("{a: {nexthop: {host: a, passwordenv: b}}}", 50, "a password without its user", "user"),
        (
            "{a: {nexthop: {host: a, user: b, passwordenv: C, passwordfile: d}}}",
            59,
            "the password is named twice",
            "Leave one",
        ),
        ("{a: {dkim: {a.example: {selector: s}}}}", 36, "a key of DKIM lacks its key", "Write key:"),
        ("{a: {dkim: {a.example: {selector: s_1, key: k}}}}", 47, "'s_1' is no selector of DKIM", "s2026"),
        ("{a: {dkim: {A.example: [], a.example: []}}}", 40, "a.example is there twice in dkim", ""),
        ("{a: {source: []}}", 18, "a transport has no 'source'", "Did you mean 'sources'?"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(text: str, column: int, problem: str, mend: str) -> None:
    with pytest.raises(BadPolicyFile) as refused:
        said(f"transports: {text}")
    first = refused.value.each[0]
    assert problem in first.problem
    assert first.place.column == column
    assert mend in first.mend


LOGIN = "host: {host}, user: b, passwordenv: C"


@pytest.mark.parametrize(
    ("host", "is_refused"),
    [
        ("smtp.example.net", True),
        ("192.0.2.1", True),
        ("127.0.0.1", False),
        ("'::1'", False),
        ("'::ffff:127.0.0.1'", False),
        ("localhost", False),
    ],
)
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: {tls: none, nexthop: {LOGIN}}", "none"),
        ("'*': {tls: none}, a: {nexthop: {LOGIN}}", "{host"),
        ("'*': {nexthop: {LOGIN}}, a: {tls: none}", "none"),
    ],
)
def test_a_login_at_another_machine_without_tls_is_refused(
    text: str, place: str, host: str, *, is_refused: bool
) -> None:
    """Where the file says it; only this machine itself may be given a password without TLS."""
    text = f"transports: {{{text.replace('LOGIN', LOGIN.format(host=host))}}}"
    if not is_refused:
        said(text)
        return
    with pytest.raises(BadPolicyFile, match=f"a login at {host} needs TLS, and tls: none forbids it") as refused:
        said(text)
    assert refused.value.place.column == text.index(place) + 1
    assert "required-and-verified" in refused.value.mend


@pytest.mark.parametrize("text", ["a: {tls: none, nexthop: {host: b.example}}", "a: {tls: none}"])
def test_without_a_login_no_tls_is_asked_for(text: str) -> None:
    assert said(f"transports: {{{text}}}")["a"].tls is TlsLevel.NONE


@pytest.mark.parametrize("name", ["password", "Password", "passwd", "pass", "PWD", "passphrase", "secret"])
def test_a_password_in_the_file_is_refused(name: str) -> None:
    """By whatever name; its line is in no error."""
    with pytest.raises(BadPolicyFile, match="a password is never in a policy file") as refused:
        said(f"transports: {{a: {{nexthop: {{host: a, user: b, {name}: hunter2}}}}}}")
    assert refused.value.place.column == 46
    assert "passwordenv" in refused.value.mend
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "{a: {nexthop: {host: a, user: b, password: hunter2}, tls: always}}",
        "{a: {nexthop: {host: a, user: b, key: hunter2, port: x}}}",
        "{a: {next-hop: {host: a, phrase: hunter2}}}",
        "{a: {nexhop: {host: a, phrase: hunter2}}}",
        "{a: {relay: {host: a, password: hunter2}}}",
        "{a: {nexthop: {host: a, user: b, passwordenv: hunter2-x}}}",
        "{a: {nexthop: {host: a, user: b, passwordenv: hunter2}}}",
        "{a: {nexthop: {host: a, user: b, passwordfile: hunter2}}}",
        "{a: {nexthop: {host: a, user: b, password: hunter2}}",
        "{a: {nexthop: {host: a, user: b, password: hunter2: x}}}",
        "{a: {nexthop: &a {host: a, word: hunter2}}, b: {nexthop: *a}}",
        '{a: {nexthop: {host: a, word: "long\n hunter2"}, tls: always}}',
        "{a: {nexthop: {host: a, word: [b, \n hunter2 ]}, tls: always}}",
        "\n  a:\n    nexthop: {host: a,\n      word: hunter2, port: x}",
    ],
)
def test_no_error_shows_a_line_that_may_have_a_password(tmp_path: Path, text: str) -> None:
    """Whatever is wrong on it, and wherever it is written by mistake."""
    with pytest.raises(BadPolicyFile) as refused:
        policies_of(f"transports: {text}", "policies.yaml", secrets(tmp_path))
    said = [f"{error} {error.mend} {error.place}" for error in (refused.value, *refused.value.each)]
    assert "hunter2" not in f"{said} {refused.value.in_short} {refused.value.in_short.mend}"


def test_the_lines_around_are_shown() -> None:
    """Also where a block ends, and the next thing begins."""
    text = "transports:\n  a:\n    nexthop:\n      host: a\n      word: x\n    tls: always\n"
    with pytest.raises(BadPolicyFile) as refused:
        said(text)
    assert [(error.place.line, error.place.text) for error in refused.value.each] == [(5, ""), (6, "    tls: always")]


def secrets(folder: Path, **environment: str) -> FileSecrets:
    return FileSecrets(folder, environment, lambda: 0)


def written(folder: Path, name: str, content: bytes, mode: int = 0o600) -> Path:
    file = folder / name
    file.write_bytes(content)
    file.chmod(mode)
    return file


def test_keys_and_passwords_are_read_from_their_files(tmp_path: Path) -> None:
    """Relative names start at the policy file; the value shows no password."""
    (tmp_path / "keys").mkdir()
    written(tmp_path / "keys", "example.pem", pem_of(ED25519_KEY))
    written(tmp_path, "password", b"hunter2\n")
    text = FILE.replace("passwordenv: PARTNER", "passwordfile: password")
    file = written(tmp_path, "policies.yaml", text.encode())

    transports = read_policies(file, secrets(tmp_path)).said.transports

    login = sending_of("partner", transports, OPTIONS).next_hop
    assert login == TransportHop("smtp.example.net", 587, SmtpLogin("ann", "password", password="hunter2"))
    assert "hunter2" not in f"{login!r} {transports!r} {TRANSPORT.json(transports['partner'], transport='', line=1)}"
    signers = [sending_of(name, transports, OPTIONS).signer for name in ("bulk", "mailboxes")]
    signs = [signer is not None and signer.signed(MAIL) != MAIL for signer in signers]
    assert signs == [True, False]


def test_a_key_is_checked_once_for_all_reloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check takes time that deliveries want; another key in the same file counts at once."""
    checked = list[bytes]()

    def key_of(selector: str, pem: bytes) -> PrivateKey:
        checked.append(pem)
        return private_key(selector, pem)

    monkeypatch.setattr("mailmend.delivery.smtp.outgoing.signing.private_key", key_of)
    one, two = pem_of(ED25519_KEY), pem_of(Ed25519PrivateKey.generate())
    text = "transports: {a: {dkim: {example.org: {selector: s, key: k.pem}}}}"
    signed = list[bytes]()
    for key in (one, one, two):
        if key not in checked:
            written(tmp_path, "k.pem", key)
        signer = policies_of(text, "policies.yaml", secrets(tmp_path)).said.transports["a"].signer
        assert signer
        signed.append(signer.signed(MAIL))

    assert checked == [one, two]
    assert signed[0] == signed[1] != signed[2]


@pytest.mark.parametrize(
    ("key", "mode", "problem"),
    [
        (None, 0o600, "cannot be read: No such file or directory"),
        (b"p=abc", 0o600, "this is not a private key in PEM"),
        (pem_of(ED25519_KEY), 0o604, "can be read by other users"),
        (b"x" * 65_537, 0o600, "is no file with a secret"),
    ],
)
def test_a_key_that_is_of_no_use_refuses_the_file(tmp_path: Path, key: bytes | None, mode: int, problem: str) -> None:
    """With the place of its name, and what to do; without its content."""
    if key is not None:
        written(tmp_path, "k.pem", key, mode)
    text = "transports: {a: {dkim: {example.org: {selector: s, key: k.pem}}}}"
    with pytest.raises(BadPolicyFile, match=problem) as refused:
        policies_of(text, "policies.yaml", secrets(tmp_path))
    assert (refused.value.place.line, refused.value.place.column) == (1, 57)
    assert refused.value.mend


@pytest.mark.parametrize(
    ("named", "environment", "problem"),
    [
        ("passwordfile: nowhere", {}, "cannot be read"),
        ("passwordfile: empty", {}, "is empty"),
        ("passwordenv: PARTNER", {}, "the environment variable of this name is not set"),
        ("passwordenv: PARTNER", {"PARTNER": ""}, "the environment variable of this name is not set"),
    ],
)
def test_a_password_that_is_nowhere_refuses_the_file(
    tmp_path: Path, named: str, environment: Mapping[str, str], problem: str
) -> None:
    written(tmp_path, "empty", b"\n")
    text = f"transports: {{a: {{nexthop: {{host: a, user: b, {named}}}}}}}"
    with pytest.raises(BadPolicyFile, match=problem) as refused:
        policies_of(text, "policies.yaml", secrets(tmp_path, **environment))
    assert refused.value.place.column > 40


def test_a_password_of_the_environment_is_taken(tmp_path: Path) -> None:
    text = "transports: {a: {nexthop: {host: a, user: b, passwordenv: PARTNER}}}"
    transport = policies_of(text, "policies.yaml", secrets(tmp_path, PARTNER="hunter2")).said.transports["a"]
    assert transport.next_hop
    assert transport.next_hop.login == SmtpLogin("b", password_variable="PARTNER", password="hunter2")
