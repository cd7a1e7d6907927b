"""Rows that expire on real servers: fixes and undos carry what the truth had left, cell by cell."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.model.catalog.mail import APPLICABLE_FLAG, IMAP_UID, MAIL_TABLES, MAIL_TYPES, MESSAGE_ID, MESSAGES
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Put, Seen
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from tests.support.commands import contact_of
from tests.support.keyspaces import created, dropped
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, MAILBOX, World, content_row, mirror_suspect, place, truth_row
from tests.support.servers import CassandraServer

HOUR = 3600
ROUNDED = 30
"""Seconds that a test may take on a busy machine."""


@contextmanager
def mail_on(server: CassandraServer) -> Iterator[tuple[CassandraCluster, Keyspace]]:
    name = server.keyspace()
    with connect(contact_of(server)) as cluster:
        yield cluster, created(cluster, name, Schema(MAIL_TYPES, MAIL_TABLES))
        dropped(cluster, (name,))


def about(ttls: Mapping[str, int], hours: dict[str, int]) -> bool:
    return all(hours[name] * HOUR - ROUNDED <= ttls[name] <= hours[name] * HOUR for name in hours)


def a_truth_of_two_lives(world: World) -> Seen:
    """Its flags end after an hour, its other cells after three."""
    truth = truth_row(userflags=frozenset({"a"}))
    key = IMAP_UID.key_of(truth)
    world.mail.write(Put(IMAP_UID, truth, at=LONG_AGO, ttl_seconds=3 * HOUR))
    world.mail.write(Change(IMAP_UID, key, {"flagseen": True, "modseq": 2}, at=LONG_AGO + 1, ttl_seconds=HOUR))
    return world.seen(IMAP_UID, key)


def shows_expiry(world: World) -> None:
    truth = a_truth_of_two_lives(world).row
    content = content_row(truth["messageid"])
    world.put(next(table for table in MAIL_TABLES if table.name == "messagev3"), content)

    # When a missing row is projected, Then each cell lasts as long as that of the truth.
    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])
    assert outcome.result is Verdict.FIXED
    ttls = world.seen(MESSAGE_ID, place(truth)).ttls
    assert about(ttls, {"flagseen": 1, "modseq": 1, "internaldate": 3, "bodystartoctet": 3})

    # When a label is missing, Then it lasts as long as the truth that holds it; 4.1 shows no TTL of a set.
    wanted = {"userflags": frozenset({"a"})}
    (outcome,) = world.revisit(
        [Suspect("applicableFlag", (MAILBOX,), Verdict.PROJECT, ((truth["messageid"],),), wanted)]
    )
    assert outcome.result is Verdict.FIXED
    labels = world.seen(APPLICABLE_FLAG, (MAILBOX,))
    assert labels.row["userflags"] == {"a"}
    if "userflags" in labels.written_at:
        assert about(labels.ttls, {"userflags": 3})


def shows_a_restored_truth(world: World) -> None:
    before = a_truth_of_two_lives(world)
    (outcome,) = world.revisit([mirror_suspect(before.row, Verdict.LOST_CONTENT)], orphans="quarantine")
    assert outcome.result is Verdict.FIXED
    key = IMAP_UID.key_of(before.row)
    assert world.get(IMAP_UID, key) is None

    # When that is undone, Then one conditional write restores cells of two lives.
    undo(
        UndoSettings(world.run, "mail", (MESSAGES,)),
        UndoTools(world.mail, world.ledger, world.clock, SilentProgress()),
        lambda _: None,
    )

    after = world.seen(IMAP_UID, key)
    assert after.row == before.row
    assert about(after.ttls, {"flagseen": 1, "modseq": 1, "internaldate": 3, "flagdraft": 3})
    assert len(set(after.written_at.values())) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("story", [shows_expiry, shows_a_restored_truth])
def test_fixes_and_undos_expire_with_their_truth_on_4_1(
    cassandra41: CassandraServer, story: Callable[[World], None]
) -> None:
    with mail_on(cassandra41) as (cluster, keyspace):
        assert cluster.release_version.startswith("4.1")
        story(World(real_mail=keyspace))


@pytest.mark.parametrize("story", [shows_expiry, shows_a_restored_truth])
def test_fixes_and_undos_expire_with_their_truth_on_5_0(
    cassandra: CassandraServer, story: Callable[[World], None]
) -> None:
    with mail_on(cassandra) as (cluster, keyspace):
        assert cluster.release_version.startswith("5.0")
        story(World(real_mail=keyspace))
