"""Line ends of mails: one reading for our rules and for the next server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.encoding import BLOCK_BYTES, canonical_lines, fits, transparent_blocks
from mailmend.delivery.smtp.outgoing.esmtp import ServerExtensions, goes_as_it_is, lines_of, transparent

ODD_BYTES = st.text("\r\n.\0ab", max_size=40).map(str.encode)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\r\nb\r\n", b"a\r\nb\r\n"),
        (b"a\rb\r\n", b"a\r\nb\r\n"),
        (b"a\nb\r\n", b"a\r\nb\r\n"),
        (b"a\r\r\nb\r\r\r\n", b"a\r\nb\r\n"),
        (b"a\n\rb\r\n", b"a\r\n\r\nb\r\n"),
        (b"a\r\rb", b"a\r\n\r\nb"),
        (b"a\n.\r\nb\r\n", b"a\r\n.\r\nb\r\n"),
        (b"X-A\0uth: b\r\n", b"X-Auth: b\r\n"),
        (b"a\r\0\nb", b"a\r\nb"),
        (b"", b""),
    ],
)
def test_every_line_ends_in_one_way(content: bytes, lines: bytes) -> None:
    assert canonical_lines(content) == lines


@given(ODD_BYTES)
def test_no_line_end_is_left_that_servers_read_in_two_ways(content: bytes) -> None:
    """CR and LF stand together alone, all other bytes stay in their order, and nothing changes the second time."""
    lines = canonical_lines(content)

    assert not set(lines.replace(b"\r\n", b"")) & set(b"\r\n\0")
    assert lines.translate(None, b"\r\n") == content.translate(None, b"\r\n\0")
    assert canonical_lines(lines) == lines


@given(ODD_BYTES)
def test_a_mail_that_is_sent_has_one_end(content: bytes) -> None:
    """Whatever stands in a mail that came from elsewhere, no server sees its end before the last line."""
    sent = transparent(lines_of(content))

    *lines, last, behind = sent.split(b"\r\n")
    assert (last, behind) == (b".", b"")
    assert b"." not in lines
    assert not set(sent.replace(b"\r\n", b"")) & set(b"\r\n\0")


@given(ODD_BYTES, st.integers(1, 9))
def test_blocks_are_the_whole_mail_however_it_is_cut(content: bytes, block_bytes: int) -> None:
    """Each line that begins with a dot has a second one, the end follows the last line, and no block is much larger."""
    lines = lines_of(content)
    dotted = [b"." + line if line.startswith(b".") else line for line in lines.split(b"\r\n")]

    blocks = list(transparent_blocks(lines, block_bytes))

    assert b"".join(blocks) == b"\r\n".join(dotted) + b".\r\n"
    assert all(len(block) <= 2 * block_bytes + 2 for block in blocks[:-1])


def test_a_long_run_of_carriage_returns_costs_linear_time() -> None:
    """A quadratic reading would take minutes here."""
    run = b"\r" * 500_000
    assert canonical_lines(run + b"a") == b"\r\n" * 500_000 + b"a"


@given(ODD_BYTES | st.sampled_from([b"a\r\n", "\u00fc\r\n".encode(), b"x" * 2_000 + b"\r\n"]), st.booleans())
def test_a_small_mail_goes_as_it_is_exactly_where_its_server_would_get_the_same_bytes(
    content: bytes, eight_bit: bool
) -> None:
    offered = ServerExtensions({"8bitmime": ""} if eight_bit else {})
    same = lines_of(content) == content and fits(content, eight_bit=eight_bit)
    assert goes_as_it_is(content, offered) == same


def test_a_large_mail_is_fitted_once_for_all_of_its_servers() -> None:
    """Its lines are read once; a mail of one block is read again for each server."""
    line = b"x" * 62 + b"\r\n"
    block = line * (BLOCK_BYTES // len(line))
    assert goes_as_it_is(block, ServerExtensions({}))
    assert not goes_as_it_is(block + line, ServerExtensions({}))
