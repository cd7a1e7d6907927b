"""Our packages on executors that do not have them: zipped as they are imported here, and sent along with the session.

Nobody has to install mailmend on a cluster. What executors must bring in their own Python is what they need from
others: the Cassandra driver, tenacity, and what Spark itself asks for.
"""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark import SparkContext, SparkFiles

PACKAGES: Final = ("cql", "mailqueue", "model", "repair", "spark_repair")
"""This package and those that it may import; the command line stays with the driver."""

ZIP: Final = "mailmend-packages.zip"


def runs_here(master: str) -> bool:
    """Whether the executors are threads of the driver, which can import what the driver can."""
    return master == "local" or master.startswith("local[")


def ship_packages(context: SparkContext) -> None:
    """Send our packages to every executor, those that come later too; once, and only where they are not yet.

    The zip lies where Spark keeps such files of a driver, and goes away with the session.
    """
    if not (runs_here(str(context.master)) or _are_shipped(context)):
        context.addPyFile(str(write_zip(Path(SparkFiles.getRootDirectory()) / ZIP)))


def write_zip(file: Path) -> Path:
    """Every file of the packages, compiled ones aside; the same packages always give the same bytes."""
    with ZipFile(file, "w") as archive:
        for package in PACKAGES:
            for name, content in _contents(files(package), package):
                archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return file


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents below a folder, which may itself be in a zip."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{name}/{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _contents(entry, f"{name}/{entry.name}")


def _are_shipped(context: SparkContext) -> bool:
    """By an earlier call, or by spark-submit: then this very file was read from a zip that it was given."""
    given = (context.getConf().get("spark.submit.pyFiles") or "").split(",")
    names = {PurePath(path).name for path in (*context.listFiles, *given) if path}
    return not names.isdisjoint((ZIP, *Path(__file__).parts))
