"""Loading folders: everything stored or named, never twice, and after a kill it goes on where it was."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID
from mailmend.model.errors import (
    AccessDenied,
    BadMail,
    MailmendError,
    StateUnwritable,
    Unjournalled,
    UnsafeRequest,
    WrongUse,
)
from mailmend.model.operations import PutIfAbsent
from mailmend.repair.store.loading import Folder, Loaded, Loader, LoadJournal, LoadLimits, message_id_of
from mailmend.repair.store.mail_files import Refused, kind_of
from mailmend.repair.store.message import SystemFlag, flags_of
from tests.support.awkward import AWKWARD, NO_MAIL, mbox_of
from tests.support.clock import uuid_at
from tests.support.disk import full_after
from tests.support.progress import SilentProgress
from tests.support.writing import Desk, on

NOTHING_LEFT = "already, all of it"


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the loader catches it."""


@dataclass(slots=True)
class Bench:
    """A desk, a state directory, and loads into its inbox."""

    directory: Path
    desk: Desk = field(default_factory=Desk)
    refused: list[Refused] = field(default_factory=list)
    progress: SilentProgress = field(default_factory=SilentProgress)
    limits: LoadLimits = field(default_factory=lambda: LoadLimits(batch_messages=4))

    def load(self, path: Path, mailbox: str = "INBOX", *, again: bool = False) -> Loaded:
        """Load a path into a mailbox of that name."""
        folder = Folder(path, kind_of(path), "mail", "bob", mailbox)
        target = self.desk.inbox if mailbox == "INBOX" else self.desk.archive
        return self.loader().load(folder, target, again=again)

    def loader(self) -> Loader:
        """A loader, as a new process has it."""
        return Loader(
            self.desk.store,
            self.desk.clock,
            self.directory / "state",
            self.progress,
            self.refused.append,
            limits=self.limits,
        )

    @property
    def uids(self) -> list[int]:
        return sorted(row["uid"] for row in self.desk.rows(IMAP_UID) if row["mailboxid"] == self.desk.inbox)

    def subjects(self) -> list[bytes]:
        """The content of everything that is stored, sorted."""
        return sorted(self.desk.store.content(row["messageid"]) for row in self.desk.rows(IMAP_UID))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def numbered(count: int, first: int = 0) -> dict[str, bytes]:
    return {str(n): f"Subject: mail {n}\n\nbody {n}\n".encode() for n in range(first, first + count)}


def an_mbox(directory: Path, mails: dict[str, bytes]) -> Path:
    path = directory / "mbox"
    path.write_bytes(mbox_of(mails))
    return path


def a_maildir(directory: Path, mails: dict[str, bytes]) -> Path:
    """A Maildir of the mails, all of them read."""
    path = directory / "Maildir"
    for name in ("cur", "new", "tmp"):
        (path / name).mkdir(parents=True, exist_ok=True)
    for name, content in mails.items():
        (path / "cur" / f"17000{name:>05}.x.host:2,S").write_bytes(content)
    return path


def eml_files(directory: Path, mails: dict[str, bytes]) -> Path:
    path = directory / "emls"
    path.mkdir(exist_ok=True)
    for name, content in mails.items():
        (path / f"{name}.eml").write_bytes(content)
    return path


FOLDERS = pytest.mark.parametrize("make", [an_mbox, a_maildir, eml_files])
Make = Callable[[Path, dict[str, bytes]], Path]


@FOLDERS
def test_everything_is_stored_once(bench: Bench, tmp_path: Path, make: Make) -> None:
    loaded = bench.load(make(tmp_path, numbered(10)))
    assert (loaded.stored, loaded.already, loaded.refused, loaded.lagged) == (10, 0, 0, 0)
    assert bench.subjects() == sorted(numbered(10).values())
    assert bench.uids == list(range(1, 11))
    assert bench.desk.drift() == []
    assert bench.progress.steps == 10
    assert loaded.octets == sum(map(len, numbered(10).values()))


@FOLDERS
def test_a_second_load_is_refused(bench: Bench, tmp_path: Path, make: Make) -> None:
    path = make(tmp_path, numbered(5))
    bench.load(path)
    with pytest.raises(UnsafeRequest, match=NOTHING_LEFT):
        bench.load(path)
    assert bench.load(path, "Archive").stored == 5
    assert bench.load(path, again=True).stored == 5
    assert len(bench.uids) == 10
    with pytest.raises(UnsafeRequest, match=NOTHING_LEFT):
        bench.load(path)


