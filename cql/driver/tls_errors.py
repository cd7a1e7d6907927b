"""Why a node and we would not talk over TLS: OpenSSL's reasons, each with what a person can do."""

import re

from model.errors import CannotReach
from model.tls_errors import FOR_SOMEBODY_ELSE, NO_TLS, OUT_OF_TIME, UNKNOWN_AUTHORITY, Reason, distrust_in

_REASONS = (
    Reason(
        OUT_OF_TIME,
        "the certificate of the node at {place} is out of its time: {words}",
        "Renew the node's certificate; or set this machine's clock, where that is wrong.",
    ),
    Reason(
        FOR_SOMEBODY_ELSE,
        "the certificate of the node at {place} is for somebody else: {words}",
        "It must name the node's IP address; --no-tls-hostnames is content with any certificate of the same authority.",
    ),
    Reason(
        UNKNOWN_AUTHORITY,
        "the certificate of the node at {place} was not signed by an authority that we know: {words}",
        "Name the authority that signed it with --tls-ca.",
    ),
    Reason(
        re.compile(r"(?i)alert certificate required|alert bad certificate|alert unknown ca"),
        "the node at {place} does not take our certificate, or we showed none: {words}",
        "Show one that its authority signed with --tls-cert and --tls-key.",
    ),
    Reason(
        re.compile(r"EOF occurred in violation of protocol"),
        "the node at {place} hung up on TLS, as one does that wants to see our certificate: {words}",
        "Show one that its authority signed with --tls-cert and --tls-key.",
    ),
    Reason(
        NO_TLS,
        "what answers at {place} does not speak TLS: {words}",
        "Check --port; or leave TLS out with --no-tls, where nobody can listen between here and there.",
    ),
)

_HUNG_UP = re.compile(r"Connection reset by peer|Connection to \S+ was closed|Errno 104")


def distrust(said: str, address: str, *, tls: bool) -> CannotReach | None:
    """Our error where the two sides failed over TLS; None where it was something else.

    Args:
        said: the driver's words.
        address: the hosts and port, as people write them.
        tls: whether we spoke it.
    """
    if not tls:
        return _without_tls(address) if _HUNG_UP.search(said) else None
    found = distrust_in(said, address, _REASONS)
    return CannotReach(found.what, mend=found.mend) if found else None


def _without_tls(address: str) -> CannotReach:
    return CannotReach(
        f"the node at {address} hung up: it may talk to nobody without TLS",
        mend="Name the authority that signed its certificate with --tls-ca.",
    )
