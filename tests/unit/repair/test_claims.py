"""Truth rows that claim one row together, and truth rows that cannot say what their row is: a law over random rows."""

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.projections.claims import Claims, last_to_end
from mailmend.model.projections.family import Counts, Family
from mailmend.model.projections.findings import RepairPolicy, Suspect
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Table, columns, computed_column
from mailmend.model.transforms import LowerCase, PrefixCell
from mailmend.repair.mending.counter_reads import Tallies
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.scanners.local import LocalEngine
from tests.support.progress import SilentProgress
from tests.unit.repair.test_declared_pairs import Shop

LETTERS: Final = Table("letters", columns("letter int", "box int, uid int", "size int"))
SIZES: Final = Table("sizes", columns("box int", "letter int", "size int"))
BY_SIZE: Final = Table("by_size", columns("box int", "size int, letter int"))
KEY: Final = (("box", "box"), ("letter", "letter"))

SHARED: Final = Mirror(LETTERS, SIZES, KEY, compared=SIZES.regular, needs=("size",))
"""Several uids of a letter in a box have one row, with the letter's size."""
OF_KNOWN_SIZE: Final = Mirror(
    LETTERS, BY_SIZE, (("box", "box"), ("size", "size"), ("letter", "letter")), compared=(), needs=("size",)
)
"""The same, and what may be null is in the key."""

Sizes = Mapping[Key, int | None]
PLACE: Final = st.tuples(st.integers(1, 2), st.integers(1, 2))
SIZE: Final = st.none() | st.integers(1, 2)
TRUTHS: Final = st.dictionaries(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)), SIZE)
ROWS: Final = st.dictionaries(PLACE, st.integers(1, 2))


def shop_of(mirror: Mirror, truths: Sizes) -> Shop:
    shop = Shop(Family(mirror))
    for (letter, box, uid), size in truths.items():
        shop.put(LETTERS, {"letter": letter, "box": box, "uid": uid, "size": size})
    return shop


def shared_shop(truths: Sizes, rows: Sizes) -> Shop:
    shop = shop_of(SHARED, truths)
    for (box, letter), size in rows.items():
        shop.put(SIZES, {"box": box, "letter": letter, "size": size})
    return shop


def said(truths: Sizes) -> dict[Key, set[int]]:
    """The sizes that the letters of each place say: none where each of them is null."""
    found: dict[Key, set[int]] = {}
    for (letter, box, _), size in truths.items():
        sizes = found.setdefault((box, letter), set())
        if size is not None:
            sizes.add(size)
    return found


def expected(truths: Sizes, rows: Sizes) -> dict[Key, Verdict]:
    """What is wrong, by an oracle of its own."""
    found = {}
    demanded = said(truths)
    for place in demanded.keys() | rows.keys():
        verdict = verdict_of(demanded.get(place), rows.get(place))
        if verdict is not None:
            found[place] = verdict
    return found


def verdict_of(sizes: set[int] | None, row: int | None) -> Verdict | None:
    if sizes is None:
        return Verdict.WITHDRAW
    if not sizes:
        return None
    if len(sizes) > 1:
        return Verdict.CLASH
    if row is None:
        return Verdict.PROJECT
    if row not in sizes:
        return Verdict.AMEND
    return None


def verdicts(shop: Shop) -> dict[Key, Verdict]:
    return {key: finding.verdict for key, finding in shop.check().items()}


def scanned(shop: Shop, places_max: int) -> dict[Key, Suspect]:
    """What a scan finds, before any second look."""
    world = shop.world
    engine = LocalEngine(world.mail, world.ledger, world.clock, places_max=places_max)
    detection = engine.detect(RepairSettings("shop", (shop.family,)), SilentProgress())
    suspects = {suspect.key: suspect for suspect in detection.suspects()}
    detection.close()
    return suspects


def sizes_in(shop: Shop) -> dict[Key, int]:
    found = {}
    for box in (1, 2):
        for letter in (1, 2):
            row = shop.world.get(SIZES, (box, letter))
            if row is not None:
                found[box, letter] = row.row["size"]
    return found


@given(TRUTHS, ROWS)
def test_a_check_compares_what_the_claims_of_a_row_say(truths: Sizes, rows: Sizes) -> None:
    assert verdicts(shared_shop(truths, rows)) == expected(truths, rows)


@pytest.mark.parametrize("places_max", [1, 100], ids=["in files", "in memory"])
@given(truths=TRUTHS, rows=ROWS)
def test_a_scan_alone_judges_claims_as_a_second_look_does(places_max: int, truths: Sizes, rows: Sizes) -> None:
    found = scanned(shared_shop(truths, rows), places_max)

    assert {key: suspect.verdict for key, suspect in found.items()} == expected(truths, rows)
    for (box, letter), suspect in found.items():
        known = {(number,) for number, place, _ in truths if (number, place) == (letter, box)}
        assert set(suspect.truth_keys) == known


@given(TRUTHS, ROWS)
def test_a_repair_writes_what_all_claims_say_and_an_undo_takes_it_back(truths: Sizes, rows: Sizes) -> None:
    shop = shared_shop(truths, rows)
    before = sizes_in(shop)

    run = shop.repair()

    demanded = said(truths)
    after = sizes_in(shop)
    for place in demanded.keys() | rows.keys():
        sizes = demanded.get(place, set())
        if place not in demanded:
            assert place not in after
        elif len(sizes) == 1:
            assert {after[place]} == sizes
        else:
            assert after.get(place) == before.get(place)
    shop.undo(run)
    assert sizes_in(shop) == before


