"""What a server's logs say about why it did not start."""

import re
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 1 << 18
_COMPLAINT: Final = re.compile(r"\bERROR\b|\[error\]|\bError:|\bException\b")


def last_error(system_log: str, console: str) -> str:
    """The last error in the log and the exception below it; else the last line that the process printed."""
    lines = system_log.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith("ERROR"):
            return " ".join([_message(lines[number]), *_exception(lines[number + 1 : number + 2])])
    printed = [line.strip() for line in console.splitlines() if line.strip() and not line.startswith("\tat ")]
    return printed[-1] if printed else "it printed nothing"


def why_ended(log: str, printed: str) -> str:
    """The first complaint among what a server of any kind printed and logged; else the last line that it printed.

    The first, as what follows it is often only its consequence.
    """
    lines = [line.strip() for line in [*printed.splitlines(), *log.splitlines()] if line.strip()]
    complaints = (line for line in lines if _COMPLAINT.search(line))
    said = [line.strip() for line in printed.splitlines() if line.strip()]
    return next(complaints, said[-1] if said else "it printed nothing")


def tail(path: Path) -> str:
    """The end of a file that may be long, or may not be there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _message(line: str) -> str:
    return line.partition(" - ")[2].strip() or line.strip()


def _exception(following: list[str]) -> list[str]:
    return [line.strip() for line in following if line.strip() and not line.startswith(("\tat ", "INFO", "WARN"))]