@FOLDERS
def test_mail_that_came_since_is_loaded_alone(bench: Bench, tmp_path: Path, make: Make) -> None:
    path = make(tmp_path, numbered(5))
    bench.load(path)
    make(tmp_path, numbered(8))
    assert bench.load(path).stored == 3
    assert bench.subjects() == sorted(numbered(8).values())


@FOLDERS
@pytest.mark.parametrize("writes", range(0, 60, 3))
def test_a_kill_anywhere_is_resumed_without_doubles(bench: Bench, tmp_path: Path, make: Make, writes: int) -> None:
    # Given a load that is killed in the middle of a batch
    path = make(tmp_path, numbered(6))
    left = [writes]
    killed: list[object] = []

    def kill(operation: object, carry_out: Callable[[], Any]) -> Any:
        if left[0] <= 0:
            killed.append(operation)
            raise Killed
        left[0] -= 1
        return carry_out()

    bench.desk.tables.surround = kill
    with suppress(Killed):
        bench.load(path)
    # When it is run again
    bench.desk.restart()
    bench.desk.tables.surround = bench.desk.faults
    try:
        bench.load(path)
    except UnsafeRequest:
        assert not killed, "the first load was killed"
    # Then each message is there once, and what may lack a projection is journalled
    assert bench.subjects() == sorted(numbered(6).values())
    lagging = {suspect.key for suspect in bench.desk.lags.suspects if suspect.projection == "messageIdTable"}
    missing = [word for word in bench.desk.drift() if word.startswith("messageIdTable")]
    assert len(missing) <= len(lagging)


def test_a_failure_in_the_middle_is_resumed(bench: Bench, tmp_path: Path) -> None:
    path = an_mbox(tmp_path, numbered(10))
    stored: list[int] = []

    def fail_sixth(operation: object, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, PutIfAbsent) and operation.table is IMAP_UID:
            stored.append(1)
            if len(stored) == 6:
                raise AccessDenied("not yours")
        return carry_out()

    bench.desk.tables.surround = fail_sixth
    with pytest.raises(AccessDenied):
        bench.load(path)
    loaded = bench.load(path)
    assert loaded.already >= 1
    assert bench.subjects() == sorted(numbered(10).values())


def test_awkward_mail_is_stored_as_it_is(bench: Bench, tmp_path: Path) -> None:
    loaded = bench.load(eml_files(tmp_path, dict(AWKWARD)))
    assert (loaded.stored, loaded.refused) == (len(AWKWARD) - len(NO_MAIL), len(NO_MAIL))
    assert {Path(one.name).stem for one in bench.refused} == NO_MAIL
    assert bench.subjects() == sorted(content for name, content in AWKWARD.items() if name not in NO_MAIL)
    assert bench.desk.drift() == []


def test_what_cannot_be_taken_is_named(bench: Bench, tmp_path: Path) -> None:
    bench.limits = LoadLimits(batch_messages=4, octets_max=1000)
    path = eml_files(tmp_path, {**numbered(3), "large": b"x" * 2000})
    (path / "readme.txt").write_text("no mail")
    loaded = bench.load(path)
    assert (loaded.stored, loaded.refused) == (3, 1)
    assert sorted(Path(one.name).name for one in bench.refused) == ["large.eml", "readme.txt"]
    assert bench.load(path) == Loaded(refused=1, skipped=1)


def test_batches_are_bounded_in_bytes(bench: Bench, tmp_path: Path) -> None:
    bench.limits = LoadLimits(batch_messages=100, batch_octets=3000)
    bench.load(an_mbox(tmp_path, {str(n): b"Subject: x\n\n" + b"y" * 1000 + b"\n" for n in range(9)}))
    assert len({row["modseq"] for row in bench.desk.rows(IMAP_UID)}) == 3


def test_flags_and_dates_come_along(bench: Bench, tmp_path: Path) -> None:
    bench.load(a_maildir(tmp_path, numbered(2)))
    assert {flags_of(row).system for row in bench.desk.rows(IMAP_UID)} == {frozenset({SystemFlag.SEEN})}


def test_another_file_of_the_same_name_is_not_resumed(bench: Bench, tmp_path: Path) -> None:
    path = an_mbox(tmp_path, numbered(5))
    bench.load(path)
    for other in (numbered(4), numbered(9, first=100)):
        an_mbox(tmp_path, other)
        with pytest.raises(WrongUse, match="not the file"):
            bench.load(path)
    assert bench.load(path, again=True).stored == 9


def test_an_mbox_that_was_empty_may_fill(bench: Bench, tmp_path: Path) -> None:
    path = an_mbox(tmp_path, {})
    with pytest.raises(BadMail, match="is empty"):
        bench.load(path)
    an_mbox(tmp_path, numbered(2))
    assert bench.load(path).stored == 2


