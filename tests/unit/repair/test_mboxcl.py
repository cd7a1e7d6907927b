"""An mbox whose messages say their length: it decides where it is right, and is named where it is not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.store import mbox
from mailmend.repair.store.mail_files import Found, mbox_messages
from mailmend.repair.store.mbox import MboxEntry, entries_in

LINE = b"From a@example.org Tue Mar  3 10:00:00 2015\n"
INNER = LINE + b"Subject: a mail in a mail\n\nhello\n"
NO_LIMIT = 2**30


def message(body: bytes, length: int | None = None) -> bytes:
    """A message that says its length, or another one."""
    number = len(body) if length is None else length
    return b"Subject: x\nContent-Length: %d\nTo: b@example.org\n\n" % number + body


def entries(directory: Path, content: bytes, octets_max: int = NO_LIMIT) -> list[MboxEntry]:
    path = directory / "mbox"
    path.write_bytes(content)
    found = list(entries_in(path, 0, octets_max))
    assert sum(len(entry.envelope) + entry.content_octets + entry.separator_octets for entry in found) == len(content)
    return found


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_right_length_decides_whatever_is_in_the_body(end: bytes, tmp_path: Path) -> None:
    body = (b"Dear you,\n\n" + INNER + b"\nFrom memory, bye\n").replace(b"\n", end)
    header = b"Subject: x\nContent-Length: %d\nTo: b@example.org\n\n"
    first = (header % len(body)).replace(b"\n", end) + body
    second = (header % len(b"next" + end) + b"next\n").replace(b"\n", end)
    line = LINE.replace(b"\n", end)

    found = entries(tmp_path, line + first + end + line + second)

    assert [entry.content for entry in found] == [first, second]
    assert [entry.doubtful for entry in found] == [1, 0]
    (doubt,) = found[0].doubts
    assert (doubt.begins, doubt.offset) == (False, len(line + first) - len(body) + len(b"Dear you," + end + end))
    assert doubt.line == LINE.decode().strip()


@pytest.mark.parametrize("body", [b"no line end", b"one\n", b"two\n\n", b""])
def test_a_length_may_count_the_last_line_end_or_not(body: bytes, tmp_path: Path) -> None:
    mail = message(body)

    found = entries(tmp_path, LINE + mail + b"\n" + LINE + message(b"next\n"))

    assert [entry.content for entry in found][1] == message(b"next\n")
    assert found[0].content is not None
    assert found[0].content.rstrip(b"\n") == mail.rstrip(b"\n")
    assert [entry.doubtful for entry in found] == [0, 0]


@pytest.mark.parametrize("length", [0, 3, 7, 500, 10**14])
def test_a_wrong_length_is_named_and_lines_decide(length: int, tmp_path: Path) -> None:
    mail = message(b"hello you\n", length)

    found = entries(tmp_path, LINE + mail + b"\n" + LINE + message(b"next\n"))

    assert [entry.content for entry in found] == [mail, message(b"next\n")]
    assert [entry.doubtful for entry in found] == [1, 0]
    (doubt,) = found[0].doubts
    assert (doubt.offset, doubt.line) == (len(LINE + b"Subject: x\n"), f"Content-Length: {length}")
    assert "no message ends" in doubt.why


@pytest.mark.parametrize("text", [b"", b"-1", b"x", b"9" * 5_000, b"1 2"])
def test_a_length_that_is_no_number_is_named(text: bytes, tmp_path: Path) -> None:
    mail = b"Content-Length: " + text + b"\nSubject: x\n\nhello\n"

    found = entries(tmp_path, LINE + mail + b"\n" + LINE + message(b"next\n"))

    assert ([entry.content for entry in found], found[0].doubtful) == ([mail, message(b"next\n")], 1)


def test_a_message_without_a_body_does_not_take_the_length_of_the_next_one(tmp_path: Path) -> None:
    bare = b"Subject: no body\n"

    found = entries(tmp_path, LINE + bare + LINE + message(b"next\n"))

    assert [(entry.content, entry.doubtful) for entry in found] == [(bare, 0), (message(b"next\n"), 0)]


def test_the_last_message_may_be_cut_short(tmp_path: Path) -> None:
    whole = message(b"hello you\n")

    (found,) = entries(tmp_path, LINE + whole[:-4])

    assert (found.content, found.doubtful) == (whole[:-4], 1)


def test_a_message_that_is_larger_than_the_window_and_the_limit(tmp_path: Path) -> None:
    body = b"Dear you,\n\n" + INNER + b"x" * (3 * mbox.CHUNK_OCTETS) + b"\n\n" + INNER
    content = LINE + message(body) + b"\n" + LINE + message(b"next\n")

    whole, cut = entries(tmp_path, content), entries(tmp_path, content, 1_000)

    assert [entry.content for entry in whole] == [message(body), message(b"next\n")]
    assert [entry.content for entry in cut] == [None, message(b"next\n")]
    assert (cut[0].content_octets, cut[0].doubtful) == (len(message(body)), 2)


def test_a_load_goes_on_behind_such_a_message(tmp_path: Path) -> None:
    content = LINE + message(b"x\n\n" + INNER) + b"\n" + LINE + message(b"next\n")
    first, _ = entries(tmp_path, content)

    (rest,) = mbox_messages(tmp_path / "mbox", first.next_offset)

    assert isinstance(rest, Found)
    assert rest.content == message(b"next\n")


@given(st.lists(st.lists(st.sampled_from([INNER, b"\n", b"hello\n", b"From me\n", b">From x\n", LINE])), min_size=1))
def test_what_was_written_with_lengths_is_read_so(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[list[bytes]]
) -> None:
    mails = [message(b"".join(body) + b"end\n") for body in bodies]
    content = b"".join(LINE + mail + b"\n" for mail in mails)

    found = entries(tmp_path_factory.mktemp("mboxcl"), content)

    assert [entry.content for entry in found] == mails
