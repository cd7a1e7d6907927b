"""The way from a live schema to the expected one: each kind of difference has its statement, or says how by hand."""

from dataclasses import replace

import pytest

from mailmend.cql.schema.changes import Gap, Include, SchemaChange, changes
from mailmend.cql.schema.generations import JAMES_3_8, JAMES_3_9, NEWEST, Generation
from mailmend.cql.schema.risk import Risk
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    Drop,
    DropColumns,
    DropIndex,
    DropTable,
    DropType,
    DropView,
    MaskColumn,
    Name,
    SetOptions,
    SetViewOptions,
    Statement,
)
from mailmend.model.catalog.james_tables import BESIDE_TABLES
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.table import Column, Compaction, Kind, Table, UserType
from tests.support.schemas import served, without_tables

ID, NUMBER, NOTE = (
    Column("id", "timeuuid", Kind.PARTITION),
    Column("number", "int", Kind.CLUSTERING),
    Column("n", "text"),
)
NOTES = Table("notes", (ID, NUMBER, NOTE), compaction=Compaction("LeveledCompactionStrategy"))
SIZE = UserType("size", (("bytes", "bigint"), ("lines", "int")))
BY_NOTE = Index("by_note", "notes", "n")
BY_NUMBER = View(
    Table("by_number", (replace(NUMBER, kind=Kind.PARTITION), replace(ID, kind=Kind.CLUSTERING), NOTE)),
    "notes",
    "number IS NOT NULL AND id IS NOT NULL",
)
EXPECTED = Schema((SIZE,), (NOTES,), (BY_NOTE,), (BY_NUMBER,))
EVERYTHING = frozenset(Include)


def ways(expected: Schema, live: Schema, include: frozenset[Include] = EVERYTHING) -> tuple[SchemaChange, ...]:
    return changes(Gap(expected, live, include))


def statements(expected: Schema, live: Schema, include: frozenset[Include] = EVERYTHING) -> list[Statement | None]:
    return [one.statement for one in ways(expected, live, include)]


def with_notes(table: Table, types: tuple[UserType, ...] = (SIZE,)) -> Schema:
    """A live schema whose table is another, with the index and the view that are expected."""
    return Schema(types, (table,), (BY_NOTE,), (BY_NUMBER,))


def test_nothing_is_proposed_for_a_schema_that_is_as_it_should_be() -> None:
    assert ways(EXPECTED, EXPECTED) == ()
    assert ways(SCHEMA, served(SCHEMA, made_here=True)) == ()


def test_an_empty_keyspace_gets_everything_in_an_order_that_runs() -> None:
    found = ways(EXPECTED, Schema((), ()))
    assert [one.statement for one in found] == [
        CreateType(Name("size"), SIZE),
        CreateTable(Name("notes"), NOTES),
        CreateIndex(Name("notes"), BY_NOTE),
        CreateView(Name("by_number"), BY_NUMBER),
    ]
    assert {one.assessment.worst for one in found} == {Risk.NONE}


def test_missing_columns_of_a_table_are_added_by_one_statement() -> None:
    live = with_notes(NOTES)
    wanted = with_notes(replace(NOTES, columns=(*NOTES.columns, Column("a", "int"), Column("b", "text", Kind.STATIC))))
    assert statements(wanted, live) == [
        AddColumns(Name("notes"), (Column("a", "int"), Column("b", "text", Kind.STATIC)))
    ]


def test_what_is_not_expected_is_left_alone_unless_removal_is_asked_for() -> None:
    more = replace(NOTES, columns=(*NOTES.columns, Column("old", "text"), Column("older", "text")))
    other = Table("other", (ID, Column("size", "frozen<size2>")))
    view = replace(BY_NUMBER, table=replace(BY_NUMBER.table, spelling="by_other"))
    second = UserType("size2", (("size", "frozen<size>"),))
    live = Schema((SIZE, second), (more, other), (BY_NOTE, Index("by_old", "notes", "old")), (BY_NUMBER, view))
    expected = replace(EXPECTED, views=())

    # When removal is not asked for, nothing is proposed
    assert statements(expected, live, frozenset({Include.OPTIONS})) == []

    # When it is, what stands in the way goes first, and types go last
    assert statements(expected, live) == [
        DropView(Name("by_number")),
        DropView(Name("by_other")),
        DropIndex(Name("by_old")),
        DropColumns(Name("notes"), ("old", "older")),
        DropTable(Name("other")),
        DropType(Name("size2")),
    ]


