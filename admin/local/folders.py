"""Where things lie on disk: the data of a local cluster in the user's data folder, jars in the user's cache folder."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from filelock import FileLock, Timeout

from mailmend.model.errors import LocalServerError, WrongUse
from mailmend.repair.synced_files import create_folder

LOCK_SECONDS_MAX: Final = 1800.0  # the first one may be fetching its parts over a slow line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """The folders and files of one node."""

    root: Path

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def yaml(self) -> Path:
        return self.conf / "cassandra.yaml"

    @property
    def logback(self) -> Path:
        return self.conf / "logback.xml"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def system_log(self) -> Path:
        return self.logs / "system.log"

    @property
    def log_before(self) -> Path:
        return self.logs / "system.log.before"

    @property
    def data(self) -> Path:
        return self.root / "data"


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """The folders and files of one local cluster."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        """Held while the cluster is changed, so that two commands take turns."""
        return self.root.with_name(self.root.name + ".lock")

    def node(self, number: int) -> NodeFolder:
        return NodeFolder(self.root / f"node{number}")


NO_HOME: Final = Path("/nonexistent")
"""The home of a user who has none, as Debian writes it for users of services."""


def home_of(environment: Mapping[str, str]) -> Path:
    """The user's home; `NO_HOME` where neither HOME nor the system's list of users names one."""
    if stated := environment.get("HOME"):
        return Path(stated)
    try:
        return Path.home()
    except RuntimeError:
        return NO_HOME


def data_home(environment: Mapping[str, str], home: Path) -> Path:
    return _xdg(environment, "XDG_DATA_HOME", home / ".local" / "share")


def cache_home(environment: Mapping[str, str], home: Path) -> Path:
    return _xdg(environment, "XDG_CACHE_HOME", home / ".cache")


def cluster_folder(environment: Mapping[str, str], home: Path, name: str = "default") -> ClusterFolder:
    return ClusterFolder(data_home(environment, home) / "local" / name)


def _xdg(environment: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    """The specification says that a relative path in the variable is to be ignored."""
    folder = Path(environment.get(variable, ""))
    if not folder.is_absolute():
        folder = otherwise
    return folder / "mailmend"


def made_folder(folder: Path) -> Path:
    """Make a folder of ours where it is missing.

    Raises:
        WrongUse: the system refuses it; the message names the variable that chooses another place.
    """
    try:
        create_folder(folder)
    except OSError as error:
        raise WrongUse(
            f"the folder {folder} cannot be made: {error.strerror or error}",
            mend="Name folders that this user may write to: XDG_CACHE_HOME for what is fetched once and Spark's log, "
            "XDG_DATA_HOME for local servers and runs.",
        ) from error
    return folder


def read_json(path: Path, parse: Callable[[Any], T]) -> T | None:
    """The parsed content of a file of ours; None when it is missing.

    Raises:
        LocalServerError: the file is there and is not ours.
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalServerError(
            f"{path} cannot be read: {error}", mend=f"If nothing runs there, remove {path.parent} and start again."
        ) from error


def write_json(path: Path, document: object) -> None:
    """Replaces the file in one step, so that a reader never sees half of it."""
    create_folder(path.parent)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


@contextmanager
def locked(path: Path, seconds_max: float = LOCK_SECONDS_MAX) -> Iterator[None]:
    """Hold a lock file while the block runs; its holder may take it again. The kernel drops it with its process.

    Raises:
        LocalServerError: another process held it for longer than `seconds_max`.
        WrongUse: its folder cannot be made or written to.
    """
    made_folder(path.parent)
    try:
        with FileLock(path, timeout=seconds_max, is_singleton=True):
            yield
    except Timeout as error:
        raise LocalServerError(
            f"another mailmend local has been at work for {seconds_max:.0f} s; it holds {path}",
            mend="Wait for it, or end it, and try again.",
        ) from error
