"""Places: projections whose rows are looked for under the same columns of a truth are scanned together."""

import pytest

from mailmend.model.catalog.mail import MESSAGES, PATHS
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.places import may_be_undemanded, places_of
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Column, Kind, Table

NOTES = Table("notes", (Column("id", "int", Kind.PARTITION), Column("owner", "text"), Column("done", "boolean")))
BY_OWNER = (("owner", "owner"), ("id", "id"))
DONE = Condition("done", value=True)


def table(name: str, **kinds: Kind) -> Table:
    """A table of a key alone."""
    return Table(name, tuple(Column(column, NOTES.column(column).type, kind) for column, kind in kinds.items()))


OF_OWNER = table("of_owner", owner=Kind.PARTITION, id=Kind.CLUSTERING)
DONE_OF_OWNER = table("done_of_owner", owner=Kind.PARTITION, id=Kind.CLUSTERING)
OF_BOTH = table("of_both", owner=Kind.PARTITION, id=Kind.PARTITION)
OF_ID = table("of_id", id=Kind.PARTITION)

MIRROR = Mirror(truth=NOTES, table=OF_OWNER, key=BY_OWNER, compared=())
DONE_ONES = Filter(NOTES, DONE_OF_OWNER, BY_OWNER, DONE)
BOTH = Filter(NOTES, OF_BOTH, BY_OWNER, DONE)
BY_ID = Filter(NOTES, OF_ID, (("id", "id"),), DONE)


def test_the_mirror_of_messages_and_their_filters_have_one_place() -> None:
    assert places_of(MESSAGES) == ((MESSAGES.mirror, *MESSAGES.filters),)
    assert places_of(PATHS) == ((PATHS.mirror,),)


def test_projections_share_a_place_under_the_same_columns_where_the_same_one_may_be_empty() -> None:
    """Of a partition key of one text alone an empty value has no row; of two there is one."""
    family = Family(mirror=MIRROR, filters=(BY_ID, BOTH, DONE_ONES))

    assert places_of(family) == ((MIRROR, DONE_ONES), (BY_ID,), (BOTH,))


@pytest.mark.parametrize(
    ("projection", "may_be"), [(BY_ID, False), (BOTH, True), (MIRROR, True), (MESSAGES.mirror, False)]
)
def test_a_truth_may_demand_no_row_where_the_key_has_more_than_its_own_or_may_be_empty(
    projection: Mirror | Filter, *, may_be: bool
) -> None:
    assert may_be_undemanded(projection) is may_be


def test_a_key_of_one_text_may_be_empty_even_where_it_is_the_truths_own() -> None:
    people = Table("people", (Column("name", "text", Kind.PARTITION), Column("done", "boolean")))
    projected = Table("done_people", (Column("name", "text", Kind.PARTITION),))

    assert may_be_undemanded(Filter(people, projected, (("name", "name"),), DONE))
