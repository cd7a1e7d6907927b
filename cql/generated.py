"""Files that are generated and kept in the repository: written anew, or checked to be up to date."""

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(arguments: Sequence[str], file: Path, wanted: str, otherwise: str) -> int:
    """Write the file; with `--check` as the only argument report whether it is up to date, exit 1 if not."""
    if list(arguments) != ["--check"]:
        file.write_text(wanted, encoding="utf-8")
        return 0
    current = ""
    if file.exists():
        current = file.read_text(encoding="utf-8")
    if current != wanted:
        sys.stderr.write(f"{file.name} {otherwise}\n")
    return int(current != wanted)
