"""Rows that expire: a fix lasts as long as the truth does, an undo as long as what it restores would have lasted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGE_V3,
    MESSAGES,
)
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Put, PutIfAbsent, Seen, lasting, run_out
from mailmend.model.projections.findings import Finding, Suspect, row_writes
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, Table
from mailmend.repair.ledger.before_images import image_digest, image_from, image_text
from mailmend.repair.mending import second_look
from mailmend.repair.mending.undo import UndoSettings, UndoTools, still_alive, undo
from tests.support.clock import START
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, MAILBOX, World, content_row, mirror_row, mirror_suspect, place, truth_row

NOW = START // MICROS
HOUR = 3600


def expiring(world: World, truth: Row, seconds: int) -> Row:
    """A message whose truth expires, without projections."""
    world.mail.write(Put(IMAP_UID, truth, at=LONG_AGO, ttl_seconds=seconds))
    world.put(MESSAGE_V3, content_row(truth["messageid"]))
    return truth


def filter_suspect(truth: Row, name: str) -> Suspect:
    return Suspect(name, place(truth), Verdict.PROJECT, ((truth["messageid"],),))


def test_a_projected_row_expires_with_its_truth(world: World) -> None:
    truth = expiring(world, truth_row(userflags=frozenset({"a"})), HOUR)

    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

    assert outcome.result is Verdict.FIXED
    seen = world.seen(MESSAGE_ID, place(truth))
    assert set(seen.ttls.values()) == {HOUR}
    assert seen.ttls.keys() == seen.written_at.keys()
    world.clock.advance(HOUR)
    assert (world.get(IMAP_UID, IMAP_UID.key_of(truth)), world.get(MESSAGE_ID, place(truth))) == (None, None)


def test_each_cell_expires_with_that_of_the_truth_and_the_row_with_the_last_one(world: World) -> None:
    """A later change of flags lives longer than the insert, in a table whose rows have a default lifetime."""
    truth = expiring(world, truth_row(), HOUR)
    key = IMAP_UID.key_of(truth)
    world.mail.write(Change(IMAP_UID, key, {"modseq": 2, "flagseen": True}, at=LONG_AGO + 1, ttl_seconds=2 * HOUR))
    world.put(MESSAGE_ID, mirror_row(truth))

    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.AMEND)])

    assert outcome.result is Verdict.FIXED
    ttls = world.seen(MESSAGE_ID, place(truth)).ttls
    assert (ttls["modseq"], ttls["flagseen"], ttls["internaldate"]) == (2 * HOUR, 2 * HOUR, HOUR)
    world.clock.advance(HOUR)
    assert world.seen(MESSAGE_ID, place(truth)).row["modseq"] == 2
    world.clock.advance(HOUR)
    assert world.get(MESSAGE_ID, place(truth)) is None


def test_a_row_whose_truth_stays_gets_no_ttl(world: World) -> None:
    truth = world.message(truth_row(), projected=False)
    world.mail.write(Change(IMAP_UID, IMAP_UID.key_of(truth), {"modseq": 2}, at=LONG_AGO + 1, ttl_seconds=HOUR))

    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])

    assert outcome.result is Verdict.FIXED
    assert dict(world.seen(MESSAGE_ID, place(truth)).ttls) == {"modseq": HOUR}


@pytest.mark.parametrize(("deleted_lives", "expected"), [(HOUR, HOUR), (3 * HOUR, 2 * HOUR)])
def test_a_filter_row_ends_with_the_truth_or_with_the_cell_that_demands_it(
    world: World, deleted_lives: int, expected: int
) -> None:
    truth = expiring(world, truth_row(), 2 * HOUR)
    flag = {"flagdeleted": True}
    world.mail.write(Change(IMAP_UID, IMAP_UID.key_of(truth), flag, at=LONG_AGO + 1, ttl_seconds=deleted_lives))
    life = expected if deleted_lives == HOUR else deleted_lives
    deleted = next(one for one in MESSAGES.filters if one.table is MESSAGE_DELETED)
    world.put(MESSAGE_ID, mirror_row(truth, flagdeleted=True))

    (outcome,) = world.revisit([filter_suspect(truth, deleted.name)])

    assert outcome.result is Verdict.FIXED
    world.clock.advance(life - 1)
    assert world.get(MESSAGE_DELETED, place(truth)) is not None
    world.clock.advance(1)
    assert world.get(MESSAGE_DELETED, place(truth)) is None


def test_a_filter_row_that_an_absent_flag_demands_ends_with_the_truth(world: World) -> None:
    truth = expiring(world, truth_row(), HOUR)
    unseen = next(one for one in MESSAGES.filters if one.table is FIRST_UNSEEN)
    world.put(MESSAGE_ID, mirror_row(truth))

    (outcome,) = world.revisit([filter_suspect(truth, unseen.name)])

    assert outcome.result is Verdict.FIXED
    world.clock.advance(HOUR)
    assert world.get(FIRST_UNSEEN, place(truth)) is None


@pytest.mark.parametrize("scanned", [Verdict.WITHDRAW, Verdict.AMEND])
def test_a_projection_that_expires_just_after_its_truth_has_moved(world: World, scanned: Verdict) -> None:
    """The truth expired before it was read; the projection, read before it, has a second left."""
    truth = truth_row()
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth), at=LONG_AGO, ttl_seconds=1))
    world.put(MESSAGE_V3, content_row(truth["messageid"]))

    (outcome,) = world.revisit([mirror_suspect(truth, scanned)])

    assert outcome.result is Verdict.MOVED


def test_a_truth_that_is_about_to_expire_is_not_projected(world: World) -> None:
    truth = expiring(world, truth_row(), 2)
    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.PROJECT)])
    assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.MOVED)
    assert world.get(MESSAGE_ID, place(truth)) is None


def test_a_projection_that_outlives_its_truth_is_withdrawn(world: World) -> None:
    truth = truth_row()
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth), at=LONG_AGO, ttl_seconds=HOUR))
    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.WITHDRAW, known=False)])
    assert (outcome.verdict, outcome.result) == (Verdict.WITHDRAW, Verdict.FIXED)


def test_a_truth_that_expires_between_the_look_and_the_write_is_not_projected() -> None:
    writes = (Put(MESSAGE_ID, mirror_row(truth_row()), at=1, expires_at=NOW + 10),)
    assert not any(run_out(write, START) for write in writes)
    assert all(run_out(write, START + 10 * MICROS) for write in writes)


@pytest.mark.parametrize(("late", "seconds"), [(0, 10), (1, 9), (MICROS, 9), (9 * MICROS + 1, 1)])
def test_a_ttl_is_rounded_so_that_nothing_outlives_its_instant(late: int, seconds: int) -> None:
    put = Put(MESSAGE_ID, mirror_row(truth_row()), at=1, expires_at=NOW + 10)
    sent = lasting(put, START + late)
    assert (sent.ttl_seconds, sent.expires_at) == (seconds, None)


def test_a_write_that_never_ends_is_sent_as_it_is() -> None:
    put = Put(MESSAGE_ID, mirror_row(truth_row()), at=1)
    assert lasting(put, START) is put
    assert not run_out(put, START)


def undone(world: World) -> None:
    tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
    undo(UndoSettings(world.run, "mail", (MESSAGES,)), tools, lambda _: None)


@pytest.mark.parametrize("waited", [0, HOUR // 2])
def test_what_was_removed_comes_back_for_the_time_that_it_had_left(world: World, waited: int) -> None:
    truth = truth_row()
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth), at=LONG_AGO, ttl_seconds=HOUR))
    world.revisit([mirror_suspect(truth, Verdict.WITHDRAW, known=False)])
    world.clock.advance(waited)

    undone(world)

    assert set(world.seen(MESSAGE_ID, place(truth)).ttls.values()) == {HOUR - waited}


def test_what_has_run_out_does_not_come_back(world: World) -> None:
    truth = truth_row()
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth), at=LONG_AGO, ttl_seconds=HOUR))
    world.revisit([mirror_suspect(truth, Verdict.WITHDRAW, known=False)])
    world.clock.advance(HOUR)

    undone(world)

    assert world.get(MESSAGE_ID, place(truth)) is None


def test_a_cell_that_has_run_out_stays_away_and_the_others_come_back(world: World) -> None:
    truth = world.message(truth_row(), projected=False)
    world.put(MESSAGE_ID, mirror_row(truth, modseq=0))
    wrong = {"flagseen": True}
    world.mail.write(Change(MESSAGE_ID, place(truth), wrong, at=LONG_AGO + 1, ttl_seconds=HOUR))
    world.revisit([mirror_suspect(truth, Verdict.AMEND)])
    world.clock.advance(HOUR)

    undone(world)

    row = world.seen(MESSAGE_ID, place(truth)).row
    assert (row["modseq"], row["flagseen"]) == (0, None)


def stale_filter(world: World, table: Table, mirror: int | None, truth: int | None) -> Row:
    """A filter's row that no flag demands, beside a mirror row and perhaps a truth of these lives, in seconds."""
    row = truth_row(flagseen=True)
    world.put(table, table.key_row(place(row)))
    world.mail.write(Put(MESSAGE_ID, mirror_row(row), at=LONG_AGO, ttl_seconds=mirror))
    if truth is not None:
        expiring(world, row, truth)
    return row


