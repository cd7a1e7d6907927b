"""What the connector is told: who asks, and how fast, in its own words."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException

from cql.driver.contact import Contact
from repair.retries import Retries
from spark_repair.connector import contact_options, opened, pace_options
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


def test_without_a_pace_nothing_is_held_back() -> None:
    assert pace_options(None, 8) == {}


@given(st.integers(1, 10_000_000), st.integers(1, 512))
def test_all_cores_together_read_no_faster_than_asked(rows_per_second: int, cores: int) -> None:
    options = pace_options(rows_per_second, cores)
    page, pages = (int(options[f"spark.cassandra.input.{name}"]) for name in ("fetch.sizeInRows", "readsPerSec"))

    assert min(page, pages) >= 1
    assert page * pages * cores <= max(rows_per_second, cores)
    assert 2 * page * pages * cores >= min(rows_per_second, cores)


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


@pytest.mark.parametrize(("text", "looks"), [("Couldn't find table rows", 7), ("no such host", 1)])
def test_what_stays_unknown_is_reported_and_nothing_else_is_repeated(text: str, looks: int) -> None:
    reader = _Reader(unknown=100, text=text)

    with pytest.raises(AnalysisException, match=text):
        opened(cast("Any", reader), Retries(VirtualClock()))
    assert reader.looks == looks