def test_a_column_under_a_view_that_stays_is_dropped_by_hand() -> None:
    live = with_notes(replace(NOTES, columns=(*NOTES.columns, Column("old", "text"))))
    (found,) = ways(EXPECTED, live)
    assert (found.owner, found.statement) == ("notes", None)
    assert found.manual.startswith("The server would refuse it as things stand: ")
    assert "by_number" in found.manual
    assert found.manual.endswith(". Change by hand what is in its way, then plan again.")


def test_a_mask_is_set_on_the_column_and_dropped_from_it() -> None:
    masked = with_notes(replace(NOTES, columns=(ID, NUMBER, replace(NOTE, mask="mask_default()"))))
    (found,) = ways(masked, EXPECTED)
    assert (found.owner, found.statement) == ("notes", MaskColumn(Name("notes"), NOTE.spelling, "mask_default()"))
    assert statements(EXPECTED, masked) == [MaskColumn(Name("notes"), NOTE.spelling, "")]


def test_options_are_proposed_only_on_request_by_one_statement_and_marked() -> None:
    wanted = replace(NOTES, options={"gc_grace_seconds": "864000", "caching": "{'keys': 'ALL'}"})
    live = replace(
        NOTES,
        compaction=Compaction("SizeTieredCompactionStrategy", {"max_threshold": "32"}),
        options={"gc_grace_seconds": "864000", "caching": "{'keys': 'NONE', 'rows_per_partition': 'NONE'}"},
    )
    assert statements(with_notes(wanted), with_notes(live), frozenset({Include.REMOVALS})) == []
    (found,) = ways(with_notes(wanted), with_notes(live), frozenset({Include.OPTIONS}))
    assert found.statement == SetOptions(
        Name("notes"), {"caching": "{'keys': 'ALL'}", "compaction": "{'class': 'LeveledCompactionStrategy'}"}
    )
    assert found.assessment.worst is Risk.REWRITE


def test_options_of_a_view_are_set_on_the_view() -> None:
    wanted = replace(BY_NUMBER, table=replace(BY_NUMBER.table, options={"gc_grace_seconds": "10"}))
    (found,) = statements(replace(EXPECTED, views=(wanted,)), EXPECTED)
    assert found == SetViewOptions(Name("by_number"), {"gc_grace_seconds": "10"})


def test_an_index_and_a_view_that_are_otherwise_are_made_anew() -> None:
    live = replace(
        EXPECTED, indexes=(replace(BY_NOTE, using="sai"),), views=(replace(BY_NUMBER, where="id IS NOT NULL"),)
    )
    found = ways(EXPECTED, live, frozenset())
    assert [one.statement for one in found] == [
        DropView(Name("by_number")),
        DropIndex(Name("by_note")),
        CreateIndex(Name("notes"), BY_NOTE),
        CreateView(Name("by_number"), BY_NUMBER),
    ]
    assert [one.assessment.worst for one in found] == [Risk.BREAKING, Risk.BREAKING, Risk.LONG, Risk.LONG]


OTHER_KEY = replace(NOTES, columns=(ID, replace(NUMBER, kind=Kind.REGULAR), replace(NOTE, kind=Kind.CLUSTERING)))
OTHER_ORDER = replace(NOTES, columns=(ID, replace(NUMBER, descending=True), NOTE, Column("more", "int")))
COUNTING = replace(NOTES, columns=(ID, NUMBER, Column("count", "counter")))


@pytest.mark.parametrize("live", [OTHER_KEY, OTHER_ORDER, COUNTING], ids=["key", "order", "counters"])
def test_what_a_table_is_for_ever_is_changed_by_hand(live: Table) -> None:
    (found,) = ways(with_notes(NOTES), with_notes(live))
    assert found.statement is None
    assert found.owner == "notes"
    assert found.manual == (
        "A table's key, order and counters cannot be changed: create a table of another name as the model has notes, "
        "copy the rows (mailmend cannot), move the clients over, then drop notes."
    )


def test_a_projection_of_another_key_is_rebuilt_from_the_truth() -> None:
    gap = Gap(EXPECTED, with_notes(OTHER_ORDER), rebuildable=frozenset({"notes"}))
    (found,) = changes(gap)
    assert found.manual == (
        "While nothing writes: drop notes, create it again with mailmend schema apply --complete, then fill it again "
        "from the source of truth with mailmend repair messages."
    )


