"""Where findings point, in which order they come, and which statements belong to which keyspace."""

from collections.abc import Iterator

import pytest

from mailmend.cql.lint_sources import statements_of
from mailmend.cql.schema.lint.rule import COMPACTION, Hit, PlaceKey, Severity, rule
from mailmend.cql.schema.lint.rules import RULES, lint, rules_named
from mailmend.cql.schema.lint.subject import Subject, subjects_of
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Compaction, Kind, Table
from tests.support.linting import FILE, findings, pointed_at, subject_of, table, windows

TEXT = (
    table("a", "k int, v boolean, PRIMARY KEY (k)")
    + f"ALTER TABLE a WITH compaction = {windows()};\n"
    + f"ALTER TABLE a WITH compaction = {windows(2)};\n"
)


def test_the_last_statement_that_says_so_is_pointed_at() -> None:
    found = findings(TEXT, "T1")
    assert [one.statement for one in found] == [2]
    assert pointed_at(TEXT, found) == ["compaction"]
    assert found[0].file == FILE


def test_columns_are_pointed_at_where_they_were_added() -> None:
    text = table("a", "k int, PRIMARY KEY (k)", compaction=windows()) + "ALTER TABLE a ADD seen boolean;"
    found = findings(text, "T5")
    assert [one.statement for one in found] == [1]
    assert pointed_at(text, found) == ["seen"]


def test_what_is_not_there_points_at_the_table() -> None:
    (found,) = findings(TEXT + table("b", gc_grace_seconds=1), "T8")
    assert (found.table, found.statement) == ("b", 3)

    @rule("T99", "A rule of this test", Severity.NOTE, "Because.", "Leave it.", docs="")
    def anywhere(_: Subject) -> Iterator[Hit]:
        yield Hit("lacks it", "read_repair", table="a")
        yield Hit("is not there", table="nowhere")

    lacks, nowhere = lint(subject_of(TEXT), [anywhere])
    assert (lacks.statement, pointed_at(TEXT, [lacks])) == (0, ["a"])
    assert (nowhere.statement, nowhere.span) == (None, None)


def test_findings_come_in_the_order_of_the_text() -> None:
    text = table("b", gc_grace_seconds=1) + table("a", gc_grace_seconds=1, compaction=windows())
    found = lint(subject_of(text), rules_named(["T8", "T1", "T13"]))
    assert [(one.table, one.rule.id) for one in found] == [("b", "T8"), ("a", "T8"), ("a", "T1"), ("a", "T13")]


def test_a_live_schema_has_no_places() -> None:
    key = (Column("k", "int", Kind.PARTITION),)
    tables = tuple(Table(name, key, compaction=Compaction("TimeWindowCompactionStrategy")) for name in ("b", "a"))
    found = lint(Subject(Schema((), tables), "ks"), rules_named(["T1", "T3"]))
    assert [(one.table, one.rule.id, one.file, one.span) for one in found] == [
        ("a", "T1", None, None),
        ("a", "T3", None, None),
        ("b", "T1", None, None),
        ("b", "T3", None, None),
    ]


def test_each_keyspace_is_a_subject_of_its_own() -> None:
    texts = {
        "1.cql": "CREATE TABLE a (k int PRIMARY KEY); USE other; CREATE TABLE b (k int PRIMARY KEY);"
        "CREATE TABLE third.c (k int PRIMARY KEY);",
        "2.cql": "CREATE TABLE d (k int PRIMARY KEY); INSERT INTO other.b (k) VALUES (1);",
    }
    subjects = subjects_of(statements_of(texts), "ks")
    assert [(one.keyspace, [held.name for held in one.schema.tables]) for one in subjects] == [
        ("ks", ["a", "d"]),
        ("other", ["b"]),
        ("third", ["c"]),
    ]
    assert [len(one.statements) for one in subjects] == [2, 2, 1]


