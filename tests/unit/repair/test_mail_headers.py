"""Dates and flags out of headers of every kind: nothing fails, and a bad source gives way to the next."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.messages.flags import Flags, SystemFlag, parse_flags
from repair.writing.mail_files import Found, mail_of
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
