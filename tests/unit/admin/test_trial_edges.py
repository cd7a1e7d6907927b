"""The smallest parts of a trial: labels and missing columns, sizes on disk, the best of several times."""

from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.advice.sampling import NAMES, SampledMessage
from admin.advice.trial import ROUNDS, Trial, TrialNode
from admin.advice.trial_plan import (
    SCALED,
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
from model.catalog.mail import IMAP_UID, MESSAGE_COMPACTIONS, CompactionChoice
from model.operations import Change, Put, Read
from model.ports import Silent
from tests.support.clock import VirtualClock, uuid_at
from tests.support.progress import SilentProgress
from tests.support.trial_twin import Noted, TrialServer

MIB = 1_048_576


def message(added: int = 10, changed: int | None = 90, **cells: Any) -> SampledMessage:
    """A message of one mailbox."""
    row = {"mailboxid": UUID(int=1), "uid": 7, "messageid": uuid_at(5), **cells}
    return SampledMessage(tuple(row.get(name) for name in NAMES), added, changed)


class TestWrites:
    """What an addition and a change write."""

    def test_labels_are_added_by_the_change_and_flags_are_set_by_it(self) -> None:
        """As James does it: a set grows, it is not overwritten."""
        one = message(flagseen=True, modseq=4, userflags=frozenset({"0xx"}))

        for write in writes_of(one, changed=True):
            assert isinstance(write, Change)
            assert (write.assign, write.add) == ({"flagseen": True, "modseq": 4}, {"userflags": frozenset({"0xx"})})
            assert (write.key, write.at) == (write.table.key_of(one.row), 90)

    @pytest.mark.parametrize("labels", [None, frozenset()])
    def test_where_there_are_no_labels_none_are_added(self, labels: frozenset[str] | None) -> None:
        """A set that is empty would write a cell that the truth does not have."""
        for write in writes_of(message(flagseen=True, userflags=labels), changed=True):
            assert isinstance(write, Change)
            assert write.add == {}

    def test_a_column_that_the_sample_lacks_is_written_by_nobody(self) -> None:
        """An older table has fewer."""
        for write in writes_of(message(flagseen=True), changed=True):
            assert isinstance(write, Change)
            assert write.assign == {"flagseen": True}

    def test_a_message_that_will_change_comes_without_flags_and_labels(self) -> None:
        """What they were before is not known; unread is the likeliest."""
        (first, _) = writes_of(message(flagseen=True, userflags=frozenset({"0x"}), modseq=4), changed=False)

        assert isinstance(first, Put)
        assert first.row["flagseen"] is False
        assert first.row["userflags"] is None
        assert (first.row["modseq"], first.at) == (4, 10)

    def test_events_are_additions_and_changes_in_the_order_of_time(self) -> None:
        """Of those that never changed there is one."""
        messages = [message(10, 90), message(20, None), message(5, 15)]

        assert history_of(messages) == [(5, 2, False), (10, 0, False), (15, 2, True), (20, 1, False), (90, 0, True)]

    def test_the_last_wave_ends_with_the_last_event(self) -> None:
        """Ten events in three waves."""
        assert [len(wave) for wave in waves_of(history_of([message(at, None) for at in range(10)]), 3)] == [3, 3, 4]


@pytest.mark.parametrize("choice", CompactionChoice)
def test_the_copys_tables_have_small_sstables_and_all_else_as_chosen(choice: CompactionChoice) -> None:
    """A sample in one SSTable would make every choice look the same."""
    for made, declared in zip(trial_tables(choice), TABLES, strict=True):
        assert made.compaction is not None
        assert made.compaction.options == {**MESSAGE_COMPACTIONS[choice].options, **SCALED[choice]}
        assert made.columns == declared.columns
    assert (SCALED[choice] == {}) is (choice is CompactionChoice.TWCS)


class TestReads:
    """What is read, and what it cost."""

    @given(st.lists(st.integers(), unique=True, max_size=30), st.integers(0, 40))
    def test_a_spread_takes_as_many_as_are_wanted_from_all_over(self, items: list[int], count: int) -> None:
        """Each once while there are enough, in their order; none of none."""
        found = spread(items, count)

        assert len(found) == (count if items else 0)
        if count <= len(items):
            assert found == sorted(found, key=items.index)
            assert len(set(found)) == len(found)
        else:
            assert set(found) == set(items)
            assert max(map(found.count, items), default=0) - min(map(found.count, items), default=0) <= 1

    @given(st.lists(st.integers(), min_size=1, max_size=9), st.integers(0, 30))
    def test_a_turn_keeps_the_circle(self, items: list[int], by: int) -> None:
        """Another one first each time, the same neighbours."""
        assert turned(items, by) == tuple((items * 4)[by % len(items) : by % len(items) + len(items)])

    @pytest.mark.parametrize(
        ("figures", "share", "expected"),
        [
            ([], 0.5, 0),
            ([7], 0.99, 7),
            ([3, 1, 2], 0.5, 2),
            (list(range(1, 101)), 0.5, 50),
            (list(range(1, 101)), 0.99, 99),
            (list(range(1, 102)), 0.99, 100),
            ([5, 1], 0.0, 1),
        ],
    )
    def test_a_percentile_is_a_figure_that_was_measured(self, figures: list[int], share: float, expected: int) -> None:
        """By nearest rank."""
        assert percentile(figures, share) == expected

    def test_what_was_not_traced_is_not_made_up(self) -> None:
        """The times stand without it."""
        untraced, traced = read_cost([], [1_000, 3_000]), read_cost([1, 4], [1_000, 3_000, 2_000])

        assert (untraced.sstables_mean, untraced.sstables_max, untraced.traced, untraced.reads) == (0, 0, 0, 2)
        assert (traced.sstables_mean, traced.sstables_max, traced.traced, traced.reads) == (2.5, 4, 2, 3)
        assert (traced.p50_ms, traced.p99_ms) == (2.0, 3.0)

    def test_without_messages_nothing_is_read(self) -> None:
        """A sample may be empty."""
        assert reads_of([], 5) == ([], [])


class Slowing(Noted):
    """Tables whose reads take as long as is written down for them, one after the other."""

    def __init__(self, clock: VirtualClock, taken: list[float]) -> None:
        super().__init__("any", [])
        self.clock, self.taken = clock, taken

    def read(self, read: Read) -> Any:
        """The rows, after a while."""
        self.clock.advance(self.taken.pop(0))
        return super().read(read)


class TestTrial:
    """What is told while it runs, and of what its figures are."""

    def test_the_best_of_several_times_counts(self) -> None:
        """What else the machine did only ever adds to it."""
        clock, server = VirtualClock(), TrialServer()
        for choice, base in zip(CompactionChoice, (0.5, 0.2, 0.3), strict=True):
            later = [base, *(base + 0.1 * extra for extra in range(1, ROUNDS))]
            server.keyspaces[f"trial_{choice.value}"] = Slowing(clock, later[::-1])
        trial = Trial(TrialNode(cast("Any", server)), clock, Silent())

        taken = trial._timed([Read(IMAP_UID, (uuid_at(5),))])

        assert taken == dict(zip(CompactionChoice, ([500_000], [200_000], [300_000]), strict=True))

    def test_every_stage_is_told_before_it_begins(self) -> None:
        """A trial takes minutes: nobody should wonder what it does."""
        progress = SilentProgress()
        messages = [message(at * 10, None, messageid=uuid_at(at), uid=at) for at in range(1, 9)]

        Trial(TrialNode(cast("Any", TrialServer())), VirtualClock(), progress, waves=2, reads=3).run(messages)

        assert progress.stages == {
            "creating the copy's tables": 6,
            "replaying their history": 8,
            "letting compaction settle": None,
            "reading messageIdTable": 3,
            "reading imapUidTable": 3,
            "tracing the same reads": 9,
        }
        assert progress.steps == 6 + 8 + 2 * (3 + 9)

    def test_bytes_are_those_of_the_keyspaces_own_files_where_they_are_known(self, tmp_path: Path) -> None:
        """Data, indexes and filters; not a snapshot below them, nor another keyspace."""
        for name, size in (
            ("mine/t-1/nb-1-big-Data.db", 100),
            ("mine/t-1/nb-1-big-Index.db", 20),
            ("mine/u-2/da-3gr0-bti-Data.db", 3),
            ("mine/t-1/README", 1_000),
            ("mine/t-1/snapshots/nb-1-big-Data.db", 1_000),
            ("other/t-1/nb-1-big-Data.db", 1_000),
        ):
            tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            tmp_path.joinpath(name).write_bytes(b"x" * size)

        assert TrialNode(cast("Any", TrialServer()), tmp_path).disk_bytes("mine") == 123
        assert TrialNode(cast("Any", TrialServer()), tmp_path).disk_bytes("nowhere") == 0

    def test_else_the_node_is_asked(self) -> None:
        """It tells whole MiB, of every keyspace; what it rewrote it tells in bytes, or not at all."""
        server = TrialServer()
        server.keyspaces["mine"] = Noted("mine", [])
        node = TrialNode(cast("Any", server))

        assert (node.disk_bytes("mine"), node.disk_bytes("nowhere")) == (7 * MIB, 0)
        assert (node.rewritten_bytes("mine"), node.rewritten_bytes("nowhere")) == (7, 0)

    def test_only_merges_of_the_copy_are_waited_for(self) -> None:
        """A node that somebody else uses may merge for ever."""
        server = TrialServer(busy_looks=1)
        server.keyspaces["theirs"] = Noted("theirs", [])

        assert not TrialNode(cast("Any", server)).compacting(frozenset({"mine"}))
        server.looks = 0
        assert TrialNode(cast("Any", server)).compacting(frozenset({"mine", "theirs"}))
