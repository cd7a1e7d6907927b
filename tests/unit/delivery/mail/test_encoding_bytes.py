"""Contents that a server takes, byte by byte: where lines are cut, which fields are added, and what stays."""

import quopri
from base64 import b64decode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.delivery.mail.encoding import (
    CannotEncode,
    canonical_lines,
    fits,
    fitted,
    has_long_line,
    quoted,
    transparent_blocks,
)

MIME = b"MIME-Version: 1.0\r\n"
PNG = b"Content-Type: image/png\r\n"
TEXT = b"Content-Type: text/plain; charset=utf-8\r\n"
QUOTED = b"Content-Transfer-Encoding: quoted-printable\r\n"
BASE64 = b"Content-Transfer-Encoding: base64\r\n"
EDGE = MIME + b"Content-Type: multipart/mixed; boundary=edge\r\n\r\n"


def encoded_body(body: bytes, *, fields: bytes = TEXT + QUOTED) -> bytes:
    """The body of a mail after it was made to fit a server that takes no 8-bit bytes."""
    made = fitted(MIME + fields + b"\r\n" + body, eight_bit=False)
    assert made.startswith(MIME + fields + b"\r\n")
    return made.removeprefix(MIME + fields + b"\r\n")


@given(st.lists(st.sampled_from([0, 1, 2, 996, 997, 998, 999, 1000, 1997, 1998]), max_size=4))
@example([998])
@example([999])
@example([998, 998, 0])
@example([998, 999, 0])
@example([0, 999])
@example([0, 0, 999])
@example([0, 998])
def test_a_line_is_long_from_999_bytes_on_wherever_it_stands(lengths: list[int]) -> None:
    lines = b"\r\n".join(b"x" * length for length in lengths)
    assert has_long_line(lines) is any(length > 998 for length in lengths)


@pytest.mark.parametrize(
    ("lines", "to_eight_bit", "to_seven_bit"),
    [
        (b"a\r\n", True, True),
        (b"\xfc\r\n", True, False),
        (b"a" * 999, False, False),
        (b"\xfc" * 999, False, False),
    ],
)
def test_a_content_fits_by_its_bytes_and_its_lines(lines: bytes, *, to_eight_bit: bool, to_seven_bit: bool) -> None:
    assert fits(lines, eight_bit=True) is to_eight_bit
    assert fits(lines, eight_bit=False) is to_seven_bit


