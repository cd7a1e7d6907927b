"""What a trial writes and reads, and in which order: the history is replayed as it was, and reads are spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.advice.sampling import NAMES, SampledMessage
from admin.advice.trial_plan import (
    TABLES,
    history_of,
    percentile,
    read_cost,
    reads_of,
    spread,
    trial_tables,
    turned,
    waves_of,
    writes_of,
)
from model.catalog.mail import IMAP_UID, MESSAGE_COMPACTIONS, MESSAGE_ID, CompactionChoice
from model.operations import Change, Put
from tests.support.histories import histories

UNTIL = 1_700_000_000_000_000


def sampled(count: int) -> list[SampledMessage]:
    """Messages of two mailboxes, as the histories wrote them."""
    found = []
    for put, _, *changes in histories(2, count // 2, days=100, until=UNTIL):
        assert isinstance(put, Put)
        later = [one for one in changes if isinstance(one, Change)][:1]
        row = {**put.row, **(later[0].assign if later else {})}
        cells = tuple(row.get(name) for name in NAMES)
        found.append(SampledMessage(cells, put.at or 0, later[0].at if later else None))
    return found


class TestReplay:
    """The history, in waves."""

    @given(st.integers(2, 60), st.integers(1, 50))
    def test_waves_hold_every_event_once_in_the_order_of_time(self, count: int, waves: int) -> None:
        """Nothing is lost at an edge, and no wave is much larger than another."""
        events = history_of(sampled(count))
        parts = waves_of(events, waves)

        assert [event for part in parts for event in part] == sorted(events)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert len(parts) == min(waves, len(events))

    def test_no_message_makes_no_wave(self) -> None:
        """An empty mailbox."""
        assert waves_of(history_of([]), 5) == []

    def test_a_change_comes_after_its_addition_and_carries_its_own_time(self) -> None:
        """As the flag of a message that was read weeks later lies in another window."""
        message = next(one for one in sampled(20) if one.changed_at)

        added, changed = writes_of(message, changed=False), writes_of(message, changed=True)

        assert [write.at for write in added if isinstance(write, Put)] == [message.added_at] * 2
        assert [write.at for write in changed if isinstance(write, Change)] == [message.changed_at] * 2
        assert [write.table for write in (*added, *changed)] == [*TABLES, *TABLES]

    def test_a_message_is_added_unread_and_changed_to_what_it_is(self) -> None:
        """Both writes together make the row as it was sampled."""
        message = next(one for one in sampled(20) if one.changed_at)
        put, change = writes_of(message, changed=False)[0], writes_of(message, changed=True)[0]
        assert isinstance(put, Put)
        assert isinstance(change, Change)

        assert put.row["flagseen"] is False
        assert change.assign["flagseen"] is True
        labels = {"userflags": change.add.get("userflags", frozenset())}
        assert {**put.row, **change.assign, **labels} == {**message.row, **labels}

    def test_a_message_that_never_changed_is_added_as_it_is(self) -> None:
        """Its flags are those of its only write."""
        message = next(one for one in sampled(40) if one.changed_at is None)
        put = writes_of(message, changed=False)[0]

        assert isinstance(put, Put)
        assert put.row == message.row

    @pytest.mark.parametrize("choice", CompactionChoice)
    def test_each_choice_is_tried_with_its_own_class_and_options(self, choice: CompactionChoice) -> None:
        """Only the size of an SSTable is scaled to the sample."""
        for table in trial_tables(choice):
            assert table.compaction is not None
            assert table.compaction.strategy == MESSAGE_COMPACTIONS[choice].strategy
            assert table.compaction.options.items() >= MESSAGE_COMPACTIONS[choice].options.items()


class TestReads:
    """What is read, and what its figures come to."""

    def test_mailboxes_are_opened_and_messages_looked_up_all_over_the_sample(self) -> None:
        """Two mailboxes are opened again and again; of the messages every fifth is looked up."""
        opened, looked_up = reads_of(sampled(50), 10)

        assert [read.table for read in opened] == [MESSAGE_ID] * 10
        assert [read.table for read in looked_up] == [IMAP_UID] * 10
        assert len({read.key for read in opened}) == 2
        assert len({read.key for read in looked_up}) == 10

    def test_of_large_mailboxes_fewer_are_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two mailboxes of 25: 750 rows are 30 of them; 20 are opened at least, unless fewer are asked for."""
        monkeypatch.setattr("admin.advice.trial_plan.ROWS_OPENED_MAX", 750)
        opened, looked_up = reads_of(sampled(50), 200)
        assert (len(opened), len(looked_up)) == (30, 200)

        monkeypatch.setattr("admin.advice.trial_plan.ROWS_OPENED_MAX", 1)
        assert len(reads_of(sampled(50), 200)[0]) == 20
        assert len(reads_of(sampled(50), 5)[0]) == 5

    @given(st.lists(st.integers(), unique=True, min_size=1, max_size=50), st.integers(1, 60))
    def test_what_is_spread_is_as_many_as_asked_for(self, items: list[int], count: int) -> None:
        """And none twice while there are others."""
        found = spread(items, count)

        assert len(found) == count
        assert len(set(found)) == min(count, len(items))

    def test_nothing_is_spread_from_nothing(self) -> None:
        """An empty sample has no reads."""
        assert reads_of([], 10) == ([], [])

    @given(st.integers(0, 100))
    def test_each_takes_its_turn_to_be_first(self, number: int) -> None:
        """So that no keyspace is always read with cold hands."""
        assert turned("abc", number)[0] == "abc"[number % 3]
        assert sorted(turned("abc", number)) == ["a", "b", "c"]

    @given(st.lists(st.integers(0, 10_000), min_size=1), st.floats(0.01, 1))
    def test_a_percentile_is_one_of_the_figures_and_grows_with_the_share(
        self, figures: list[int], share: float
    ) -> None:
        """By nearest rank."""
        assert percentile(figures, share) in figures
        assert percentile(figures, share) <= percentile(figures, 1) == max(figures)

    def test_a_cost_is_told_in_milliseconds(self) -> None:
        """From microseconds, and the SSTables of those reads whose trace was kept."""
        cost = read_cost([1, 2, 3], [1_000] * 99 + [9_000])

        assert (cost.reads, cost.traced, cost.sstables_mean, cost.sstables_max) == (100, 3, 2.0, 3)
        assert (cost.p50_ms, cost.p99_ms) == (1.0, 1.0)
        assert read_cost([], []).p99_ms == read_cost([], []).traced == 0
