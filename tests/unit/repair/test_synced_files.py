"""Files of our own state: for their owner alone, whole, and on the disk with their names."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from mailmend.repair.synced_files import append_synced, create_folder, make_own_folder, open_own, warn_if_open


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    warn_if_open.cache_clear()


def test_a_new_folder_and_those_above_it_are_their_owners_alone(tmp_path: Path) -> None:
    """`mkdir(parents=True)` gives its mode to the last one only."""
    make_own_folder(tmp_path / "mailmend" / "queue")

    assert [mode_of(tmp_path / "mailmend"), mode_of(tmp_path / "mailmend" / "queue")] == [0o700, 0o700]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    open_own(tmp_path / "journal").close()

    assert mode_of(tmp_path / "journal") == 0o600


def test_what_is_there_and_open_to_others_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "queue"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "journal").touch()
    (folder / "journal").chmod(0o644)

    with caplog.at_level(logging.WARNING, "mailmend.files"):
        for _ in range(2):
            make_own_folder(folder)
            open_own(folder / "journal").close()

    assert [vars(record)["mend"] for record in caplog.records] == [
        f"chmod 700 {folder}",
        f"chmod 600 {folder / 'journal'}",
    ]
    assert mode_of(folder) == 0o755


def test_a_file_that_another_process_removes_while_it_is_opened_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lags of one process are drained, and their file removed, by another."""
    journal = tmp_path / "journal"
    journal.touch(0o600)
    open_file = os.open

    def open_and_lose(path: Path, flags: int, mode: int) -> int:
        descriptor = open_file(path, flags, mode)
        path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with open_own(journal) as file:
        assert os.fstat(file.fileno()).st_nlink == 0


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError):
        create_folder(tmp_path / "file")


def test_a_refused_write_leaves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may take a part and refuse the rest, or refuse to sync."""
    file = tmp_path / "file"
    append_synced(file, b"one\n")

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space left"):
            append_synced(file, b"two\n")
    append_synced(file, b"three\n")

    assert file.read_bytes() == b"one\nthree\n"
