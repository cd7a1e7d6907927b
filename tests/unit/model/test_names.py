"""Names as CQL spells them and as servers know them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import BadIdentifier
from model.schema.keyspace import Schema, in_order_of_use
from model.schema.literals import map_literal, pairs_of, short_class, text_literal, text_of
from model.schema.names import checked_spelling, columns_of, name_of, renamed_in, spelled
from model.schema.table import Column, Kind, Table, UserType


@given(st.text(min_size=1))
def test_every_name_can_be_spelled_and_read_back(name: str) -> None:
    """Whatever it holds; its spelling is one whole name."""
    assert name_of(checked_spelling(spelled(name))) == name


@pytest.mark.parametrize(
    ("name", "spelling"), [("mail", "mail"), ("Mail", '"Mail"'), ("select", '"select"'), ('a"b', '"a""b"')]
)
def test_quotes_stand_where_they_are_needed(name: str, spelling: str) -> None:
    """Capitals, reserved words, odd characters."""
    assert spelled(name) == spelling


def test_a_spelling_without_quotes_is_in_any_case() -> None:
    """As CQL has it."""
    assert name_of("imapUidTable") == name_of("IMAPUIDTABLE") == "imapuidtable"
    assert name_of('"imapUidTable"') == "imapUidTable"


@pytest.mark.parametrize("spelling", ["", '"', '""', '"a"b"', "a b", 'a"', "1a", "select", '"a" "b"'])
def test_what_is_no_whole_name_is_refused(spelling: str) -> None:
    """Nothing breaks out."""
    with pytest.raises(BadIdentifier):
        checked_spelling(spelling)


@given(st.text())
def test_a_text_is_read_back_from_its_literal(text: str) -> None:
    """Quotes and all."""
    assert text_of(text_literal(text)) == text


@given(st.dictionaries(st.text(), st.text().filter(lambda one: not one.startswith("org.apache."))))
def test_pairs_are_read_back_from_a_map(pairs: dict[str, str]) -> None:
    """Whatever stands in their texts."""
    assert pairs_of(map_literal(pairs)) == pairs


def test_numbers_in_a_map_are_read_as_texts() -> None:
    """CQL takes both."""
    assert pairs_of("{'class': 'S', 'replication_factor': 3}") == {"class": "S", "replication_factor": "3"}
    assert pairs_of("'{}'") == {}


def test_only_classes_of_cassandra_are_shortened() -> None:
    """Of others the whole name is needed."""
    assert short_class("org.apache.cassandra.io.compress.LZ4Compressor") == "LZ4Compressor"
    assert short_class("com.example.Own") == "com.example.Own"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('values("A b")', ("A b",)),
        ("Flags", ("flags",)),
        ("a IS NOT NULL AND \"B\" > 'c IS' AND token(d) IN (1, 2)", ("a", "B", "d")),
    ],
)
def test_columns_are_told_from_words_texts_and_functions(text: str, columns: tuple[str, ...]) -> None:
    """In targets of indexes and conditions of views."""
    assert columns_of(text) == columns


def test_a_column_is_renamed_wherever_it_is_meant() -> None:
    """Not in a text, not as a part of another name."""
    assert renamed_in("a = 'a' AND ab > 1 AND A < 2", {"a": '"New"'}) == '"New" = \'a\' AND ab > 1 AND "New" < 2'


def test_a_schema_tells_names_in_quotes_from_others() -> None:
    """The server's own name goes first, then the spelling."""
    key = Column("id", "uuid", Kind.PARTITION)
    plain, quoted = Table("Mail", (key,)), Table('"Mail"', (key,))
    schema = Schema((), (plain, quoted))
    assert (schema.table("mail"), schema.table("Mail"), schema.table('"Mail"')) == (plain, quoted, quoted)
    assert schema.table("MAIL") == plain
    assert Schema((), (quoted,)).table("mail") is None


def test_types_come_after_those_they_are_made_of() -> None:
    """In whatever order a server lists them."""
    inner, outer = UserType('"In"', (("a", "int"),)), UserType("out", (("b", 'frozen<list<frozen<"In">>>'),))
    assert in_order_of_use((outer, inner)) == (inner, outer)
