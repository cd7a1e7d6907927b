"""Contents that a server takes: parts of a mail with 8-bit bytes or too long lines are encoded, the rest stays.

Each part is encoded separately, quoted-printable or base64 (RFC 2045), whatever it is nested in.
What was signed or encrypted as a whole (multipart/signed, multipart/encrypted) is not altered: such
a mail is refused. A signature of DKIM over the body breaks, as with every server that converts.

Every reader of a mail has to see its lines alike: our own rules, and the server that gets it next. RFC 5321 2.3.8 lets
CR and LF stand in a mail only together, as the end of a line. Servers disagree about a single CR or LF: some end a line
there, some do not. A mail that has one could show a header field, or the end of itself, to the next server and hide it
from our rules (SMTP smuggling).

Source: RFC 5321 4.5.3.1.6 (lines), RFC 6152 3 (what is to be done without 8BITMIME), RFC 2045, 2046 and 2047.
"""

import re
from base64 import encodebytes
from binascii import b2a_qp
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import Message
from typing import Final

LINE_BYTES_MAX: Final = 998
"""The largest number of bytes of a line, without its CR and LF."""

_DEPTH_MAX: Final = 50
_ENCODED_LINE: Final = 76
_PIECE_BYTES: Final = 262_144
_HIGH_BYTES: Final = bytes(range(128, 256))
_TEXT_DENSITY: Final = 2
"""A text of which at most one byte in two has 8 bits is quoted-printable, which people can read; others are base64."""

_FIELD: Final = re.compile(rb"([!-9;-~]+)[ \t]*:(.*)\r\n", re.DOTALL)
_TOKEN: Final = re.compile(r"[A-Za-z0-9-]+")
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_DASHES: Final = re.compile(rb"^--", re.MULTILINE)
_HIGH: Final = re.compile(rb"[\x80-\xff]")
_IDENTITY: Final = frozenset({"", "7bit", "8bit", "binary"})
_SEALED: Final = frozenset({"multipart/signed", "multipart/encrypted"})
_HEADERS: Final = policy.SMTP.clone(max_line_length=_ENCODED_LINE)


class CannotEncode(Exception):
    """A mail cannot be altered so that a server takes it.

    Attributes:
        what: a sentence for the sender.
        status: the enhanced status code of the refusal.
    """

    def __init__(self, what: str, status: str = "5.6.3") -> None:
        super().__init__(what)
        self.what = what
        self.status = status


def has_long_line(lines: bytes) -> bool:
    """Whether a line, which ends with CR and LF, is longer than SMTP allows; reads each byte at most once."""
    start = 0
    end = len(lines)
    while end - start > LINE_BYTES_MAX:
        last = lines.rfind(b"\n", start, start + LINE_BYTES_MAX + 2)
        if last < 0:
            return True
        start = last + 1
    return False


def fits(lines: bytes, *, eight_bit: bool) -> bool:
    """Whether a content may be sent as it is to a server that takes 8-bit bytes, or not."""
    return (eight_bit or lines.isascii()) and not has_long_line(lines)


