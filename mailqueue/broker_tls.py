"""TLS with a broker, whichever: the files, the context that is made of them, and why it fails. Needs no library."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mailmend.model.errors import (
    FOR_SOMEBODY_ELSE,
    NO_TLS,
    OUT_OF_TIME,
    UNKNOWN_AUTHORITY,
    BadSettings,
    BrokerUnreachable,
    TlsReason,
    tls_failure_in,
)


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """PEM files of an encrypted connection.

    Attributes:
        ca: who signed the broker's certificate; None: an authority that the system trusts.
        certificate, key: ours, where the broker asks for one; None: we show none.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def context_of(tls: BrokerTls) -> ssl.SSLContext:
    """An SSL context that checks the broker's name and signature.

    Raises:
        BadSettings: a file cannot be read, or is not what it should be.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl's own errors are among them
        paths = [path for path in (tls.ca, tls.certificate, tls.key) if path is not None]
        files = ", ".join(map(str, paths))
        raise BadSettings(
            f"the TLS files {files} cannot be used: {error}", mend="PEM files are needed, readable by this user."
        ) from error
    return context


_SHOW: Final = "Show one that its authority signed with --broker-tls-cert and --broker-tls-key."

_REASONS: Final = (
    TlsReason(
        OUT_OF_TIME,
        "the certificate of {place} is out of its time: {words}",
        "Renew the broker's certificate; or set this machine's clock, where that is wrong.",
    ),
    TlsReason(
        FOR_SOMEBODY_ELSE,
        "the certificate of {place} is for another host: {words}",
        "Name the broker as its certificate does; or give it a certificate that names this host.",
    ),
    TlsReason(
        UNKNOWN_AUTHORITY,
        "the certificate of {place} was not signed by an authority that we know: {words}",
        "Name the authority that signed it with --broker-tls-ca.",
    ),
    TlsReason(
        re.compile(r"(?i)alert certificate expired"),
        "{place} does not take our certificate, for it has expired: {words}",
        f"Renew it. {_SHOW}",
    ),
    TlsReason(
        re.compile(
            r"(?i)alert (?:certificate required|bad certificate|certificate unknown|unknown ca|unsupported certificate|"
            r"handshake failure)"
        ),
        "{place} does not take our certificate, or we showed none: {words}",
        _SHOW,
    ),
    TlsReason(
        re.compile(r"certificate verify failed"),
        "the certificate of {place} cannot be trusted: {words}",
        "Name the authority that signed it with --broker-tls-ca, and the broker as its certificate does; and look "
        "whether it is out of its time.",
    ),
    TlsReason(
        NO_TLS,
        "what answers at {place} does not speak TLS: {words}",
        "Name the port where the broker speaks it (RabbitMQ: 5671, its HTTP API: 15671; Pulsar: "
        "6651 and 8443); or leave TLS out of the address where the network in between is trusted.",
    ),
)


def tls_error(said: str, place: str) -> BrokerUnreachable | None:
    """OpenSSL's reason with its remedy; None where it was no TLS failure.

    Args:
        said: a library's words.
        place: who was asked, as it begins or ends a sentence.
    """
    return tls_failure_in(said, place, _REASONS, BrokerUnreachable)
