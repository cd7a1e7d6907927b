"""Where things lie on disk: the data of a local cluster in the user's data folder, jars in the user's cache folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """The folders and files of one node."""

    root: Path

    @property
    def conf(self) -> Path:
        """Written anew at every start."""
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
        """The log of the previous start."""
        return self.logs / "system.log.before"

    @property
    def data(self) -> Path:
        """The parent of data, commit log, hints and saved caches."""
        return self.root / "data"


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders and files of one local cluster."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        """Held while the cluster is changed, so that two commands take turns."""
        return self.root.with_name(self.root.name + ".lock")

    def node(self, number: int) -> NodeFolders:
        return NodeFolders(self.root / f"node{number}")


def data_home(environment: Mapping[str, str], home: Path) -> Path:
    """Where the XDG base directory specification puts mailmend's data of this user."""
    return _xdg(environment, "XDG_DATA_HOME", home / ".local" / "share")


def cache_home(environment: Mapping[str, str], home: Path) -> Path:
    """Where mailmend keeps what it can fetch again."""
    return _xdg(environment, "XDG_CACHE_HOME", home / ".cache")


def default_layout(environment: Mapping[str, str], home: Path, name: str = "default") -> Layout:
    return Layout(data_home(environment, home) / "local" / name)


def _xdg(environment: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    """The specification says that a relative path in the variable is to be ignored."""
    stated = Path(environment.get(variable, ""))
    return (stated if stated.is_absolute() else otherwise) / "mailmend"