@given(TRUTHS, st.sets(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2))))
def test_a_row_whose_key_its_truth_cannot_say_is_no_orphan(truths: Sizes, rows: set[tuple[int, int, int]]) -> None:
    # Given
    shop = shop_of(OF_KNOWN_SIZE, truths)
    for box, size, letter in rows:
        shop.put(BY_SIZE, {"box": box, "size": size, "letter": letter})
    silent = {(box, letter) for (letter, box, _), size in truths.items() if size is None}
    demanded = {(box, size, letter) for (letter, box, _), size in truths.items() if size is not None}

    # When
    found = verdicts(shop)

    # Then
    orphans = {(box, size, letter) for box, size, letter in rows - demanded if (box, letter) not in silent}
    lacking = dict.fromkeys(demanded - rows, Verdict.PROJECT)
    assert found == lacking | dict.fromkeys(orphans, Verdict.WITHDRAW)


def test_a_row_that_one_of_two_truths_still_demands_is_kept() -> None:
    shop = shared_shop({(1, 1, 1): 7, (1, 1, 2): 7}, {(1, 1): 7})
    shop.world.remove(LETTERS, (1, 1, 1), shop.world.clock.micros())

    assert verdicts(shop) == {}


def test_a_shared_row_lives_as_long_as_the_last_of_its_truths() -> None:
    shop = Shop(Family(SHARED))
    for uid, ends_in in ((1, 300_000), (2, 500_000)):
        shop.put(LETTERS, {"letter": 1, "box": 1, "uid": uid, "size": 7}, ends_in)

    shop.repair()

    ((_, _, lives),) = shop.rows(SIZES, (1, 1))
    assert lives == {"size": 500_000}


@pytest.mark.parametrize(
    ("lives", "last"),
    [
        ([{"a": 1, "b": 2}], {"a": 1, "b": 2}),
        ([{"a": 1, "b": 5}, {"a": 3, "b": 2}], {"a": 3, "b": 5}),
        ([{"a": 1}, {}], {}),
    ],
)
def test_a_cell_of_several_truths_ends_with_the_last_of_them(lives: list[dict[str, int]], last: dict[str, int]) -> None:
    assert last_to_end(lives) == last


def test_rows_that_hold_the_truths_whole_key_are_never_shared() -> None:
    whole = Table("whole", columns("box int", "letter int, uid int", "size int"))
    key = (*KEY, ("uid", "uid"))
    beside = Table("beside", columns("box int", "letter int", "uid int, size int"))

    assert not Mirror(LETTERS, whole, key, compared=whole.regular).claims.are_compared
    assert not Mirror(LETTERS, beside, KEY, compared=beside.regular).claims.may_share
    assert Mirror(LETTERS, SIZES, KEY, compared=SIZES.regular).claims.may_share
    assert Claims(("box",), ("size",), may_share=False, follow=(False,)).are_compared


def test_a_count_next_to_a_shared_row_counts_each_of_its_truths() -> None:
    """Two rows of the truth and one of the mirror agree, so the counter may be mended."""
    numbers = Table("numbers", columns("box int", regular="letters counter"))
    counted = Counts(LETTERS, numbers, (("box", "box"),), (("letters", None),))
    family = Family(SHARED, counts=(counted,))
    shop = Shop(family)
    for uid in (1, 2):
        shop.put(LETTERS, {"letter": 1, "box": 1, "uid": uid, "size": 7})
    shop.put(SIZES, {"box": 1, "letter": 1, "size": 7})

    tally = Tallies(shop.world.mail, family, counted, RepairPolicy()).look((1,))

    assert (tally.settled, tally.sure) == (True, {"letters": 2})


@pytest.mark.parametrize(("letter", "settled"), [(1, True), (2, False)], ids=["its letter", "another letter"])
def test_a_count_next_to_a_key_that_its_truth_cannot_say_may_be_mended(letter: int, settled: bool) -> None:
    numbers = Table("numbers", columns("box int", regular="letters counter"))
    counted = Counts(LETTERS, numbers, (("box", "box"),), (("letters", None),))
    shop = Shop(Family(OF_KNOWN_SIZE, counts=(counted,)))
    shop.put(LETTERS, {"letter": 1, "box": 1, "uid": 1, "size": None})
    shop.put(BY_SIZE, {"box": 1, "size": 7, "letter": letter})

    tally = Tallies(shop.world.mail, shop.family, counted, RepairPolicy()).look((1,))

    assert tally.settled is settled


def test_only_a_part_that_follows_from_a_needed_column_may_be_any() -> None:
    """A truth row without a box demands no row, whatever its size."""
    claims = OF_KNOWN_SIZE.claims

    assert claims.follow == (False, True, False)
    assert claims.may_claim((1, None, 1), (1, 7, 1))
    assert not claims.may_claim((None, None, 1), (1, 7, 1))
    assert not claims.may_claim((1, None, 2), (1, 7, 1))


def test_a_part_of_a_key_follows_from_what_it_is_computed_from() -> None:
    """Also over two transforms; a part of other columns does not."""
    lower = computed_column(LowerCase(source="name", type="text"))
    first = computed_column(PrefixCell(source=lower.name, type="text", prefixes=("a", "b")))
    people = Table("people", (*columns("number int", regular="name text, town text"), lower, first))

    claims = Claims.of(people, (first.name, lower.name, "name", "town", "number"), set(), ("name",))

    assert claims.follow == (True, True, True, False, False)