def test_keyspaces_in_quotes_keep_their_case() -> None:
    text = f'USE "Ks"; {table("w", compaction=windows())} DELETE FROM "Ks".w WHERE k = 1; DELETE FROM ks.w WHERE k = 1;'
    subjects = subjects_of(statements_of({FILE: text}), "other")
    assert [(one.keyspace, len(one.statements)) for one in subjects] == [("Ks", 2), ("ks", 1)]
    assert [len(lint(one, rules_named(["T4"]))) for one in subjects] == [1, 0]
    mixed = "BEGIN BATCH DELETE FROM ks.w WHERE k = 1; DELETE FROM b.w WHERE k = 1; APPLY BATCH;"
    assert [one.statement for one in findings(table("w", compaction=windows()) + mixed, "T4")] == [1]


def test_a_batch_belongs_to_the_keyspace_that_its_writes_name() -> None:
    text = "BEGIN BATCH INSERT INTO other.b (k) VALUES (1); APPLY BATCH; BEGIN BATCH APPLY BATCH;"
    assert [one.keyspace for one in subjects_of(statements_of({"1": text}), "ks")] == ["other", "ks"]


def test_files_are_one_history() -> None:
    texts = {"1": table(compaction=windows()), "2": "ALTER TABLE t WITH default_time_to_live = 86400;"}
    (subject,) = subjects_of(statements_of(texts), "ks")
    assert lint(subject, rules_named(["T1"])) == ()
    assert [one.file for one in lint(subject, rules_named(["T2"]))] == ["1"]


def test_names_in_quotes_keep_their_case() -> None:
    text = (
        table('"T"', "k int, PRIMARY KEY (k)", compaction=windows())
        + 'DELETE FROM t WHERE k = 1; DELETE FROM "T" WHERE k = 1;'
    )
    assert [one.statement for one in findings(text, "T4")] == [2]


def test_rules_are_named_and_in_order() -> None:
    assert [rule.id for rule in RULES] == [*(f"T{number}" for number in range(1, 26)), "K1", "K2"]
    for one in RULES:
        assert one.title
        assert not one.title.endswith(".")
        assert one.reason.endswith(".")
        assert one.fix.endswith(".")
        assert one.reference.startswith("https://cassandra.apache.org/doc/")


def test_a_finding_carries_its_rules_words_unless_it_has_its_own() -> None:
    text = table("a", compaction=windows(), default_time_to_live=60)
    found = {one.rule.id: one for one in lint(subject_of(text))}
    assert found["T7"].severity is found["T7"].rule.severity
    assert found["T7"].fix == found["T7"].rule.fix
    assert found["T2"].severity is not found["T2"].rule.severity
    assert found["T2"].fix.startswith("Choose windows of about")
    assert all(one.keyspace == "ks" for one in found.values())


def test_findings_of_one_place_come_by_table_and_rule() -> None:
    schema = Schema(
        (),
        tuple(
            Table(name, (Column("k", "int", Kind.PARTITION),), compaction=Compaction("TimeWindowCompactionStrategy"))
            for name in ("b", '"A"', "c")
        ),
    )
    reported = [(one.table, one.rule.id) for one in lint(Subject(schema, "ks"))]
    rules = ["T1", "T3", "T7", "T13"]
    assert reported == [(name, rule) for name in ('"A"', "b", "c") for rule in rules]


@pytest.mark.parametrize("name", ["Mixed", '"Mixed"', "MIXED"])
def test_a_table_is_pointed_at_under_any_spelling(name: str) -> None:
    text = table(name) + f"ALTER TABLE {name} WITH gc_grace_seconds = 5;"
    (found,) = (one for one in lint(subject_of(text)) if one.rule.id == "T8")
    assert (found.statement, found.file) == (1, FILE)


def test_the_first_unknown_rule_is_reported_whatever_the_order() -> None:
    for wanted in (["Z1", "A1"], ["A1", "Z1"]):
        with pytest.raises(WrongUse, match="there is no rule 'A1'") as refused:
            rules_named(wanted)
        assert refused.value.mend == "List the rules: mailmend schema lint --rules"


@pytest.mark.parametrize(
    ("hit", "places"),
    [
        (Hit("a", "Flags"), (("column", "flags"), ("option", "Flags"))),
        (Hit("a", "compaction.enabled"), (("column", "compaction.enabled"), ("option", "compaction"))),
        (Hit("a", "flags", points=COMPACTION), (("option", "compaction"),)),
    ],
)
def test_a_hit_is_placed_at_its_column_or_its_option(hit: Hit, places: tuple[PlaceKey, ...]) -> None:
    assert hit.places == places
