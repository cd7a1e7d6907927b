"""Prometheus's own tool for rules: found on this machine, else fetched once from Debian into the cache of servers."""

import os
import shutil
import subprocess
from pathlib import Path

from mailmend.admin.local.folders import cache_home, locked
from mailmend.admin.local.rabbitmq import DebianPackages, debian_uri
from mailmend.model.errors import LocalServerError
from tests.support.servers import unavailable

_FETCH_SECONDS_MAX = 600.0


def promtool(*arguments: str) -> str:
    """What it prints; a failure of its own fails the test."""
    ended = subprocess.run([_program(), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _program() -> str:
    folder = cache_home(os.environ, Path.home()) / "promtool"
    fetched = folder / "root" / "usr" / "bin" / "promtool"
    found = shutil.which("promtool") or (str(fetched) if fetched.exists() else None)
    if found:
        return found
    try:
        with locked(folder.with_suffix(".lock"), _FETCH_SECONDS_MAX):
            if not fetched.exists():
                _fetch(folder)
    except LocalServerError as error:
        unavailable(error)
    return str(fetched)


def _fetch(folder: Path) -> None:
    """In a folder beside it, moved into place as a whole."""
    staging = folder.with_suffix(".new")
    shutil.rmtree(staging, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    archive = DebianPackages(debian_uri(os.environ), staging / "apt", os.environ)
    archive.open()
    archive.unpack(archive.download(["promtool"], staging / "debs"), staging / "root")
    shutil.rmtree(staging / "apt")
    shutil.rmtree(staging / "debs")
    staging.rename(folder)
