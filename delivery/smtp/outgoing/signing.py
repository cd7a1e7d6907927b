"""Signatures of DKIM over mails as they are sent. The one door to cryptography.

The domain of the author in the From field chooses the key: its own, else the key of the next domain
above. Several authors have to have the same key. Header and body are canonicalized as `relaxed`, in
time linear to the mail, whatever is in it; the body in blocks, so that no second one is in memory.
From is signed once more than it is there, so that no second From can be added.

Source: RFC 6376 (DKIM), RFC 8301 (RSA), RFC 8463 (Ed25519), docs/adr/0083.
"""

import logging
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

SAME_NAME_MAX: Final = 50
"""Fields of one name that are signed; further ones above them are not, as those that others add."""

_LOG: Final = logging.getLogger("mailmend.delivery")
_BLOCK_BYTES: Final = 2**20
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
_QUOTED_OR_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\\.|[^"\\()]+|.', re.DOTALL)
"""A quoted string, an escaped character, a text of others, or a bracket of a comment."""

_MAILBOX_PIECE: Final = re.compile(r"<[^<>]*>|[,;]|[^,;<>]+|[<>]")
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
        if not any(self.keys.values()):
            return lines
        body_at = _body_start(lines)
        fields = fields_by_name(lines[:body_at])
        domain = self._domain_of(fields["from"])
        if not domain:
            return lines
        body_hash = b64encode(_body_hash(lines, body_at)).decode()
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

    def _domain_of(self, authors: Sequence[bytes]) -> str:
        """The domain whose keys sign a mail; "" where none do.

        Where the authors leave it open whose keys these are, the log says so.

        Args:
            authors: the values of the From fields, of which there should be one.
        """
        why = ""
        found = set[str]()
        if len(authors) != 1:
            why = f"it has {len(authors)} From fields"
        elif len(authors[0]) > _FROM_BYTES_MAX:
            why = "its From field is too long"
        else:
            domains = author_domains(authors[0])
            found = {self._key_domain(domain) for domain in domains}
            if not all(domains) or not domains:
                why = "its From field cannot be read"
            elif len(found) > 1:
                why = "its authors have different keys"
        if why:
            _LOG.warning("a mail goes unsigned", extra={"why": why})
            return ""
        (domain,) = found
        return domain

    def _key_domain(self, domain: str) -> str:
        """The domain itself or the next one above it that has keys in the file; "": none has."""
        name = domain
        while name and name not in self.keys:
            name = name.partition(".")[2]
        if not self.keys.get(name):
            return ""
        return name


def author_domains(value: bytes) -> Sequence[str]:
    """The domains of the addresses in a From field, in their normal form; "" for what is no domain.

    A mailbox is its last `<...>`, else a text with `@`; another text is a part of a name that has a
    comma. It reads what mail programs write, also where RFC 5322 has quotes around it.
    """
    domains = list[str]()
    text = ""
    bracketed = ""
    plain = _without_comments(value.decode("utf-8", "replace"))
    for piece in (*_MAILBOX_PIECE.findall(plain), ","):
        if piece in {",", ";"}:
            address = bracketed or text
            if bracketed or "@" in text:
                domains.append(ascii_domain(address.rpartition("@")[2].strip()) or "")
            text = ""
            bracketed = ""
        elif len(piece) > 1 and piece.startswith("<"):
            bracketed = piece[1:-1] or " "
        else:
            text += piece
    return domains


def _without_comments(text: str) -> str:
    """The text without comments, and with a letter for each quoted string.

    A text with a comment that does not end stays as it is.
    """
    kept = list[str]()
    depth = 0
    for piece in _QUOTED_OR_COMMENT.findall(text):
        if piece == "(":
            depth += 1
        elif piece == ")" and depth:
            depth -= 1
        elif not depth and len(piece) > 1 and piece.startswith('"'):
            kept.append("q")
        elif not depth:
            kept.append(piece)
    if depth:
        return text
    return "".join(kept)


def _body_start(lines: bytes) -> int:
    """Where the body of a mail begins: behind the first empty line, which may be the first one."""
    if lines.startswith(b"\r\n"):
        return 2
    head_end = lines.find(b"\r\n\r\n")
    if head_end < 0:
        return len(lines)
    return head_end + 4


def _body_hash(lines: bytes, begin: int) -> bytes:
    """SHA-256 of a mail's canonical body, which begins there."""
    found = sha256()
    for block in relaxed_blocks(lines, begin):
        found.update(block)
    return found.digest()


def relaxed_blocks(lines: bytes, begin: int = 0) -> Iterator[bytes]:
    """RFC 6376 3.4.4: blanks are one blank, and none ends a line; no empty line is the last one.

    Args:
        lines: whose every line ends with CR and LF.
        begin: where the body begins in them.
    """
    ends = b""
    has_text = False
    while begin < len(lines):
        end = lines.find(b"\r\n", begin + _BLOCK_BYTES)
        if end < 0:
            end = len(lines)
        else:
            end += 2
        block = _one_blank(lines[begin:end]).replace(b" \r\n", b"\r\n")
        text = block.rstrip(b"\r\n")
        if text:
            yield ends
            yield text
            ends = b""
            has_text = True
        ends += block[len(text) :]
        begin = end
    if has_text:
        yield b"\r\n"


def relaxed_value(value: bytes) -> bytes:
    """RFC 6376 3.4.2: a value in one line, its blanks are one blank, and none is around it."""
    return _one_blank(value.replace(b"\r\n", b"")).strip(b" ")


def _one_blank(text: bytes) -> bytes:
    """Each pass halves what is too long: a regular expression would look at each character."""
    found = text.translate(_BLANKS)
    while b"  " in found:
        found = found.replace(b"  ", b" ")
    return found


def fields_by_name(head: bytes) -> defaultdict[str, list[bytes]]:
    """The canonical values of the fields that can be signed, by their names in small letters.

    A line that is no field is left out.
    """
    found = defaultdict[str, list[bytes]](list)
    for field in _FIELD_END.split(head):
        name, colon, value = field.partition(b":")
        known = name.rstrip(b" \t").lower().decode("ascii", "replace")
        if colon and known in _SIGNED:
            found[known].append(relaxed_value(value))
    return found


def _to_sign(fields: Mapping[str, Sequence[bytes]]) -> tuple[list[str], list[HeaderField]]:
    """The names for `h=`, and the fields that are hashed, in the same order.

    A verifier takes the fields of a name from the last one in the mail upwards, once for each time
    that `h=` has the name: so does this.
    """
    names = list[str]()
    chosen = list[HeaderField]()
    for name in _SIGNED:
        for value in reversed(fields.get(name, ())[-SAME_NAME_MAX:]):
            names.append(name)
            chosen.append((name, value))
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
