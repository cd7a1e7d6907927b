"""A row for each element of a collection: declared, found, mended, taken back and written."""

from typing import Any
from uuid import UUID

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Remove
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.partial_mirror import ExplodedMirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, UserType, columns
from mailmend.model.values import FrozenMap
from mailmend.repair.declared import DoesNotFit, declared_families
from mailmend.repair.declared_conditions import Misfit
from mailmend.repair.store.plans import suspects_of
from tests.unit.repair.test_declared_pairs import Shop

VIDEOS = Table(
    "videos",
    columns(
        "id uuid",
        regular="name text, tags set<text>, votes map<text,int>, parts frozen<list<frozen<part>>>, "
        "places frozen<list<text>>, size int",
    ),
)
BY_TAG = Table("by_tag", columns("tag text", "id uuid", "name text"))
BY_VOTER = Table("by_voter", columns("voter text", "id uuid", "vote int"))
BY_BLOB = Table("by_blob", columns("blob text", "id uuid", "kind text"))
BY_NAME = Table("by_name", columns("name text", "id uuid"))
KEYS = Table("keys", columns("id uuid"))
PART = UserType("part", (("blob", "text"), ("kind", "text")))
LIVE = Schema((PART,), (VIDEOS, BY_TAG, BY_VOTER, BY_BLOB, BY_NAME, KEYS))
TAGS = '[truth.videos.explode.by_tag]\ncolumn = "tags"\nelement = "tag"\n'
VOTES = '[truth.videos.explode.by_voter]\ncolumn = "votes"\nelement = "voter"\nvalue = "vote"\n'
PARTS = (
    '[truth.videos.explode.by_blob]\ncolumn = "parts"\n'
    'computed = { blob = { field_of = "parts", field = "blob" }, '
    'kind = { field_of = "parts", field = "kind", default = "none" } }\n'
)
ONE = UUID(int=1)
TWO = UUID(int=2)


def families(text: str) -> tuple[Family, ...]:
    return declared_families("films", read_declaration(text, "films.toml"), LIVE)


def family_of(text: str) -> Family:
    (family,) = families(text)
    return family


def video(number: int, **cells: Any) -> Row:
    nothing: Row = {"tags": frozenset(), "votes": {}}
    return {**dict.fromkeys(VIDEOS.names), **nothing, "id": UUID(int=number), "name": "n", **cells}


def verdicts(shop: Shop) -> dict[Key, Verdict]:
    return {key: finding.verdict for key, finding in shop.check().items()}


