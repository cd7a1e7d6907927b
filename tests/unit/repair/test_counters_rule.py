"""The rule of counters: the least delta that the truth allows, and none unless two looks are the same."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.counter_reads import Tally
from mailmend.repair.mending.counters import mending, truths_beside
from tests.support.clock import START, uuid_at
from tests.support.counting import COUNTS, SUSPECT
from tests.support.repairing import MAILBOX, mirror_suspect, truth_row

numbers = st.integers(0, 20)


def tally(counters: tuple[int, int], sure: tuple[int, int], room: tuple[int, int], digest: bytes = b"") -> Tally:
    names = ("count", "unseen")
    row = Seen(dict(zip(names, counters, strict=True)))
    return Tally(
        row, dict(zip(names, sure, strict=True)), dict(zip(names, room, strict=True)), settled=True, digest=digest
    )


@given(st.tuples(numbers, numbers), st.tuples(numbers, numbers), st.tuples(numbers, numbers))
def test_a_delta_ends_where_the_truth_allows_and_is_the_least(
    counters: tuple[int, int], sure: tuple[int, int], room: tuple[int, int]
) -> None:
    look = tally(counters, sure, room)
    for name, value in look.counters.items():
        least, most = look.sure[name], look.sure[name] + look.uncertain[name]
        delta = look.deltas.get(name, 0)
        assert least <= value + delta <= most
        assert abs(delta) == max(0, least - value, value - most)


@given(st.tuples(numbers, numbers), st.binary(max_size=1), st.binary(max_size=1))
def test_nothing_is_added_unless_two_looks_are_the_same(counters: tuple[int, int], one: bytes, other: bytes) -> None:
    """The rule of docs/design.md, "Counters", as a law."""
    first, second = tally((1, 1), (5, 5), (0, 0), one), tally(counters, (5, 5), (0, 0), other)
    ruling = mending(SUSPECT, first, second)
    assert bool(ruling.deltas) == (one == other and counters == (1, 1))


def test_a_delta_waits_for_the_rows_of_its_group() -> None:
    look = tally((1, 1), (5, 5), (0, 0))
    assert [mending(SUSPECT, look, replace(look, settled=one)).waits for one in (True, False)] == [False, True]


def test_truths_beside_are_those_of_suspect_mailboxes_alone() -> None:
    ours, theirs = truth_row(1), truth_row(2, mailboxid=uuid_at(START, 99))
    suspects: Iterable[Suspect] = [mirror_suspect(ours, Verdict.TORN), mirror_suspect(theirs, Verdict.TORN), SUSPECT]
    assert truths_beside(MESSAGES, COUNTS, [(MAILBOX,)], suspects) == {(MAILBOX,): ((ours["messageid"],),)}
    planned = replace(SUSPECT, truth_keys=((ours["messageid"],),))
    assert truths_beside(MESSAGES, COUNTS, [(MAILBOX,)], [planned]) == {(MAILBOX,): ((ours["messageid"],),)}
