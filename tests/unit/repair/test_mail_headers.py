"""Dates and flags out of headers of every kind: nothing fails, and a bad source gives way to the next."""

from datetime import UTC, datetime
from email.header import Header
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.store.mail_files import FolderKind, Found, Refused, WhyNotStored, mail_in, mail_of, mbox_messages
from mailmend.repair.store.message import Flags, SystemFlag, parse_flags
from tests.support.awkward import AWKWARD

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DAY = datetime(2026, 3, 6, 9, 11, 12, tzinfo=UTC)
ENVELOPE = b"From a@b.example Fri Mar  6 09:11:12 2026\n"


def date_of(content: bytes, envelope: bytes = b"", touched_at: float | None = None) -> datetime:
    """The internal date that a message gets."""
    found = Found("k", "n", content, envelope=envelope, touched_at=touched_at)
    return mail_of(found, NOW).internal_date


def flags_in(content: bytes, **found: object) -> Flags:
    return mail_of(Found("k", "n", content, **found), NOW).flags  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AWKWARD)
def test_every_awkward_mail_becomes_one(name: str) -> None:
    for envelope in (b"", ENVELOPE):
        mail = mail_of(Found("k", "n", AWKWARD[name], envelope=envelope, touched_at=0.0), NOW)
        assert mail.header + mail.body == AWKWARD[name]
        assert mail.internal_date.tzinfo is UTC
        assert 1970 <= mail.internal_date.year <= 2026
        assert all(word.encode() for word in mail.flags.user)


@given(st.binary(max_size=400), st.binary(max_size=60))
def test_nothing_fails(content: bytes, envelope: bytes) -> None:
    """Whatever the bytes."""
    mail = mail_of(Found("k", "n", content, envelope=b"From " + envelope), NOW)
    assert mail.header + mail.body == content


def test_the_best_date_wins() -> None:
    received = b"Received: from x by y; Fri, 6 Mar 2026 10:11:12 +0100\nReceived: from z; Thu, 5 Mar 2026 1:1:1 +0000\n"
    sent = b"Date: Tue, 3 Mar 2026 00:00:00 +0000\n"
    other = b"From a@b.example Wed Mar  4 00:00:00 2026\n"
    assert date_of(received + sent + b"\n", other, 0.0) == DAY
    assert date_of(sent + b"\n", other, 0.0).day == 4
    assert date_of(sent + b"\n", b"", 0.0).day == 3
    assert date_of(b"A: b\n\n", b"", 86400.0) == datetime(1970, 1, 2, tzinfo=UTC)
    assert date_of(b"A: b\n\n") == NOW


@pytest.mark.parametrize(
    "line",
    [
        b"From a@b Fri Mar  6 09:11:12 2026\n",
        b"From a@b Fri Mar  6 09:11:12 UTC 2026\n",
        b"From a@b Fri Mar 06 10:11:12 +0100 2026\r\n",
        b"From ???@??? Fri Mar 6 09:11:12 2026\n",
    ],
)
def test_dates_of_mbox_lines(line: bytes) -> None:
    assert date_of(b"A: b\n\n", line) == DAY


@pytest.mark.parametrize("name", ["absurd date", "date long ago", "date far ahead", "broken encoded word"])
def test_an_impossible_date_is_none(name: str) -> None:
    assert date_of(AWKWARD[name], ENVELOPE) == DAY
    assert date_of(AWKWARD[name], b"", 86400.0).year == 1970


@pytest.mark.parametrize("touched_at", [-1.0, 1e18, float("inf")])
def test_an_impossible_file_time_is_none(touched_at: float) -> None:
    assert date_of(b"A: b\n\n", b"", touched_at) == NOW


def test_a_date_without_zone_is_taken_as_utc() -> None:
    """`-0000` says that the zone is not known."""
    assert date_of(b"Date: Fri, 6 Mar 2026 09:11:12 -0000\n\n") == DAY


