"""The choice among compactions: the stated rule, its tolerances, and what it says of itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.advice import MEASURES, ReadCost, TrialResult, choose
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.sizes import MIB

TWCS, UNIFIED, LEVELED = CompactionChoice
ALL = frozenset(CompactionChoice)


def result(choice: CompactionChoice, sstables: float = 1.0, p99: float = 2.0, mib: float = 10.0) -> TrialResult:
    """A trial's result whose two kinds of read cost the same."""
    cost = ReadCost(100, sstables, round(sstables), p99 / 4, p99 / 2)
    return TrialResult(choice, cost, cost, int(mib * 1_048_576), 0)


@st.composite
def trials(draw: st.DrawFn) -> list[TrialResult]:
    order = draw(st.permutations(list(CompactionChoice)))
    figure = st.floats(min_value=0.1, max_value=100)
    return [result(one, draw(figure), draw(figure), draw(figure)) for one in order]


PRESENT = st.none() | st.sampled_from(list(CompactionChoice))
SERVED = st.frozensets(st.sampled_from(list(CompactionChoice)), min_size=1)


class TestLaws:
    """What holds whatever was measured."""

    @given(trials(), PRESENT, SERVED)
    def test_only_what_the_server_knows_is_chosen(
        self, results: list[TrialResult], present: CompactionChoice | None, served: frozenset[CompactionChoice]
    ) -> None:
        assert choose(results, present, served).choice in served

    @given(trials(), PRESENT)
    def test_the_choice_reads_as_few_sstables_as_the_best(
        self, results: list[TrialResult], present: CompactionChoice | None
    ) -> None:
        chosen = choose(results, present, ALL).choice
        first = MEASURES[0]
        best = min(first.of(one) for one in results)

        assert next(first.of(one) for one in results if one.choice is chosen) <= first.bound(best)

    @given(trials(), PRESENT)
    def test_the_order_of_the_results_does_not_count(
        self, results: list[TrialResult], present: CompactionChoice | None
    ) -> None:
        assert choose(results, present, ALL).choice is choose(results[::-1], present, ALL).choice

    @given(trials(), PRESENT, SERVED)
    def test_advice_that_was_followed_is_not_taken_back(
        self, results: list[TrialResult], present: CompactionChoice | None, served: frozenset[CompactionChoice]
    ) -> None:
        advised = choose(results, present, served).choice
        again = choose(results, advised, served)

        assert again.choice is advised
        assert not again.change

    @given(trials(), PRESENT)
    def test_too_small_is_said_exactly_where_nothing_decides(
        self, results: list[TrialResult], present: CompactionChoice | None
    ) -> None:
        advice = choose(results, present, ALL)

        assert advice.too_small == ("too small to matter" in " ".join(advice.why))


class TestRule:
    """One step after the other."""

    def test_fewest_sstables_win_over_any_latency(self) -> None:
        advice = choose([result(TWCS, 24, 1), result(UNIFIED, 2, 9), result(LEVELED, 4, 1)], TWCS, ALL)

        assert advice.choice is UNIFIED
        assert advice.change
        assert advice.why == ("By SSTables per read unified wins: twcs 24.00, unified 2.00, leveled 4.00.",)

    def test_what_reads_cheaply_and_writes_dearly_says_so(self) -> None:
        dear = replace(result(UNIFIED, 2), rewritten_bytes=275 * MIB)
        cheap = replace(result(TWCS, 24), rewritten_bytes=10 * MIB)

        advice = choose([cheap, dear], TWCS, ALL)

        assert advice.choice is UNIFIED
        assert advice.why[-1] == (
            "It is paid for in writing: until all had settled unified wrote 275 MiB again, twcs 10 MiB."
        )
        assert not any("paid for" in why for why in choose([cheap], TWCS, ALL).why)

    def test_among_equals_the_faster_one_wins(self) -> None:
        advice = choose([result(TWCS, 24), result(UNIFIED, 2, 9), result(LEVELED, 2, 4)], None, ALL)

        assert advice.choice is LEVELED
        assert not advice.too_small

    def test_the_slowest_of_a_few_reads_decides_nothing(self) -> None:
        few, many = ReadCost(20, 1.0, 1, 50.0, 300.0), ReadCost(200, 1.0, 1, 0.5, 2.0)

        assert replace(result(TWCS), mailbox=few, message=many).p99_ms == 2.0
        assert replace(result(TWCS), mailbox=few, message=few).p99_ms == 600.0

    def test_then_the_smaller_one_wins(self) -> None:
        advice = choose([result(TWCS, mib=20), result(UNIFIED, mib=10), result(LEVELED, mib=20)], TWCS, ALL)

        assert advice.choice is UNIFIED
        assert "By bytes on disk unified wins: twcs 20.0 MiB, unified 10.0 MiB, leveled 20.0 MiB." in advice.why

    def test_among_equals_the_present_one_stays(self) -> None:
        advice = choose([result(one) for one in CompactionChoice], LEVELED, ALL)

        assert advice.choice is LEVELED
        assert advice.too_small
        assert not advice.change
        assert "leveled stays" in advice.why[-1]

    def test_a_present_one_that_is_none_of_them_gives_way(self) -> None:
        advice = choose([result(TWCS, 24), result(UNIFIED), result(LEVELED)], None, ALL)

        assert advice.choice is UNIFIED
        assert advice.change

    def test_sstables_that_nobody_counted_are_no_reason(self) -> None:
        lost = replace(result(TWCS, 0, 9), mailbox=ReadCost(100, 0.0, 0, 1.0, 4.5, traced=0))

        advice = choose([lost, result(UNIFIED, 2, 2)], TWCS, ALL)

        assert advice.choice is UNIFIED
        assert advice.why[0] == "SSTables per read do not count here: of some reads the node kept no trace at all."
        assert not any("By SSTables" in why for why in advice.why)

    def test_an_older_server_is_not_advised_what_it_does_not_know(self) -> None:
        advice = choose([result(TWCS, 24), result(UNIFIED, 1), result(LEVELED, 2)], TWCS, ALL - {UNIFIED})

        assert advice.choice is LEVELED
        assert advice.why[0] == "unified is out: this server does not know it."


