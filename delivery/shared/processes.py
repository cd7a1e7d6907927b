"""Whether the process that had a server's seat is no more, where this one can be sure of it.

It can where both are of one boot of one kernel and of one space of process ids: what the kernel
does not know there has ended, and with it its connections. A number that another process has since,
a user's processes that others may not see, one whose parent has not waited for it yet, another
host, another container: then that is unknown.
"""

import os
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_SPACE: Final = Path("/proc/self/ns/pid")
"""Its inode is one space's at a time: where it is another's by now, all processes of the first have ended."""


def own_process() -> str:
    """What this process is called on this host; empty where the system does not tell."""
    try:
        return f"{_BOOT.read_text('ascii').strip()} {_SPACE.stat().st_ino} {os.getpid()}"
    except (OSError, UnicodeError):
        return ""


def has_ended(process: str) -> bool:
    """Whether a process, as it called itself, is surely no more."""
    place, _, number = process.rpartition(" ")
    if not place or place != own_process().rpartition(" ")[0] or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)  # sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
