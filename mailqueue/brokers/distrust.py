"""Why a broker and we would not talk over TLS: OpenSSL's reasons, each with what a person can do.

The libraries wrap OpenSSL's errors into words of their own, so that they can be told apart by those words alone.
"""

import re
from dataclasses import dataclass
from typing import Final

from model.errors import BrokerUnreachable


@dataclass(frozen=True, slots=True)
class _Reason:
    """OpenSSL's words, what happened, what to do; the first whose words are found counts."""

    words: re.Pattern[str]
    what: str
    mend: str


_SHOW: Final = "Show one that its authority signed with --broker-tls-cert and --broker-tls-key."

_REASONS: Final = (
    _Reason(
        re.compile(r"certificate has expired|certificate is not yet valid"),
        "the certificate of {place} is out of its time: {words}",
        "Renew the broker's certificate; or set this machine's clock, where that is wrong.",
    ),
    _Reason(
        re.compile(r"(?:IP address|Hostname) mismatch[^(]*"),
        "the certificate of {place} is for somebody else: {words}",
        "Name the broker as its certificate does; or give it a certificate that names this host.",
    ),
    _Reason(
        re.compile(r"(?<=certificate verify failed: )[^(]+"),
        "the certificate of {place} was not signed by an authority that we know: {words}",
        "Name the authority that signed it with --broker-tls-ca.",
    ),
    _Reason(
        re.compile(r"(?i)alert certificate expired"),
        "{place} does not take our certificate, for it has expired: {words}",
        f"Renew it. {_SHOW}",
    ),
    _Reason(
        re.compile(
            r"(?i)alert (?:certificate required|bad certificate|unknown ca|unsupported certificate|handshake failure)"
        ),
        "{place} does not take our certificate, or we showed none: {words}",
        _SHOW,
    ),
    _Reason(
        re.compile(r"(?i)wrong version number|record layer failure"),
        "what answers at {place} does not speak TLS: {words}",
        "Name the port where the broker speaks it (5671; its HTTP API: 15671); or leave TLS out of the address, "
        "where nobody can listen between here and there.",
    ),
)


def distrust(said: str, place: str) -> BrokerUnreachable | None:
    """Our error where the two sides failed over TLS; None where it was something else.

    Args:
        said: a library's words.
        place: who was asked, as it begins or ends a sentence.
    """
    for reason in _REASONS:
        if found := reason.words.search(said):
            words = found[0].strip(" .")
            return BrokerUnreachable(reason.what.format(place=place, words=words), mend=reason.mend)
    return None
