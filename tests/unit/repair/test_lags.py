"""Lags: journalled in the ledger, in a local file when that refuses, and mended one by one without any scan."""

import json
import logging
import multiprocessing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.ledger import REPAIR_LAG
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID
from mailmend.model.errors import CannotReach, DoubtfulWrite, TimedOut, Unjournalled
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Put, Read, Remove, Scan
from mailmend.model.projections.findings import Finding, Suspect, merged
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.before_images import suspect_from
from mailmend.repair.ledger.lags import LagJournal, Spool
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.runner import LAGS_MAX, repair_lags
from mailmend.repair.store.message_store import MessageStore
from tests.support.clock import VirtualClock, uuid_at
from tests.support.disk import full_after
from tests.support.memory_blobs import MemoryBlobs
from tests.support.repairing import Workplace
from tests.support.writing import Desk, Faults, mail, on

SUSPECT = Suspect("messageIdTable", (uuid_at(0, 1), 7), Verdict.PROJECT, ((uuid_at(0, 2),),))
UNION = Suspect("applicableFlag", (uuid_at(0, 1),), Verdict.AMEND, (), {"userflags": frozenset({"wörk"})})


class Ledger:
    """A ledger keyspace in memory that can refuse, its journal and its spool."""

    def __init__(self, directory: Path | None) -> None:
        self.clock, self.faults = VirtualClock(), Faults()
        self.tables = MemoryTables(self.clock.micros, self.faults)
        self.spool = Spool(directory, "mail") if directory else None
        self.journal = LagJournal(self.tables, "mail", self.clock, self.spool)

    def due(self) -> list[Suspect]:
        self.clock.advance(1)
        return [lag.suspect for lag in self.journal.due(self.clock.micros())]

    def refuse(self, times: int = 1) -> None:
        """Let the next writes of lags fail."""
        self.faults.fail(on(REPAIR_LAG, Put), CannotReach("the ledger is away"), times)


def test_a_lag_comes_back_as_it_was() -> None:
    ledger = Ledger(None)
    ledger.journal.journal([SUSPECT, UNION], "no answer")
    assert sorted(ledger.due(), key=lambda one: one.projection) == [UNION, SUSPECT]
    lag = next(ledger.journal.due(ledger.clock.micros()))
    assert lag.cause == "no answer"
    assert ledger.clock.micros() - lag.noticed_micros == 1 * MICROS


def test_younger_lags_are_not_due() -> None:
    ledger = Ledger(None)
    ledger.journal.journal([SUSPECT], "")
    noticed = ledger.clock.micros()
    assert list(ledger.journal.due(noticed)) == []
    assert len(list(ledger.journal.due(noticed + 1))) == 1


def test_lags_of_many_days_are_found_and_forgotten() -> None:
    ledger = Ledger(None)
    ledger.journal.journal([SUSPECT], "old")
    ledger.clock.advance(3 * 86_400)
    ledger.journal.journal([UNION], "new")
    ledger.clock.advance(1)
    lags = list(ledger.journal.due(ledger.clock.micros()))
    assert [lag.cause for lag in lags] == ["old", "new"]
    ledger.journal.remove(lags[:1])
    assert ledger.due() == [UNION]


def test_keyspaces_do_not_see_each_others_lags() -> None:
    ledger = Ledger(None)
    ledger.journal.journal([SUSPECT], "")
    ledger.clock.advance(1)
    assert list(LagJournal(ledger.tables, "other", ledger.clock).due(ledger.clock.micros())) == []


def test_an_unreadable_journal_is_said() -> None:
    ledger = Ledger(None)
    ledger.faults.fail(lambda one: isinstance(one, Read), TimedOut("no answer"))
    with pytest.raises(TimedOut):
        ledger.due()


def test_a_refused_lag_goes_to_a_local_file_and_comes_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spool")
    assert ledger.spool is not None
    ledger.refuse(2)
    ledger.journal.journal([SUSPECT, UNION], "no answer")
    assert ledger.due() == []
    (path,) = ledger.spool.files()
    assert len(path.read_text().split()) > 2
    assert ledger.journal.drain() == 2
    assert {one.projection for one in ledger.due()} == {"applicableFlag", "messageIdTable"}
    assert ledger.spool.files() == []
    assert ledger.journal.drain() == 0


