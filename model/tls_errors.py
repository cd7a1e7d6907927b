"""Why a TLS connection failed: OpenSSL's words, which every library wraps into words of its own. Pure.

What a person can do about it depends on who was asked: each side has a table of its own, of which the first reason
whose words are found counts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OUT_OF_TIME: Final = re.compile(r"certificate has expired|certificate is not yet valid")
FOR_SOMEBODY_ELSE: Final = re.compile(r"(?:IP address|Hostname) mismatch[^(]*")
UNKNOWN_AUTHORITY: Final = re.compile(r"(?<=certificate verify failed: )[^(]+")
NO_TLS: Final = re.compile(r"(?i)wrong version number|record layer failure")


@dataclass(frozen=True, slots=True)
class TlsReason:
    """One reason.

    Attributes:
        words: OpenSSL's.
        what: what happened, with `{place}` and `{words}`.
        mend: what to do.
    """

    words: re.Pattern[str]
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class TlsFailure:
    """What happened at a place, in a sentence, and what to do."""

    what: str
    mend: str


def tls_failure_in(said: str, place: str, reasons: Iterable[TlsReason]) -> TlsFailure | None:
    """The first reason that a library's words hold; None where it was something else.

    Args:
        said: the words.
        place: who was asked, as the sentences name it.
        reasons: in their order.
    """
    for reason in reasons:
        if found := reason.words.search(said):
            return TlsFailure(reason.what.format(place=place, words=found[0].strip(" .")), reason.mend)
    return None