def test_flags_of_an_mbox() -> None:
    r"""Status and X-Status as mail programs leave them; without `O` the mail is \Recent."""
    whole = flags_in(AWKWARD["status fields"], envelope=ENVELOPE)
    assert whole == parse_flags([r"\Seen", r"\Answered", r"\Flagged", "work", "later"])
    assert flags_in(b"Status: R\n\n", envelope=ENVELOPE).system == {SystemFlag.SEEN, SystemFlag.RECENT}
    assert flags_in(b"X-Status: DT\n\n", envelope=ENVELOPE).system == {
        SystemFlag.DELETED,
        SystemFlag.DRAFT,
        SystemFlag.RECENT,
    }


def test_keywords_of_an_mbox() -> None:
    flags = flags_in(b'X-Keywords: work, later (no) "quoted" $Junk\n\n', envelope=ENVELOPE)
    assert {"work", "later", "$Junk"} <= flags.user
    assert not any(set(word) & set('(){%*"\\ ,') for word in flags.user)


def test_flags_of_a_maildir() -> None:
    r"""Letters of the file's name; what lies in `new` is \Recent; passed on means $Forwarded."""
    assert flags_in(b"\n", info="DFRST") == parse_flags([r"\Draft", r"\Flagged", r"\Answered", r"\Seen", r"\Deleted"])
    assert flags_in(b"\n", info="PSx") == parse_flags([r"\Seen", "$Forwarded"])
    assert flags_in(b"\n", recent=True) == parse_flags([r"\Recent"])


def test_status_fields_of_a_file_are_not_believed() -> None:
    assert flags_in(b"Status: RO\nX-Status: D\n\n") == Flags()


SENT = datetime(2015, 3, 3, 10, 0, tzinfo=UTC)
MAIL = b"From: a@example.org\nDate: Tue, 3 Mar 2015 10:00:00 +0000\nSubject: x\n\ntext\n"


@pytest.mark.parametrize(
    "line",
    [
        b"From mboxrd@z Thu Jan  1 00:00:00 1970\n",
        b"From a@b Thu Jan  1 12:34:56 1970\n",
        b"From 0123456789abcdef Mon Sep 17 00:00:00 2001\n",
        b"From a@b Tue Jan  1 00:00:00 1980\n",
    ],
)
def test_a_placeholder_date_never_beats_the_date_field(line: bytes) -> None:
    assert date_of(MAIL, line) == SENT
    received = b"Received: from x by y; Thu, 1 Jan 1970 00:00:10 +0000\n"
    assert date_of(received + MAIL, line) == SENT
    assert date_of(b"A: b\n\n", line, DAY.timestamp()) == DAY


@pytest.mark.parametrize(
    ("line", "date"),
    [
        (b"From - Sat Apr 12 2025 15:59:28\n", datetime(2025, 4, 12, 15, 59, 28, tzinfo=UTC)),
        (b"From 1@xxx Tue Mar 03 10:00:00 2015 +0200\n", datetime(2015, 3, 3, 8, 0, tzinfo=UTC)),
        (b"From a@b Tue, 3 Mar 2015 11:00:00 +0100\n", SENT),
        (b"From a@b 2015-03-03T10:00:00Z\n", SENT),
        (b"From a Tue Mar  3 10:00:00 2015 remote from host\n", SENT),
    ],
)
def test_dates_of_other_forms_of_the_envelope(line: bytes, date: datetime) -> None:
    assert date_of(b"A: b\n\n", line) == date


@pytest.mark.parametrize(
    "content",
    [
        b"From: a@example.org\nthis line is no header\nDate: Tue, 3 Mar 2015 10:00:00 +0000\n\nx\n",
        b"From : a@example.org\nDate : Tue, 3 Mar 2015 10:00:00 +0000\nSubject : s\n\nx\n",
        b">From - Sat Apr 12 2025 15:59:28\n" + MAIL,
        b": no name\n" + MAIL,
        b"\xef\xbb\xbf" + MAIL.replace(b"From: a@example.org\n", b""),
        MAIL.replace(b"\n", b"\r"),
        MAIL.replace(b"\n", b"\r\r\n"),
        b"Subject: x\nDate:\n Tue, 3 Mar 2015\n\t10:00:00 +0000\n\nx\n",
    ],
)
def test_an_odd_line_does_not_end_the_header(content: bytes) -> None:
    assert date_of(content, touched_at=DAY.timestamp()) == SENT