@pytest.mark.parametrize(("mirror", "truth", "left"), [(HOUR, None, HOUR), (None, 2 * HOUR, 2 * HOUR)])
def test_a_filter_row_comes_back_for_the_life_of_the_truth_or_of_the_mirror(
    world: World, mirror: int | None, truth: int | None, left: int
) -> None:
    """Its own row shows no TTL."""
    row = stale_filter(world, FIRST_UNSEEN, mirror, truth)
    (outcome,) = world.revisit([replace(filter_suspect(row, FIRST_UNSEEN.spelling), verdict=Verdict.WITHDRAW)])
    assert (outcome.verdict, outcome.result) == (Verdict.WITHDRAW, Verdict.FIXED)
    world.clock.advance(HOUR // 2)

    undone(world)

    assert world.get(FIRST_UNSEEN, place(row)) is not None
    world.clock.advance(left - HOUR // 2)
    assert world.get(FIRST_UNSEEN, place(row)) is None


def test_a_filter_row_that_has_run_out_does_not_come_back(world: World) -> None:
    row = stale_filter(world, FIRST_UNSEEN, HOUR, None)
    world.revisit([replace(filter_suspect(row, FIRST_UNSEEN.spelling), verdict=Verdict.WITHDRAW)])
    world.clock.advance(HOUR)

    undone(world)

    assert world.get(FIRST_UNSEEN, place(row)) is None


def test_a_filter_row_stays_where_neither_truth_nor_mirror_expires(world: World) -> None:
    row = stale_filter(world, FIRST_UNSEEN, None, None)
    world.revisit([replace(filter_suspect(row, FIRST_UNSEEN.spelling), verdict=Verdict.WITHDRAW)])

    undone(world)

    world.clock.advance(1000 * HOUR)
    assert world.get(FIRST_UNSEEN, place(row)) is not None


def union_suspect(*truths: Row, wanted: str = "") -> Suspect:
    """What a scan says of `applicableFlag`: the missing elements, and one truth row for each."""
    keys = tuple((truth["messageid"],) for truth in truths)
    return Suspect("applicableFlag", (MAILBOX,), Verdict.PROJECT, keys, {"userflags": frozenset(wanted.split())})


def labelled(world: World, number: int, labels: str, seconds: int | None) -> Row:
    """A message with these labels that expires, and its mirror's row."""
    truth = truth_row(number, userflags=frozenset(labels.split()))
    world.mail.write(Put(IMAP_UID, truth, at=LONG_AGO, ttl_seconds=seconds))
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth), at=LONG_AGO, ttl_seconds=seconds))
    return truth


