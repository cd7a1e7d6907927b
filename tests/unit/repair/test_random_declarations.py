"""Random declarations over random rows: what is found, mended and taken back, by an oracle of its own."""

from collections.abc import Mapping, Sequence
from typing import Final

from hypothesis import given

from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row
from tests.support.random_declarations import Case, Shop, cases, cells, damaged, demanded
from tests.support.random_groups import GroupedCase, GroupShop, grouped_cases

ROUNDS_MAX: Final = 3
"""Repairs until nothing is found: a group is left while the mirror lacks one of its rows."""


def expected(case: Case) -> dict[tuple[str, Key], Verdict]:
    """What is wrong by the oracle."""
    found = {}
    for follower, standing in damaged(case):
        wanted = demanded(case, follower)
        for key in wanted.keys() | standing.keys():
            verdict = _verdict(wanted.get(key, []), standing.get(key))
            if verdict is not None:
                found[follower.table.name, key] = verdict
    return found


def _verdict(claims: Sequence[Row], row: Row | None) -> Verdict | None:
    match claims, row:
        case [], _:
            return Verdict.WITHDRAW
        case [_, _, *_], _:
            return Verdict.CLASH
        case _, None:
            return Verdict.PROJECT
        case [claim], _ if claim != row:
            return Verdict.AMEND
        case _:
            return None


def mended(wanted: Mapping[Key, Sequence[Row]], standing: Mapping[Key, Row]) -> dict[Key, Row]:
    """The rows after a repair: what one truth row demands; a row that several claim stays as it is."""
    found = {}
    for key, claims in wanted.items():
        if len(claims) == 1:
            found[key] = claims[0]
        elif key in standing:
            found[key] = standing[key]
    return found


@given(cases())
def test_a_check_finds_what_the_oracle_finds(case: Case) -> None:
    assert Shop(case).check() == expected(case)


@given(cases())
def test_a_repair_makes_what_the_truth_demands_and_an_undo_takes_it_back(case: Case) -> None:
    shop = Shop(case)
    before = [shop.rows(follower.table) for follower in case.followers]

    run = shop.repaired()

    for follower, standing in damaged(case):
        assert shop.rows(follower.table) == mended(demanded(case, follower), standing)
    shop.undo(run)
    assert [shop.rows(follower.table) for follower in case.followers] == before
    assert shop.rows(case.truth) == {case.truth.key_of(row): cells(case.truth, row) for row in case.rows}


@given(grouped_cases())
def test_repairs_make_groups_of_what_their_members_demand(grouped_case: GroupedCase) -> None:
    shop = GroupShop(grouped_case)

    for _ in range(ROUNDS_MAX):
        before = shop.all_values()
        run = shop.repaired()
        if not shop.check():
            break

    assert shop.check() == {}
    assert shop.all_values() == shop.settled()
    shop.undo(run)
    assert shop.all_values() == before
