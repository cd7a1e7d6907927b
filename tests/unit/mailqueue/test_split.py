"""A mail's bytes in two: as James's own blobs show where it cuts."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.blobs.stores import split
from mailmend.mailqueue.codec import queued_of
from tests.support.james_queue import james_blobs, james_enqueued, james_messages

MAILS = [queued_of(message.body) for message in james_messages()]
GIVEN: Mapping[str, Mapping[str, Any]] = {one["enqueueId"]: one for one in james_enqueued()}
LINES = st.lists(st.sampled_from([b"", b"\r", b"Subject: x", b"To: y", b"\x00\xff", b" folded"]), max_size=8)


@pytest.mark.parametrize("queued", MAILS, ids=lambda queued: queued.mail.name)
def test_it_cuts_where_james_cuts(queued: Any) -> None:
    """Header and body of each mail that James split are those that come of its whole."""
    header, body = (james_blobs()[blob] for blob in (queued.blobs.header, queued.blobs.body))
    given_to_james = GIVEN[str(queued.enqueue_id)]

    assert split(header + body) == (header, body)
    assert header.endswith(b"\r\n\r\n")
    assert len(header + body) == given_to_james["bytes"]
    assert hashlib.sha256(header + body).hexdigest() == given_to_james["sha256"]


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"A: b\r\n\r\n", b"text\r\n\r\nmore\r\n"),
        (b"A: b\n\n", b"text\n\nmore\n"),
        (b"A: b\r\n\n", b"text"),
        (b"A: b\n\r\n", b"text\r\n"),
        (b"A: b\r\n\r\n", b""),
        (b"A: b\r\n", b""),
        (b"A: b", b""),
        (b"", b""),
        (b"\r\n", b"no header at all"),
        (b"\n", b"\n\nno header at all"),
        (b"A: b\r\n c\r\n\r\n", b"\r\n\r\n"),
        (b"A: b\r\rno line ends\r", b""),
    ],
)
def test_the_first_blank_line_ends_the_header(header: bytes, body: bytes) -> None:
    """Lines end with CRLF or LF; a mail without a blank line is all header."""
    assert split(header + body) == (header, body)


@given(LINES, st.sampled_from([b"\r\n", b"\n"]))
def test_nothing_is_lost_and_no_header_goes_past_a_blank_line(lines: list[bytes], end: bytes) -> None:
    """Together both are the whole; before its last line the header has no blank one."""
    content = end.join(lines)
    header, body = split(content)

    assert header + body == content
    inner = header.replace(b"\r\n", b"\n").split(b"\n")[:-2]
    assert b"" not in inner
    assert not body or header.endswith((b"\n\n", b"\n\r\n")) or header in {b"\n", b"\r\n"}


def test_a_long_mail_is_cut_in_one_pass() -> None:
    """Twenty million bytes without a blank line: each is looked at once, or this would take minutes."""
    content = b"A: b\r\r\n \r" * 2_000_000
    assert split(content) == (content, b"")