def test_a_second_from_line_does_not_hide_the_status() -> None:
    content = b">From - Sat Apr 12 2025 15:59:28\nStatus: RO\n" + MAIL
    mail = mail_of(Found("k", "n", content, envelope=b"From a@example.org Fri Apr 11 15:36:10 2025\n"), NOW)
    assert mail.flags == parse_flags([r"\Seen"])
    assert mail.internal_date == SENT


def test_the_line_of_a_copy_does_not_beat_the_date_field() -> None:
    """Thunderbird writes the time at which it put a message into the folder."""
    assert date_of(MAIL, MOZILLA) == SENT
    assert date_of(b"Subject: x\n\n", MOZILLA) == datetime(2025, 4, 12, 15, 59, 28, tzinfo=UTC)


MOZILLA = b"From - Sat Apr 12 15:59:28 2025\n"


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        (b"X-Mozilla-Status: 0000\nX-Mozilla-Status2: 00000000\n", []),
        (b"X-Mozilla-Status: 0001\nX-Mozilla-Status2: 00000000\n", [r"\Seen"]),
        (b"X-Mozilla-Status: 0005\nX-Mozilla-Status2: 00000000\n", [r"\Seen", r"\Flagged"]),
        (b"X-Mozilla-Status: 1003\nX-Mozilla-Status2: 00000000\n", [r"\Seen", r"\Answered", "$Forwarded"]),
        (b"X-Mozilla-Status: 0000\nX-Mozilla-Status2: 00010000\n", [r"\Recent"]),
        (b"X-Mozilla-Status: 0001\nX-Mozilla-Status2: 04000000\n", [r"\Seen", "$Label2"]),
        (b"X-Mozilla-Status: 0001\nX-Mozilla-Keys: $label1 work junk       \n", [r"\Seen", "$label1", "work", "$Junk"]),
        (b"X-Mozilla-Status: zzzz\n", []),
    ],
)
def test_flags_of_thunderbird(fields: bytes, flags: list[str]) -> None:
    assert flags_in(fields + MAIL, envelope=MOZILLA) == parse_flags(flags)


@pytest.mark.parametrize(
    "status", [b"X-Mozilla-Status: 0009\n", b"X-Mozilla-Status: 0001\nX-Mozilla-Status2: 00200000\n"]
)
def test_what_thunderbird_deleted_stays_away(tmp_path: Path, status: bytes) -> None:
    (tmp_path / "Inbox").write_bytes(MOZILLA + status + MAIL + b"\n" + MOZILLA + MAIL)
    first, second = mbox_messages(tmp_path / "Inbox")
    assert isinstance(first, Refused)
    assert first.reason is WhyNotStored.DELETED
    assert isinstance(second, Found)


def test_a_sender_cannot_mark_a_mail_as_deleted(tmp_path: Path) -> None:
    """In a mailbox of another program, where Thunderbird's fields are not above all others."""
    (tmp_path / "mbox").write_bytes(ENVELOPE + b"Received: from x; now\nX-Mozilla-Status: 0009\n" + MAIL)
    (found,) = mbox_messages(tmp_path / "mbox")
    assert isinstance(found, Found)


@pytest.mark.parametrize(
    ("labels", "flags"),
    [
        (b"Inbox,Unread", ["Inbox"]),
        (b"Inbox,Opened", ["Inbox", r"\Seen"]),
        (b"Starred,Important,Archived", [r"\Seen", r"\Flagged", "$Important", "Archived"]),
        (b"Trash,Unread", [r"\Deleted"]),
        (b"Spam,Unread", ["$Junk"]),
        (b"Drafts", [r"\Seen", r"\Draft"]),
        (b'Unread,"My work, old",Category Updates', ["My_work_old", "Category_Updates"]),
        (b"=?UTF-8?Q?Unread,Caf=C3=A9?=", ["Caf\u00e9"]),
        (b"Unread,\n Work", ["Work"]),
    ],
)
def test_labels_of_gmail(labels: bytes, flags: list[str]) -> None:
    content = b"X-GM-THRID: 1594\nX-Gmail-Labels: " + labels + b"\n" + MAIL
    assert flags_in(content, envelope=ENVELOPE) == parse_flags(flags)


