"""Joins of the local scan: every combination of what can be seen at one place gives the verdict of the one table."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import APPLICABLE_FLAG, FIRST_UNSEEN, MAILBOX_COUNTERS, MESSAGES
from mailmend.model.projections.family import Filter
from mailmend.model.projections.findings import Suspect, merged
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import FilterSymptoms, MirrorSymptoms, Verdict
from mailmend.model.table import Row
from mailmend.repair.joins import parts
from mailmend.repair.joins.parts import (
    GroupSums,
    Places,
    Tag,
    by_content,
    by_place,
    content_record,
    content_suspects,
    group_suspects,
    place_record,
    place_suspects,
)
from mailmend.repair.joins.records import Forms, Spill, Workshop, packing_key
from tests.support.clock import uuid_at
from tests.support.repairing import MAILBOX, message, mirror_row, truth_row

FORMS = Forms(MESSAGES, accept_torn=False)
UNSEEN = int(Tag.FILTER) + [one.table.name for one in MESSAGES.filters].index(FIRST_UNSEEN.name)


def truth_record(truth: Row, *, has_content: bool = True) -> tuple[Any, ...]:
    """A truth row as its place needs to know it."""
    found = FORMS.truth(truth)
    return place_record(found, has_content=has_content, at=found.places[0])


def at_one_place(  # noqa: PLR0917 - one for each thing that can be seen
    in_truth: bool, clash: bool, mirrored: bool, agree: bool, has_content: bool, whole: bool, unseen: bool, listed: bool
) -> Iterator[tuple[Any, ...]]:
    lost: dict[str, Any] = {} if whole else {"headercontent": None}
    truth = truth_row(1, flagseen=not unseen, **lost)
    if in_truth:
        yield truth_record(truth, has_content=has_content)
    if in_truth and clash:
        yield truth_record(truth_row(2, uid=1, flagseen=not unseen, **lost), has_content=has_content)
    place, mark = FORMS.mirror(mirror_row(truth))
    if mirrored:
        yield (place, int(Tag.BESIDE), mark if agree else b"another")
    if listed:
        yield (place, UNSEEN)


def in_memory(records: Iterable[tuple[Any, ...]]) -> list[Suspect]:
    """What is wrong by a join in memory, which takes the truth last."""
    with Workshop() as workshop:
        places = Places(FORMS, FORMS.places[0], Spill(workshop, "places"), 1)
        for record in sorted(records, key=lambda record: record[1] == Tag.TRUTH):
            places.add(record)
        return [suspect for suspects, _ in places.parts() for suspect in suspects]


@pytest.mark.parametrize(
    "seen", list(product((False, True), repeat=8)), ids=lambda bits: "".join("01"[bit] for bit in bits)
)
def test_every_combination_is_judged_by_the_one_table(seen: tuple[bool, ...]) -> None:
    in_truth, clash, mirrored, agree, has_content, whole, unseen, listed = seen
    found = {
        one.projection: one for one in place_suspects(FORMS, FORMS.places[0], by_place(at_one_place(*seen)).items())
    }
    assert {one.projection: one.verdict for one in in_memory(at_one_place(*seen))} == {
        name: one.verdict for name, one in found.items()
    }

    clash = clash and in_truth
    expected = {
        "messageIdTable": Mirror.verdicts[
            MirrorSymptoms(
                in_truth,
                clash,
                mirrored,
                agree and in_truth and mirrored,
                has_content or not in_truth,
                whole or not in_truth,
                True,
            )
        ],
        "firstUnseen": Filter.verdicts[
            FilterSymptoms(
                in_truth,
                clash,
                listed,
                unseen and in_truth,
                has_content or not in_truth,
                whole or not in_truth,
            )
        ],
    }
    assert {name: one.verdict for name, one in found.items()} == {
        name: verdict for name, verdict in expected.items() if verdict is not Verdict.AGREE
    }
    keys = {(message(number),) for number in range(1, 1 + in_truth + clash)}
    assert all((set(one.truth_keys), one.key) == (keys, (MAILBOX, 1)) for one in found.values())


def test_a_row_that_was_read_twice_is_no_clash() -> None:
    record = truth_record(truth_row(1))
    place, mark = FORMS.mirror(mirror_row(truth_row(1)))

    records = [(place, int(Tag.BESIDE), mark), (place, UNSEEN), record, record]

    assert in_memory(records) == []
    assert list(place_suspects(FORMS, FORMS.places[0], by_place(records).items())) == []


def test_places_beyond_the_limit_are_joined_from_files() -> None:
    """Given three places that lack their mirror's row, of which two may be held in memory."""
    with Workshop() as workshop:
        places = Places(FORMS, FORMS.places[0], Spill(workshop, "places"), 2)
        for number in (1, 2, 3):
            places.add(truth_record(truth_row(number, flagseen=True)))
        joined = [([suspect.key for suspect in suspects], number) for suspects, number in places.parts()]

    assert joined == [([(MAILBOX, 1), (MAILBOX, 2)], 2), ([(MAILBOX, 3)], 1)]