def labels_after(world: World, hours: float) -> frozenset[str]:
    world.clock.advance(hours * HOUR)
    seen = world.get(APPLICABLE_FLAG, (MAILBOX,))
    return seen.row["userflags"] if seen else frozenset()


def test_an_element_of_a_union_ends_with_the_last_truth_that_holds_it(world: World) -> None:
    """The scan names one of them; the mirror's rows lead to the others."""
    first = labelled(world, 1, "a b", HOUR)
    labelled(world, 2, "a", 3 * HOUR)
    labelled(world, 3, "other", 9 * HOUR)

    (outcome,) = world.revisit([union_suspect(first, wanted="a b")])

    assert outcome.result is Verdict.FIXED
    assert labels_after(world, 0.9) == {"a", "b"}
    assert labels_after(world, 0.1) == {"a"}
    assert labels_after(world, 1.9) == {"a"}
    assert labels_after(world, 0.1) == frozenset()


def test_an_element_stays_where_one_truth_that_holds_it_stays(world: World) -> None:
    first = labelled(world, 1, "a", HOUR)
    labelled(world, 2, "a", None)

    (outcome,) = world.revisit([union_suspect(first, wanted="a")])

    assert outcome.result is Verdict.FIXED
    assert labels_after(world, 1000) == {"a"}


