"""Conditions as they are read, and the one spelling in which a view keeps them."""

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.statements import CreateView, WriteRows
from mailmend.cql.statements.base import Compared, LeftSide

SIGNS = ("=", "<=", ">=", "!=", "<", ">")


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        *((f"a {sign} 1", Compared(("a",), sign, "1")) for sign in SIGNS),
        ("a in (1)", Compared(("a",), "IN", "(1)")),
        ("a not in (1)", Compared(("a",), "NOT IN", "(1)")),
        ("a like 'x%'", Compared(("a",), "LIKE", "'x%'")),
        ("a is not null", Compared(("a",), "IS NOT NULL", "")),
        ("a between 1 and 2", Compared(("a",), "BETWEEN", "(1, 2)")),
        ("a contains 1", Compared(("a",), "CONTAINS", "1")),
        ("a contains key 1", Compared(("a",), "CONTAINS KEY", "1")),
        ("a not contains 1", Compared(("a",), "NOT CONTAINS", "1")),
        ("a not contains key 1", Compared(("a",), "NOT CONTAINS KEY", "1")),
        ('"A" = 1', Compared(("A",), "=", "1")),
        ('(a, "B") = (1, 2)', Compared(("a", "B"), "=", "(1, 2)", LeftSide.TUPLE)),
        ("token(a, B) > -5", Compared(("a", "b"), ">", "-5", LeftSide.TOKEN)),
        ("a['x'] = 1", Compared(("a",), "=", "1", LeftSide.PART, "'x'")),
        ("a.F = 1", Compared(("a",), "=", "1", LeftSide.PART, "", "f")),
    ],
)
def test_a_condition_has_its_columns_and_its_operator(text: str, compared: Compared) -> None:
    (parsed,) = parse(f"DELETE FROM t WHERE {text}")
    assert isinstance(parsed.statement, WriteRows)
    assert parsed.statement.where == (compared,)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a is not null AND b IS NOT NULL", "a IS NOT NULL AND b IS NOT NULL"),
        ("a=1 and b<2 and c>=3 and d!=4", "a = 1 AND b < 2 AND c >= 3 AND d != 4"),
        ("a in(1,2)", "a IN (1, 2)"),
        ("a contains(1) and b contains key(2)", "a contains (1) AND b contains key (2)"),
        ("a CONTAINS(1) AND b CONTAINS KEY(2)", "a CONTAINS (1) AND b CONTAINS KEY (2)"),
        ("a LIKE('x')", "a LIKE ('x')"),
        ("a BETWEEN(1)AND(2)", "a BETWEEN (1) AND (2)"),
        ("a=(1,(2,3)) and b<=[4]", "a = (1, (2, 3)) AND b <= [4]"),
        ("a>(1)and b!=(2)and c<(3)and d>=(4)", "a > (1) AND b != (2) AND c < (3) AND d >= (4)"),
        ("token( a )>token ( 5 )", "token(a) > token(5)"),
        ("a [ 'x' ]=1 and b . c=- 5", "a['x'] = 1 AND b.c = -5"),
        ("a={ 1 : 2 , 3:4 }", "a = {1: 2, 3: 4}"),
        ("(a,b)=(1,2)", "(a, b) = (1, 2)"),
        ("a=NULL and b=null", "a = NULL AND b = NULL"),
        ("Default = 1", "Default = 1"),
    ],
)
def test_a_view_keeps_its_conditions_in_one_spelling(text: str, kept: str) -> None:
    (parsed,) = parse(f"CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE {text} PRIMARY KEY (a)")
    assert isinstance(parsed.statement, CreateView)
    assert parsed.statement.view.where == kept
