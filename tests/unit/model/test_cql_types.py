"""Type names in one spelling: what the server writes and what the catalog writes are compared as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import BadIdentifier
from model.schema.cql_types import normal_type, parse_type

SCALARS = st.sampled_from(["int", "bigint", "text", "timeuuid", "boolean", "mailboxbase"])


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        inner.map(lambda one: f"list<{one}>"),
        inner.map(lambda one: f"frozen<set< {one} >>"),
        inner.map(lambda one: f"FROZEN<{one}>"),
        st.tuples(inner, inner).map(lambda two: f"map<{two[0]}, {two[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"tuple<{','.join(some)}>"),
    )


TYPES = st.recursive(SCALARS, nested, max_leaves=5)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("TEXT", "text"),
        ("varchar", "text"),
        ("map<text, int>", "map<text,int>"),
        ("list<frozen<attachments>>", "list<frozen<attachments>>"),
        ("frozen<map<text, frozen<list<text>>>>", "frozen<map<text,list<text>>>"),
        ("frozen<list<frozen<tuple<text, text, text>>>>", "frozen<list<tuple<text,text,text>>>"),
        ("frozen<tuple<text, frozen<set<int>>>>", "tuple<text,set<int>>"),
        ("frozen<frozen<set<int>>>", "frozen<set<int>>"),
        ("vector<float, 3>", "vector<float,3>"),
    ],
)
def test_a_type_has_one_spelling(written: str, normal: str) -> None:
    assert normal_type(written) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "set<",
        "set<>",
        "map<text,>",
        "text>",
        "set<text",
        "te xt",
        "text; DROP TABLE x",
        "<text>",
        "a b<int>",
        "text,",
    ],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(BadIdentifier):
        parse_type(text)


@given(TYPES)
def test_the_normal_form_is_its_own_normal_form(text: str) -> None:
    assert normal_type(normal_type(text)) == normal_type(text)


@given(TYPES)
def test_freezing_what_is_frozen_changes_nothing(text: str) -> None:
    assert normal_type(f"frozen<frozen<{text}>>") == normal_type(f"frozen<{text}>")