def test_a_truth_that_agreed_clashes_with_the_next_one() -> None:
    first, second = truth_row(1), truth_row(2, uid=1)
    place, mark = FORMS.mirror(mirror_row(first))

    found = in_memory([(place, int(Tag.BESIDE), mark), (place, UNSEEN), truth_record(first), truth_record(second)])

    assert [(one.projection, one.verdict, set(one.truth_keys)) for one in found] == [
        ("messageIdTable", Verdict.CLASH, {(message(1),), (message(2),)}),
    ]


@pytest.mark.parametrize(("limit", "full"), [(3, True), (4, False)])
def test_sums_are_full_above_their_limit(limit: int, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given two elements of a union, and rows of two kinds that counters count."""
    monkeypatch.setattr(parts, "SUMS_MAX", limit)
    sums = GroupSums(FORMS)
    for number, seen in ((1, True), (2, False), (3, False)):
        sums.count(FORMS.truth(truth_row(number, flagseen=seen, userflags=frozenset("ab"))), has_content=True)

    assert sums.full is full
    list(sums.take())
    assert not sums.full


def test_content_is_a_leak_exactly_where_no_truth_names_it() -> None:
    assert MESSAGES.content is not None
    content_key = packing_key(MESSAGES.content.table)
    contents = [(content_key({"messageid": message(number)}), int(Tag.BESIDE)) for number in (1, 2)]
    truths = [content_record(FORMS.truth(truth_row(number))) for number in (1, 3)]

    named, standing = by_content([*contents, *truths])

    found = content_suspects(MESSAGES.content, named.keys(), standing)
    assert [(one.verdict, one.key) for one in found] == [(Verdict.LEAK, (message(2),))]
    assert {truth.truth[0]: key in standing for key, (truth,) in named.items()} == {
        message(1).bytes: True,
        message(3).bytes: False,
    }


FLAGS = st.frozensets(st.sampled_from("abc"))
TRUTHS = st.lists(st.tuples(FLAGS, st.booleans(), st.booleans()), max_size=6)


def rows(flags: frozenset[str] | None, counters: tuple[int, int] | None) -> Iterator[tuple[Any, ...]]:
    """The mailbox's own rows, where there are any."""
    own = {APPLICABLE_FLAG.name: {"userflags": flags}, MAILBOX_COUNTERS.name: counters}
    for number, group in enumerate(FORMS.groups):
        row: Any = own[group.table.name]
        if row is None or row == {"userflags": None}:
            continue
        if isinstance(row, tuple):
            row = {"count": row[0], "unseen": row[1]}
        yield ((number, (MAILBOX.bytes,)), int(Tag.BESIDE), group.held(row))


@given(TRUTHS, st.none() | FLAGS, st.none() | st.tuples(st.integers(0, 6), st.integers(0, 6)), st.integers(1, 5))
def test_groups_are_judged_as_a_plain_sum_would(
    reported: list[tuple[frozenset[str], bool, bool]],
    flags: frozenset[str] | None,
    counters: tuple[int, int] | None,
    portion: int,
) -> None:
    sums, spilled = GroupSums(FORMS), list[tuple[Any, ...]]()
    for number, (keywords, seen, has_content) in enumerate(reported, start=1):
        sums.count(FORMS.truth(truth_row(number, userflags=keywords, flagseen=seen)), has_content=has_content)
        if number % portion == 0:
            spilled += sums.take()
    spilled += sums.take()

    found = {one.projection: one for one in group_suspects(FORMS, [*spilled, *rows(flags, counters)])}

    wanted = frozenset[str]().union(*(one for one, _, _ in reported)) - (flags or frozenset())
    assert (
        found[APPLICABLE_FLAG.spelling].wanted["userflags"] if APPLICABLE_FLAG.spelling in found else set()
    ) == wanted
    sure = (sum(has for _, _, has in reported), sum(has and not seen for _, seen, has in reported))
    most = (len(reported), sum(not seen for _, seen, _ in reported))
    fits = all(low <= have <= high for low, have, high in zip(sure, counters or (0, 0), most, strict=True))
    assert (MAILBOX_COUNTERS.spelling in found) is not fits


PLACES = st.lists(
    st.builds(
        Suspect,
        st.sampled_from(["applicableFlag", "messageIdTable"]),
        st.sampled_from([(MAILBOX,), (uuid_at(5, 5),)]),
        st.just(Verdict.AMEND),
        st.lists(st.sampled_from([message(1), message(2)]), unique=True).map(tuple),
        st.dictionaries(st.just("userflags"), FLAGS),
    ),
    max_size=8,
)


@given(PLACES)
def test_merging_suspects_loses_nothing_and_repeats_nothing(some: list[Suspect]) -> None:
    one_each = merged(some)

    places = [(one.projection, one.key) for one in one_each]
    assert len(places) == len(set(places)) == len({(one.projection, one.key) for one in some})
    for found in one_each:
        same = [one for one in some if (one.projection, one.key) == (found.projection, found.key)]
        assert set(found.truth_keys) == {one for each in same for one in each.truth_keys}
        elements = frozenset[str]().union(*(one.wanted.get("userflags", frozenset()) for one in same))
        assert found.wanted.get("userflags", frozenset()) == elements
    assert merged(one_each) == one_each
