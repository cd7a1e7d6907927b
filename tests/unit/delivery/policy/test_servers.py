"""Lists of the members of a queue: whose share is what while they change, and which list is next."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailmend.delivery.policy.shares import (
    NO_SHARE,
    NOTHING_ADOPTED,
    LimitShare,
    Members,
    Membership,
    MembershipState,
    RememberedMembership,
    ServerName,
    first_members,
)

A, B, C, D = (ServerName(one) for one in "abcd")
NOW = datetime(2026, 11, 27, tzinfo=UTC)
MEMBERS = Members(5, {A: 1, B: 5}, before=(C, A, D))
"""B came, C and D went."""


def memberships(*, ended: tuple[ServerName, ...] = (), **adopted: int) -> dict[ServerName, Membership]:
    return {
        ServerName(name): Membership(
            name=ServerName(name),
            claim=UUID(int=1),
            owner="ann@here pid 7",
            adopted=epoch,
            state=MembershipState.ENDED if name in ended else MembershipState.SERVING,
            since=NOW,
            seen_at=NOW,
        )
        for name, epoch in adopted.items()
    }


def test_a_list_is_complete_once_all_of_the_one_before_have_adopted_it_or_are_no_more() -> None:
    assert MEMBERS.is_complete(memberships(a=5))
    assert MEMBERS.is_complete(memberships(a=6, b=NOTHING_ADOPTED, c=4, ended=(C,)))
    assert not MEMBERS.is_complete(memberships(a=4))
    assert not MEMBERS.is_complete(memberships(a=5, d=NOTHING_ADOPTED))
    assert not Members(1, {}, (A,)).is_complete(memberships(a=NOTHING_ADOPTED)), "whoever comes has adopted none"


@pytest.mark.parametrize(
    ("members", "name", "complete", "share"),
    [
        (MEMBERS, A, True, LimitShare(((0, 2),))),
        (MEMBERS, A, False, LimitShare(((0, 2), (1, 3)))),
        (MEMBERS, B, True, LimitShare(((1, 2),))),
        (MEMBERS, B, False, NO_SHARE),
        (MEMBERS, C, True, NO_SHARE),
        (MEMBERS, C, False, NO_SHARE),
        (Members(5, {A: 5}, (A, B)), A, False, NO_SHARE),
        (Members(5, {A: 4}, ()), A, False, NO_SHARE),
        (Members(1, {A: 1, B: 1}, ()), A, False, LimitShare(((0, 2),))),
    ],
    ids=["stays", "least", "new", "waits", "gone", "goes", "again", "odd", "first"],
)
def test_a_share_is_the_least_of_both_lists_until_all_go_by_the_new_one(
    members: Members, name: ServerName, *, complete: bool, share: LimitShare
) -> None:
    assert members.share(name, complete=complete) == share


def test_the_place_is_that_in_the_list_itself() -> None:
    assert (MEMBERS.place(A), MEMBERS.place(B), MEMBERS.place(C)) == (
        LimitShare(((0, 2),)),
        LimitShare(((1, 2),)),
        NO_SHARE,
    )


def test_the_first_list_is_of_all_in_order_of_their_names() -> None:
    assert first_members([B, A]) == Members(1, {A: 1, B: 1})


def test_who_came_follows_those_who_stay_in_the_next_list() -> None:
    found = MEMBERS.next(memberships(a=5, b=5, d=5, c=5))
    assert found == Members(6, {A: 1, B: 5, C: 6, D: 6}, (A, B))
    assert found.before == (A, B)
    assert list(found.since) == [A, B, C, D]


def test_there_is_no_next_list_before_all_go_by_this_one_or_while_nobody_comes_or_goes() -> None:
    assert MEMBERS.next(memberships(a=4, b=5, d=5)) is None
    assert MEMBERS.next(memberships(a=5, b=5)) is None
    assert MEMBERS.next(memberships(a=5, b=5), absent=(A, C)) is None
    assert MEMBERS.next(memberships(a=5, b=5, c=1, ended=(C,))) is None, "who has ended does not come"


def test_who_is_missed_goes_once_it_has_been_for_long_enough() -> None:
    assert MEMBERS.next(memberships(a=5)) is None
    gone = MEMBERS.next(memberships(a=5), absent=(B,))
    assert (gone, gone and gone.before) == (Members(6, {A: 1}, (A, B)), (A, B))
    assert MEMBERS.next(memberships(a=5, d=5), absent=(B,)) == Members(6, {A: 1, D: 6}, (A, B))


@pytest.mark.parametrize(
    ("since", "epoch", "now", "goes_on"),
    [(3, 3, 3, True), (3, 5, 6, True), (3, 5, 7, False), (4, 3, 4, False), (3, 5, 4, False)],
)
def test_a_life_goes_on_where_its_share_was_nobody_elses_since(
    since: int, epoch: int, now: int, *, goes_on: bool
) -> None:
    one = RememberedMembership(claim=UUID(int=1), span=UUID(int=2), epoch=epoch, changes=(), number=0, stamp=0, seen=0)
    assert one.goes_on(Members(now, {A: since}), A) is goes_on
    assert not one.goes_on(Members(now, {B: since}), A)