@pytest.mark.parametrize(
    "found",
    [replace(NOTE, type="blob"), replace(NOTE, kind=Kind.STATIC), replace(NOTE, type="set<text>")],
    ids=["type", "static", "collection"],
)
def test_a_column_of_another_type_is_changed_by_hand(found: Column) -> None:
    live = with_notes(replace(NOTES, columns=(ID, NUMBER, found)))
    wanted = with_notes(replace(NOTES, columns=(*NOTES.columns, Column("more", "int"))))
    added, by_hand = ways(wanted, live)
    assert added.statement == AddColumns(Name("notes"), (Column("more", "int"),))
    assert by_hand.statement is None
    assert "notes.n" in by_hand.manual


@pytest.mark.parametrize(("was", "by_hand"), [("int", True), ("text", False)])
def test_a_column_that_was_dropped_comes_back_with_its_own_type_only(was: str, by_hand: bool) -> None:
    live = with_notes(replace(NOTES, columns=(ID, NUMBER), dropped=(Column("n", was),)))
    (found,) = ways(EXPECTED, live)
    assert (found.statement is None) is by_hand
    assert found.assessment.worst is (Risk.NONE if by_hand else Risk.DATA_LOSS)


def test_fields_are_added_behind_those_that_are_there() -> None:
    shorter, turned = UserType("size", SIZE.fields[:1]), UserType("size", SIZE.fields[::-1])
    assert statements(EXPECTED, with_notes(NOTES, (shorter,))) == [AddField(Name("size"), "lines", "int")]
    (by_hand,) = ways(EXPECTED, with_notes(NOTES, (turned,)))
    assert by_hand.statement is None
    assert by_hand.manual == (
        "The fields of size cannot be taken away, reordered, retyped, or added to while a key holds it: create a type "
        "of another name, add columns of it, copy the cells, then drop the old ones."
    )


def test_a_type_that_a_key_holds_is_changed_by_hand() -> None:
    keyed = replace(NOTES, columns=(Column("id", "frozen<list<frozen<size>>>", Kind.PARTITION), NUMBER, NOTE))
    live = Schema((UserType("size", SIZE.fields[:1]),), (keyed,))
    (found,) = ways(Schema((SIZE,), (keyed,)), live)
    assert found.statement is None


def test_a_type_that_a_column_keeps_is_not_dropped() -> None:
    live = with_notes(replace(NOTES, columns=(ID, NUMBER, replace(NOTE, type="frozen<size>"))))
    found = ways(replace(EXPECTED, types=()), live)
    assert [one.statement for one in found] == [None, None]
    assert "the table notes still uses it" in found[-1].manual


@pytest.mark.parametrize("generation", [JAMES_3_8, JAMES_3_9, NEWEST], ids=lambda one: one.name)
def test_a_keyspace_of_james_needs_no_statement_that_loses_anything(generation: Generation) -> None:
    schema = generation.schema
    live = without_tables(served(schema), BESIDE_TABLES[0].name, "modseq")
    found = ways(schema, live, frozenset())
    assert sorted(one.owner for one in found) == sorted(
        {"modseq", "attachmentV2"} & {table.spelling for table in schema.tables}
    )
    assert {one.assessment.worst for one in found} == {Risk.NONE}


def test_dropping_columns_that_james_left_behind_is_reported_as_data_loss() -> None:
    found = ways(NEWEST.schema, served(JAMES_3_9.schema))
    dropping = [one for one in found if isinstance(one.statement, DropColumns)]
    assert {one.owner for one in dropping} == {"imapUidTable", "messageIdTable", "messageV3"}
    assert {one.assessment.worst for one in dropping} == {Risk.DATA_LOSS}


def test_what_waits_for_a_change_by_hand_is_not_made_on_the_table_as_it_is() -> None:
    live = replace(
        with_notes(OTHER_ORDER), indexes=(replace(BY_NOTE, target="number"),), views=(replace(BY_NUMBER, where="x"),)
    )
    found = ways(EXPECTED, live)
    assert [one.statement for one in found] == [None, None, None]
    assert [one.manual for one in found[1:]] == [
        "by_note waits until notes is changed by hand; then plan again.",
        "by_number waits until notes is changed by hand; then plan again.",
    ]
    assert [one.owner for one in found] == ["notes", "notes", "by_number"]
    lacking = ways(EXPECTED, replace(live, indexes=(), views=()))
    assert [one.manual for one in lacking] == [one.manual for one in found]


