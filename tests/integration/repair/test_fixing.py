"""The write path for fixes on a real Cassandra: its tombstones, its stamps, its conditional writes."""

import time
from collections.abc import Iterator

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from mailmend.model.catalog.mail import FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.instants import MICROS
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from mailmend.repair.binding import bind
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from tests.support.clock import VirtualClock
from tests.support.keyspaces import LEDGER, MAIL, created, dropped
from tests.support.progress import SilentProgress
from tests.support.repairing import (
    DAY_SECONDS,
    World,
    content_row,
    message,
    mirror_row,
    mirror_suspect,
    place,
    truth_row,
)
from tests.support.servers import CassandraServer

_MAIL, _KEPT = "t_fixing", "t_fixing_ledger"


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    """A cluster with a mail keyspace (one column in it that nobody declared) and a ledger."""
    with connect(Contact((cassandra.host,), cassandra.port, cassandra.local_dc)) as opened:
        created(opened, _MAIL, MAIL)
        created(opened, _KEPT, LEDGER)
        opened.execute_ddl(f"ALTER TABLE {_MAIL}.messageidtable ADD nickname text")
        yield opened
        dropped(opened, (_MAIL, _KEPT))


@pytest.fixture(scope="module")
def family(cluster: CassandraCluster) -> Family:
    (bound,) = bind(_MAIL, live_schema(cluster, _MAIL), (MESSAGES,))
    return bound


@pytest.fixture
def world(cluster: CassandraCluster, family: Family) -> World:
    clock = VirtualClock(time.time_ns() // 1000)
    return World(clock, cluster.keyspace(_MAIL), cluster.keyspace(_KEPT), (family,))


def mirrored(world: World, truth: Row) -> Row | None:
    seen = world.get(world.families[0].mirror.table, place(truth))
    return seen.row if seen else None


def undone(world: World) -> list[Finding]:
    outcomes: list[Finding] = []
    tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
    undo(UndoSettings(world.run, "mail", world.families), tools, outcomes.append)
    return outcomes


def test_each_verdict_is_mended_as_of_t(world: World) -> None:
    missing, wrong, stale = (truth_row(number, userflags=frozenset({"a"})) for number in (1, 2, 3))
    world.message(missing, projected=False)
    world.message(wrong, projected=False)
    world.put(MESSAGE_ID, mirror_row(wrong, userflags=frozenset({"b"}), flagseen=True, save_date=wrong["internaldate"]))
    world.project(stale)

    outcomes = world.revisit(
        [
            mirror_suspect(missing, Verdict.PROJECT),
            mirror_suspect(wrong, Verdict.AMEND),
            mirror_suspect(stale, Verdict.WITHDRAW, known=False),
        ]
    )

    assert {one.result for one in outcomes} == {Verdict.FIXED}
    for truth in (missing, wrong):
        seen = world.get(MESSAGE_ID, place(truth))
        assert seen is not None
        assert MESSAGES.mirror.agree(truth, seen.row)
        assert set(seen.written_at.values()) == {world.as_of}
    assert mirrored(world, stale) is None


def test_a_before_image_holds_columns_that_nobody_declared_and_undo_brings_them_back(world: World) -> None:
    table = world.families[0].mirror.table
    wrong, stale = truth_row(8), truth_row(9)
    world.message(wrong, projected=False)
    for row in (wrong, stale):
        world.put(table, {**mirror_row(row, modseq=0), "nickname": "Bob"})
    before = [mirrored(world, row) for row in (wrong, stale)]

    world.revisit([mirror_suspect(wrong, Verdict.AMEND), mirror_suspect(stale, Verdict.WITHDRAW, known=False)])
    amended = mirrored(world, wrong)
    outcomes = undone(world)

    assert amended is not None
    assert (amended["nickname"], amended["modseq"]) == ("Bob", 1)
    assert {one.result for one in outcomes} == {Verdict.FIXED}
    assert [mirrored(world, row) for row in (wrong, stale)] == before


def test_a_torn_truth_is_filled_by_a_conditional_write_and_emptied_by_its_undo(world: World) -> None:
    """The stamp of the filled cells is a ballot; the mirror row is as of T."""
    whole = truth_row(21, flagseen=True)
    torn = world.message({**whole, "headercontent": None, "internaldate": None})
    world.put(MESSAGE_V3, content_row(torn["messageid"]) | {"internaldate": whole["internaldate"]})
    key = IMAP_UID.key_of(torn)

    (filled,) = world.revisit([mirror_suspect(torn, Verdict.TORN)], fill_torn=True)
    after = (world.get(IMAP_UID, key), mirrored(world, torn))
    outcomes = undone(world)

    assert (filled.verdict, filled.result, filled.error) == (Verdict.TORN, Verdict.FIXED, None)
    assert after[0] is not None
    assert all(after[0].row[name] == whole[name] for name in whole)
    assert after[1] is not None
    assert MESSAGES.mirror.agree(whole, after[1])
    assert {one.result for one in outcomes} == {Verdict.FIXED}
    back = world.get(IMAP_UID, key)
    assert back is not None
    assert (back.row["headercontent"], back.row["internaldate"], back.row["flagseen"]) == (None, None, True)


def test_an_orphan_is_quarantined_unless_it_is_young_and_returns(world: World) -> None:
    old = world.message(truth_row(11, userflags=frozenset({"x"})), content=False)
    young = truth_row(12, born=world.clock.micros() - (DAY_SECONDS - 60) * MICROS)
    world.message(young, content=False)
    suspects = [mirror_suspect(row, Verdict.LOST_CONTENT) for row in (old, young)]

    outcomes = world.revisit(suspects, orphans="quarantine")
    gone = world.get(IMAP_UID, IMAP_UID.key_of(old))
    undone(world)

    assert {one.suspect.key[1]: one.result for one in outcomes} == {11: Verdict.FIXED, 12: None}
    assert gone is None
    assert world.get(IMAP_UID, IMAP_UID.key_of(young)) is not None
    returned = world.get(IMAP_UID, IMAP_UID.key_of(old))
    assert returned is not None
    assert MESSAGES.mirror.agree(returned.row, mirror_row(old))
    assert world.get(MESSAGE_ID, place(old)) is not None
    assert world.get(FIRST_UNSEEN, place(old)) is not None


def test_a_leak_is_collected_and_returns(world: World) -> None:
    attachment = {"id": "a1", "name": "n", "cid": None, "isinline": False}
    world.put(MESSAGE_V3, {**content_row(message(14)), "attachments": (attachment,)})
    before = world.get(MESSAGE_V3, (message(14),))

    (outcome,) = world.revisit([Suspect("messageV3", (message(14),), Verdict.LEAK)], leaks="collect")
    gone = world.get(MESSAGE_V3, (message(14),))
    undone(world)

    after = world.get(MESSAGE_V3, (message(14),))
    assert (outcome.result, gone) == (Verdict.FIXED, None)
    assert before is not None
    assert after is not None
    assert after.row == before.row
