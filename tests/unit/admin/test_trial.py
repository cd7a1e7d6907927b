"""A trial from beginning to end, in memory: the same rows everywhere, what is measured of each, nothing left."""

from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from mailmend.admin.schema.measuring import NAMES, SampledMessage, draw_sample
from mailmend.admin.schema.trial import ROUNDS, SETTLE_SECONDS_MAX, TABLES, TRACES_SECONDS_MAX, Trial, TrialNode
from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import IMAP_UID, MAIL_TABLES, MESSAGE_ID, CompactionChoice
from mailmend.model.errors import MailmendError
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Read
from mailmend.model.ports import Silent
from tests.support.clock import VirtualClock, uuid_at
from tests.support.histories import histories
from tests.support.progress import SilentProgress
from tests.support.trial_twin import Noted, TrialServer

UNTIL = 1_700_000_000_000_000
CHOICES = tuple(CompactionChoice)


@pytest.fixture(scope="module")
def messages() -> list[SampledMessage]:
    tables = MemoryTables(lambda: UNTIL)
    for writes in histories(2, 20, days=365, until=UNTIL):
        tables.write_all(writes)
    return list(draw_sample(tables, Schema((), MAIL_TABLES), 40, Silent()).messages)


def trial_on(server: TrialServer, clock: VirtualClock | None = None, *, waves: int = 4, reads: int = 6) -> Trial:
    node = TrialNode(cast("Any", server))
    return Trial(node, clock or VirtualClock(), Silent(), waves=waves, reads=reads)


def test_every_choice_gets_the_same_rows_and_all_of_them(messages: list[SampledMessage]) -> None:
    server = TrialServer()

    trial_on(server).run(messages)

    twcs, unified, leveled = (server.held[f"trial_{choice.value}"] for choice in CHOICES)
    assert twcs == unified == leveled
    assert len(twcs) == len(messages) * len(TABLES)


def test_the_replayed_rows_are_those_of_the_sample(messages: list[SampledMessage]) -> None:
    server = TrialServer()
    trial = trial_on(server)
    trial._create()

    trial._replay(messages)

    place = server.keyspace("trial_unified")
    for message in messages:
        (seen,) = place.read(Read(IMAP_UID, IMAP_UID.key_of(message.row), times=True))
        assert {name: cell for name, cell in seen.row.items() if cell} == {
            name: cell for name, cell in message.row.items() if cell
        }
        assert seen.newest == (message.changed_at or message.added_at)


def test_each_choice_is_reported_its_own_sstables_and_bytes(messages: list[SampledMessage]) -> None:
    server = TrialServer(sstables=lambda keyspace: 24 if keyspace.endswith("twcs") else 2)

    results = trial_on(server).run(messages)

    assert [one.choice for one in results] == list(CHOICES)
    assert [one.mailbox.sstables_mean for one in results] == [24, 2, 2]
    assert [one.message.sstables_max for one in results] == [24, 2, 2]
    assert [one.mailbox.reads for one in results] == [6, 6, 6]
    assert [one.disk_bytes for one in results] == [7 * 1_048_576] * 3
    assert [one.rewritten_bytes for one in results] == [7] * 3


def test_each_wave_is_flushed_in_every_table(messages: list[SampledMessage]) -> None:
    server = TrialServer()

    trial_on(server, waves=4).run(messages)

    altered = [text for text in server.statements if text.startswith("ALTER")]
    assert len(altered) == 4 * len(CHOICES) * len(TABLES) * 2
    for table in (IMAP_UID, MESSAGE_ID):
        periods = [text.rpartition(" ")[2] for text in altered if f"trial_leveled.{table.name} " in text]
        assert periods == ["1", "0"] * 4


@pytest.mark.parametrize("statement", [0, 4, 8, 11, 15])
def test_whatever_fails_no_keyspace_is_left(messages: list[SampledMessage], statement: int) -> None:
    server = TrialServer(fails_at=statement)

    with pytest.raises(MailmendError, match="went away"):
        trial_on(server).run(messages)

    assert server.keyspaces == {}


def test_compaction_is_waited_for_until_it_has_been_quiet_for_a_while(messages: list[SampledMessage]) -> None:
    """One quiet look may fall between two merges."""
    server = TrialServer(busy_looks=10)

    trial_on(server).run(messages)

    assert server.looks == 14