class TestFinding:
    """A check compares each element with its row."""

    def test_each_element_demands_a_row(self) -> None:
        shop = Shop(family_of(TAGS))
        shop.put(VIDEOS, video(1, tags=frozenset({"a", "b", "c"})))
        shop.put(VIDEOS, video(2))
        shop.put(BY_TAG, {"tag": "a", "id": ONE, "name": "n"})
        shop.put(BY_TAG, {"tag": "b", "id": ONE, "name": "old"})
        shop.put(BY_TAG, {"tag": "b", "id": TWO, "name": "n"})

        assert verdicts(shop) == {
            ("b", ONE): Verdict.AMEND,
            ("c", ONE): Verdict.PROJECT,
            ("b", TWO): Verdict.WITHDRAW,
        }

    def test_a_map_gives_keys_and_values(self) -> None:
        shop = Shop(family_of(VOTES))
        shop.put(VIDEOS, video(1, votes={"ann": 3, "bob": 4}))
        shop.put(BY_VOTER, {"voter": "ann", "id": ONE, "vote": 3})
        shop.put(BY_VOTER, {"voter": "bob", "id": ONE, "vote": 3})

        assert verdicts(shop) == {("bob", ONE): Verdict.AMEND}

    def test_fields_of_elements_are_columns(self) -> None:
        shop = Shop(family_of(PARTS))
        part = FrozenMap([("blob", "b1"), ("kind", "image")])
        other = FrozenMap([("blob", "b2"), ("kind", None)])
        shop.put(VIDEOS, video(1, parts=(part, other, part)))
        shop.put(BY_BLOB, {"blob": "b1", "id": ONE, "kind": "image"})

        assert verdicts(shop) == {("b2", ONE): Verdict.PROJECT}

    @pytest.mark.parametrize("kind", ["image", "video", None])
    def test_elements_that_give_one_row_different_cells_are_a_clash(self, kind: str | None) -> None:
        """Whichever of them the row has: the scan alone has to see it."""
        shop = Shop(family_of(PARTS))
        image = FrozenMap([("blob", "b1"), ("kind", "image")])
        film = FrozenMap([("blob", "b1"), ("kind", "video")])
        shop.put(VIDEOS, video(1, parts=(image, film)))
        if kind is not None:
            shop.put(BY_BLOB, {"blob": "b1", "id": ONE, "kind": kind})

        assert verdicts(shop) == {("b1", ONE): Verdict.CLASH}

    def test_elements_that_give_the_same_row_give_it_once(self) -> None:
        lower = TAGS.replace('element = "tag"', 'computed = { tag = { lower = "tags" } }')
        shop = Shop(family_of(lower))
        shop.put(VIDEOS, video(1, tags=frozenset({"A", "a"})))
        shop.put(BY_TAG, {"tag": "a", "id": ONE, "name": "n"})

        assert verdicts(shop) == {}

    def test_a_row_that_several_elements_give_is_no_clash(self) -> None:
        shop = Shop(family_of(TAGS.replace('element = "tag"', 'computed = { tag = { lower = "tags" } }')))
        shop.put(VIDEOS, video(1, tags=frozenset({"A", "a"})))

        assert verdicts(shop) == {("a", ONE): Verdict.PROJECT}

    def test_two_collections_have_rows_of_their_own(self) -> None:
        of_tags, of_votes = families(TAGS + VOTES)
        row = video(1, tags=frozenset("a"), votes={"ann": 3})

        assert [of_tags.mirror.row_of(part) for part in of_tags.mirror.unnested(row)] == [
            {"tag": "a", "id": ONE, "name": "n"}
        ]
        assert [of_votes.mirror.row_of(part) for part in of_votes.mirror.unnested(row)] == [
            {"voter": "ann", "id": ONE, "vote": 3}
        ]
        assert len(next(of_tags.mirror.unnested(row))) == len(row) + 1

    def test_an_empty_element_has_no_row_where_it_would_be_the_partition(self) -> None:
        shop = Shop(family_of(TAGS))
        shop.put(VIDEOS, video(1, tags=frozenset({""})))

        assert verdicts(shop) == {}

    def test_a_mirror_beside_has_its_own_findings(self) -> None:
        mirror, exploded = families("[truth.videos.mirror.by_name]\n" + TAGS)

        assert not isinstance(mirror.mirror, ExplodedMirror)
        assert isinstance(exploded.mirror, ExplodedMirror)
        assert "tags" not in mirror.truth_columns
        assert "tags" in exploded.truth_columns


class TestConditions:
    """A copy has the rows of a condition only."""

    def test_a_mirror_has_the_rows_of_its_condition(self) -> None:
        shop = Shop(family_of("[truth.videos.mirror.by_name]\nwhen = { size = 1 }\n"))
        shop.put(VIDEOS, video(1, size=1))
        shop.put(VIDEOS, video(2, size=2))
        shop.put(BY_NAME, {"name": "n", "id": TWO})

        assert verdicts(shop) == {("n", ONE): Verdict.PROJECT, ("n", TWO): Verdict.WITHDRAW}

    def test_elements_of_other_rows_have_no_rows(self) -> None:
        shop = Shop(family_of(TAGS + "when = { size = 1 }\n"))
        shop.put(VIDEOS, video(1, size=1, tags=frozenset("a")))
        shop.put(VIDEOS, video(2, size=2, tags=frozenset("a")))
        shop.put(BY_TAG, {"tag": "a", "id": TWO, "name": "n"})

        assert verdicts(shop) == {("a", ONE): Verdict.PROJECT, ("a", TWO): Verdict.WITHDRAW}

    def test_a_change_of_the_condition_brings_and_removes_the_row(self) -> None:
        mirror = family_of("[truth.videos.mirror.by_name]\nwhen = { size = 1 }\n").mirror

        assert mirror.writes_for(video(1, size=2), video(1, size=1), 7) == (
            Put(BY_NAME, {"name": "n", "id": ONE}, at=7),
        )
        assert mirror.writes_for(video(1, size=1), video(1, size=2), 7) == (Remove(BY_NAME, ("n", ONE), at=7),)

    def test_a_filter_next_to_a_mirror_of_some_rows_goes_by_the_truth(self) -> None:
        text = "[truth.videos.mirror.by_name]\nwhen = { size = 1 }\n[truth.videos.filter.keys]\nwhen = {}\n"
        of_truth, some = families(text)

        assert [projection.name for projection in of_truth.projections] == ["keys"]
        assert [projection.name for projection in some.projections] == ["by_name"]