def test_what_cannot_be_drained_stays(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.spool is not None
    ledger.refuse(2)
    ledger.journal.journal([SUSPECT], "")
    with pytest.raises(CannotReach):
        ledger.journal.drain()
    assert len(ledger.spool.files()) == 1
    ledger.faults.pending.clear()
    assert ledger.journal.drain() == 1


def test_a_line_cut_short_by_a_kill_costs_only_itself(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.spool is not None
    ledger.refuse(2)
    ledger.journal.journal([SUSPECT], "")
    (path,) = ledger.spool.files()
    with path.open("ab") as file:
        file.write(b'\n{"keyspacename": "mai')
    ledger.journal.journal([UNION], "")
    assert ledger.journal.drain() == 2


@settings(max_examples=40)
@given(st.integers(min_value=1))
def test_a_journal_cut_anywhere_is_drained_all_the_same(cut: int) -> None:
    """A torn line may end in a brace, that of the suspect inside of it: it must not block every later `repair lags`."""
    with TemporaryDirectory() as directory:
        ledger = Ledger(Path(directory))
        assert ledger.spool is not None
        for suspect in (UNION, SUSPECT):
            ledger.refuse()
            ledger.journal.journal([suspect], "no answer")
        (path,) = ledger.spool.files()
        lines = path.read_bytes()
        last = lines.rindex(b"\n") + 1
        path.write_bytes(lines[: last + cut % (len(lines) - last)])

        assert ledger.journal.drain() == 1
        assert UNION in ledger.due()


def _append(directory: Path, number: int) -> None:
    for line in range(20):
        Spool(directory, "mail").append([json.dumps({"process": number, "line": line})])


def test_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(tmp_path, number)) for number in range(2)]
    for process in processes:
        process.start()
    spool, lines = Spool(tmp_path, "mail"), list[str]()
    while any(process.is_alive() for process in processes) or spool.files():
        for path in spool.files():
            with spool.drained(path) as some:
                lines += some
    assert len(lines) == len(set(lines)) == 40