@pytest.mark.parametrize("length", [999, 1000, 1049, 1050, 1051, 1052, 1126])
def test_a_long_quoted_line_is_cut_into_lines_of_76_bytes(length: int) -> None:
    *full, last = encoded_body(b"x" * length + b"\r\n").removesuffix(b"\r\n").split(b"\r\n")

    assert set(full) == {b"x" * 75 + b"="}
    assert 1 <= len(last) <= 76
    assert 75 * len(full) + len(last) == length
    assert len(full) == -(-(length - 76) // 75)


@pytest.mark.parametrize(("ahead", "first"), [(71, 75), (72, 75), (73, 73), (74, 74), (75, 75)])
def test_an_escape_is_never_cut(ahead: int, first: int) -> None:
    """A line that would end within an escape ends before it."""
    text = b"x" * ahead + b"=C3" + b"y" * 1_000
    lines = encoded_body(text + b"\r\n").removesuffix(b"\r\n").split(b"\r\n")

    assert lines[0] == text[:first] + b"="
    assert lines[1] == text[first : first + 75] + b"="
    assert b"".join(line.removesuffix(b"=") for line in lines) == text


@given(st.lists(st.sampled_from([b"x", b"=C3=BC", b"=3D", b" y", b"\xfc"]), min_size=20, max_size=30))
def test_quoted_text_that_is_cut_means_the_same(words: list[bytes]) -> None:
    text = b"".join(words) * 60
    made = encoded_body(text + b"\r\n")

    assert quopri.decodestring(made) == quopri.decodestring(text + b"\r\n")
    assert all(len(line) <= 76 for line in made.split(b"\r\n"))


def test_quoted_lines_that_are_short_enough_keep_their_form() -> None:
    """A byte of 8 bits that does not belong there becomes an escape; a line of 998 bytes stays one line."""
    kept = b"x" * 998 + b"\r\nand =\r\n\r\n"
    assert encoded_body(kept + b"\x8f\xfc=\r\n!") == kept + b"=8F=FC=\r\n!"


def test_base64_that_is_too_long_has_lines_of_76_bytes_and_the_rest_stays() -> None:
    short = b"QUJD" * 249 + b"\r\n"
    made = encoded_body(short + b"QUJD" * 250 + b"\r\n" + b"QU\xfcJD\r\n\r\n", fields=PNG + BASE64)

    assert made == short + (b"QUJD" * 19 + b"\r\n") * 13 + b"QUJD" * 3 + b"\r\nQUJD\r\n\r\n"


@pytest.mark.parametrize("end", [b"\r\n", b""])
def test_bytes_that_are_no_text_become_base64_and_end_as_they_did(end: bytes) -> None:
    body = b"\x00\xff" * 60 + end
    made = fitted(MIME + PNG + b"\r\n" + body, eight_bit=False)

    header, _, coded = made.partition(b"\r\n\r\n")
    assert header == MIME + PNG + BASE64.removesuffix(b"\r\n")
    assert coded.endswith(b"\r\n") is bool(end)
    assert [len(line) for line in coded.removesuffix(b"\r\n").split(b"\r\n")][:2] == [76, 76]
    assert b"\n" not in coded.replace(b"\r\n", b"")
    assert b64decode(coded) == body


@pytest.mark.parametrize(
    ("kind", "body", "encoding"),
    [
        (b"text/plain", b"\xfc" * 4 + b"ab\r\n", QUOTED),
        (b"text/plain", b"\xfc" * 5 + b"ab\r\n", BASE64),
        (b"message/delivery-status", b"\xfcab\r\n", QUOTED),
        (b"image/png", b"\xfcab\r\n", BASE64),
        (b"image/png", b"a" * 999 + b"\r\n", QUOTED),
    ],
)
def test_a_text_is_quoted_up_to_half_of_8_bits(kind: bytes, body: bytes, encoding: bytes) -> None:
    kept = MIME + b"Content-Type: " + kind + b"\r\n"
    assert fitted(kept + b"\r\n" + body, eight_bit=False).startswith(kept + encoding + b"\r\n")


@pytest.mark.parametrize(
    ("body", "charset"),
    [(b"x" * 999, b"us-ascii"), ("ü".encode(), b"utf-8"), (b"\xfc", b"unknown-8bit")],
)
def test_a_mail_without_a_type_gets_the_charset_of_its_bytes(body: bytes, charset: bytes) -> None:
    made = fitted(b"\r\n" + body + b"ab\r\n", eight_bit=False)
    assert made.startswith(MIME + b"Content-Type: text/plain; charset=" + charset + b"\r\n" + QUOTED + b"\r\n")


@pytest.mark.parametrize(
    "written",
    [
        b"Content-Transfer-Encoding: 8bit\r\n",
        b"content-transfer-encoding : 8BIT\r\n",
        b"content-transfer-encoding\t: 8bit\r\n",
        b"Content-Transfer-Encoding:\r\n 8bit\r\n",
        b"Content-Transfer-Encoding: ;\r\n",
        b"Content-Transfer-Encoding: 7bit\r\nContent-Transfer-Encoding: base64\r\n",
        b"Content-Transfer-Encoding: binary\r\n",
        b"",
    ],
)
def test_a_mail_names_its_encoding_once(written: bytes) -> None:
    """What the fields say however they are written; others that are there already are not added again."""
    known = b"mime-version: 1.0\r\n" + TEXT.replace(b"Content-Type:", b"content-type :")
    assert fitted(known + written + b"\r\n\xc3\xbcab\r\n", eight_bit=False) == known + QUOTED + b"\r\n=C3=BCab\r\n"


def test_the_first_type_counts() -> None:
    content = MIME + TEXT + PNG + b"\r\n\xfcab\r\n"
    assert fitted(content, eight_bit=False) == MIME + TEXT + PNG + QUOTED + b"\r\n=FCab\r\n"


def test_a_line_that_seems_to_continue_nothing_is_a_field() -> None:
    assert fitted(b" \xfc\r\nSubject: a\r\n\r\nbody\r\n", eight_bit=False) == b" ?\r\nSubject: a\r\n\r\nbody\r\n"


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("Subject: Grüße\r\n".encode(), b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"),
        ("Subject: Grüße".encode(), b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"),
        (b"Subject: Gr\xfc\xdfe\r\n", b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"),
        ("Subject :\r\n\tGrüße\r\n".encode(), b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"),
        (b"no f\xfceld\r\n", b"no f?eld\r\n"),
    ],
)
def test_a_field_of_8_bits_is_written_in_ascii(field: bytes, written: bytes) -> None:
    assert fitted(field, eight_bit=False) == written
    assert fitted(field, eight_bit=True) is field


def test_a_field_that_is_written_anew_has_lines_of_76_bytes() -> None:
    written = fitted(b"Subject: " + "Grüße ".encode() * 60 + b"\r\n", eight_bit=False)
    lines = written.removesuffix(b"\r\n").split(b"\r\n")
    assert len(lines) > 5
    assert all(60 < len(line) <= 76 for line in lines[:-1])


@pytest.mark.parametrize("signed", [b"multipart/signed", b"Multipart/Signed"])
def test_a_type_is_read_however_it_is_written(signed: bytes) -> None:
    with pytest.raises(CannotEncode, match="the mail is multipart/signed"):
        fitted(b"CONTENT-TYPE : " + signed + b"; boundary=edge\r\n\r\n--edge\r\n\xfc\r\n", eight_bit=False)


def test_a_field_without_blanks_is_cut_at_998_bytes() -> None:
    """Each later line begins with a blank, so it holds one byte fewer of the field."""
    kept = b"x" * 998
    assert fitted(b"A:" + kept[2:] + b"\r\n\r\n", eight_bit=True) == b"A:" + kept[2:] + b"\r\n\r\n"
    made = fitted(b"A:" + b"x" * (996 + 997 + 997) + b"yz\r\n\r\n", eight_bit=True)
    assert made == b"A:" + b"x" * 996 + b"\r\n " + b"x" * 997 + b"\r\n " + b"x" * 997 + b"\r\n yz\r\n\r\n"
    whole = fitted(b"A:" + b"x" * (996 + 997) + b"\r\n\r\n", eight_bit=True)
    assert whole == b"A:" + b"x" * 996 + b"\r\n " + b"x" * 997 + b"\r\n\r\n"


@pytest.mark.parametrize("blank", [b" ", b"\t"])
def test_a_field_is_folded_before_the_last_blank_that_has_room(blank: bytes) -> None:
    short = b"B: c" + blank + b"d\r\n"
    first = b"A:" + b"x" * 900 + blank + b"y" * 94
    second = blank + b"z" * 500 + blank + b"u" * 495
    third = blank + b"v" * 20
    made = fitted(first + second + third + b"\r\n" + short + b"\r\nbody\r\n", eight_bit=True)
    assert made == first + b"\r\n" + second + b"\r\n" + third + b"\r\n" + short + b"\r\nbody\r\n"


def test_a_blank_alone_is_no_line_of_a_field() -> None:
    """After a blank of a continued line the text is cut, for a line of blanks alone could end the header."""
    made = fitted(b"A: " + b"x" * 1_990 + b"\r\n\r\n", eight_bit=True)
    assert made == b"A:\r\n " + b"x" * 997 + b"\r\n " + b"x" * 993 + b"\r\n\r\n"


def test_only_the_long_line_of_a_field_is_folded_anew() -> None:
    kept = b"A: b\r\n\tc d\r\n "
    made = fitted(kept + b"x" * 1_000 + b"\r\n e\r\n\r\n", eight_bit=True)
    assert made == kept + b"x" * 997 + b"\r\n xxx\r\n e\r\n\r\n"


@pytest.mark.parametrize(
    "closing", [b"--edge--\r\nafter \xfc\r\n--edge\r\n\r\n\xfc\r\n", b"--edge-- \t\r\n", b"--edge--\r\n"]
)
@pytest.mark.parametrize("opening", [b"--edge\r\n", b"--edge \t\r\n"])
def test_delimiters_stay_as_they_are(opening: bytes, closing: bytes) -> None:
    """What stands around the parts is shown by nobody: its bytes of 8 bits become question marks."""
    part = TEXT + b"\r\n\xfcab\r\n"
    made = fitted(EDGE + b"--edges \xfc\r\n" + opening + part + opening + b"\r\n" + closing, eight_bit=False)
    inner = TEXT + QUOTED + b"\r\n=FCab\r\n"
    assert made == EDGE + b"--edges ?\r\n" + opening + inner + opening + b"\r\n" + closing.replace(b"\xfc", b"?")


@pytest.mark.parametrize("eight_bit", [False, True])
def test_long_lines_around_parts_are_cut_at_998_bytes(*, eight_bit: bool) -> None:
    byte = b"?"
    if eight_bit:
        byte = b"\xfc"
    long = b"a b" + b"\xfc" * 1_000 + b"\r\nshort\r\n"
    cut = b"a b" + byte * 995 + b"\r\n" + byte * 5 + b"\r\nshort\r\n"
    part = b"--edge\r\n\r\nbody\r\n--edge--\r\n"
    assert fitted(EDGE + long + part + long, eight_bit=eight_bit) == EDGE + cut + part + cut


@pytest.mark.parametrize("end", [b"\r\n", b""])
def test_a_multipart_that_never_ends_has_its_last_part_encoded(end: bytes) -> None:
    made = fitted(EDGE + b"--edge\r\n\r\na\r\n--edge\r\n\r\n\xfcab" + end, eight_bit=False)
    described = b"Content-Type: text/plain; charset=unknown-8bit\r\n" + QUOTED
    assert made == EDGE + b"--edge\r\n\r\na\r\n--edge\r\n" + described + b"\r\n=FCab" + end


@pytest.mark.parametrize("closing", [b"--inner--", b"--inner-- \t"])
@pytest.mark.parametrize("behind", [b"--edge--\r\n", b"--edge\r\n\r\nlast\r\n--edge--\r\n"])
def test_a_multipart_that_ends_right_before_the_delimiter_around_it_has_its_end(closing: bytes, behind: bytes) -> None:
    """The line end between the two belongs to the outer one (RFC 2046 5.1.1); many programs write no blank line."""
    image = b"\x89PNG\xff"
    ahead = EDGE + b"--edge\r\nContent-Type: multipart/related; boundary=inner\r\n\r\n--inner\r\n"
    after = b"\r\n" + closing + b"\r\n" + behind

    made = fitted(ahead + PNG + b"\r\n" + image + after, eight_bit=False)

    assert made.startswith(ahead + PNG + BASE64 + b"\r\n")
    assert made.endswith(after)
    assert b64decode(made.removeprefix(ahead + PNG + BASE64).removesuffix(after)) == image


def test_a_boundary_may_be_folded() -> None:
    fields = MIME + b'Content-Type: multipart/mixed;\r\n boundary="a\r\n b"\r\n\r\n'
    made = fitted(fields + b"\xfc\r\n--a b\r\n\r\nbody\r\n--a b--\r\n", eight_bit=False)
    assert made == fields + b"?\r\n--a b\r\n\r\nbody\r\n--a b--\r\n"


def test_a_boundary_may_hold_blanks_and_signs_and_8_bits() -> None:
    for name in (b"a (b) +?", b"\xfcber"):
        fields = MIME + b'Content-Type: multipart/mixed; boundary="' + name + b'"\r\n\r\n'
        made = fitted(fields + b"--" + name + b"\r\n\r\n" + b"x" * 999 + b"\r\n--" + name + b"--\r\n", eight_bit=True)
        described = b"Content-Type: text/plain; charset=us-ascii\r\n" + QUOTED
        cut = quoted(b"x" * 999)
        assert made == fields + b"--" + name + b"\r\n" + described + b"\r\n" + cut + b"\r\n--" + name + b"--\r\n"


@pytest.mark.parametrize("said", [b"8bit", b"binary"])
def test_a_multipart_says_7bit_once_no_8_bits_are_left(said: bytes) -> None:
    fields = MIME + b"Content-Type: multipart/mixed; boundary=edge\r\n"
    named = b"Content-Transfer-Encoding: " + said + b"\r\n"
    part = b"--edge\r\n" + TEXT + b"\r\n\xfcab\r\n" + b"x" * 999 + b"\r\n--edge--\r\n"
    preamble = b"\xfc\r\n"

    fewer = fitted(fields + named + b"\r\n" + part, eight_bit=False)
    kept = fitted(fields + named + b"\r\n" + preamble + part, eight_bit=True)

    assert fewer.startswith(fields + b"Content-Transfer-Encoding: 7bit\r\n\r\n--edge\r\n")
    assert kept.startswith(fields + named + b"\r\n" + preamble + b"--edge\r\n")


@pytest.mark.parametrize(
    "said", [b"", b"Content-Transfer-Encoding: 7bit\r\n", b"Content-Transfer-Encoding: binary\r\n"]
)
def test_a_mail_in_a_mail_gets_what_every_mail_has(said: bytes) -> None:
    outer = MIME + b"Content-Type: message/rfc822\r\n"
    made = fitted(outer + said + b"\r\nSubject: a\r\n\r\n\xc3\xbcab\r\n", eight_bit=False)
    inner = b"Subject: a\r\n" + MIME + TEXT + QUOTED + b"\r\n=C3=BCab\r\n"
    assert made == outer + said.replace(b"binary", b"7bit") + b"\r\n" + inner


def test_a_mail_that_is_encoded_as_a_whole_is_wrapped_only() -> None:
    fields = MIME + b"Content-Type: message/rfc822\r\n" + BASE64
    made = fitted(fields + b"\r\n" + b"QUJD" * 250 + b"\r\n", eight_bit=True)
    assert made == fields + b"\r\n" + (b"QUJD" * 19 + b"\r\n") * 13 + b"QUJD" * 3 + b"\r\n"


@pytest.mark.parametrize("kind", [b"message/partial; id=a", b"message/external-body; access-type=x"])
def test_a_part_of_a_mail_elsewhere_is_refused(kind: bytes) -> None:
    with pytest.raises(CannotEncode, match="cannot be encoded") as refused:
        fitted(b"Content-Type: " + kind + b"\r\n\r\n\xfc\r\n", eight_bit=False)
    assert refused.value.what == str(refused.value)


def mails_within(depth: int) -> bytes:
    """A mail within that many others."""
    return b"Content-Type: message/rfc822\r\n\r\n" * depth + b"\r\n\xfcab\r\n"


def parts_within(depth: int) -> bytes:
    """A part within that many multiparts."""
    content = b"\r\n\xfcab\r\n"
    for number in range(depth):
        edge = b"edge%d" % number
        content = b"Content-Type: multipart/mixed; boundary=%b\r\n\r\n--%b\r\n%b\r\n--%b--\r\n" % (
            edge,
            edge,
            content,
            edge,
        )
    return content


def unended_parts_within(depth: int) -> bytes:
    """A part within that many multiparts, none of which is ended."""
    content = b"\r\n\xfcab"
    for number in range(depth):
        edge = b"edge%d" % number
        content = b"Content-Type: multipart/mixed; boundary=%b\r\n\r\n--%b\r\n%b" % (edge, edge, content)
    return content


def test_fifty_parts_within_each_other_are_encoded_and_one_more_is_refused() -> None:
    for within in (mails_within, parts_within, unended_parts_within):
        assert fitted(within(50), eight_bit=False).isascii()
        with pytest.raises(CannotEncode, match="more than 50 parts"):
            fitted(within(51), eight_bit=False)


@pytest.mark.parametrize(
    ("body", "coded"),
    [
        (b"", b""),
        (b"a \r\nb\t\r\n", b"a=20\r\nb=09\r\n"),
        (b"--edge\r\n--\r\n - --\r\n-\r\n", b"=2D-edge\r\n=2D-\r\n - --\r\n-\r\n"),
        (b"1=1\xfc", b"1=3D1=FC"),
        (b"x" * 75 + b"\r\n" + b"x" * 77 + b"\r\n", b"x" * 75 + b"\r\n" + b"x" * 75 + b"=\r\nxx\r\n"),
        (b"x" * 80, b"x" * 75 + b"=\r\nxxxxx"),
        (b"x" * 75 + b"--y" + b"\r\n", b"x" * 75 + b"=\r\n=2D-y\r\n"),
    ],
)
def test_a_body_in_quoted_printable(body: bytes, coded: bytes) -> None:
    assert quoted(body) == coded


@pytest.mark.parametrize("rest", [b"", b"--end \xfc", b"\r\n" + b"x" * 300_000, b"\r\n" + b"x" * 300_000 + b"\r\n--a"])
def test_a_large_body_is_quoted_as_its_lines_are(rest: bytes) -> None:
    lines = [b"--%d \xfc " % number + b"x" * 1_000 + b" \r\n" for number in range(300)]
    whole = b"".join(lines) + rest
    each = b"".join(quoted(line + b"\r\n") for line in whole.split(b"\r\n"))
    assert quoted(whole) == each.removesuffix(b"\r\n")


@pytest.mark.parametrize(
    ("block_bytes", "blocks"),
    [
        (2, [b"ab", b"\r\n", b"..c", b"\r\n", b"d\r\n", b".\r\n"]),
        (3, [b"ab\r\n", b"..c\r\n", b"d\r\n", b".\r\n"]),
        (4, [b"ab\r\n", b"..c\r\n", b"d\r\n", b".\r\n"]),
        (5, [b"ab\r\n..", b"c\r\nd\r\n", b".\r\n"]),
        (99, [b"ab\r\n..c\r\nd\r\n.\r\n"]),
    ],
)
def test_a_block_never_ends_within_a_line_end(block_bytes: int, blocks: list[bytes]) -> None:
    assert list(transparent_blocks(b"ab\r\n.c\r\nd\r\n", block_bytes)) == blocks


def test_blocks_have_64_kib_and_an_empty_mail_has_none() -> None:
    assert [len(block) for block in transparent_blocks(b"x" * 131_100 + b"\r\n")] == [65_536, 65_536, 30, 3]
    assert list(transparent_blocks(b"")) == [b".\r\n"]
    assert list(transparent_blocks(b".\r\n")) == [b"..\r\n.\r\n"], "one packet"


def test_a_canonical_mail_is_not_copied() -> None:
    content = b"a\r\n\r\nb"
    assert canonical_lines(content) is content
    assert canonical_lines(b"a\0\r\n") == b"a\r\n"