class TestTolerances:
    """Up to where two figures count as equal, and the sentence that says so."""

    @pytest.mark.parametrize(
        ("name", "best", "bound"),
        [
            ("SSTables per read", 1.0, 1.2),
            ("SSTables per read", 10.0, 11.1),
            ("the 99th percentile of reading", 2.0, 3.0),
            ("the 99th percentile of reading", 100.0, 125.5),
            ("bytes on disk", 1000.0, 1100.0),
            ("bytes on disk", 0.0, 0.0),
        ],
    )
    def test_bounds_by_hand(self, name: str, best: float, bound: float) -> None:
        (measure,) = (one for one in MEASURES if one.name == name)

        assert measure.bound(best) == pytest.approx(bound)

    def test_what_lies_on_the_bound_is_alike(self) -> None:
        on, above = result(TWCS, mib=11), replace(result(TWCS), disk_bytes=11 * MIB + 1)

        assert choose([on, result(UNIFIED, mib=10)], TWCS, ALL).too_small
        assert choose([above, result(UNIFIED, mib=10)], TWCS, ALL).choice is UNIFIED

    def test_each_step_is_reported_with_its_figures(self) -> None:
        advice = choose([result(TWCS, 1, 9), result(UNIFIED, 1, 2), result(LEVELED, 1, 2)], LEVELED, ALL)

        assert advice.why == (
            "By SSTables per read they are alike: twcs 1.00, unified 1.00, leveled 1.00.",
            (
                "By the 99th percentile of reading unified and leveled are ahead, alike: "
                "twcs 9.0 ms, unified 2.0 ms, leveled 2.0 ms."
            ),
            "By bytes on disk they are alike: unified 10.0 MiB, leveled 10.0 MiB.",
            "The difference is too small to matter: leveled stays, as changing it rewrites every SSTable.",
        )
        assert (advice.choice, advice.change, advice.too_small) == (LEVELED, False, True)

    @pytest.mark.parametrize("present", [None, TWCS])
    def test_where_the_present_one_is_out_the_first_of_the_equals_is_named(
        self, present: CompactionChoice | None
    ) -> None:
        advice = choose([result(TWCS, 24), result(LEVELED), result(UNIFIED)], present, ALL)

        assert advice.choice is next(one for one in CompactionChoice if one is not TWCS)
        assert advice.why[-1] == "The difference between those is too small to matter; the first of them is named."
        assert advice.too_small

    def test_a_hundred_reads_have_a_99th_percentile(self) -> None:
        slow, quick = ReadCost(99, 1.0, 1, 1.0, 300.0), ReadCost(100, 1.0, 1, 1.0, 2.0)

        assert replace(result(TWCS), mailbox=slow, message=quick).p99_ms == 2.0
        assert replace(result(TWCS), mailbox=quick, message=quick).p99_ms == 4.0

    def test_what_is_written_twice_as_much_is_not_worth_a_word(self) -> None:
        cheap = replace(result(LEVELED, 9), rewritten_bytes=10 * MIB)

        twice, more = (
            choose([replace(result(UNIFIED), rewritten_bytes=size), cheap], None, ALL)
            for size in (20 * MIB, 20 * MIB + 1)
        )

        assert not any("paid for in writing" in why for why in twice.why)
        assert "unified wrote 20 MiB again, leveled 10 MiB." in more.why[-1]

    def test_one_alone_is_chosen_without_comparison(self) -> None:
        advice = choose([result(TWCS)], None, frozenset({TWCS}))

        assert (advice.choice, advice.why, advice.too_small, advice.change) == (TWCS, (), False, True)
