"""Signatures of DKIM over mails as they are sent. The one door to cryptography.

The domain of the From field chooses the key: its own, else the key of the next domain above.
Header and body are canonicalized as `relaxed`, in time linear to the mail, whatever is in it.
From is signed once more than it is there, so that no second From can be added.

Source: RFC 6376 (DKIM), RFC 8301 (RSA), RFC 8463 (Ed25519), docs/adr/0083.
"""

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import getaddresses
from hashlib import sha256
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from mailmend.delivery.transports import CannotSign
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import ascii_domain

RSA_BITS_MIN: Final = 1024
"""RFC 8301: no verifier has to take a signature by a shorter key."""

_FROM_BYTES_MAX: Final = 10_000
_LINE_CHARACTERS: Final = 72
_MICROS: Final = 1_000_000
_MAKE_KEY: Final = "Make one: openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out FILE"
_SIGNED: Final = (
    "from",
    "sender",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "to",
    "cc",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "content-id",
    "content-description",
    "in-reply-to",
    "references",
    "resent-date",
    "resent-from",
    "resent-sender",
    "resent-to",
    "resent-cc",
    "resent-message-id",
    "list-id",
    "list-help",
    "list-unsubscribe",
    "list-unsubscribe-post",
    "list-subscribe",
    "list-post",
    "list-owner",
    "list-archive",
)
"""RFC 6376 5.4.1, with the field of one-click unsubscription (RFC 8058)."""

_FIELD_END: Final = re.compile(rb"\r\n(?![ \t])")
_BLANKS: Final = bytes.maketrans(b"\t", b" ")

HeaderField = tuple[str, bytes]
"""The name in small letters, and the canonical value."""


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs, and its name in DNS."""

    selector: str
    key: RSAPrivateKey | Ed25519PrivateKey

    @property
    def algorithm(self) -> str:
        if isinstance(self.key, RSAPrivateKey):
            return "rsa-sha256"
        return "ed25519-sha256"

    def signature(self, signed: bytes) -> bytes:
        if isinstance(self.key, RSAPrivateKey):
            return self.key.sign(signed, PKCS1v15(), SHA256())
        return self.key.sign(sha256(signed).digest())


def private_key(selector: str, pem: bytes) -> PrivateKey:
    """The key in a PEM file.

    Raises:
        WrongUse: it is not a private key of RSA or Ed25519 without a password, or too short.
    """
    try:
        key = load_pem_private_key(pem, None)
    except TypeError as error:
        mend = "Write it without: openssl pkey -in FILE -out NEW"
        raise WrongUse("the key has a password", mend=mend) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise WrongUse("this is not a private key in PEM", mend=_MAKE_KEY) from error
    if isinstance(key, RSAPrivateKey) and key.key_size < RSA_BITS_MIN:
        problem = f"the key has {key.key_size} bits, and {RSA_BITS_MIN} are the least"
        raise WrongUse(problem, mend=_MAKE_KEY)
    if not isinstance(key, RSAPrivateKey | Ed25519PrivateKey):
        raise WrongUse("DKIM knows keys of RSA and Ed25519, and this is another", mend=_MAKE_KEY)
    return PrivateKey(selector, key)


@dataclass(frozen=True, slots=True, eq=False)
class DkimSigner:
    """Implements `delivery.transports.ContentSigner`.

    Attributes:
        keys: by the domain of a mail's author, in its normal form.
        micros: the present, since 1970.
    """

    keys: Mapping[str, Sequence[PrivateKey]]
    micros: Callable[[], int]

    def signed(self, lines: bytes) -> bytes:
        head, _, body = lines.partition(b"\r\n\r\n")
        fields = list(_fields_of(head))
        domain = self._domain_of(fields)
        if not domain:
            return lines
        body_hash = b64encode(sha256(relaxed_body(body)).digest()).decode()
        names, chosen = _to_sign(fields)
        seconds = self.micros() // _MICROS
        found = list[bytes]()
        for key in self.keys[domain]:
            tags = (
                f"v=1; a={key.algorithm}; c=relaxed/relaxed; d={domain}; s={key.selector};\r\n"
                f" t={seconds}; h={_folded(names, ':')};\r\n bh={body_hash};\r\n b="
            )
            own = ("dkim-signature", relaxed_value(f" {tags}".encode()))
            try:
                signature = key.signature(_header_bytes([*chosen, own])[:-2])
            except ValueError as error:  # a key of which no signature comes
                raise CannotSign(f"the key {key.selector} of {domain} does not sign") from error
            coded = _wrapped(b64encode(signature).decode())
            found.append(f"DKIM-Signature: {tags}{coded}\r\n".encode())
        return b"".join((*found, lines))

    def _domain_of(self, fields: Iterable[HeaderField]) -> str:
        """The domain whose keys sign; "" without such keys, or without exactly one author."""
        authors = [value for name, value in fields if name == "from"]
        if len(authors) != 1 or len(authors[0]) > _FROM_BYTES_MAX:
            return ""
        for _, address in getaddresses([authors[0].decode("utf-8", "replace")]):
            name = ascii_domain(address.rpartition("@")[2]) or ""
            while name and name not in self.keys:
                name = name.partition(".")[2]
            return name
        return ""


def relaxed_body(body: bytes) -> bytes:
    """RFC 6376 3.4.4: blanks are one blank, and none ends a line; no empty line is the last one.

    Every line ends with CR and LF.
    """
    found = _one_blank(body).replace(b" \r\n", b"\r\n").rstrip(b"\r\n")
    if not found:
        return b""
    return found + b"\r\n"


def relaxed_value(value: bytes) -> bytes:
    """RFC 6376 3.4.2: a value in one line, its blanks are one blank, and none is around it."""
    return _one_blank(value.replace(b"\r\n", b"")).strip(b" ")


def _one_blank(text: bytes) -> bytes:
    """Each pass halves what is too long: a regular expression would look at each character."""
    found = text.translate(_BLANKS)
    while b"  " in found:
        found = found.replace(b"  ", b" ")
    return found


def _fields_of(head: bytes) -> Iterator[HeaderField]:
    """The fields of a header that can be signed; a line that is no field is left out."""
    for field in _FIELD_END.split(head):
        name, colon, value = field.partition(b":")
        known = name.rstrip(b" \t").lower().decode("ascii", "replace")
        if colon and known in _SIGNED:
            yield known, relaxed_value(value)


def _to_sign(fields: Sequence[HeaderField]) -> tuple[list[str], list[HeaderField]]:
    """The names for `h=`, and the fields that are hashed: of a name the last one first."""
    counted = Counter(name for name, _ in fields)
    names = list[str]()
    chosen = list[HeaderField]()
    for name in _SIGNED:
        names += [name] * counted[name]
        chosen += [field for field in reversed(fields) if field[0] == name]
    names.append("from")
    return names, chosen


def _header_bytes(fields: Iterable[HeaderField]) -> bytes:
    return b"".join(name.encode() + b":" + value + b"\r\n" for name, value in fields)


def _folded(names: Sequence[str], mark: str) -> str:
    """Names in lines that are not long."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > _LINE_CHARACTERS:
            lines.append("")
        lines[-1] += name + mark
    return "\r\n ".join(lines).removesuffix(mark)


def _wrapped(text: str) -> str:
    starts = range(0, len(text), _LINE_CHARACTERS)
    return "\r\n ".join(text[at : at + _LINE_CHARACTERS] for at in starts)
