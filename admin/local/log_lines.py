"""What a server's logs say about why it did not start."""

import re
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 1 << 18
_EXCEPTION: Final = re.compile(r"[\w.$]+(Exception|Error): ")
_COMPLAINT: Final = re.compile(r"\bERROR\b|\[error\]|\bError:|\bException\b")


def why_ended(log: str, printed: str) -> str:
    """The last error that Cassandra logged, with its exception; else the first complaint; else the last line printed.

    Of other servers the first complaint, as what follows it is often only its consequence.
    """
    if logged := _logged_by_cassandra(log.splitlines()):
        return logged
    complaints = (line for line in [*printed.splitlines(), *log.splitlines()] if _COMPLAINT.search(line))
    said = [line.strip() for line in printed.splitlines() if line.strip()]
    return next(complaints, said[-1] if said else "it printed nothing").strip()


def tail(path: Path) -> str:
    """The end of a file; "" for a missing file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _logged_by_cassandra(lines: list[str]) -> str | None:
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith("ERROR ["):
            message = lines[number].partition(" - ")[2] or lines[number]
            return " ".join([message.strip(), *filter(_EXCEPTION.match, lines[number + 1 : number + 2])])
    return None
