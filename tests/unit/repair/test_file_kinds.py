"""Files that are no mail: each is refused by its name, in a folder and as the file that was named."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mailmend.model.errors import BadMail
from mailmend.repair.store.mail_files import FolderKind, Refused, WhyNotStored, kind_of, mail_in

MAIL = b"From: a@example.org\nSubject: x\n\nhello\n"


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.eml", MAIL)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.eml"))
    return file.getvalue()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "gzip": (gzip.compress(MAIL), "a gzip file"),
    "bzip2": (bz2.compress(MAIL), "a bzip2 file"),
    "xz": (lzma.compress(MAIL), "an? xz file"),
    "zstd": (b"\x28\xb5\x2f\xfd" + MAIL, "a zstd file"),
    "lz4": (b"\x04\x22\x4d\x18" + MAIL, "a lz4 file"),
    "zip": (zipped(), "a zip archive"),
    "tar": (tarred(), "a tar archive"),
    "PST": (b"!BDN" + bytes(60), r"an Outlook data file \(PST\)"),
    "PDF": (b"%PDF-1.7\nTitle: x\n", "a PDF document"),
    "AppleDouble": (b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X", "an AppleDouble file"),
    "UTF-16 LE with mark": (b"\xff\xfe" + MAIL.decode().encode("utf-16-le"), "text in UTF-16"),
    "UTF-16 BE": (MAIL.decode().encode("utf-16-be"), "text in UTF-16"),
    "UTF-16 LE": (MAIL.decode().encode("utf-16-le"), "text in UTF-16"),
    "no header field": (b"hello,\n\nNote: this is a text\n", "no mail: it has no header field"),
    "JSON": (b'{"from": "a@example.org"}\n', "no mail: it has no header field"),
    "HTML": (b"<html><body style='color: red'>\n", "no mail: it has no header field"),
}
CASES = pytest.mark.parametrize(("content", "why"), FOREIGN.values(), ids=list(FOREIGN))


def eml(directory: Path, content: bytes) -> tuple[Path, FolderKind]:
    (directory / "a.eml").write_bytes(content)
    return directory, FolderKind.EML_FILES


def maildir(directory: Path, content: bytes) -> tuple[Path, FolderKind]:
    for name in ("cur", "new"):
        (directory / name).mkdir()
    (directory / "cur" / "1425376800.M1P1.host,S=150:2,S").write_bytes(content)
    return directory, FolderKind.MAILDIR


@CASES
@pytest.mark.parametrize("make", [eml, maildir])
def test_no_mail_of_a_folder_is_refused_by_its_kind(
    tmp_path: Path, content: bytes, why: str, make: Callable[[Path, bytes], tuple[Path, FolderKind]]
) -> None:
    path, kind = make(tmp_path, content)

    (item,) = mail_in(path, kind)

    assert isinstance(item, Refused)
    assert item.reason is WhyNotStored.REFUSED
    assert item.why.removeprefix("it is ") == why.replace("an?", "a").replace("\\", "")


@CASES
def test_no_mail_that_was_named_is_refused_before_anything_is_stored(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "archive"
    path.write_bytes(content)

    with pytest.raises(BadMail, match="is not an mbox" if "header" in why else why):
        kind_of(path)


def test_a_packed_file_comes_with_the_command_that_unpacks_it(tmp_path: Path) -> None:
    path = tmp_path / "archive.mbox.gz"
    path.write_bytes(gzip.compress(MAIL))

    with pytest.raises(BadMail) as refused:
        kind_of(path)

    assert f"gzip -dc {path} > NEW_FILE" in refused.value.mend


def test_packed_content_in_an_mbox_is_refused_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "mbox"
    line = b"From a@example.org Tue Mar  3 10:00:00 2015\n"
    path.write_bytes(line + gzip.compress(MAIL) + b"\n\n" + line + MAIL)

    first, _ = mail_in(path, FolderKind.MBOX)

    assert isinstance(first, Refused)
    assert (first.name, first.why) == (f"{path} at byte 0", "it is a gzip file")


def test_an_eml_file_with_several_mails_is_refused_with_the_command_that_loads_it(tmp_path: Path) -> None:
    envelope = b"From - Tue Mar  3 10:00:00 2015\n"
    (tmp_path / "one.eml").write_bytes(envelope + MAIL)
    (tmp_path / "two.eml").write_bytes((envelope + MAIL + b"\n") * 2)

    one, two = mail_in(tmp_path, FolderKind.EML_FILES)

    assert not isinstance(one, Refused)
    assert (one.content, one.envelope) == (envelope + MAIL, envelope)
    assert isinstance(two, Refused)
    assert two.why == "an mbox of 2 messages, not one mail"
    assert f"mailmend load {tmp_path / 'two.eml'} " in two.mend


def test_a_maildir_without_its_empty_directories_is_one(tmp_path: Path) -> None:
    """As archives and git leave it: the command that is named for a sub-folder loads it."""
    for name in ("cur", ".Sent/cur"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.a:2,S").write_bytes(MAIL)

    _, skipped = mail_in(tmp_path, kind_of(tmp_path))

    assert isinstance(skipped, Refused)
    assert skipped.mend == f"Load it: mailmend load {tmp_path / '.Sent'} --user USER --mailbox Sent"
    assert kind_of(tmp_path / ".Sent") is FolderKind.MAILDIR
    assert len(list(mail_in(tmp_path / ".Sent", FolderKind.MAILDIR))) == 1


def test_a_maildir_names_what_it_leaves_out(tmp_path: Path) -> None:
    for name in ("cur", "new", ".Sent/cur", ".Sent/new", ".Empty/cur", ".Empty/new"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("cur/1.a:2,S", ".Sent/cur/2.b:2,S", "cur/.hidden", "letters.mbox"):
        (tmp_path / name).write_bytes(MAIL)
    for name in ("dovecot-uidlist", "dovecot.index.log", "subscriptions", "maildirsize", "new/.keep"):
        (tmp_path / name).write_bytes(b"notes")

    items = list(mail_in(tmp_path, FolderKind.MAILDIR))

    skipped = [(item.key, item.reason) for item in items if isinstance(item, Refused)]
    assert skipped == [
        ("cur/.hidden", WhyNotStored.SKIPPED),
        (".Sent", WhyNotStored.SKIPPED),
        ("letters.mbox", WhyNotStored.SKIPPED),
    ]
