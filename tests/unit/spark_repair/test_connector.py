"""What the connector is told: who asks, and how fast, in its own words."""

from hypothesis import given
from hypothesis import strategies as st

from cql.contact import Contact
from spark_repair.connector import contact_options, pace_options


def test_secrets_go_only_where_somebody_logs_in() -> None:
    """No user, no password; a user without one has an empty one, as the connector wants it."""
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
    """As fast as the cluster answers."""
    assert pace_options(None, 8) == {}


@given(st.integers(1, 10_000_000), st.integers(1, 512))
def test_all_cores_together_read_no_faster_than_asked(rows_per_second: int, cores: int) -> None:
    """Pages are whole and each core reads at least a row: beyond that the sum stays at or below the pace."""
    options = pace_options(rows_per_second, cores)
    page, pages = (int(options[f"spark.cassandra.input.{name}"]) for name in ("fetch.sizeInRows", "readsPerSec"))

    assert min(page, pages) >= 1
    assert page * pages * cores <= max(rows_per_second, cores)
    assert 2 * page * pages * cores >= min(rows_per_second, cores)
