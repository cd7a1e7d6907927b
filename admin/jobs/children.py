"""Commands of ours as processes of their own: a run may fail, grow or hang without harm to the others."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL, SIGTERM
from typing import Any, Final, Protocol, Self

PROGRAM: Final = (sys.executable, "-m", "mailmend")
_CHUNK_BYTES: Final = 65_536
_OURS_ALONE: Final = frozenset({"MAILMEND_CONFIG", "MAILMEND_TOKENS"})
"""What children do not get: their settings are those that the server has accepted, and they have no callers."""

Say = Callable[[str], None]
Apart = Callable[..., Awaitable[Any]]
"""Calls a function that blocks where it keeps no other task waiting: `asyncio.to_thread`."""


class ChildProcess:
    """A process in a session of its own: what is typed on the server's terminal does not reach it."""

    def __init__(self, process: asyncio.subprocess.Process, say: Say, kept: bytearray | None) -> None:
        self._process = process
        self._readers = [
            asyncio.create_task(_read(stream, say, into))
            for stream, into in ((process.stdout, kept), (process.stderr, None))
            if stream is not None
        ]

    @classmethod
    async def begin(cls, words: Sequence[str], say: Say, kept: bytearray | None = None) -> Self:
        """Start the process.

        Args:
            words: program and arguments.
            say: gets each line that it writes.
            kept: gets what it writes to stdout instead.

        Raises:
            OSError: it cannot be started.
        """
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,
        )
        return cls(process, say, kept)

    def stop(self) -> None:
        self._signal(SIGTERM)

    def kill(self) -> None:
        self._signal(SIGKILL)

    async def wait(self) -> int:
        await asyncio.gather(*self._readers)
        return await self._process.wait()

    def _signal(self, which: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(which)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OURS_ALONE}


async def _read(stream: asyncio.StreamReader, say: Say, kept: bytearray | None) -> None:
    """Line by line; one that is longer than a chunk comes in pieces."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        if kept is not None:
            kept += chunk
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _CHUNK_BYTES:
            lines = [*lines, rest]
            rest = b""
        for line in lines:
            say(line.decode("utf-8", "replace"))
    if rest:
        say(rest.decode("utf-8", "replace"))


class Child(Protocol):
    """A running command. Adapters: `admin.jobs.children.ChildProcess`, and a twin in tests."""

    def stop(self) -> None:
        """Ask the command to end in an orderly way, as SIGTERM does."""
        ...

    def kill(self) -> None:
        """Kill the command."""
        ...

    async def wait(self) -> int:
        """Wait until the command has ended and all its output was read; returns its exit code."""
        ...
