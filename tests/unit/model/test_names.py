"""Names and literals as CQL spells them and as servers know them: what is written reads back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import BadIdentifier
from mailmend.model.keyspace import EMPTY, Schema, in_order_of_use
from mailmend.model.names import (
    checked_spelling,
    columns_of,
    keyspace_spelling,
    map_literal,
    name_of,
    pairs_of,
    renamed_in,
    short_class,
    slips,
    spelled,
    text_literal,
    text_of,
)
from mailmend.model.table import COMPACT_STORAGE, Column, Compaction, Kind, Table, UserType


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
def test_columns_are_distinguished_from_words_texts_and_functions(text: str, columns: tuple[str, ...]) -> None:
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


TEXTS = st.text(st.sampled_from("ab'\"{}:, \n\\é"), max_size=12) | st.text(max_size=12)
VALUES = TEXTS.filter(bool)
OWN = "org.apache.cassandra.db.compaction.LeveledCompactionStrategy"
KEY = (Column("k", "int", Kind.PARTITION),)


@given(TEXTS)
def test_a_text_reads_back_as_it_was_written(text: str) -> None:
    literal = text_literal(text)
    assert text_of(literal) == text
    assert literal.count("'") == 2 + 2 * text.count("'")


@pytest.mark.parametrize(
    ("literal", "text"),
    [("5", "5"), ("true", "true"), ("''", ""), ("'", "'"), ("''''", "'"), ("'it''s'", "it's"), ("'a", "'a"), ("", "")],
)
def test_what_is_no_text_is_left_as_it_is(literal: str, text: str) -> None:
    assert text_of(literal) == text


@given(st.dictionaries(TEXTS.filter(lambda name: name != "class"), VALUES, max_size=4))
def test_a_map_reads_back_as_it_was_written(pairs: dict[str, str]) -> None:
    literal = map_literal(pairs)
    assert pairs_of(literal) == pairs
    assert map_literal(dict(reversed(list(pairs.items())))) == literal


@pytest.mark.parametrize(
    ("literal", "pairs"),
    [
        ("{}", {}),
        ("'class': 'x'", {}),
        ("''", {}),
        ("'{}'", {}),
        ("{'a': 1, 'b': true}", {"a": "1", "b": "true"}),
        ("{'a' : 'x' ,\n 'b':0.5}", {"a": "x", "b": "0.5"}),
        (f"{{'class': '{OWN}', 'name': '{OWN}'}}", {"class": "LeveledCompactionStrategy", "name": OWN}),
        ("{'class': 'com.example.Own'}", {"class": "com.example.Own"}),
        ("{'a''b': 'c''d'}", {"a'b": "c'd"}),
        ("{'a': ''}", {"a": ""}),
    ],
)
def test_a_map_is_read_however_it_is_set(literal: str, pairs: dict[str, str]) -> None:
    assert pairs_of(literal) == pairs


@pytest.mark.parametrize(
    ("name", "short"),
    [(OWN, "LeveledCompactionStrategy"), ("Own", "Own"), ("com.example.Own", "com.example.Own"), ("", "")],
)
def test_only_cassandras_own_classes_are_shortened(name: str, short: str) -> None:
    assert short_class(name) == short


@given(st.builds(Compaction, st.from_regex(r"[A-Z][a-z]{1,8}", fullmatch=True), st.dictionaries(VALUES, VALUES)))
def test_a_compaction_survives_the_way_through_its_literal(compaction: Compaction) -> None:
    if "class" not in compaction.options:
        assert Compaction.from_literal(compaction.literal) == compaction


def test_a_compaction_without_a_class_is_none() -> None:
    assert Compaction.from_literal("{'enabled': 'true'}") is None
    assert Compaction.from_literal("'class'") is None


TABLE = Table(
    "t", KEY, "it's", Compaction("LeveledCompactionStrategy"), {"gc_grace_seconds": "5", COMPACT_STORAGE: "true"}
)


def test_every_option_of_a_table_is_reported_as_a_literal() -> None:
    assert TABLE.literals() == {
        "comment": "'it''s'",
        "compaction": "{'class': 'LeveledCompactionStrategy'}",
        "gc_grace_seconds": "5",
        COMPACT_STORAGE: "true",
    }
    assert Table("t", KEY).literals() == {}


@pytest.mark.parametrize(
    ("literals", "changed"),
    [
        ({}, {}),
        ({"comment": "'new'"}, {"comment": "'new'"}),
        ({"gc_grace_seconds": "7"}, {"gc_grace_seconds": "7"}),
        ({"cdc": "true"}, {"cdc": "true"}),
        (
            {"compaction": "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}"},
            {"compaction": "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}"},
        ),
    ],
)
def test_options_are_set_over_those_that_were_there(literals: dict[str, str], changed: dict[str, str]) -> None:
    assert TABLE.with_options(literals).literals() == {**TABLE.literals(), **changed}
    assert TABLE.with_options(literals).with_options(literals).literals() == {**TABLE.literals(), **changed}


def test_a_comment_can_be_taken_away() -> None:
    assert "comment" not in TABLE.with_options({"comment": "''"}).literals()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("apache_jmes", ("apache_james",)),
        ("apache_jmaes", ("apache_james",)),
        ("apachejames", ("apache_james",)),
        ("apache_james2", ("apache_james",)),
        ("apache_james", ()),
        ("mali", ()),
        ("mial", ()),
        ("mil", ("mail",)),
        ("shop", ()),
        ("james", ()),
        ("", ()),
    ],
)
def test_a_slip_of_the_finger_is_no_other_name(typed: str, meant: tuple[str, ...]) -> None:
    """A letter too many, too few or wrong; two in a long name."""
    assert slips(typed, ["apache_james", "mail", "system_schema"]) == meant


def test_the_nearest_name_comes_first() -> None:
    assert slips("maill_2", ["maill22x", "mail_2", "maill_3"]) == ("mail_2", "maill_3", "maill22x")


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("mail", "mail"),
        ("Mail", "mail"),
        ('"mail"', "mail"),
        ('"OddKs"', '"OddKs"'),
        ('"1ks"', '"1ks"'),
        ('"_ks"', '"_ks"'),
        ('"select"', '"select"'),
        (f'"{"X" * 48}"', f'"{"X" * 48}"'),
    ],
)
def test_each_keyspace_has_one_spelling(text: str, spelling: str) -> None:
    assert keyspace_spelling(text) == spelling
    assert keyspace_spelling(spelling) == spelling


@pytest.mark.parametrize(
    "text",
    ["", '"', '""', '"Odd-Ks"', '"a""b"', '"a b"', '"a"; DROP KEYSPACE b', 'a"', "a.b", '"a"."b"', '"a', "ä", '"ä"'],
)
def test_what_no_server_takes_as_a_keyspace_is_refused(text: str) -> None:
    with pytest.raises(BadIdentifier):
        keyspace_spelling(text)


@given(st.text())
def test_no_text_gets_out_of_the_name_of_a_keyspace(text: str) -> None:
    try:
        spelling = keyspace_spelling(text)
    except BadIdentifier:
        return
    assert re.fullmatch(r'[a-z][a-z0-9_]{0,47}|"[A-Za-z0-9_]{1,48}"', spelling)


@pytest.mark.parametrize(
    ("text", "named"), [("1Ks", """'"1Ks"'"""), ("_ks", """'"_ks"'"""), ("select", """'"select"'""")]
)
def test_a_name_that_lacks_its_quotes_is_shown_with_them(text: str, named: str) -> None:
    with pytest.raises(BadIdentifier) as refused:
        keyspace_spelling(text)
    assert refused.value.mend.endswith(named)


def test_a_name_in_another_case_is_a_slip() -> None:
    assert slips("oddks", ["OddKs", "mail"]) == ("OddKs",)
