"""Which engine scans: what was asked for, else what the estimated size says."""

import pytest

from mailmend.model.sizes import TableSize
from mailmend.repair.decisions.engines import SPARK_ROWS_MIN, Engine, choose_engine, estimated_rows

MASTER, NO_JAVA = "--master was given", "there is no Java at all"
SMALL, LARGE = SPARK_ROWS_MIN - 1, SPARK_ROWS_MIN


@pytest.mark.parametrize(
    ("asked", "given", "rows", "lacking", "chosen"),
    [
        ("spark", None, SMALL, NO_JAVA, Engine("spark", "asked for", brief=True)),
        ("spark", None, LARGE, NO_JAVA, Engine("spark", "asked for")),
        ("spark", None, None, NO_JAVA, Engine("spark", "asked for")),
        ("local", MASTER, LARGE, None, Engine("local", "asked for")),
        ("auto", MASTER, SMALL, NO_JAVA, Engine("spark", MASTER, brief=True)),
        ("auto", None, SMALL, None, Engine("local", "about 999,999 rows, Spark pays from 1,000,000")),
        ("auto", None, 0, None, Engine("local", "about 0 rows, Spark pays from 1,000,000")),
        ("auto", None, LARGE, None, Engine("spark", "about 1,000,000 rows, Spark pays from 1,000,000")),
        (
            "auto",
            None,
            LARGE,
            NO_JAVA,
            Engine("local", "about 1,000,000 rows, but there is no Java at all"),
        ),
        ("auto", None, None, None, Engine("spark", "of unknown size")),
        ("auto", None, None, NO_JAVA, Engine("local", "of unknown size, but there is no Java at all")),
    ],
)
def test_the_engine(asked: str, given: str | None, rows: int | None, lacking: str | None, chosen: Engine) -> None:
    assert choose_engine(asked, given, lambda: rows, lambda: lacking) == chosen


def test_who_asks_for_the_local_engine_makes_nobody_look() -> None:
    assert choose_engine("local", None, _never, _never).why == "asked for"


def test_a_small_keyspace_makes_nobody_look_for_java() -> None:
    assert choose_engine("auto", None, lambda: SMALL, _never).name == "local"


def _never() -> None:
    raise AssertionError("nobody needs to know")


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (None, None),
        (TableSize(None, None, None, 1, 1), None),
        (TableSize(7, 700, 130_000_000, 1, 1), 7),
        (TableSize(0, 0, 130_000_000, 1, 1), 1_000_000),
        (TableSize(None, None, 0, 1, 1), 0),
        (TableSize(0, 0, None, 1, 1), 0),
    ],
)
def test_rows_by_partitions_and_before_the_nodes_have_counted_those_by_disk(
    size: TableSize | None, rows: int | None
) -> None:
    assert estimated_rows(size) == rows