def test_two_processes_do_not_load_the_same(bench: Bench, tmp_path: Path) -> None:
    path = an_mbox(tmp_path, numbered(2))
    folder = Folder(path, kind_of(path), "mail", "bob", "INBOX")
    with LoadJournal(tmp_path / "state", folder), pytest.raises(UnsafeRequest, match="another process"):
        bench.load(path)
    assert bench.load(path).stored == 2


def test_torn_lines_of_the_journal_are_passed_over(bench: Bench, tmp_path: Path) -> None:
    path = an_mbox(tmp_path, numbered(3))
    bench.load(path)
    (journal,) = (tmp_path / "state").iterdir()
    with journal.open("ab") as file:
        file.write(b'\n{"begin": ["12')
    an_mbox(tmp_path, numbered(5))
    assert bench.load(path).stored == 2
    with pytest.raises(UnsafeRequest, match=NOTHING_LEFT):
        bench.load(path)


def test_ids_are_made_of_the_load_and_the_key() -> None:
    load, other = uuid_at(1_000_000, 1), uuid_at(2_000_000, 2)
    ids = {message_id_of(one, key) for one in (load, other) for key in ("0", "1", "caf\udce9")}
    assert len(ids) == 6
    assert message_id_of(load, "0") == message_id_of(load, "0")
    assert {one.version for one in ids} == {1}
    assert {one.time for one in ids} == {load.time, other.time}


def test_lagging_messages_are_counted(bench: Bench, tmp_path: Path) -> None:
    """The sums say how many wait for `repair lags`."""
    bench.desk.faults.fail(on(MESSAGE_ID), AccessDenied("no"), times=2)
    assert bench.load(an_mbox(tmp_path, numbered(3))).lagged == 2


@FOLDERS
@pytest.mark.parametrize("room", [0, 60, 250, 320, 400, 500])
def test_a_full_disk_for_the_state_stops_the_load_and_the_same_command_goes_on(
    bench: Bench, tmp_path: Path, make: Make, room: int
) -> None:
    path = make(tmp_path, numbered(20))
    (tmp_path / "state").mkdir()
    bench.limits = LoadLimits(batch_messages=3)

    with full_after(room), pytest.raises(StateUnwritable, match="type the same command again") as full:
        bench.load(path)
    stored = len(bench.uids)
    loaded = bench.load(path)

    assert str(path) in full.value.what
    assert full.value.what.endswith(("File too large", "No space left on device"))
    assert loaded.stored + loaded.already >= 20 - stored
    assert bench.subjects() == sorted(numbered(20).values())


def test_a_state_folder_that_cannot_be_is_reported(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")

    with pytest.raises(StateUnwritable, match="state: Not a directory"):
        bench.load(an_mbox(tmp_path, numbered(2)))

    assert bench.desk.rows(IMAP_UID) == []


def test_what_lags_and_nobody_takes_note_of_is_counted_apart(bench: Bench, tmp_path: Path) -> None:
    bench.desk.lags.full = True
    bench.desk.faults.fail(on(MESSAGE_ID), AccessDenied("no"), times=2)

    loaded = bench.load(an_mbox(tmp_path, numbered(3)))

    assert (loaded.stored, loaded.lagged, loaded.unjournalled) == (3, 2, 2)


def test_a_resumed_message_whose_look_cannot_be_journalled_stays_in_doubt(bench: Bench, tmp_path: Path) -> None:
    path = an_mbox(tmp_path, numbered(3))
    usual = bench.desk.tables.surround

    def killed(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if on(MESSAGE_ID)(operation):
            raise Killed
        return carry_out()

    bench.desk.tables.surround = killed
    with pytest.raises(Killed):
        bench.load(path)
    bench.desk.restart()
    bench.desk.tables.surround, bench.desk.lags.full = usual, True
    with pytest.raises(Unjournalled, match="type the same command again"):
        bench.load(path)
    bench.desk.lags.full = False

    loaded = bench.load(path)

    assert (loaded.stored + loaded.already, len(bench.uids)) == (3, 3)


def test_a_full_disk_for_blobs_stops_the_load(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: bytes) -> str:
        raise MailmendError("no room")

    path = an_mbox(tmp_path, numbered(3))
    with monkeypatch.context() as patched:
        patched.setattr(bench.desk.store._blobs, "put", full)
        with pytest.raises(MailmendError, match="no room"):
            bench.load(path)
    assert bench.desk.rows(IMAP_UID) == []
    assert bench.load(path).stored == 3