@pytest.mark.parametrize(
    ("labels", "flags"),
    [
        ("Posteingang,Wichtig,Ungelesen", ["Inbox", "$Important"]),
        ("Gesendet,Geöffnet,Markiert", ["Sent", r"\Seen", r"\Flagged"]),
        ("Papierkorb,Geöffnet", [r"\Seen", r"\Deleted"]),
        ("Boîte de réception,Non lus,Famille", ["Inbox", "Famille"]),
        ("Messages archivés,Ouvert,Favoris", ["Archived", r"\Seen", r"\Flagged"]),
        ("Corbeille,Non lus", [r"\Deleted"]),
        ("Recibidos,No leídos", ["Inbox"]),
        ("Papelera,Abierto", [r"\Seen", r"\Deleted"]),
        ("Posta in arrivo,Da leggere,Speciali", ["Inbox", r"\Flagged"]),
        ("Cestino,Aperti", [r"\Seen", r"\Deleted"]),
        ("Inbox,Ongelezen,Met ster", ["Inbox", r"\Flagged"]),
        ("Prullenbak,Geopend", [r"\Seen", r"\Deleted"]),
        ("Odebrane,Nieprzeczytane,Ważne", ["Inbox", "$Important"]),
        ("Kosz,Otwarte", [r"\Seen", r"\Deleted"]),
        ("Caixa de entrada,Não lidas", ["Inbox"]),
        ("Lixeira,Aberto", [r"\Seen", r"\Deleted"]),
        ("受信トレイ,未読,重要", ["Inbox", "$Important"]),
        ("ゴミ箱,開封済み", [r"\Seen", r"\Deleted"]),
        ("迷惑メール,未読", ["$Junk"]),
        ("下書き", [r"\Seen", r"\Draft"]),
        ("Archivováno,Nepřečtené,Facebook", ["Archived", "Facebook"]),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_labels_of_gmail_in_other_languages(labels: str, flags: list[str], encoded: bool) -> None:
    text = Header(labels, "utf-8", maxlinelen=40).encode() if encoded else labels
    content = b"X-Gmail-Labels: " + text.encode() + b"\n" + MAIL
    assert flags_in(content, envelope=ENVELOPE) == parse_flags(flags)


@pytest.mark.parametrize(
    ("labels", "flags"),
    [
        ("Opened,Inbox,Corbeille", [r"\Seen", "Inbox", "Corbeille"]),
        ("Unread,Sent,Kosz", ["Sent", "Kosz"]),
        ("Boîte\u00a0de re\u0301ception,NON LUS", ["Inbox"]),
    ],
)
def test_a_label_of_the_user_is_not_read_in_another_language(labels: str, flags: list[str]) -> None:
    content = b"X-Gmail-Labels: " + labels.encode() + b"\n" + MAIL
    assert flags_in(content, envelope=ENVELOPE) == parse_flags(flags)


def test_keywords_of_dovecot(tmp_path: Path) -> None:
    for name in ("cur", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "dovecot-keywords").write_text("0 $Forwarded\n1 work\nx bad\n2 not an atom\n99 far\n")
    (tmp_path / "cur" / "1.a;2,STab").write_bytes(MAIL)
    (tmp_path / "cur" / "2.a:2,bcz").write_bytes(MAIL)
    flags = [mail_of(item, NOW).flags for item in mail_in(tmp_path, FolderKind.MAILDIR) if isinstance(item, Found)]
    assert flags == [parse_flags([r"\Seen", r"\Deleted", "$Forwarded", "work"]), parse_flags(["work"])]
