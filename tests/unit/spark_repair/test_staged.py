"""A segment as a task of Spark reads it, without Spark: once from the cluster, from then on from the area."""

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from mailmend.cql.driver.contact import Contact
from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import IMAP_UID, MESSAGES
from mailmend.model.errors import StagingRefused
from mailmend.model.operations import Put, Scan
from mailmend.repair.staging.area import StagedScope, columns_of, opened_area, rows_of, schema_of
from mailmend.repair.staging.folder import StagingFolder
from mailmend.spark_repair import pace
from mailmend.spark_repair.source import StagedSource, segments_read
from tests.support.clock import VirtualClock
from tests.support.repairing import truth_row
from tests.support.writing import Faults

SCAN = Scan(IMAP_UID, MESSAGES.truth_columns)
SCOPE = StagedScope(version="1", keyspace="mail", columns={IMAP_UID.spelling: SCAN.columns}, level="ONE", tables="a")


class StagedCluster:
    """A cluster as an executor opens it, and an area that the driver has opened."""

    def __init__(self, folder: Path) -> None:
        self.tables = MemoryTables(VirtualClock().micros)
        self.rows = [truth_row(number, userflags=frozenset({"a"})) for number in range(1, 40)]
        for row in self.rows:
            self.tables.write(Put(IMAP_UID, row))
        self.tables.surround = self.asked = Faults()
        self.store = StagingFolder(folder)
        with self.store.held():
            self.area = opened_area(self.store, SCOPE, {IMAP_UID.spelling: 4}, None, lambda: 0)
        self.source = StagedSource(self.area, Contact(("node1",)), "mail", None, None)

    def keyspace(self, _: str) -> MemoryTables:
        return self.tables

    def read(self, *segments: int, source: StagedSource | None = None) -> list[pa.RecordBatch]:
        numbers = pa.RecordBatch.from_pydict({"id": list(segments)})
        return list((source or self.source).batches([numbers], SCAN))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StagedCluster:
    found = StagedCluster(tmp_path / "staged")
    monkeypatch.setattr(pace, "connect", lambda _: found)
    monkeypatch.setattr(pace, "_clusters", {})
    return found


def key(row: object) -> str:
    return str(row)


def test_all_segments_are_the_table_and_a_task_that_is_run_again_reads_nothing(cluster: StagedCluster) -> None:
    measure = segments_read(cluster.area)

    first = cluster.read(0, 1) + cluster.read(2, 3)
    again = cluster.read(*range(4))

    rows, columns = [{name: row[name] for name in SCAN.columns} for row in cluster.rows], columns_of(SCAN)
    assert sorted(rows_of(first, columns), key=key) == sorted(rows_of(again, columns), key=key) == sorted(rows, key=key)
    assert (len(cluster.asked.seen), measure()) == (4, 4)


def test_a_folder_that_is_another_one_on_the_executor_is_refused(cluster: StagedCluster, tmp_path: Path) -> None:
    """Each host would keep its own segments, and nobody would ever find them again."""
    elsewhere = StagingFolder(tmp_path / "elsewhere")
    with elsewhere.held():
        opened_area(elsewhere, SCOPE, {IMAP_UID.spelling: 4}, None, lambda: 0)
    empty = replace(cluster.area, store=StagingFolder(tmp_path))

    for area in (replace(cluster.area, store=elsewhere), empty):
        with pytest.raises(StagingRefused, match="is another one on the executor"):
            cluster.read(0, source=replace(cluster.source, area=area))


def test_columns_have_the_types_that_the_connector_gives_them() -> None:
    found = {one.name: one.dataType.simpleString() for one in from_arrow_schema(schema_of(columns_of(SCAN)))}

    assert {name: kind for name, kind in found.items() if not name.startswith("flag")} == {
        "messageid": "string",
        "mailboxid": "string",
        "uid": "bigint",
        "threadid": "string",
        "modseq": "bigint",
        "userflags": "array<string>",
        "internaldate": "timestamp",
        "save_date": "timestamp",
        "bodystartoctet": "int",
        "fullcontentoctets": "bigint",
        "headercontent": "string",
    }
    assert {kind for name, kind in found.items() if name.startswith("flag")} == {"boolean"}


def test_an_area_travels_to_executors_as_plain_data(cluster: StagedCluster) -> None:
    assert pickle.loads(pickle.dumps(cluster.source)) == cluster.source
