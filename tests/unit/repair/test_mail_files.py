"""Mail folders read one message at a time: every byte arrives, everything else is refused by name."""

import mailbox
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.model.errors import BadMail
from mailmend.repair.store.mail_files import FolderKind, Found, Refused, WhyNotStored, kind_of, mail_in, mbox_messages
from tests.support.awkward import AWKWARD, NO_MAIL, mbox_of, quoted

LINE = b"From a@b.example Fri Mar  6 10:11:12 2026\n"
MEBIBYTE = 2**20

WHOLE = {
    name: content
    for name, content in AWKWARD.items()
    if b"\r" not in content.replace(b"\r\n", b"") and name not in NO_MAIL
}
"""Bare carriage returns are ends of lines to those who write an mbox with Python: left out of it."""


def contents(path: Path, start: int = 0) -> list[bytes]:
    """The bytes of every message of an mbox."""
    return [one.content for one in mbox_messages(path, start) if isinstance(one, Found)]


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_every_awkward_mail_of_an_mbox_arrives_byte_for_byte(tmp_path: Path) -> None:
    path = written(tmp_path / "mbox", mbox_of(WHOLE))
    assert contents(path) == [quoted(content) for content in WHOLE.values()]


def test_the_standard_library_reads_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "mbox", mbox_of(WHOLE))
    with_stdlib = mailbox.mbox(path)
    theirs = [with_stdlib.get_bytes(key) for key in with_stdlib.keys()]  # noqa: SIM118 a mailbox iterates over mails
    with_stdlib.close()
    assert contents(path) == theirs


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=60).map(lambda body: b"Subject: x\n\n" + body.replace(b"\r", b"")), max_size=6))
def test_any_bodies_come_back(tmp_path_factory: pytest.TempPathFactory, mails: list[bytes]) -> None:
    path = written(tmp_path_factory.mktemp("any") / "mbox", mbox_of({str(n): one for n, one in enumerate(mails)}))
    assert contents(path) == [quoted(one) for one in mails]


def test_reading_goes_on_at_any_message(tmp_path: Path) -> None:
    path = written(tmp_path / "mbox", mbox_of(WHOLE))
    everything = list(mbox_messages(path))
    for number, one in enumerate(everything):
        rest = list(mbox_messages(path, one.next_offset))
        assert [item.key for item in rest] == [item.key for item in everything[number + 1 :]]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"A: b\n\nFrom now on\n", 1),  # no empty line before it
        (b"A: b\n\nx\n\nFrom the start it was so.\n", 1),  # no date, and no header follows
        (b"A: b\n\nx\n\nFrom c@d.example Sat Mar  7 10:11:12 2026\nA: c\n\ny\n", 2),
        (b"A: b\n\nx\n\nFrom nobody\nSubject: undated\n\ny\n", 2),
        (b"A: b\r\n\r\nx\r\n\r\nFrom c@d Sat Mar  7 10:11:12 2026\r\nA: c\r\n\r\ny\r\n", 2),
    ],
)
def test_where_a_message_begins(tmp_path: Path, body: bytes, count: int) -> None:
    """At a `From ` line after an empty one that has a date, or a header below."""
    assert len(contents(written(tmp_path / "mbox", LINE + body))) == count


@pytest.mark.parametrize("name", ["mbox", "one.eml"])
@pytest.mark.parametrize("content", [b"", b" \r\n\n"])
def test_what_is_empty_is_no_mail(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)

    with pytest.raises(BadMail, match="is empty"):
        kind_of(file)


def test_an_empty_file_of_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    for name, content in (("empty.eml", b"\n"), ("one.eml", b"A: b\n\nBody\n")):
        (tmp_path / name).write_bytes(content)

    refused, found = mail_in(tmp_path, FolderKind.EML_FILES)

    assert isinstance(found, Found)
    assert isinstance(refused, Refused)
    assert (refused.key, refused.name, refused.why) == ("empty.eml", str(tmp_path / "empty.eml"), "it is empty")


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"Subject: x\n\nbody\n", b"\nFrom a b\n", b"{}"])
def test_what_is_no_mbox_is_named(tmp_path: Path, content: bytes) -> None:
    """An mbox begins with `From `: anything else is refused before the first message."""
    path = written(tmp_path / "thing", content)
    with pytest.raises(BadMail, match="thing is not an mbox"):
        kind_of(path)