def test_a_compaction_without_end_is_not_waited_for_without_end() -> None:
    server, clock = TrialServer(busy_looks=1_000_000), VirtualClock()
    trial = trial_on(server, clock)
    trial._create()
    began = clock.micros()

    trial._settle()

    assert SETTLE_SECONDS_MAX <= (clock.micros() - began) / 1_000_000 < SETTLE_SECONDS_MAX + 1


def test_traces_that_a_busy_node_dropped_cost_a_bounded_wait(messages: list[SampledMessage]) -> None:
    """A second for each few of them: then no SSTables are told, and the times still are."""
    clock = VirtualClock()
    began = clock.micros()

    results = trial_on(TrialServer(silent_traces=True), clock).run(messages)

    batches = len(CHOICES) * 2 * 2  # six reads of each kind are two batches
    settled = 4 * 0.25
    waited = (clock.micros() - began) / 1_000_000 - settled
    assert waited == pytest.approx(TRACES_SECONDS_MAX * batches, rel=0.1)
    assert [one.mailbox.sstables_mean for one in results] == [0.0] * 3
    assert [one.mailbox.reads for one in results] == [6] * 3


def test_no_keyspace_is_always_the_first_to_be_read(messages: list[SampledMessage]) -> None:
    server = TrialServer()
    trial = trial_on(server)
    trial._create()
    trial._replay(messages)

    trial._timed([Read(IMAP_UID, (messages[0].row["messageid"],))])

    assert len(server.reads) == ROUNDS * len(CHOICES)
    assert set(server.reads[::3]) == {f"trial_{choice.value}" for choice in CHOICES}


def one_message(added: int = 10, changed: int | None = 90, **cells: Any) -> SampledMessage:
    row = {"mailboxid": UUID(int=1), "uid": 7, "messageid": uuid_at(5), **cells}
    return SampledMessage(tuple(row.get(name) for name in NAMES), added, changed)


class Slowing(Noted):
    """Tables whose reads take as long as is written down for them, one after the other."""

    def __init__(self, clock: VirtualClock, taken: list[float]) -> None:
        super().__init__("any", [])
        self.clock, self.taken = clock, taken

    def read(self, read: Read) -> Any:
        self.clock.advance(self.taken.pop(0))
        return super().read(read)


def test_the_best_of_several_times_counts() -> None:
    clock, server = VirtualClock(), TrialServer()
    for choice, base in zip(CompactionChoice, (0.5, 0.2, 0.3), strict=True):
        later = [base, *(base + 0.1 * extra for extra in range(1, ROUNDS))]
        server.keyspaces[f"trial_{choice.value}"] = Slowing(clock, later[::-1])
    trial = Trial(TrialNode(cast("Any", server)), clock, Silent())

    taken = trial._timed([Read(IMAP_UID, (uuid_at(5),))])

    assert taken == dict(zip(CompactionChoice, ([500_000], [200_000], [300_000]), strict=True))


def test_every_stage_is_reported_before_it_begins() -> None:
    progress = SilentProgress()
    messages = [one_message(at * 10, None, messageid=uuid_at(at), uid=at) for at in range(1, 9)]

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


def test_bytes_are_those_of_the_keyspaces_own_files_where_they_are_known(tmp_path: Path) -> None:
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


def test_else_the_node_is_asked() -> None:
    server = TrialServer()
    server.keyspaces["mine"] = Noted("mine", [])
    node = TrialNode(cast("Any", server))

    assert (node.disk_bytes("mine"), node.disk_bytes("nowhere")) == (7 * 1_048_576, 0)
    assert (node.rewritten_bytes("mine"), node.rewritten_bytes("nowhere")) == (7, 0)


def test_only_merges_of_the_copy_are_waited_for() -> None:
    server = TrialServer(busy_looks=1)
    server.keyspaces["theirs"] = Noted("theirs", [])

    assert not TrialNode(cast("Any", server)).compacting(frozenset({"mine"}))
    server.looks = 0
    assert TrialNode(cast("Any", server)).compacting(frozenset({"mine", "theirs"}))
