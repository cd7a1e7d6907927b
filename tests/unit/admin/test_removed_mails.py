"""Mails that leave a queue at an operator's word are kept first, whole, for their owner alone."""

import asyncio
import base64
import errno
import gzip
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.admin.queue.kept_mails import RemovedMailsFile, RestoredLog, read_removed_mails, removed_mails_path
from mailmend.mailqueue.codec import payload_of, queued_of
from mailmend.mailqueue.rules.mails import Listed, QueuedMail, Whereabouts
from mailmend.model.errors import StateUnwritable, WrongUse
from mailmend.model.ids import EnqueueId, QueueName
from tests.support.queued_mails import QUEUED, queued_mail

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPOOL = QueueName("spool")


def listed(number: int = 1) -> Listed:
    return Listed(queued_mail(number), NOW)


def kept(file: Path, *mails: tuple[Listed, bytes | None]) -> Path:
    async def story() -> None:
        keeper = RemovedMailsFile(file, SPOOL)
        await asyncio.gather(*(keeper.keep(mail, content) for mail, content in mails))
        assert keeper.count == len(mails)

    asyncio.run(story())
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "spool.jsonl.gz"


@settings(max_examples=25)
@given(queued=QUEUED, content=st.none() | st.binary(max_size=200), delayed=st.booleans())
def test_what_is_read_is_what_was_kept(
    tmp_path_factory: pytest.TempPathFactory, queued: QueuedMail, content: bytes | None, delayed: bool
) -> None:
    mail = Listed(queued, NOW, Whereabouts.DELAYED if delayed else Whereabouts.WAITING, due_at=NOW if delayed else None)
    file = kept(tmp_path_factory.mktemp("kept") / "one", (mail, content))

    (found,) = read_removed_mails(file)

    assert (found.queue, found.queued, found.content) == (SPOOL, queued_of(payload_of(queued)), content)
    assert (found.enqueued_at, found.due_at) == (mail.enqueued_at, mail.due_at)


def test_only_the_owner_may_read_them(file: Path) -> None:
    kept(file, (listed(), b"secret"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_no_mail_no_file(file: Path) -> None:
    RemovedMailsFile(file, SPOOL)

    assert not file.parent.exists()


def test_many_at_once_share_writes_and_none_is_lost(file: Path) -> None:
    kept(file, *((listed(number), b"%d" % number) for number in range(50)))

    assert sorted(int(mail.content or b"") for mail in read_removed_mails(file)) == list(range(50))


def test_a_disk_that_refuses_keeps_the_mail_in_its_queue(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")

    with pytest.raises(StateUnwritable, match="left in its queue"):
        kept(blocked / "kept.gz", (listed(), b""))


def test_one_refused_write_fails_its_mail_and_no_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three that share a write, the two others are written by their own callers; the file stays readable."""
    refusals = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
    sync = os.fsync

    def once_refused(handle: int) -> None:
        if refusals and stat.S_ISREG(os.fstat(handle).st_mode):
            raise refusals.pop()
        sync(handle)

    async def story() -> tuple[list[BaseException | None], int]:
        keeper = RemovedMailsFile(file, SPOOL)
        together = [keeper.keep(listed(number), b"%d" % number) for number in range(3)]
        outcomes = await asyncio.gather(*together, return_exceptions=True)
        await keeper.keep(listed(3), b"3")
        return outcomes, keeper.count

    monkeypatch.setattr(os, "fsync", once_refused)
    outcomes, count = asyncio.run(story())

    refused = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, StateUnwritable)]
    found = [int(mail.content or b"") for mail in read_removed_mails(file)]
    assert (refused, found, count) == ([0], [1, 2, 3], 3)


def test_a_file_whose_end_is_missing_is_read_up_to_there(file: Path) -> None:
    kept(file, (listed(1), b"one"))
    kept(file, (listed(2), b"two"))
    file.write_bytes(file.read_bytes()[:-20])

    mails = read_removed_mails(file)
    assert next(mails).content == b"one"
    with pytest.raises(WrongUse, match="ends in the middle of a mail"):
        next(mails)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"plain text", "is not a file of removed mails"),
        (gzip.compress(b"not json\n", mtime=0), "line 1: not a removed mail"),
        (gzip.compress(b"{}\n", mtime=0), "line 1: not a removed mail"),
        (gzip.compress(b'{"format": "kept-mail/9"}\n', mtime=0), "its format is 'kept-mail/9'"),
        (gzip.compress(b"[1]\n", mtime=0), "line 1: not a removed mail"),
    ],
)
def test_what_is_no_such_file_is_refused_with_its_place(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)

    with pytest.raises(WrongUse, match=said):
        list(read_removed_mails(file))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="No such file"):
        list(read_removed_mails(tmp_path / "none"))


def test_whoever_can_do_without_the_end_is_reported(file: Path) -> None:
    kept(file, (listed(1), b"one"))
    kept(file, (listed(2), b"two"))
    file.write_bytes(file.read_bytes()[:-20])
    reported: list[str] = []

    assert [mail.content for mail in read_removed_mails(file, lambda: reported.append("torn"))] == [b"one"]
    assert reported == ["torn"]


def test_a_row_that_no_mail_can_be_read_from_is_kept_for_a_person(file: Path) -> None:
    row = {"name": None, "enqueuedtime": NOW, "headerblobid": "h"}

    async def story() -> None:
        await RemovedMailsFile(file, SPOOL).keep_row(row, {"headerblobid": b"Subject: x"})

    asyncio.run(story())
    kept(file, (listed(1), b"one"))

    assert [mail.content for mail in read_removed_mails(file)] == [b"one"]
    document = json.loads(gzip.decompress(file.read_bytes()).splitlines()[0])
    assert (document["format"], document["row"]["headerblobid"]) == ("kept-row/1", "h")
    assert base64.b64decode(document["blobs"]["headerblobid"]) == b"Subject: x"


@pytest.mark.parametrize("torn", ["", "1234", "00000000-0000-0000-0000-0000", "x y", "\n"])
def test_a_torn_note_says_nothing(file: Path, torn: str) -> None:
    """Nor do those that were written behind it on the same line; the others count."""
    kept(file, (listed(1), b""))
    one, two = (EnqueueId(queued_mail(number).enqueue_id) for number in (1, 2))
    RestoredLog(file).note(one, two)
    with RestoredLog(file).path.open("a") as stream:
        stream.write(torn)

    assert RestoredLog(file).restored() == {one}


def test_what_is_back_is_remembered_beside_the_file(file: Path) -> None:
    kept(file, (listed(1), b""))
    one, two, other = (EnqueueId(queued_mail(number).enqueue_id) for number in (1, 2, 3))

    assert RestoredLog(file).restored() == frozenset()
    RestoredLog(file).note(one, other)
    RestoredLog(file).note(two, other)
    assert RestoredLog(file).restored() == {one, two}
    assert stat.S_IMODE(RestoredLog(file).path.stat().st_mode) == 0o600


def test_files_of_two_commands_have_two_names(tmp_path: Path) -> None:
    later = NOW + timedelta(microseconds=1)
    names = {removed_mails_path(tmp_path, SPOOL, at, verb) for at in (NOW, later) for verb in ("delete", "purge")}

    assert len(names) == 4


def test_a_mail_is_delayed_while_its_time_is_to_come(file: Path) -> None:
    delayed = Listed(queued_mail(), NOW, Whereabouts.DELAYED, due_at=NOW)
    (found,) = read_removed_mails(kept(file, (delayed, b"")))

    assert found.is_delayed(NOW - timedelta(seconds=1))
    assert not found.is_delayed(NOW)
