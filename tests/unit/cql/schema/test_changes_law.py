"""The law of the way to the model: carried out as a value, it leaves no difference but what is for a person."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.changes import Gap, Include, SchemaChange, changes
from mailmend.cql.schema.difference import differences
from mailmend.model.keyspace import EMPTY, Index, Schema, View
from mailmend.model.names import name_of
from mailmend.model.table import Column, Compaction, Kind, Table, UserType

TYPES = ("text", "int", "set<text>", "frozen<size>", "frozen<list<frozen<place>>>")
FIELDS = (("bytes", "bigint"), ("lines", "int"), ("name", "text"))
STRATEGIES = ("LeveledCompactionStrategy", "SizeTieredCompactionStrategy")
EVERYTHING = frozenset(Include)


@st.composite
def user_types(draw: st.DrawFn) -> tuple[UserType, ...]:
    sizes = draw(st.permutations(FIELDS))[: draw(st.integers(1, 3))]
    places = draw(st.permutations(FIELDS))[: draw(st.integers(1, 3))]
    nested = (("size", "frozen<size>"),) if draw(st.booleans()) else ()
    return UserType("size", tuple(sizes)), UserType("place", (*places, *nested))


@st.composite
def tables(draw: st.DrawFn, name: str) -> Table:
    key = [Column("id", "uuid", Kind.PARTITION)]
    if draw(st.booleans()):
        key.append(
            Column("at", draw(st.sampled_from(("int", "bigint"))), Kind.CLUSTERING, descending=draw(st.booleans()))
        )
    kinds = (Kind.REGULAR, Kind.STATIC) if len(key) > 1 else (Kind.REGULAR,)
    columns = [
        Column(one, draw(st.sampled_from(TYPES)), draw(st.sampled_from(kinds)))
        for one in draw(st.lists(st.sampled_from(("a", "b", '"C"')), unique=True))
    ]
    return Table(
        name,
        (*key, *columns),
        compaction=Compaction(draw(st.sampled_from(STRATEGIES))),
        options={"gc_grace_seconds": draw(st.sampled_from(("10", "864000")))},
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    held = tuple(draw(tables(name)) for name in draw(st.lists(st.sampled_from(("notes", "tags")), unique=True)))
    return Schema(draw(user_types()), held, tuple(_indexes(draw, held)), tuple(_views(draw, held)))


def _indexes(draw: st.DrawFn, held: Sequence[Table]) -> list[Index]:
    """An index of one name, on whichever column can have one."""
    places = [(table, column) for table in held for column in table.columns if column.type in ("text", "int")]
    places = [(table, column) for table, column in places if column.kind is Kind.REGULAR]
    if not places or not draw(st.booleans()):
        return []
    table, column = draw(st.sampled_from(places))
    return [Index("found", table.spelling, column.spelling)]


def _views(draw: st.DrawFn, held: Sequence[Table]) -> list[View]:
    """A view of one name, by the clustering column first."""
    bases = [table for table in held if table.clustering and not any(one.kind is Kind.STATIC for one in table.columns)]
    if not bases or not draw(st.booleans()):
        return []
    base = draw(st.sampled_from(bases))
    at, key = (
        replace(base.clustering[0], kind=Kind.PARTITION, descending=False),
        Column("id", "uuid", Kind.CLUSTERING),
    )
    table = Table("seen", (at, key), options={"gc_grace_seconds": draw(st.sampled_from(("10", "864000")))})
    return [View(table, base.spelling, "at IS NOT NULL AND id IS NOT NULL")]


def carried_out(live: Schema, found: Sequence[SchemaChange]) -> Schema:
    for one in found:
        if one.statement is not None:
            live = one.statement.apply(live)
    return live


@given(schemas(), schemas())
def test_the_way_leads_to_the_model_but_for_what_is_done_by_hand(expected: Schema, live: Schema) -> None:
    # When all of it is carried out
    found = changes(Gap(expected, live, EVERYTHING))
    after = carried_out(live, found)

    # Then what is left is about what a person was told to change
    by_hand = {name_of(one.owner) for one in found if one.manual}
    assert {name_of(one.owner) for one in differences(expected, after)} <= by_hand
    assert all(one.manual for one in changes(Gap(expected, after, EVERYTHING)))


@given(schemas())
def test_from_nothing_to_everything_and_back_no_hand_is_needed(schema: Schema) -> None:
    there = changes(Gap(schema, EMPTY, EVERYTHING))
    assert not any(one.manual for one in there)
    made = carried_out(EMPTY, there)
    assert differences(schema, made) == ()

    back = changes(Gap(EMPTY, made, EVERYTHING))
    assert not any(one.manual for one in back)
    assert carried_out(made, back) == EMPTY


@given(schemas(), schemas(), st.sets(st.sampled_from(Include)))
def test_nothing_is_removed_and_no_option_set_unless_asked_for(
    expected: Schema, live: Schema, include: set[Include]
) -> None:
    after = carried_out(live, changes(Gap(expected, live, frozenset(include))))
    if Include.REMOVALS not in include:
        for table in live.tables:
            kept = after.table(table.spelling)
            assert kept is not None
            assert set(table.names) <= set(kept.names)
        assert {one.name for one in live.types} <= {one.name for one in after.types}
    if Include.OPTIONS not in include:
        for table in live.tables:
            kept = after.table(table.spelling)
            assert kept is None or (kept.options, kept.compaction) == (table.options, table.compaction)
