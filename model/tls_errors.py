"""Why a TLS connection failed, recognised by OpenSSL's error text, which every library includes in its own. Pure.

What a person can do about it depends on the server. So each kind of server has its own table of reasons, of which the
first whose text is found counts.
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
    """One reason why a TLS connection fails.

    Attributes:
        words: OpenSSL's error text.
        what: a sentence on what happened, in which `{place}` and `{words}` are replaced.
        mend: a sentence on what to do.
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
    """The first reason whose words are in a library's error message; None where no reason matches.

    Args:
        said: the library's error message.
        place: the server, as the sentences name it.
        reasons: the known reasons, in order of precedence.
    """
    for reason in reasons:
        if found := reason.words.search(said):
            return TlsFailure(reason.what.format(place=place, words=found[0].strip(" .")), reason.mend)
    return None
