"""nodetool of a cluster's nodes, by a command of the person's own: `nodetool -h {host}`, `ssh {host} nodetool`.

How it is reached, and with which credentials, is that command's business: neither it nor an error says more of it than
its first word.
"""

import asyncio
import os
import shlex
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from typing import Final

from mailmend.admin.frame.environments import environment_of_others
from mailmend.model.errors import CannotReach, WrongUse

HOST: Final = "{host}"
NODETOOL: Final = f"nodetool -h {HOST}"
ANSWER_SECONDS_MAX: Final = 120.0
"""How long a question may take; work on SSTables takes as long as it takes."""


@dataclass(frozen=True, slots=True)
class Nodetool:
    """The words of the command; `{host}` in them stands for a node's address."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Nodetool":
        """Read a command line, without a shell.

        Raises:
            WrongUse: it is not a command line, its program does not exist, or it names no node.
        """
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise WrongUse(f"--nodetool is not a command: {error}") from error
        if not any(HOST in word for word in words):
            raise WrongUse(
                f"--nodetool does not say where {HOST} belongs, so each node would be the same",
                mend=f"For instance: --nodetool '{NODETOOL}', or: --nodetool 'ssh {HOST} nodetool'.",
            )
        if HOST not in words[0] and shutil.which(words[0]) is None:
            raise WrongUse(
                f"there is no program {words[0]!r} to reach nodetool with",
                mend="Nothing was done. Name it: --nodetool.",
            )
        return cls(words)

    async def ask(self, host: str, *question: str) -> str:
        """What nodetool prints for that question to the node.

        Raises:
            CannotReach: it failed, or said nothing for two minutes.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await self.run(host, *question)
        except TimeoutError as error:
            raise self._failed(host, question, f"no answer in {ANSWER_SECONDS_MAX:g} s") from error

    async def run(self, host: str, *task: str) -> str:
        """What nodetool prints, once it has ended.

        Cancelled, it is killed; the work that it has asked of the node goes on there.

        Raises:
            CannotReach: it failed.
        """
        words = [word.replace(HOST, host) for word in self.words]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, *task, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment_of_others(os.environ)
            )
        except OSError as error:
            raise self._failed(host, task, error.strerror or str(error)) from error
        try:
            out, err = await process.communicate()
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        if process.returncode:
            said = (err.strip() or out.strip()).decode(errors="replace")
            raise self._failed(host, task, f"exit {process.returncode}: {_point_of(said)}")
        return out.decode(errors="replace")

    def _failed(self, host: str, task: tuple[str, ...], why: str) -> CannotReach:
        return CannotReach(
            f"nodetool {task[0]} on {host}, by way of {self.words[0]!r}, failed: {why}",
            mend=f"Say with --nodetool what reaches it from here: '{NODETOOL} -p 7199', 'ssh {HOST} nodetool'.",
        )


def _point_of(said: str) -> str:
    """The line of nodetool itself comes before its stack trace; others end with what they have to say."""
    lines = said.splitlines() or ["it said nothing"]
    return next((line for line in lines if line.startswith(("nodetool:", "error:"))), lines[-1])
