"""Folders for servers of a short life: removed with the servers in them; after a kill -9, by the next call."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from mailmend.admin.local.processes import RECORD, StartedProcess, read_record, this_process
from mailmend.admin.local.server import KILL_SECONDS_MAX
from mailmend.repair.clock import SystemClock

_OWNER: Final = "owner.json"


@contextmanager
def throwaway_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder of mode 700, removed after the block; first removes what killed processes left under that prefix."""
    parent = parent or Path(tempfile.gettempdir())
    sweep(prefix, parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    folder.joinpath(_OWNER).write_text(json.dumps(asdict(this_process())), encoding="utf-8")
    try:
        yield folder
    finally:
        remove(folder)


def sweep(prefix: str, parent: Path) -> None:
    """End and remove the servers whose owners have ended."""
    for folder in parent.glob(f"{prefix}*"):
        if _is_abandoned(folder):
            remove(folder)


def remove(folder: Path) -> None:
    for record in folder.rglob(RECORD):
        for _, process in read_record(record).last_first:
            process.kill()
            process.wait_end(SystemClock(), KILL_SECONDS_MAX)
    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        owner = StartedProcess(**json.loads(folder.joinpath(_OWNER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False  # being made just now, or not ours
    return not owner.runs
