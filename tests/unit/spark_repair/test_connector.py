"""What the connector is told: who asks, and how fast, in its own words."""

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException

from mailmend.cql.driver.contact import Contact
from mailmend.repair.retries import Retries
from mailmend.spark_repair.pace import grain_of, nanos_of, pause_of
from mailmend.spark_repair.source import contact_options, opened, page_options
from tests.support.clock import VirtualClock


def test_secrets_go_only_where_somebody_logs_in() -> None:
    anonymous = contact_options(Contact(("one", "two"), 9043, "dc1"))
    known = contact_options(Contact(("one",), username="me", password="secret"))

    assert anonymous == {
        "spark.cassandra.connection.host": "one,two",
        "spark.cassandra.connection.port": "9043",
        "spark.cassandra.connection.localDC": "dc1",
    }
    assert known["spark.cassandra.auth.password"] == "secret"
    assert contact_options(Contact(("one",), username="me"))["spark.cassandra.auth.password"] == ""


def test_without_a_pace_pages_are_the_connectors() -> None:
    assert page_options(None, 8) == {}


@pytest.mark.parametrize(
    ("rows_per_second", "tasks", "pause"),
    [(15, 2, (1, 134)), (15, 1, (1, 67)), (1, 8, (1, 8000)), (100_000, 4, (500, 20)), (3000, 2, (30, 20))],
)
def test_a_task_pauses_between_rows(rows_per_second: int, tasks: int, pause: tuple[int, int]) -> None:
    assert pause_of(rows_per_second, tasks) == pause


@given(st.integers(1, 10_000_000), st.integers(1, 512))
def test_all_tasks_together_read_no_faster_than_asked(rows_per_second: int, tasks: int) -> None:
    rows, millis = pause_of(rows_per_second, tasks)
    page = int(page_options(rows_per_second, tasks)["spark.cassandra.input.fetch.sizeInRows"])

    assert rows * 1000 * tasks <= rows_per_second * millis
    assert 1 <= page <= max(1, rows_per_second // tasks)


@given(st.floats(1, 1e7), st.integers(1, 512), st.integers(1, 20))
def test_all_tasks_together_read_no_faster_than_a_pace_that_changes(rate: float, tasks: int, grain: int) -> None:
    assert tasks * grain * 1e9 / nanos_of(rate, tasks, grain) <= rate
    assert nanos_of(None, tasks, grain) == 0


@pytest.mark.parametrize(
    ("declared", "tasks", "grain"), [(None, 64, 20), (100_000, 2, 20), (4, 2, 4), (1, 2, 1), (1, 64, 1)]
)
def test_a_slow_pace_is_cut_fine(declared: int | None, tasks: int, grain: int) -> None:
    assert grain_of(declared, tasks) == grain


class _Reader:
    """A reader to which a table becomes known after some looks."""

    def __init__(self, unknown: int, text: str = "Couldn't find keyspace mail") -> None:
        self.unknown, self.text, self.looks = unknown, text, 0

    def load(self) -> str:
        """The table, or what the connector says about it."""
        self.looks += 1
        if self.looks <= self.unknown:
            raise AnalysisException(self.text)
        return "rows"


def test_a_table_that_was_created_just_now_is_asked_for_again() -> None:
    clock, reader = VirtualClock(), _Reader(unknown=3)
    before = clock.micros()

    assert cast("Any", opened(cast("Any", reader), Retries(clock))) == "rows"
    assert reader.looks == 4
    assert clock.micros() > before


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("Couldn't find table rows", 7),
        ("Couldn't find mail.rows or any similarly named keyspace and table pairs", 7),
        ("ClassNotFoundException: org.apache.spark.sql.catalyst.analysis.NoSuchTableException$", 7),  # Spark 4
        ("no such host", 1),
    ],
)
def test_what_stays_unknown_is_reported_and_nothing_else_is_repeated(text: str, looks: int) -> None:
    reader = _Reader(unknown=100, text=text)

    with pytest.raises(AnalysisException, match=re.escape(text)):
        opened(cast("Any", reader), Retries(VirtualClock()))
    assert reader.looks == looks