class TestMending:
    """Fixes and their undo, element by element."""

    def damaged(self) -> Shop:
        shop = Shop(family_of(TAGS))
        shop.put(VIDEOS, video(1, tags=frozenset({"a", "b"})), ends_in=500_000)
        shop.put(BY_TAG, {"tag": "b", "id": ONE, "name": "old"})
        shop.put(BY_TAG, {"tag": "c", "id": ONE, "name": "n"}, ends_in=300_000)
        return shop

    def test_a_repair_mends_each_element(self) -> None:
        shop = self.damaged()

        shop.repair()

        assert verdicts(shop) == {}
        (row, _, ttls), (other, _, _), gone = shop.rows(BY_TAG, ("a", ONE), ("b", ONE), ("c", ONE))
        assert row == {"tag": "a", "id": ONE, "name": "n"}
        assert ttls["name"] == pytest.approx(500_000, abs=60)
        assert other["name"] == "n"
        assert gone is None

    def test_an_undo_takes_back_each_element(self) -> None:
        shop = self.damaged()
        places: tuple[Key, ...] = (("a", ONE), ("b", ONE), ("c", ONE))
        before = [row and row[0] for row in shop.rows(BY_TAG, *places)]
        run = shop.repair()

        shop.undo(run)

        assert [row and row[0] for row in shop.rows(BY_TAG, *places)] == before


class TestWriting:
    """A change of a truth row reaches the rows of its elements."""

    def test_a_change_writes_what_comes_and_removes_what_goes(self) -> None:
        mirror = family_of(TAGS).mirror

        writes = mirror.writes_for(video(1, tags=frozenset("ab")), video(1, tags=frozenset("bc")), 7)

        assert Remove(BY_TAG, ("a", ONE), at=7) in writes
        assert Put(BY_TAG, {"tag": "c", "id": ONE, "name": "n"}, at=7) in writes

    def test_what_has_no_certain_result_is_suspect_by_element(self) -> None:
        family = family_of(TAGS)

        found = suspects_of(family, video(1, tags=frozenset("ab")))

        assert {suspect.key for suspect in found} == {("a", ONE), ("b", ONE)}
        assert {suspect.truth_keys for suspect in found} == {((ONE,),)}


def refused(text: str) -> Misfit:
    with pytest.raises(DoesNotFit) as caught:
        families(text)
    return caught.value.misfits[0]


@pytest.mark.parametrize(
    ("text", "problem", "mend"),
    [
        (TAGS.replace('"tags"', '"tag"'), "videos has no column tag", "Did you mean 'tags'?"),
        (TAGS.replace('"tags"', '"size"'), "videos.size is of type int", "set, list, map"),
        (TAGS.replace('"tags"', '"votes"') + 'value = "vote"\n', "by_tag has no column vote", ""),
        (TAGS + 'value = "name"\n', "the elements of tags have no value", "leave it out"),
        (VOTES.replace('value = "vote"', 'value = "voter2"'), "by_voter has no column voter2", ""),
        (TAGS.replace('"tag"', '"id"'), "by_tag.id is of type uuid", "a column of type text"),
        (TAGS.replace('"tag"', '"name"'), "no key column of by_tag holds an element", "tag, id"),
        (PARTS.replace('"parts"', '"tags"'), "which is no frozen user type", "Types: part."),
    ],
)
def test_what_does_not_fit_is_named_with_a_mend(text: str, problem: str, mend: str) -> None:
    misfit = refused(text)

    assert problem in misfit.problem
    assert mend in misfit.mend
