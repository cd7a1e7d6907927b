"""Why TLS with a broker failed: OpenSSL's reasons, each with a remedy."""

import re
from typing import Final

from model.errors import BrokerUnreachable
from model.tls_errors import FOR_SOMEBODY_ELSE, NO_TLS, OUT_OF_TIME, UNKNOWN_AUTHORITY, TlsReason, tls_failure_in

_SHOW: Final = "Show one that its authority signed with --broker-tls-cert and --broker-tls-key."

_REASONS: Final = (
    TlsReason(
        OUT_OF_TIME,
        "the certificate of {place} is out of its time: {words}",
        "Renew the broker's certificate; or set this machine's clock, where that is wrong.",
    ),
    TlsReason(
        FOR_SOMEBODY_ELSE,
        "the certificate of {place} is for somebody else: {words}",
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
            r"(?i)alert (?:certificate required|bad certificate|unknown ca|unsupported certificate|handshake failure)"
        ),
        "{place} does not take our certificate, or we showed none: {words}",
        _SHOW,
    ),
    TlsReason(
        NO_TLS,
        "what answers at {place} does not speak TLS: {words}",
        "Name the port where the broker speaks it (5671; its HTTP API: 15671); or leave TLS out of the address, "
        "where nobody can listen between here and there.",
    ),
)


def distrust(said: str, place: str) -> BrokerUnreachable | None:
    """The error of a TLS failure; None where it was something else.

    Args:
        said: a library's words.
        place: who was asked, as it begins or ends a sentence.
    """
    found = tls_failure_in(said, place, _REASONS)
    return BrokerUnreachable(found.what, mend=found.mend) if found else None
