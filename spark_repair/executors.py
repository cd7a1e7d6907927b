"""The executors of a session: the session waits for them, and they get our packages.

A cluster needs no installed mailmend: our packages are zipped as they are imported here, and sent along with the
session. What executors must bring in their own Python is what they need from others: the Cassandra driver, tenacity,
and what Spark itself asks for. A pace is shared among the executors' cores, so the session waits until they are there:
without the wait a scan would begin with the first that comes, and where none ever comes, Spark would wait for ever.
"""

from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark import SparkContext, SparkFiles
from pyspark.sql import SparkSession

from mailmend.model.errors import SparkUnreachable
from mailmend.model.ports import Clock

HOME: Final = "mailmend"

PACKAGES: Final = ("cql", "mailqueue", "model", "repair", "spark_repair")
"""The packages that executors need: this one and those that it may import."""

ZIP: Final = "mailmend-packages.zip"


def runs_here(master: str) -> bool:
    """Whether the executors are threads of the driver, which can import what the driver can."""
    return master == "local" or master.startswith("local[")


def ship_packages(context: SparkContext) -> None:
    """Send our packages to every executor, also to later ones; once, and only where they are missing.

    The zip lies in the driver's temporary folder of Spark and is removed with the session.
    """
    if not (runs_here(str(context.master)) or _are_shipped(context)):
        context.addPyFile(str(write_zip(Path(SparkFiles.getRootDirectory()) / ZIP)))


def write_zip(file: Path) -> Path:
    """Zip the packages' files without compiled ones; the same packages always give the same bytes."""
    with ZipFile(file, "w") as archive:
        archive.writestr(ZipInfo(f"{HOME}/__init__.py"), (files(HOME) / "__init__.py").read_bytes(), ZIP_DEFLATED)
        for package in PACKAGES:
            for name, content in _contents(files(HOME) / package, f"{HOME}/{package}"):
                archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return file


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{name}/{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _contents(entry, f"{name}/{entry.name}")


def _are_shipped(context: SparkContext) -> bool:
    """True after an earlier call, or under spark-submit: this very file was then read from a zip given to it."""
    given = (context.getConf().get("spark.submit.pyFiles") or "").split(",")
    names = {PurePath(path).name for path in (*context.listFiles, *given) if path}
    return not names.isdisjoint((ZIP, *Path(__file__).parts))


LOOK_SECONDS: Final = 0.5
STEADY_LOOKS: Final = 4
"""After this many equal counts in a row, the executors that start at once have started."""

WAIT_SECONDS_MAX: Final = 300.0
"""How long the first executor may take; a busy YARN queue can need minutes."""

_MEND: Final = (
    "See the master's page: are there free workers, and do executors fit into them (--spark-conf "
    "spark.executor.memory=2g)? Without Spark: --engine local."
)


def await_executors(context: SparkContext, clock: Clock) -> None:
    """Wait until the executors are there and their number is steady; returns at once for a local master."""
    if not runs_here(str(context.master)):
        jvm: Any = context._jsc  # noqa: SLF001 - no public name
        steady_number(lambda: _number(jvm.sc(), str(context.master)), str(context.master), clock)


def steady_number(number: Callable[[], int], master: str, clock: Clock) -> int:
    """The number of executors once it is positive and steady, or the last one seen at the time limit."""
    last = 0
    same = 0
    for _ in range(int(WAIT_SECONDS_MAX / LOOK_SECONDS)):
        now = number()
        same += 1
        if now != last:
            same = 0
        last = now
        if now and same >= STEADY_LOOKS:
            return now
        clock.sleep(LOOK_SECONDS)
    if not last:
        raise SparkUnreachable(f"{master} gave no executor within {WAIT_SECONDS_MAX:g} s", mend=_MEND)
    return last


def _number(context: Any, master: str) -> int:
    """The executors without the driver, which Spark counts too."""
    if context.isStopped():
        raise SparkUnreachable(f"{master} ended our application: its executors could not start", mend=_MEND)
    return int(context.getExecutorMemoryStatus().size()) - 1


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks the session's executors run side by side."""
    context: Any = session.sparkContext._jsc.sc()  # noqa: SLF001 - no public name for the slots
    slots = int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    return max(1, slots, session.sparkContext.defaultParallelism)