def test_an_index_of_nobodys_goes_though_its_table_waits() -> None:
    live = replace(with_notes(OTHER_ORDER), indexes=(BY_NOTE, Index("by_more", "notes", "more")))
    statement, by_hand = ways(EXPECTED, live)
    assert statement.statement == DropIndex(Name("by_more"))
    assert by_hand.owner == "notes"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (replace(NOTE, type="blob"), "notes.n is or was blob (regular) and should be text (regular)"),
        (replace(NOTE, kind=Kind.STATIC), "notes.n is or was text (static) and should be text (regular)"),
        (replace(NOTE, type="set< int >"), "notes.n is or was set<int> (regular) and should be text (regular)"),
    ],
)
def test_a_change_by_hand_tells_both_sides(found: Column, expected: str) -> None:
    (by_hand,) = ways(EXPECTED, with_notes(replace(NOTES, columns=(ID, NUMBER, found))))
    assert by_hand.manual == (
        f"{expected}, which CQL cannot change: add a column of another name, copy the cells, move the clients over, "
        "then drop the old one."
    )
    assert by_hand.assessment.risks == (Risk.NONE,)


def test_a_key_column_of_another_type_takes_another_table() -> None:
    columns = (ID, replace(NUMBER, type="bigint"), NOTE)
    (by_hand,) = ways(EXPECTED, with_notes(replace(NOTES, columns=columns)))
    assert by_hand.manual.startswith("A table's key, order and counters cannot be changed")


def test_a_column_of_a_table_that_can_be_rebuilt_is_rebuilt() -> None:
    live = with_notes(replace(NOTES, columns=(ID, NUMBER, replace(NOTE, type="blob"))))
    (by_hand,) = changes(Gap(EXPECTED, live, rebuildable=frozenset({"notes"})))
    assert "mailmend repair messages" in by_hand.manual


QUOTED = Table('"Notes"', (ID, NUMBER, Column('"N"', "text")))
QUOTED_WHOLE = Schema(
    (UserType('"Size"', (("bytes", "bigint"),)),),
    (QUOTED,),
    (Index('"ByN"', '"Notes"', '"N"'), Index("By_Number", '"Notes"', "number")),
    (replace(BY_NUMBER, table=replace(BY_NUMBER.table, spelling='"By"', columns=BY_NUMBER.table.key), base='"Notes"'),),
)


def test_names_in_quotes_are_made_and_removed_under_their_own_case() -> None:
    empty = Schema((), ())
    there = ways(QUOTED_WHOLE, empty)
    assert all(one.statement for one in there)
    assert len(there) == 5
    assert ways(QUOTED_WHOLE, QUOTED_WHOLE) == ()
    back = statements(empty, QUOTED_WHOLE)
    assert [one.name.spelling for one in back if isinstance(one, Drop)] == [
        '"By"',
        '"ByN"',
        "By_Number",
        '"Notes"',
        '"Size"',
    ]


def test_what_is_lacking_is_reported_under_any_spelling() -> None:
    upper = replace(
        EXPECTED,
        tables=(replace(NOTES, spelling="Notes"),),
        indexes=(replace(BY_NOTE, spelling="By_Note", table="Notes"),),
        views=(replace(BY_NUMBER, table=replace(BY_NUMBER.table, spelling="By_Number"), base="Notes"),),
    )
    assert ways(upper, EXPECTED) == ()
    lacking = statements(upper, replace(EXPECTED, indexes=(), views=()))
    assert [type(one) for one in lacking] == [CreateIndex, CreateView]
    waiting = ways(upper, replace(with_notes(OTHER_ORDER), indexes=(), views=()))
    assert [one.statement for one in waiting] == [None, None, None]
    otherwise = replace(with_notes(OTHER_ORDER), views=(replace(BY_NUMBER, where="number > 5"),))
    assert [one.statement for one in ways(upper, otherwise)] == [None, None]


def test_a_type_in_a_key_that_is_as_it_should_be_needs_nobody() -> None:
    keyed = replace(NOTES, columns=(Column("id", "frozen<size>", Kind.PARTITION), NUMBER, NOTE))
    assert ways(Schema((SIZE,), (keyed,)), Schema((SIZE,), (keyed,))) == ()