def fitted(lines: bytes, *, eight_bit: bool) -> bytes:
    """The content as a server takes it: the same bytes where they fit.

    Args:
        lines: header, empty line, body; each line ends with CR and LF.
        eight_bit: whether the server takes 8-bit bytes (8BITMIME).

    Raises:
        CannotEncode: a part that would have to be altered must not be, or cannot be read.
    """
    return _Encoder(eight_bit).entity(lines, "text/plain", 0, is_mail=True)


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Encodes what does not fit."""

    eight_bit: bool

    def _fits(self, lines: bytes) -> bool:
        return fits(lines, eight_bit=self.eight_bit)

    def entity(self, entity: bytes, default_kind: str, depth: int, *, is_mail: bool) -> bytes:
        """A mail, or a part of one: header and body."""
        if self._fits(entity):
            return entity
        if depth > _DEPTH_MAX:
            raise CannotEncode(f"the mail has more than {_DEPTH_MAX} parts within each other")
        header = _Header.of(entity)
        body = entity[header.end :]
        if not self._fits(body):
            if is_mail:
                header.complete_mail()
            body = self._body(header, body, default_kind, depth)
        return header.rendered(self) + body

    def _body(self, header: "_Header", body: bytes, default_kind: str, depth: int) -> bytes:
        kind = header.kind(default_kind)
        coding = header.encoding()
        if kind in _SEALED:
            raise CannotEncode(f"the mail is {kind}, which must not be altered, and has 8-bit bytes or too long lines")
        if kind.startswith("multipart/"):
            body = self._multipart(header, body, kind, depth)
            header.set_nested_encoding(body)
        elif kind == "message/rfc822" and coding in _IDENTITY:
            body = self.entity(body, "text/plain", depth + 1, is_mail=True)
            header.set_nested_encoding(body)
        elif kind in {"message/partial", "message/external-body"}:
            raise CannotEncode(f"a part of the mail is {kind}, which cannot be encoded")
        elif coding == "base64":
            body = _wrapped_base64(body)
        elif coding == "quoted-printable":
            body = _wrapped_quoted(body)
        elif coding in _IDENTITY:
            header.complete_part(body)
            body = _encoded(body, header, is_text=kind.startswith(("text/", "message/")))
        else:
            raise CannotEncode(f"a part of the mail has the encoding {coding}, which is not known")
        return body

    def _multipart(self, header: "_Header", body: bytes, kind: str, depth: int) -> bytes:
        boundary = header.boundary()
        if not boundary:
            raise CannotEncode(f"a part of the mail is {kind}, and names no boundary")
        # The line end behind an inner multipart belongs to the delimiter around it: its own end has none.
        edge = re.escape(boundary)
        delimiter = re.compile(rb"^--" + edge + rb"(--)?[ \t]*(?:\r\n|\Z)", re.MULTILINE)
        default_kind = "text/plain"
        if kind == "multipart/digest":
            default_kind = "message/rfc822"
        pieces = list[bytes]()
        at = 0
        is_inside = False
        for found in delimiter.finditer(body):
            piece = body[at : found.start()]
            if is_inside:
                piece = self._part(piece, default_kind, depth)
            else:
                piece = self._around_parts(piece)
            pieces += [piece, found[0]]
            at = found.end()
            is_inside = found[1] is None
            if found[1]:
                break
        if not pieces:
            raise CannotEncode(f"a part of the mail is {kind}, and its boundary is nowhere")
        rest = body[at:]
        if is_inside:
            rest = self._part(rest, default_kind, depth)
        else:
            rest = self._around_parts(rest)
        pieces.append(rest)
        return b"".join(pieces)

    def _part(self, part: bytes, default_kind: str, depth: int) -> bytes:
        """A part of a multipart; the line end before its delimiter belongs to that."""
        if not part.endswith(b"\r\n"):
            return self.entity(part, default_kind, depth + 1, is_mail=False)
        if part == b"\r\n":
            return part
        inner = part.removesuffix(b"\r\n")
        return self.entity(inner, default_kind, depth + 1, is_mail=False) + b"\r\n"

    def _around_parts(self, text: bytes) -> bytes:
        """The text before the first part and after the last one: no program shows it."""
        if self._fits(text):
            return text
        if not self.eight_bit:
            text = _HIGH.sub(b"?", text)
        return b"".join(_broken(line, b"\r\n") for line in text.splitlines(keepends=True))

    def field(self, field: bytes) -> bytes:
        """A field of a header; its long lines are folded."""
        if not self.eight_bit and not field.isascii():
            field = _ascii_field(field)
        if has_long_line(field):
            field = b"".join(_broken(line, b"\r\n ") for line in field.splitlines(keepends=True))
        return field


@dataclass(slots=True)
class _Header:
    """The header of a mail or of a part.

    Attributes:
        fields: each with the end of its last line.
        gap: the empty line; none where there is no body.
        end: where the body begins.
    """

    fields: list[bytes]
    gap: bytes
    end: int

    @classmethod
    def of(cls, entity: bytes) -> "_Header":
        fields = list[bytes]()
        at = 0
        while at < len(entity):
            stop = entity.find(b"\n", at) + 1 or len(entity)
            line = entity[at:stop]
            if line == b"\r\n":
                return cls(fields, line, stop)
            if line[:1] in {b" ", b"\t"} and fields:
                fields[-1] += line
            else:
                fields.append(line)
            at = stop
        return cls(fields, b"", at)

    def rendered(self, encoder: _Encoder) -> bytes:
        return b"".join(map(encoder.field, self.fields)) + self.gap

    def _values(self, name: bytes) -> Sequence[str]:
        """The values of the fields of that name, which is in small letters."""
        values = list[str]()
        for field in self.fields:
            found = _FIELD.fullmatch(field)
            if found and found[1].lower() == name:
                values.append(found[2].decode("latin-1").replace("\r\n", "").strip())
        return values

    def _content_type(self) -> Message | None:
        for value in self._values(b"content-type"):
            message = Message()
            message["Content-Type"] = value
            return message
        return None

    def kind(self, default: str) -> str:
        known = self._content_type()
        if known is None:
            return default
        return known.get_content_type()

    def boundary(self) -> bytes:
        known = self._content_type()
        if known is None:
            return b""
        try:
            found = known.get_boundary() or ""
        except (MessageError, ValueError):
            return b""
        return found.encode("latin-1", "ignore")

    def encoding(self) -> str:
        values = self._values(b"content-transfer-encoding")
        if not values:
            return ""
        found = _TOKEN.search(values[0])
        if not found:
            return ""
        return found[0].lower()

    def set_encoding(self, encoding: str) -> None:
        self._remove(b"content-transfer-encoding")
        self._add(f"Content-Transfer-Encoding: {encoding}")

    def set_nested_encoding(self, body: bytes) -> None:
        """What holds other parts has no encoding of its own: it says whether there are 8-bit bytes in them."""
        if self.encoding() in {"8bit", "binary"} and body.isascii():
            self.set_encoding("7bit")

    def complete_mail(self) -> None:
        """Add what tells a reader that the other fields of MIME have a meaning."""
        if not self._values(b"mime-version"):
            self._add("MIME-Version: 1.0")

    def complete_part(self, body: bytes) -> None:
        """Add what a reader has to know to show an encoded body."""
        if not self._values(b"content-type"):
            self._add(f"Content-Type: text/plain; charset={_charset(body)}")

    def _add(self, line: str) -> None:
        self.fields.append(line.encode() + b"\r\n")

    def _remove(self, name: bytes) -> None:
        """Remove the fields of that name, which is in small letters."""
        kept = list[bytes]()
        for field in self.fields:
            found = _FIELD.fullmatch(field)
            if not found or found[1].lower() != name:
                kept.append(field)
        self.fields = kept


def _charset(body: bytes) -> str:
    if body.isascii():
        return "us-ascii"
    try:
        body.decode()
    except UnicodeDecodeError:
        return "unknown-8bit"
    return "utf-8"


def _encoded(body: bytes, header: _Header, *, is_text: bool) -> bytes:
    """A body that is not encoded yet, in the encoding that its header then names."""
    high = len(body) - len(body.translate(None, _HIGH_BYTES))
    if high == 0 or (is_text and high * _TEXT_DENSITY <= len(body)):
        header.set_encoding("quoted-printable")
        return quoted(body)
    header.set_encoding("base64")
    coded = encodebytes(body).replace(b"\n", b"\r\n")
    if body.endswith(b"\r\n"):
        return coded
    return coded.removesuffix(b"\r\n")


def quoted(body: bytes) -> bytes:
    """The body as quoted-printable; no line of it can be taken for a boundary."""
    pieces = list[bytes]()
    at = 0
    while at < len(body):
        # Python's other threads, the event loop's among them, wait while one piece is encoded.
        stop = body.rfind(b"\r\n", at, at + _PIECE_BYTES) + 2
        if stop <= at + 1:  # no line ends within the piece
            stop = len(body)
        pieces.append(_DASHES.sub(b"=2D-", _BARE_LF.sub(b"\r\n", b2a_qp(body[at:stop], istext=True))))
        at = stop
    return b"".join(pieces)


def _wrapped_base64(body: bytes) -> bytes:
    """Base64 with lines of a length that is allowed; other bytes mean nothing in it (RFC 2045 6.8)."""
    plain = body.translate(None, _HIGH_BYTES)
    return b"".join(_broken(line, b"\r\n", _ENCODED_LINE) for line in plain.splitlines(keepends=True))


def _wrapped_quoted(body: bytes) -> bytes:
    """Quoted-printable that holds 8-bit bytes or long lines, as it should be: it means the same."""
    plain = _HIGH.sub(lambda found: b"=%02X" % found[0][0], body)
    return b"".join(_soft_broken(line) for line in plain.splitlines(keepends=True))


def _soft_broken(line: bytes) -> bytes:
    text = line.rstrip(b"\r\n")
    if len(text) <= LINE_BYTES_MAX:
        return line
    pieces = list[bytes]()
    at = 0
    while len(text) - at > _ENCODED_LINE:
        stop = at + _ENCODED_LINE - 1
        escape = text.rfind(b"=", stop - 2, stop)  # an escape stays whole
        if escape >= 0:
            stop = escape
        pieces.append(text[at:stop] + b"=\r\n")
        at = stop
    return b"".join(pieces) + text[at:] + line[len(text) :]


def _broken(line: bytes, end: bytes, length: int = LINE_BYTES_MAX) -> bytes:
    """A line that is too long as several; `end` is between them, with the start of a continued line.

    It is broken at blanks where there are any, and only where it is too long.
    """
    text = line.rstrip(b"\r\n")
    if len(text) <= LINE_BYTES_MAX:
        return line
    begins = end.removeprefix(b"\r\n")
    pieces = list[bytes]()
    at = 0
    room = length
    while len(text) - at > room:
        blank = -1
        if begins:
            blank = max(text.rfind(b" ", at + 1, at + room), text.rfind(b"\t", at + 1, at + room))
        if blank > at and text[at:blank].strip():
            pieces.append(text[at:blank] + b"\r\n")  # the blank itself continues the line
            at = blank
            room = length
        else:
            stop = at + room
            pieces.append(text[at:stop] + end)
            at = stop
            room = length - len(begins)
    return b"".join(pieces) + text[at:] + line[len(text) :]


def _ascii_field(field: bytes) -> bytes:
    """A field of a header with 8-bit bytes as RFC 2047 and 2231 write it.

    Raises:
        CannotEncode: it holds an address that only SMTPUTF8 can carry.
    """
    found = _FIELD.fullmatch(field.removesuffix(b"\r\n") + b"\r\n")
    if not found:
        return _HIGH.sub(b"?", field)
    name = found[1].decode()
    value = _decoded(found[2]).replace("\r\n", "").strip()
    try:
        header = _HEADERS.header_factory(name, value)
        addresses: Iterable[Address] = getattr(header, "addresses", ())
        is_writable = all(address.addr_spec.isascii() for address in addresses)
        written = b""
        if is_writable:
            written = header.fold(policy=_HEADERS).encode("ascii")
    except (MessageError, ValueError, LookupError, AttributeError, TypeError, IndexError) as error:
        raise CannotEncode(f"the field {name} has 8-bit bytes and cannot be read") from error
    if not is_writable:
        raise CannotEncode(f"an address in the field {name} needs SMTPUTF8", "5.6.7")
    return written


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


BLOCK_BYTES: Final = 65_536

# The look-behind starts a match at the first CR of a run alone, so that a long run costs linear time.
_CARRIAGE_RETURNS_BEFORE_LINE_FEED: Final = re.compile(rb"(?<!\r)\r+\n")


def canonical_lines(content: bytes) -> bytes:
    """The content with CR LF at the end of each line, without a CR or LF elsewhere, and without NUL bytes.

    A lone CR, a lone LF, and an LF with several CRs before it end one line each. A last line without an end has none
    afterwards. The function changes nothing in its own result.
    """
    pairs = content.count(b"\r\n")
    is_canonical = content.count(b"\r") == pairs and content.count(b"\n") == pairs and b"\0" not in content
    if is_canonical:
        return content
    lines = content.replace(b"\0", b"")
    lines = _CARRIAGE_RETURNS_BEFORE_LINE_FEED.sub(b"\n", lines)
    return lines.replace(b"\r", b"\n").replace(b"\n", b"\r\n")


def transparent_blocks(lines: bytes, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The lines as they are sent after DATA (RFC 5321 4.5.2), with the line of one dot that ends them, in blocks.

    A second dot is put before each dot that begins a line. Only one block is held at a time: a mail that goes to many
    servers at once is in memory once. A mail of one block ends in that block: it takes one packet.

    Args:
        lines: as `canonical_lines` has them, ending with CR LF, or empty.
        block_bytes: the size of a block before dots are added.
    """
    start = 0
    is_one_block = len(lines) <= block_bytes
    while start < len(lines):
        end = start + block_bytes
        if lines[end - 1 : end] == b"\r":
            end += 1  # a line end is never cut in two, so each block shows whether the next begins a line
        block = lines[start:end].replace(b"\r\n.", b"\r\n..")
        begins_line = start == 0 or lines[start - 1 : start] == b"\n"
        if begins_line and block.startswith(b"."):
            block = b"." + block
        if is_one_block:
            yield block + b".\r\n"
            return
        yield block
        start = end
    yield b".\r\n"