def test_a_union_without_known_truths_stays(world: World) -> None:
    (outcome,) = world.revisit([union_suspect(wanted="a")])

    assert outcome.result is Verdict.FIXED
    assert labels_after(world, 1000) == {"a"}


def test_an_element_of_too_many_truths_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One element too many does no harm to a union."""
    monkeypatch.setattr(second_look, "MEMBERS_MAX", 2)
    first, *_ = [labelled(world, number, "a", HOUR) for number in (1, 2, 3)]

    (outcome,) = world.revisit([union_suspect(first, wanted="a")])

    assert outcome.result is Verdict.FIXED
    assert labels_after(world, 1000) == {"a"}


def test_before_cassandra_5_an_element_ends_with_its_truth_row(world: World) -> None:
    """No TTL of a set is shown there."""
    union = MESSAGES.unions[0]
    truth = Seen({**truth_row(), "userflags": frozenset({"a"})}, {"modseq": 1}, expires_at={"modseq": NOW + 60})
    look = union.looked_at(
        Look(union_suspect(wanted="a"), MESSAGES.mirror, MESSAGES.content, union), [truth], accept_torn=False
    )
    assert [dict(seen.expires_at) for seen in look.truths] == [{"userflags": NOW + 60}]


def test_an_undone_union_gives_nothing_back_that_has_run_out(world: World) -> None:
    """Undone and done again: the elements have the time that they had left, and those of others stay."""
    first, second = labelled(world, 1, "a", HOUR), labelled(world, 2, "b", 3 * HOUR)
    world.add_flag("old", at=LONG_AGO)
    world.revisit([union_suspect(first, second, wanted="a b")])
    tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
    again = undo(UndoSettings(world.run, "mail", (MESSAGES,)), tools, lambda _: None).run
    assert again is not None
    assert labels_after(world, 1.5) == {"old"}

    undo(UndoSettings(again, "mail", (MESSAGES,)), tools, lambda _: None)

    assert labels_after(world, 0) == {"b", "old"}
    assert labels_after(world, 1.4) == {"b", "old"}
    assert labels_after(world, 0.1) == {"old"}


def test_two_looks_at_a_union_have_one_digest_wherever_seconds_fall() -> None:
    suspect = union_suspect(wanted="a b")
    apart = (
        Seen({"userflags": frozenset({"a"})}, expires_at={"userflags": 1}),
        Seen({"userflags": frozenset({"b"})}, expires_at={"userflags": 2}),
    )
    together = (Seen({"userflags": frozenset({"a", "b"})}, expires_at={"userflags": 2}),)
    digests = {image_digest(Finding(suspect, Verdict.PROJECT, truths=truths)) for truths in (apart, together)}
    assert len(digests) == 1


def quarantined(world: World) -> Row:
    """A truth without content, whose flags expire before its other cells, is removed."""
    truth = truth_row(userflags=frozenset({"x"}))
    world.mail.write(Put(IMAP_UID, truth, at=LONG_AGO, ttl_seconds=3 * HOUR))
    flags = {"flagseen": True, "modseq": 7}
    world.mail.write(Change(IMAP_UID, IMAP_UID.key_of(truth), flags, at=LONG_AGO + 1, ttl_seconds=HOUR))
    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.LOST_CONTENT)], orphans="quarantine")
    assert outcome.result is Verdict.FIXED
    assert world.get(IMAP_UID, IMAP_UID.key_of(truth)) is None
    return truth


def test_a_restored_truth_row_has_the_ttl_of_each_of_its_cells(world: World) -> None:
    truth = quarantined(world)
    world.clock.advance(HOUR // 2)

    undone(world)

    seen = world.seen(IMAP_UID, IMAP_UID.key_of(truth))
    assert {seen.ttls["flagseen"], seen.ttls["modseq"]} == {HOUR // 2}
    assert {seen.ttls["flagdraft"], seen.ttls["internaldate"], seen.ttls["userflags"]} == {5 * HOUR // 2}
    assert (seen.row["flagseen"], seen.row["modseq"], seen.row["userflags"]) == (True, 7, frozenset({"x"}))


def test_a_truth_row_comes_back_without_the_cells_that_have_run_out(world: World) -> None:
    truth = quarantined(world)
    world.clock.advance(2 * HOUR)

    undone(world)

    seen = world.seen(IMAP_UID, IMAP_UID.key_of(truth))
    assert (seen.row["flagseen"], seen.row["modseq"]) == (None, None)
    assert set(seen.ttls.values()) == {HOUR}


def test_a_truth_row_that_has_run_out_does_not_come_back(world: World) -> None:
    truth = quarantined(world)
    world.clock.advance(3 * HOUR)

    undone(world)

    assert world.get(IMAP_UID, IMAP_UID.key_of(truth)) is None


def test_a_truth_row_restored_from_its_projection_has_the_ttl_of_each_of_its_cells(world: World) -> None:
    truth = truth_row()
    world.put(MESSAGE_V3, content_row(truth["messageid"]))
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth), at=LONG_AGO, ttl_seconds=3 * HOUR))
    seen_flag = {"flagseen": True}
    world.mail.write(Change(MESSAGE_ID, place(truth), seen_flag, at=LONG_AGO + 1, ttl_seconds=HOUR))

    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.WITHDRAW)], dangling="restore")

    assert outcome.result is Verdict.FIXED
    ttls = world.seen(IMAP_UID, IMAP_UID.key_of(truth)).ttls
    assert (ttls["flagseen"], ttls["modseq"], ttls["internaldate"]) == (HOUR, 3 * HOUR, 3 * HOUR)


def test_cells_that_run_out_before_the_insert_are_left_out_of_it() -> None:
    sooner = Change(IMAP_UID, IMAP_UID.key_of(truth_row()), {"modseq": 7}, expires_at=NOW)
    insert = PutIfAbsent(
        IMAP_UID, truth_row(), expires_at=NOW + 60, beside=(sooner, replace(sooner, expires_at=NOW + 9))
    )
    sent = lasting(insert, START)
    assert (sent.ttl_seconds, [change.ttl_seconds for change in sent.beside]) == (60, [9])


def test_a_before_image_keeps_when_each_cell_expires() -> None:
    truth = truth_row()
    seen = Seen(mirror_row(truth), {"modseq": 1, "flagseen": 2}, {"modseq": 60}).asked_at(START)
    finding = Finding(mirror_suspect(truth, Verdict.WITHDRAW), Verdict.WITHDRAW, projected=seen)
    image = image_from(image_text(finding))
    assert image.projected is not None
    assert dict(image.projected.expires_at) == {"modseq": NOW + 60}


def test_two_looks_a_second_apart_have_one_digest() -> None:
    truth = truth_row()
    seen = Seen(mirror_row(truth), {"modseq": 1}, {"modseq": 60})
    looks = [
        Finding(mirror_suspect(truth, Verdict.AMEND), Verdict.AMEND, projected=seen.asked_at(START + later * MICROS))
        for later in (0, 1)
    ]
    assert image_digest(looks[0]) == image_digest(looks[1])
    assert looks[0].projected == looks[1].projected


def test_an_image_without_expiry_is_read_as_it_always_was() -> None:
    truth = truth_row()
    plain = Finding(
        mirror_suspect(truth, Verdict.AMEND), Verdict.AMEND, projected=Seen(mirror_row(truth), {"modseq": 1})
    )
    assert "expires_at" not in image_text(plain)
    assert still_alive(plain, NOW) == plain
    expired = replace(plain, projected=Seen(mirror_row(truth), {"modseq": 1}, expires_at={"modseq": NOW}))
    assert still_alive(expired, NOW).projected is None


def test_a_row_is_one_write_for_each_instant_at_which_cells_of_it_expire() -> None:
    row = {**mirror_row(truth_row()), "userflags": frozenset({"a"})}
    cells = [column.name for column in MESSAGE_ID.regular if row.get(column.name) is not None]
    ends = dict.fromkeys(cells, NOW + 30) | {"flagseen": NOW + 10, "modseq": NOW + 20}
    put, *changes = row_writes(MESSAGE_ID, row, ends, 7)
    assert isinstance(put, Put)
    assert (put.expires_at, put.at, put.clear) == (NOW + 30, 7, True)
    assert not {"flagseen", "modseq"} & put.row.keys()
    assert [(change.assign, change.expires_at) for change in changes if isinstance(change, Change)] == [
        ({"flagseen": row["flagseen"]}, NOW + 10),
        ({"modseq": row["modseq"]}, NOW + 20),
    ]


LIVES = st.sampled_from([None, 20, 60, HOUR])
"""Seconds; None: the cell stays."""


@given(of_insert=LIVES, of_flags=LIVES, of_modseq=LIVES)
def test_whatever_expires_when_truth_and_projection_agree_at_every_later_instant(
    of_insert: int | None, of_flags: int | None, of_modseq: int | None
) -> None:
    world = World()
    truth = truth_row(userflags=frozenset({"a"}))
    key = IMAP_UID.key_of(truth)
    world.mail.write(Put(IMAP_UID, truth, at=LONG_AGO, ttl_seconds=of_insert))
    world.put(MESSAGE_V3, content_row(truth["messageid"]))
    world.mail.write(Change(IMAP_UID, key, {"flagseen": True}, at=LONG_AGO + 1, ttl_seconds=of_flags))
    world.mail.write(Change(IMAP_UID, key, {"modseq": 2}, at=LONG_AGO + 2, ttl_seconds=of_modseq))
    world.put(MESSAGE_ID, mirror_row(truth, flagseen=False, modseq=9))

    (outcome,) = world.revisit([mirror_suspect(truth, Verdict.AMEND)])

    assert outcome.result is Verdict.FIXED
    for _ in (0, 20, 60, HOUR):
        stands, shown = world.get(IMAP_UID, key), world.get(MESSAGE_ID, place(truth))
        assert (stands is None) == (shown is None)
        if stands is not None and shown is not None:
            assert MESSAGES.mirror.agree(stands.row, shown.row)
        world.clock.advance(30 if world.clock.micros() < START + 50 * MICROS else HOUR)
