"""Messages that an operator names for a queue: files, each read when it is needed, or a pipe.

The beginning of each file is checked before the first is taken; a later error concerns that file alone.
"""

import asyncio
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mailmend.model.errors import BadMail

STDIN: Final = "-"

FIRST_BYTES: Final = 4096
"""How much of each file is read beforehand."""

_BEFORE: Final = "Nothing was enqueued."
_LATER: Final = "It is not in the queue; every other file is named. Enqueue it with a command of its own."


@dataclass(frozen=True, slots=True)
class Letter:
    """A message still to be read.

    Attributes:
        name: of its file, as it was given.
        held: standard input's bytes, which can be read only once; None: the file is read when it is needed.
    """

    name: str
    held: bytes | None = field(default=None, repr=False)

    async def content(self) -> bytes:
        """The message's bytes.

        Raises:
            BadMail: it cannot be read, or is empty.
        """
        if self.held is not None:
            return self.held
        return await asyncio.to_thread(_content, Path(self.name))


def letters_in(files: Sequence[Path]) -> list[Letter]:
    """The letters in these files, in order.

    Raises:
        BadMail: one is not there, cannot be read, or is empty, as far as its beginning tells.
    """
    if sum(map(_is_stdin, files)) > 1:
        raise BadMail("standard input can be read only once", mend=f"{_BEFORE} Name - once.")
    return [_looked_at(file) for file in files]


def _is_stdin(file: Path) -> bool:
    return str(file) == STDIN


def _held() -> Letter:
    content = sys.stdin.buffer.read()
    if not content.strip():
        raise _empty(STDIN, _BEFORE)
    return Letter(STDIN, content)


def _looked_at(file: Path) -> Letter:
    """A pipe is not checked: what is read from it is gone."""
    if _is_stdin(file):
        return _held()
    start = None
    try:
        mode = file.stat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            start = _start(file)
    except OSError as error:
        raise _unreadable(file, error, _BEFORE) from error
    if start is not None and len(start) < FIRST_BYTES and not start.strip():
        raise _empty(str(file), _BEFORE)
    return Letter(str(file))


def _start(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(FIRST_BYTES)


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error, _LATER) from error
    if not content.strip():
        raise _empty(str(file), _LATER)
    return content


def _empty(name: str, mend: str) -> BadMail:
    return BadMail(f"{name} is empty", mend=mend)


def _unreadable(file: Path, error: OSError, mend: str) -> BadMail:
    return BadMail(f"{file} cannot be read: {error.strerror or error}", mend=mend)
