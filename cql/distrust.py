"""Why two sides that speak TLS would not talk to each other: OpenSSL's reasons, each with what a person can do.

The driver wraps OpenSSL's errors into words of its own, so that they can be told apart by those words alone.
"""

import re
from dataclasses import dataclass

from model.errors import CannotReach


@dataclass(frozen=True, slots=True)
class _Reason:
    """OpenSSL's words, what happened, what to do; the first whose words are found counts."""

    words: re.Pattern[str]
    what: str
    mend: str


_REASONS = (
    _Reason(
        re.compile(r"certificate has expired|certificate is not yet valid"),
        "the certificate of the node at {address} is out of its time: {words}",
        "Renew the node's certificate; or set this machine's clock, where that is wrong.",
    ),
    _Reason(
        re.compile(r"(?:IP address|Hostname) mismatch[^(]*"),
        "the certificate of the node at {address} is for somebody else: {words}",
        "It must name the node's IP address; --no-tls-hostnames is content with any certificate of the same authority.",
    ),
    _Reason(
        re.compile(r"(?<=certificate verify failed: )[^(]+"),
        "the certificate of the node at {address} was not signed by an authority that we know: {words}",
        "Name the authority that signed it with --tls-ca.",
    ),
    _Reason(
        re.compile(r"(?i)alert certificate required|alert bad certificate|alert unknown ca"),
        "the node at {address} does not take our certificate, or we showed none: {words}",
        "Show one that its authority signed with --tls-cert and --tls-key.",
    ),
    _Reason(
        re.compile(r"EOF occurred in violation of protocol"),
        "the node at {address} hung up on TLS, as one does that wants to see our certificate: {words}",
        "Show one that its authority signed with --tls-cert and --tls-key.",
    ),
    _Reason(
        re.compile(r"(?i)wrong version number|record layer failure"),
        "what answers at {address} does not speak TLS: {words}",
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
    for reason in _REASONS:
        if found := reason.words.search(said):
            words = found[0].strip(" .")
            return CannotReach(reason.what.format(address=address, words=words), mend=reason.mend)
    return None


def _without_tls(address: str) -> CannotReach:
    return CannotReach(
        f"the node at {address} hung up: it may talk to nobody without TLS",
        mend="Name the authority that signed its certificate with --tls-ca.",
    )
