"""Replication as people write it: read strictly, because it ends up in CREATE KEYSPACE."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.render import Replication, in_every_data_centre, parse_replication, replication_from
from mailmend.model.errors import WrongUse

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,10}", fullmatch=True).filter(
    lambda name: name.lower() != "class" and name != "SimpleStrategy"
)


@pytest.mark.parametrize(
    ("text", "cql"),
    [
        ("dc1=3", "{'class': 'NetworkTopologyStrategy', 'dc1': '3'}"),
        (" eu-west.1 = 3 , us=02 ", "{'class': 'NetworkTopologyStrategy', 'eu-west.1': '3', 'us': '2'}"),
        ("SimpleStrategy=2", "{'class': 'SimpleStrategy', 'replication_factor': '2'}"),
    ],
)
def test_replication_as_people_write_it(text: str, cql: str) -> None:
    assert str(parse_replication(text)) == cql


def test_one_number_for_every_data_centre() -> None:
    assert str(in_every_data_centre(3)) == "{'class': 'NetworkTopologyStrategy', 'replication_factor': '3'}"


@pytest.mark.parametrize(
    "text",
    ["", "3", "dc1", "dc1=", "dc1=0", "dc1=-1", "dc1=101", "dc1=3;", "dc1=x", "d'c=1", "dc1=3,", "class=1", "a b=1"],
)
def test_what_is_no_replication_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a replication") as refused:
        parse_replication(text)
    assert "dc1=3" in refused.value.mend


def test_simple_strategy_knows_no_data_centres() -> None:
    with pytest.raises(WrongUse, match="knows no data centres"):
        parse_replication("SimpleStrategy=1,dc1=3")


def test_absurd_factors_are_refused() -> None:
    with pytest.raises(WrongUse):
        in_every_data_centre(0)


@given(st.dictionaries(NAMES, st.integers(1, 100), min_size=1, max_size=4))
def test_what_the_server_tells_is_what_was_asked(copies: dict[str, int]) -> None:
    wanted = parse_replication(",".join(f"{name}={number}" for name, number in copies.items()))
    served = {"class": f"org.apache.cassandra.locator.{wanted.strategy}", **wanted.copies}
    assert replication_from(served) == wanted
    assert isinstance(replication_from(served), Replication)
