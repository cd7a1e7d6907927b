"""Files that are written whole or not at all: a full disk leaves the old one, or none, and never half of one.

And stdout, which may be a full disk as well.
"""

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE
from typing import IO

from mailmend.model.errors import MailmendError, ResultUnwritten, WrongUse
from mailmend.repair.synced_files import sync_folder


@contextmanager
def whole_file(
    file: Path, opener: Callable[..., IO[str]] = os.fdopen, mode: int = 0o644, *, masked: bool = True
) -> Iterator[IO[str]]:
    """A text file that appears under its name only when everything was written, with at most these permissions.

    Not `masked`, it has all of them, whatever the umask: another user reads it.

    A device or a pipe has no place to be moved into: it is written to directly.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        with _written_through(file) as stream:
            yield stream
        return
    with named_when_refused(file, WrongUse):
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    part = Path(name)
    stream = opener(handle, "w", encoding="utf-8")
    try:
        yield stream
        with named_when_refused(file):
            stream.flush()
            os.fsync(stream.fileno())
            if masked:
                mode &= ~_mask()
            part.chmod(mode)
            part.replace(file)
            sync_folder(file.parent)
    finally:
        with suppress(OSError):
            stream.close()
        with suppress(FileNotFoundError):
            part.unlink()


def write_text(file: Path, text: str, mode: int = 0o644, *, masked: bool = True) -> None:
    """Write a file whole."""
    with whole_file(file, mode=mode, masked=masked) as stream, named_when_refused(file):
        stream.write(text)


def mode_for_owner(file: Path) -> int:
    """Permissions of a file that may name people: a new one is its owner's alone, one that was there keeps its own."""
    if not file.is_file():
        return 0o600
    return S_IMODE(file.stat().st_mode)


@contextmanager
def _written_through(file: Path) -> Iterator[IO[str]]:
    with named_when_refused(file, WrongUse):
        stream = file.open("w", encoding="utf-8")
    try:
        yield stream
        with named_when_refused(file):
            stream.flush()
    finally:
        with suppress(OSError):
            stream.close()


@contextmanager
def named_when_refused(file: Path, kind: type[MailmendError] = ResultUnwritten) -> Iterator[None]:
    """Raise an OSError of the block as an error that names the file; the block must do nothing but write that file."""
    try:
        yield
    except OSError as error:
        raise _unwritable(file, error, kind) from error


def refuse_unwritable(file: Path) -> None:
    """Check, before hours of work, that a file can be written there."""
    if file.is_dir():
        raise WrongUse(f"{file} is a folder, not a file")
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise WrongUse(f"{file} cannot be written: there is no folder {file.parent} to write to")
    if file.is_file() or not file.exists():  # a pipe would wait for its reader
        with named_when_refused(file, WrongUse), tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}."):
            pass


@contextmanager
def to_stdout() -> Iterator[None]:
    """For writes to stdout, which are complete when the block ends; a reader that went away stays a BrokenPipeError.

    Raises:
        ResultUnwritten: stdout refused them.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise ResultUnwritten(f"stdout cannot be written: {error.strerror or error}") from error


def drop_stdout() -> None:
    """Keep Python from writing at exit what stdout refused."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ClosedStdout(io.TextIOBase):
    """Takes the place of a stdout that is closed: what is written there is refused in words, not lost."""

    def write(self, text: str) -> int:
        """Refuse the text.

        Raises:
            ResultUnwritten: always, but for no text at all.
        """
        if not text:
            return 0
        raise ResultUnwritten(
            "stdout is closed, and the result cannot be written there",
            mend="Give it a place: > FILE. To leave the result out: > /dev/null",
        )


def replace_closed_streams() -> None:
    """Replace stdin, stdout and stderr where the shell closed them (`>&-`).

    A closed stdin is empty, a closed stderr takes everything, a closed stdout refuses its text in words. The three
    descriptors are taken, so that no file or connection of the command becomes one of them.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stdout is None:
        sys.stdout = ClosedStdout()
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends


def _unwritable(file: Path, error: OSError, kind: type[MailmendError]) -> MailmendError:
    return kind(
        f"{file} cannot be written: {error.strerror or error}",
        mend="Nothing half written was left there. Choose another place, or make room.",
    )


def _mask() -> int:
    """The process's umask; the only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
