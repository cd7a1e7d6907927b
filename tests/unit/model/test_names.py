"""Names as CQL spells them and as servers know them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import BadIdentifier
from model.schema.keyspace import EMPTY, Schema, in_order_of_use
from model.schema.names import checked_spelling, columns_of, name_of, renamed_in, spelled
from model.schema.table import Column, Kind, Table, UserType


@given(st.text(min_size=1))
def test_every_name_can_be_spelled_and_read_back(name: str) -> None:
    assert name_of(checked_spelling(spelled(name))) == name


@pytest.mark.parametrize(
    ("name", "spelling"), [("mail", "mail"), ("Mail", '"Mail"'), ("select", '"select"'), ('a"b', '"a""b"')]
)
def test_quotes_stand_where_they_are_needed(name: str, spelling: str) -> None:
    assert spelled(name) == spelling


def test_a_spelling_without_quotes_is_in_any_case() -> None:
    assert name_of("imapUidTable") == name_of("IMAPUIDTABLE") == "imapuidtable"
    assert name_of('"imapUidTable"') == "imapUidTable"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [('"', '"'), ('""""', '"'), ('"a""b"', 'a"b'), ('"A"', "A"), ("A", "a"), ('"A', '"a'), ("", "")],
)
def test_only_whole_quotes_keep_a_name_as_it_is(spelling: str, name: str) -> None:
    assert name_of(spelling) == name


@pytest.mark.parametrize("spelling", ["", '"', '""', '"a"b"', "a b", 'a"', "1a", "select", '"a" "b"'])
def test_what_is_no_whole_name_is_refused(spelling: str) -> None:
    with pytest.raises(BadIdentifier):
        checked_spelling(spelling)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('values("A b")', ("A b",)),
        ("Flags", ("flags",)),
        ("a IS NOT NULL AND \"B\" > 'c IS' AND token(d) IN (1, 2)", ("a", "B", "d")),
    ],
)
def test_columns_are_told_from_words_texts_and_functions(text: str, columns: tuple[str, ...]) -> None:
    assert columns_of(text) == columns


def test_a_column_is_renamed_wherever_it_is_meant() -> None:
    assert renamed_in("a = 'a' AND ab > 1 AND A < 2", {"a": '"New"'}) == '"New" = \'a\' AND ab > 1 AND "New" < 2'


def test_a_schema_tells_names_in_quotes_from_others() -> None:
    key = Column("id", "uuid", Kind.PARTITION)
    plain, quoted = Table("Mail", (key,)), Table('"Mail"', (key,))
    schema = Schema((), (plain, quoted))
    assert (schema.table("mail"), schema.table("Mail"), schema.table('"Mail"')) == (plain, quoted, quoted)
    assert schema.table("MAIL") == plain
    assert Schema((), (quoted,)).table("mail") is None
    assert schema.table("nowhere") is None
    assert schema.user_type("nowhere") is None
    assert Schema((UserType("mailboxBase", ()),), ()).user_type("MAILBOXBASE") is not None


def test_a_schema_with_a_type_or_a_table_is_not_empty() -> None:
    assert EMPTY.empty
    assert not Schema((UserType("t", ()),), ()).empty
    assert not Schema((), (Table("t", ()),)).empty


def test_types_come_after_those_they_are_made_of() -> None:
    inner, outer = UserType('"In"', (("a", "int"),)), UserType("out", (("b", 'frozen<list<frozen<"In">>>'),))
    assert in_order_of_use((outer, inner)) == (inner, outer)
