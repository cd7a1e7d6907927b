"""A pager for long results on a terminal, as git has it.

MAILMEND_PAGER names the program, else PAGER, else `less` is taken; `cat` and an empty text mean no
pager. `less` gets the options -FRX unless LESS says otherwise: it ends at once where the text fits
on the screen, shows colours, and leaves the text there. No shell runs the program, and it gets no
variable of mailmend's own.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from mailmend.admin.frame.environments import environment_of_others

NONE: Final = ((), ("cat",))
"""Words that mean no pager."""

LESS_OPTIONS: Final = "FRX"


def pager_words(environment: Mapping[str, str]) -> Sequence[str]:
    """The words of the pager's command.

    Returns:
        () where no pager is wanted, or its program is not installed.
    """
    named = environment.get("MAILMEND_PAGER", environment.get("PAGER", "less"))
    try:
        words = tuple(shlex.split(named))
    except ValueError:
        return ()
    if words in NONE or shutil.which(words[0], path=environment.get("PATH")) is None:
        return ()
    return words


def write_to_pager(words: Sequence[str], text: str) -> None:
    """Show a text in the pager until a person leaves it; to leave it early is no error.

    Raises:
        OSError: the pager cannot be started.
    """
    environment = {"LESS": LESS_OPTIONS, **environment_of_others(os.environ)}
    with subprocess.Popen(  # noqa: S603 - the person's own program
        words, stdin=subprocess.PIPE, env=environment, text=True, encoding="utf-8", errors="replace"
    ) as pager:
        with suppress(BrokenPipeError, KeyboardInterrupt):
            pager.communicate(text)
        _wait_for(pager)


def _wait_for(pager: subprocess.Popen[str]) -> None:
    """Wait until the pager ends, also after Ctrl-C, with which a person stops a search in it."""
    while pager.poll() is None:
        with suppress(KeyboardInterrupt):
            pager.wait()
