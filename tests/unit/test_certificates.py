"""Certificates of the tests: Python 3.13, which verifies by RFC 5280 to the letter, accepts them as well."""

import ssl
from pathlib import Path

import pytest

from tests.support.certificates import authority


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """The verified subject that the client sees, after a handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    certificate = sides[0].getpeercert()
    assert certificate is not None
    return str(certificate["subject"][0][0][1])


@pytest.mark.parametrize("alternative", ["DNS:mail.example", "IP:127.0.0.1"])
def test_a_strict_client_accepts_what_a_test_signed(alternative: str, tmp_path: Path) -> None:
    trusted = authority(tmp_path, "authority")
    signed = trusted.signed("server", alternative)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(signed.certificate, signed.key)
    client = ssl.create_default_context(cafile=trusted.file)
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    assert shake_hands(server, client, alternative.partition(":")[2]) == "mailmend server"


def test_a_strict_client_refuses_a_certificate_that_expired(tmp_path: Path) -> None:
    trusted = authority(tmp_path, "authority")
    signed = trusted.signed("server", "DNS:mail.example", expired=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(signed.certificate, signed.key)
    client = ssl.create_default_context(cafile=trusted.file)

    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(server, client, "mail.example")
