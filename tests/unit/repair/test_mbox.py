"""An mbox of any program: each message found, each byte accounted for, what may be read either way named."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.repair.store import mbox
from mailmend.repair.store.mail_files import FolderKind, Found, Refused, kind_of, mail_in, mbox_messages
from mailmend.repair.store.mbox import MboxEntry, entries_in
from tests.support.thorough import few_or

DATE = b"Tue Mar  3 10:00:00 2015"
LINE = b"From a@example.org " + DATE + b"\n"
HEADER = b"From: a@example.org\nTo: b@example.org\nSubject: x\n\n"
NO_LIMIT = 2**30


def written(directory: Path, content: bytes) -> Path:
    path = directory / "mbox"
    path.write_bytes(content)
    return path


def entries(directory: Path, content: bytes, octets_max: int = NO_LIMIT) -> list[MboxEntry]:
    return list(entries_in(written(directory, content), 0, octets_max))


def accounted(found: list[MboxEntry]) -> int:
    return sum(len(one.envelope) + one.content_octets + one.separator_octets for one in found)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b"\r\r\n"], ids=["LF", "CRLF", "CR", "CRCRLF"])
def test_any_line_ends_give_the_same_messages(tmp_path: Path, end: bytes) -> None:
    mails = [HEADER + b"hello %d\n" % number for number in range(3)]
    content = b"".join(LINE + mail + b"\n" for mail in mails).replace(b"\n", end)

    found = entries(tmp_path, content)

    assert [one.content for one in found] == [mail.replace(b"\n", end) for mail in mails]
    assert (accounted(found), sum(one.doubtful for one in found)) == (len(content), 0)


def test_line_ends_may_be_mixed(tmp_path: Path) -> None:
    parts = [LINE + HEADER + b"one\n\n", (LINE + HEADER + b"two\n\n").replace(b"\n", b"\r"), LINE + HEADER + b"3\r\n\n"]

    found = entries(tmp_path, b"".join(parts))

    assert [len(one.envelope) + one.content_octets + one.separator_octets for one in found] == [*map(len, parts)]


def test_no_empty_line_is_needed_before_an_envelope_with_a_date(tmp_path: Path) -> None:
    content = (LINE + HEADER + b"hello\n") * 3

    found = entries(tmp_path, content)

    assert [one.content for one in found] == [HEADER + b"hello\n"] * 3
    assert [one.separator_octets for one in found] == [0, 0, 0]
    assert accounted(found) == len(content)


def test_sentences_that_begin_with_from_stay_in_their_mail_and_are_named(tmp_path: Path) -> None:
    first = b"Dear you,\n\nFrom memory: it was fine\nTo: whom\n\nFrom the start at 10:00 in 2015 we knew\n\nbye\n"
    content = LINE + HEADER + first + b"\n" + LINE + HEADER + b"hello\n\n"

    one, other = entries(tmp_path, content)

    assert (one.content, other.content) == (HEADER + first, HEADER + b"hello\n")
    assert [doubt.begins for doubt in one.doubts] == [False, False]
    assert [content[doubt.offset :].split(b"\n")[0].decode() for doubt in one.doubts] == [
        "From memory: it was fine",
        "From the start at 10:00 in 2015 we knew",
    ]
    assert (one.doubtful, other.doubtful) == (2, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"From a@example.org Tue Mar  3 10:00:00 2015",
        b"From - Sat Apr 12 15:59:28 2025",
        b"From MAILER-DAEMON Tue Mar 3 10:00:00 2015",
        b"From a@example.org Tue Mar 03 10:00:00 +0000 2015",
        b"From a@example.org Tue Mar  3 10:00:00 MET DST 2015",
        b"From a@example.org Tue Mar  3 10:00 2015",
        b"From 1594@xxx Tue Mar 03 10:00:00 2015 -0500 (EST)",
        b"From a Tue Mar  3 10:00:00 2015 remote from host.example",
        b"From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001",
        b"From mboxrd@z Thu Jan  1 00:00:00 1970",
        b"From - Sat Apr 12 2025 15:59:28",
        b"From a@example.org Tue, 3 Mar 2015 10:00:00 +0100",
        b"From a@example.org 2015-03-03T10:00:00Z",
        b"From  Tue Mar  3 10:00:00 2015",
    ],
)
def test_each_form_of_an_envelope_begins_a_message(tmp_path: Path, line: bytes) -> None:
    for gap in (b"", b"\n"):
        found = entries(tmp_path, LINE + HEADER + b"x\n" + gap + line + b"\n" + HEADER + b"y\n")
        assert [one.doubtful for one in found] == [0, 0]


@pytest.mark.parametrize(
    ("text", "messages", "doubtful"),
    [
        (b"text\nFrom now on\nmore\n", 1, 0),
        (b"text\n\nFrom now on\nTo: whom\n", 1, 1),
        (b"text\n\nFrom a@example.org I heard it\nSubject: x\n", 1, 1),
        (b"text\n\n" + LINE + b"\nquoted text\n", 1, 1),
        (b"text\n\n" + LINE + b"no header line\n", 1, 1),
        (b"text\n\n" + LINE + b">From - Sat Apr 12 2025 15:59:28\nSubject: x\n\ny\n", 2, 0),
        (b"text\n\n" + LINE + b"a line that is no header\nSubject: x\n\ny\n", 2, 1),
        (b"text\n\nFrom nobody\nSubject: undated\n\ny\n", 2, 1),
        (b"text\n\nFrom - Di 3. M\xc3\xa4rz 10:00:00 2015\nSubject: x\n\ny\n", 2, 1),
        (b'text\n\nFrom "ann b"@example.org ' + DATE + b"\nSubject: x\n\ny\n", 2, 1),
        (b"text\n\n>" + LINE + b"Subject: quoted\n", 1, 0),
        (b"text\n\n" + LINE + b"\n" + LINE + HEADER + b"y\n", 3, 0),
        (b"text\n\n" + LINE, 2, 0),
    ],
)
def test_what_begins_a_message_and_what_is_doubtful(tmp_path: Path, text: bytes, messages: int, doubtful: int) -> None:
    content = LINE + HEADER + text

    found = entries(tmp_path, content)

    assert (len(found), sum(one.doubtful for one in found)) == (messages, doubtful)
    assert accounted(found) == len(content)


LINES = st.sampled_from(
    [
        b"From a@example.org " + DATE,
        b"From - Sat Apr 12 15:59:28 2025",
        b"From here on",
        b">From x",
        b"From ",
        b"From",
        b"Subject: x",
        b"Content-Length: 5",
        b"content-length:10 ",
        b"",
        b"text",
        b"x" * 70,
        b"\x00\xff",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\r\r\n", b""])


@settings(max_examples=few_or(300, 75))
@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.integers(1, 40), st.integers(0, 200))
def test_each_byte_is_in_an_envelope_a_message_or_a_separator(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[bytes, bytes]], chunk: int, octets_max: int
) -> None:
    """At any size of reads, and whatever is too large: the law of a load."""
    content = LINE + b"".join(line + end for line, end in lines)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mbox, "CHUNK_OCTETS", chunk)
        found = entries(tmp_path_factory.getbasetemp(), content, octets_max)
    whole = entries(tmp_path_factory.getbasetemp(), content)

    assert accounted(found) == len(content)
    assert [(one.offset, one.content_octets) for one in found] == [(one.offset, one.content_octets) for one in whole]
    assert all(len(one.content or b"") <= octets_max for one in found)
    read = b"".join(one.envelope + (one.content or b"") + content[_separator(one)] for one in whole)
    assert read == content


def _separator(entry: MboxEntry) -> slice:
    return slice(entry.next_offset - entry.separator_octets, entry.next_offset)


def test_many_lines_that_begin_with_from_are_read_in_linear_time(tmp_path: Path) -> None:
    content = LINE + HEADER + b"\n".join([b"From ", b"From", b""] * 100_000)

    (entry,) = entries(tmp_path, content)

    assert accounted([entry]) == len(content)
    assert len(entry.doubts) == mbox.DOUBTS_MAX < entry.doubtful


def test_an_entry_without_content_is_refused_with_its_offset(tmp_path: Path) -> None:
    path = written(tmp_path, LINE + b"\n" + LINE + HEADER + b"x\n\n" + LINE)

    first, second, third = mbox_messages(path)

    assert isinstance(second, Found)
    for item in (first, third):
        assert isinstance(item, Refused)
        assert item.why == "it is empty"
    assert first.name.endswith("at byte 0")


def test_a_file_named_eml_that_holds_an_mbox_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "export.eml"
    path.write_bytes((LINE + HEADER + b"x\n\n") * 2)
    one = tmp_path / "one.eml"
    one.write_bytes(LINE + HEADER + b"x\n\n")

    assert (kind_of(path), kind_of(one)) == (FolderKind.MBOX, FolderKind.EML)
    (whole,) = mail_in(one, FolderKind.EML)
    assert isinstance(whole, Found)
    assert whole.content == one.read_bytes(), "a file of one mail stays as it is"


def test_a_byte_order_mark_before_the_first_envelope_is_part_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + LINE + HEADER + b"x\n")

    assert kind_of(path) is FolderKind.MBOX
    (found,) = mbox_messages(path)
    assert isinstance(found, Found)
    assert found.content == HEADER + b"x\n"
