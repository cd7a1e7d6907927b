"""Files of Apple Mail: the mail that is counted, and the flags and date that are kept below it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.store.file_kinds import BrokenEmlx, apple_mail
from mailmend.repair.store.loading import Folder, Loader
from mailmend.repair.store.mail_files import FolderKind, Found, Refused, WhyNotStored, kind_of, mail_in, mail_of
from mailmend.repair.store.message import parse_flags
from tests.support.progress import SilentProgress
from tests.support.writing import Desk

NOW = datetime(2026, 5, 1, tzinfo=UTC)
MAIL = b"Subject: x\n\nFrom me\n<key>flags</key><integer>2</integer>\n"


def emlx(mail: bytes = MAIL, flags: int = 1, count: str | None = None, more: str = "") -> bytes:
    """A file as Apple Mail writes it."""
    number = f"{len(mail):<10}" if count is None else count
    text = f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
\t<key>date-received</key>
\t<integer>1600000000</integer>
\t<key>flags</key>
\t<integer>{flags}</integer>
{more}</dict>
</plist>
"""
    return number.encode() + b"\n" + mail + text.encode()


def items(path: Path) -> list[Found | Refused]:
    return list(mail_in(path, kind_of(path)))


@pytest.mark.parametrize(
    ("bits", "flags"),
    [
        (0, []),
        (1 << 0, [r"\Seen"]),
        (1 << 2, [r"\Answered"]),
        (1 << 4, [r"\Flagged"]),
        (1 << 5, [r"\Recent"]),
        (1 << 6, [r"\Draft"]),
        (1 << 8, ["$Forwarded"]),
        (1 << 24, ["$Junk"]),
        (1 << 25, ["$NotJunk"]),
        (8590195713, [r"\Seen"]),
        (1 | 1 << 4 | 3 << 10 | 5 << 16, [r"\Seen", r"\Flagged"]),
    ],
)
def test_flags_are_those_of_the_list_and_not_of_the_mail(bits: int, flags: list[str], tmp_path: Path) -> None:
    file = tmp_path / "1234.emlx"
    file.write_bytes(emlx(flags=bits))

    (item,) = items(file)

    assert isinstance(item, Found)
    mail = mail_of(item, NOW)
    assert (mail.header + mail.body, mail.flags) == (MAIL, parse_flags(flags))
    assert mail.internal_date == datetime.fromtimestamp(1_600_000_000, UTC)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x" + emlx(), "not the number of bytes"),
        (b"", "not the number of bytes"),
        (emlx(count="9" * 12), "cut short"),
        (emlx(count=str(len(MAIL) - 2)), "no property list follows"),
        (emlx(count=str(len(MAIL) + 1)), "no property list follows"),
    ],
)
def test_a_file_that_is_not_of_the_form_is_refused_by_name(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "1.emlx").write_bytes(content)
    (tmp_path / "2.emlx").write_bytes(emlx())

    refused, found = items(tmp_path)

    assert isinstance(refused, Refused)
    assert isinstance(found, Found)
    assert (refused.reason, why in refused.why, "tail -n +2" in refused.mend) == (WhyNotStored.REFUSED, True, True)


def test_a_mail_without_its_attachments_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "7.partial.emlx").write_bytes(emlx())
    (item,) = items(tmp_path)
    assert isinstance(item, Refused)
    assert "attachments" in item.why


def test_what_apple_mail_deleted_stays_away_and_every_byte_is_accounted_for(tmp_path: Path) -> None:
    messages = tmp_path / "INBOX.mbox" / "Messages"
    messages.mkdir(parents=True)
    (tmp_path / "INBOX.mbox" / "Info.plist").write_text("<plist/>")
    files = {
        "1.emlx": emlx(),
        "2.emlx": emlx(flags=2),
        "3.emlx": emlx(b"\n"),
        "4.eml": MAIL,
        "5.emlx": emlx(MAIL + MAIL),
    }
    for name, content in files.items():
        (messages / name).write_bytes(content)
    desk, refused = Desk(), list[Refused]()
    loader = Loader(desk.store, desk.clock, tmp_path / "state", SilentProgress(), refused.append)
    folder = Folder(tmp_path / "INBOX.mbox", kind_of(tmp_path / "INBOX.mbox"), "mail", "bob", "INBOX")

    sums = loader.load(folder, desk.inbox)

    assert folder.kind is FolderKind.EML_FILES
    assert (sums.stored, sums.deleted, sums.refused, sums.skipped) == (3, 1, 1, 0)
    assert sums.octets == 4 * len(MAIL)
    assert sums.octets_left == len(MAIL) + 1
    assert sums.octets_read == sums.octets_accounted == sum(map(len, files.values()))


@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_read_or_refused(content: bytes, count: int) -> None:
    octets = b"%d\n" % count + content
    try:
        mail = apple_mail(octets)
    except BrokenEmlx:
        return
    assert (mail.content, len(mail.content) + mail.beside_octets) == (content[:count], len(octets))