def test_a_lag_that_nobody_takes_is_reported(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (None, tmp_path / "file" / "spool"):
        ledger = Ledger(directory)
        ledger.refuse()
        with caplog.at_level(logging.ERROR, "mailmend.lags"), pytest.raises(Unjournalled, match="1 lags in mail"):
            ledger.journal.journal([SUSPECT], "no answer")
        (event,) = caplog.records
        kept = json.loads(vars(event)["lag"])
        assert (event.levelno, suspect_from(kept["suspect"]), kept["cause"]) == (logging.ERROR, SUSPECT, "no answer")
        caplog.clear()


def test_a_disk_that_takes_half_of_a_lag_keeps_the_others(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.spool is not None
    ledger.refuse(3)
    ledger.journal.journal([SUSPECT], "")
    (path,) = ledger.spool.files()
    with full_after(path.stat().st_size + 20), pytest.raises(Unjournalled):
        ledger.journal.journal([SUSPECT], "")
    ledger.journal.journal([UNION], "")

    assert ledger.journal.drain() == 2
    assert sorted(ledger.due(), key=lambda one: one.projection) == [UNION, SUSPECT]


class Shop(Desk):
    """A desk whose lags are journalled for real."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ledger = MemoryTables(self.clock.micros)
        self.journal = LagJournal(self.ledger, "mail", self.clock)
        self.store = MessageStore(self.tables, MemoryBlobs(self.clock), self.journal, self.clock)
        self.place = Workplace(self.tables, self.ledger, self.clock, self.tables)

    def mend(self, timing: Timing | None = None) -> tuple[list[Finding], int]:
        """Mend what lags; the outcomes, and the number of lags left."""
        found: list[Finding] = []
        timing = timing or Timing()
        order, tools = self.place.order(timing, 60.0), self.place.tools(timing)
        summary = repair_lags(self.journal, self.tables, order, tools, found.append)
        assert summary.kind is RunKind.LAGS
        assert summary.scanned == {}
        self.clock.advance(1)
        return found, len(list(self.journal.due(self.clock.micros())))


def test_lags_are_mended_without_a_scan() -> None:
    shop = Shop()
    for table in (MESSAGE_ID, FIRST_UNSEEN):
        shop.faults.fail(on(table), TimedOut("no answer"), times=6)
    shop.faults.doubt(on(MAILBOX_COUNTERS, Count), DoubtfulWrite("no answer"), done=False)
    shop.faults.fail(lambda one: one.table.spelling == "applicableFlag", TimedOut("no answer"), times=6)
    assert shop.store.add(shop.inbox, mail("one", "work")).lagged
    assert len(shop.drift()) == 4
    shop.faults.seen.clear()
    outcomes, left = shop.mend()
    assert {one.result for one in outcomes} == {Verdict.FIXED}
    assert left == 0
    assert not any(isinstance(one, Scan) and not one.under for one in shop.faults.seen)
    assert shop.drift() == []


def test_a_batch_that_lags_loses_no_flag() -> None:
    shop = Shop()
    shop.faults.fail(lambda one: one.table.spelling == "applicableFlag", TimedOut("no answer"), times=30)
    shop.store.add_all(shop.inbox, [mail("one", "work", "later"), mail("two", "home"), mail("three", "home", "zoo")])
    (lag,) = shop.journal.due(shop.clock.micros() + 1)
    assert lag.suspect.wanted == {"userflags": {"work", "later", "home", "zoo"}}
    shop.faults.pending.clear()
    outcomes, left = shop.mend()
    assert ([one.result for one in outcomes], left) == ([Verdict.FIXED], 0)
    assert shop.drift() == []


def test_lagging_deletes_are_mended() -> None:
    shop = Shop()
    stored = shop.store.add(shop.inbox, mail())
    for table in (MESSAGE_ID, FIRST_UNSEEN):
        shop.faults.fail(on(table, Remove), TimedOut("no answer"), times=6)
    assert shop.store.delete(stored.place).lagged
    _, left = shop.mend()
    assert left == 0
    assert shop.rows(MESSAGE_ID) == shop.rows(FIRST_UNSEEN) == []


def test_a_lag_that_has_settled_is_forgotten() -> None:
    shop = Shop()
    stored = shop.store.add(shop.inbox, mail())
    key = (shop.inbox, stored.uid)
    shop.journal.journal([Suspect("messageIdTable", key, Verdict.PROJECT, ((stored.message_id,),))], "")
    outcomes, left = shop.mend()
    assert [one.verdict for one in outcomes] == [Verdict.AGREE]
    assert left == 0


def test_a_lag_that_cannot_be_mended_yet_stays() -> None:
    shop = Shop()
    shop.faults.fail(on(MESSAGE_ID), TimedOut("no answer"), times=7)
    shop.store.add(shop.inbox, mail())
    outcomes, left = shop.mend()
    assert outcomes[0].error
    assert left == 1
    _, left = shop.mend()
    assert left == 0
    assert shop.drift() == []


def test_mending_waits_until_the_youngest_is_ripe() -> None:
    """The delay counts from when the youngest lag was noticed, and T must lie after it: or all of it had MOVED."""
    shop = Shop()
    shop.faults.fail(on(MESSAGE_ID), TimedOut("no answer"), times=6)
    shop.store.add(shop.inbox, mail())
    shop.clock.advance(20)
    shop.clock.slept.clear()
    shop.mend()
    assert 39.0 <= sum(shop.clock.slept) <= 40.0
    shop.clock.slept.clear()
    shop.mend()
    assert shop.clock.slept == [], "nothing lags, nothing to wait for"


def test_declared_quiet_nothing_is_waited_for() -> None:
    shop = Shop()
    shop.faults.fail(on(MESSAGE_ID), TimedOut("no answer"), times=6)
    shop.store.add(shop.inbox, mail())
    shop.clock.advance(1)
    shop.clock.slept.clear()
    _, left = shop.mend(Timing(no_writers=True))
    assert left == 0
    assert shop.clock.slept == []


def test_a_newer_change_is_never_undone_by_mending() -> None:
    shop = Shop()
    shop.faults.fail(on(MESSAGE_ID), TimedOut("no answer"), times=6)
    stored = shop.store.add(shop.inbox, mail())
    shop.store.delete(stored.place)
    _, left = shop.mend()
    assert left == 0
    assert shop.rows(MESSAGE_ID) == shop.rows(IMAP_UID) == []


def test_lags_of_one_place_are_one_suspect() -> None:
    other = Suspect("applicableFlag", UNION.key, Verdict.AMEND, ((uuid_at(0, 5),),), {"userflags": frozenset({"b"})})
    first, second = merged([UNION, SUSPECT, other, SUSPECT])
    assert first.wanted == {"userflags": frozenset({"wörk", "b"})}
    assert first.truth_keys == ((uuid_at(0, 5),),)
    assert second == SUSPECT


def test_a_run_is_bounded() -> None:
    assert LAGS_MAX == 100_000
