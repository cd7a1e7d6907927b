"""A Cassandra for one trial: started on this machine in a folder that nobody else may read, gone with the trial.

The folder holds keys, flags and sizes of real mail, so whatever ends the trial removes it; what a killed one left is
removed by the next.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from admin.advice.trial import TrialNode
from admin.extras import import_or_name_extra
from admin.local import Wishes, local_cluster
from admin.local.ports import free_port
from admin.local.processes import ProcessId, look
from admin.local.settings import hosts_of
from admin.settings import LOOPBACK
from cql.driver.contact import Contact
from model.errors import LocalServerError

HEAP_MIB: Final = 512
PREFIX: Final = "mailmend-trial-"
_OWNER: Final = "owner.json"
# Nothing of it must outlive a crash, and a node of a short life is up sooner with the first compiler only.
_SHORT_LIFE: Final = Wishes(
    heap_mib=HEAP_MIB, properties={"cassandra.unsafesystem": "true"}, java_options=("-XX:TieredStopAtLevel=1",)
)


@contextmanager
def started_node(parent: Path | None = None) -> Iterator[TrialNode]:
    """A node of our own below `parent` (the system's folder for temporary files when None), ended with the block.

    Raises:
        JavaMissing: no Java that runs Cassandra.
        LocalServerError: it did not start.
    """
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent)
    folder = _own_folder(parent)
    cluster = local_cluster(folder / "cluster")
    try:
        port = free_port(hosts_of(1))
        cluster.up(replace(_SHORT_LIFE, native_port=port))
        with _connected(LOOPBACK, port) as session:
            yield TrialNode(session, cluster.layout.node(1).data / "sstables")
    finally:
        remove(folder)


@contextmanager
def given_node(host: str, port: int) -> Iterator[TrialNode]:
    """A Cassandra that runs already and may be written to.

    Raises:
        CannotReach: nobody answers there.
    """
    with _connected(host, port) as session:
        yield TrialNode(session)


def sweep(parent: Path) -> None:
    """End and remove what trials have left that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        if _abandoned(folder):
            remove(folder)


def remove(folder: Path) -> None:
    """End the node of that folder, if it runs, and remove the folder."""
    cluster = local_cluster(folder / "cluster")
    with suppress(LocalServerError):
        for node in cluster.status().nodes:
            cluster.kill(node.number)
    shutil.rmtree(folder, ignore_errors=True)


def _own_folder(parent: Path) -> Path:
    """Of mode 700, with the name of the process that will remove it."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    own = look(os.getpid())
    if own is not None:
        folder.joinpath(_OWNER).write_text(json.dumps(asdict(own.id)), encoding="utf-8")
    return folder


def _abandoned(folder: Path) -> bool:
    try:
        owner = ProcessId(**json.loads(folder.joinpath(_OWNER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False  # being made just now, or not ours
    seen = look(owner.pid)
    return seen is None or seen.id != owner


def _connected(host: str, port: int) -> Any:
    return import_or_name_extra("cql.driver.session").connect(Contact(hosts=(host,), port=port))