def test_other_things_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadMail, match="does not exist"):
        kind_of(tmp_path / "nothing")
    with pytest.raises(BadMail, match="neither a Maildir"):
        kind_of(tmp_path)


def test_a_message_too_large_is_refused_by_name_and_never_held(tmp_path: Path) -> None:
    path = tmp_path / "mbox"
    with path.open("wb") as file:
        file.write(LINE + b"A: small\n\nx\n\n" + LINE + b"A: large\n\n")
        for _ in range(64):
            file.write(b"y" * (MEBIBYTE - 1) + b"\n")
        file.write(b"\n" + LINE + b"A: small too\n\nx\n\n")
    tracemalloc.start()
    items = list(mbox_messages(path, octets_max=2 * MEBIBYTE))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [type(item) for item in items] == [Found, Refused, Found]
    assert "at byte" in items[1].name
    assert peak < 8 * MEBIBYTE


def test_a_maildir_is_read_in_order_of_delivery(tmp_path: Path) -> None:
    folder = tmp_path / "Maildir"
    written(folder / "cur" / "1700000002.b.host:2,FS", b"A: b\n\n2")
    written(folder / "new" / "1700000001.a.host", b"A: a\n\n1")
    written(folder / "tmp" / "1700000003.c.host", b"A: c\n\n3")
    written(folder / ".Sent" / "cur" / "x", b"A: d\n\n4")
    (folder / ".Sent" / "new").mkdir()
    assert kind_of(folder) is FolderKind.MAILDIR
    first, second, undelivered, other = mail_in(folder, FolderKind.MAILDIR)
    assert isinstance(undelivered, Refused)
    assert isinstance(first, Found)
    assert isinstance(second, Found)
    assert isinstance(other, Refused)
    assert (first.key, first.recent, first.info, first.content) == ("1700000001.a.host", True, "", b"A: a\n\n1")
    assert (second.key, second.recent, second.info) == ("1700000002.b.host", False, "FS")
    assert (undelivered.reason, undelivered.key) == (WhyNotStored.SKIPPED, "tmp/1700000003.c.host")
    assert (other.reason, other.key) == (WhyNotStored.SKIPPED, ".Sent")
    assert f"mailmend load {folder / '.Sent'} --user USER --mailbox Sent" in other.mend


def test_a_directory_of_eml_files(tmp_path: Path) -> None:
    written(tmp_path / "a.eml", b"A: a\n\n")
    written(tmp_path / "deep" / "b.EML", b"A: b\n\n")
    written(tmp_path / "deep" / "notes.txt", b"no mail")
    written(tmp_path / "deep" / "empty.txt", b"")
    assert kind_of(tmp_path) is FolderKind.EML_FILES
    items = list(mail_in(tmp_path, FolderKind.EML_FILES))
    assert [item.key for item in items if isinstance(item, Found)] == ["a.eml", "deep/b.EML"]
    skipped = [(item.key, item.reason) for item in items if isinstance(item, Refused)]
    assert skipped == [("deep/notes.txt", WhyNotStored.SKIPPED)]


def test_one_eml_file(tmp_path: Path) -> None:
    """A file whose name says that it is one mail, whatever is in it."""
    path = written(tmp_path / "x.eml", b"A: \x00\xff")
    assert kind_of(path) is FolderKind.EML
    (item,) = mail_in(path, FolderKind.EML)
    assert isinstance(item, Found)
    assert item.content == b"A: \x00\xff"
    (refused,) = mail_in(path, FolderKind.EML, octets_max=1)
    assert isinstance(refused, Refused)


def test_a_file_that_vanishes_or_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    written(tmp_path / "a.eml", b"A: a\n\n")
    (tmp_path / "b.eml").symlink_to(tmp_path / "gone")
    items = list(mail_in(tmp_path, FolderKind.EML_FILES))
    assert [type(item) for item in items] == [Found, Refused]
    assert items[1].name.endswith("b.eml")


def test_a_folder_that_goes_away_meanwhile_is_named(tmp_path: Path) -> None:
    for name in ("cur", "new"):
        (tmp_path / name).mkdir()
    for name in ("cur", "new"):
        (tmp_path / name).rmdir()

    with pytest.raises(BadMail, match="new cannot be read: No such file"):
        list(mail_in(tmp_path, FolderKind.MAILDIR))
    with pytest.raises(BadMail, match=r"gone\.mbox cannot be read: No such file"):
        list(mail_in(tmp_path / "gone.mbox", FolderKind.MBOX))
