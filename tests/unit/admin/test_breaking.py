"""The damages that the demo does are the ones that production knows, each told from the others."""

from datetime import UTC, datetime
from uuid import UUID, uuid1

from mailmend.admin.local.demo import KINDS, break_one_by_one
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGES
from mailmend.model.operations import Change, Count, Put, Remove
from mailmend.model.projections.verdicts import DETECTED
from mailmend.model.table import Row

MAILBOX = uuid1()
NOW = 1_700_000_000_000_000


def truth(uid: int) -> Row:
    """A healthy truth row: unseen, undeleted, with every column that an insert writes."""
    message = uuid1()
    return {
        "messageid": message,
        "mailboxid": MAILBOX,
        "uid": uid,
        "threadid": message,
        "modseq": uid + 1,
        "flagseen": False,
        "flagdeleted": False,
        "flagflagged": False,
        "internaldate": datetime(2026, 1, 1, tzinfo=UTC),
        "bodystartoctet": 10,
        "fullcontentoctets": 20,
        "headercontent": "blob",
    }


def test_every_kind_is_done_as_often_as_asked() -> None:
    damages = break_one_by_one([truth(uid) for uid in range(1, 41)], NOW, each=2)
    kinds = [damage.kind.name for damage in damages]
    assert len(kinds) == 2 * len(KINDS)
    assert all(kinds.count(kind) == 2 for kind in kinds)


def test_between_them_they_cause_every_verdict_that_a_scan_can_find() -> None:
    """No verdict is left without a damage that causes it, so the demo shows them all."""
    damages = break_one_by_one([truth(uid) for uid in range(1, 41)], NOW)
    assert {damage.kind.verdict for damage in damages} == set(DETECTED)


def test_no_row_is_hurt_twice() -> None:
    rows = [truth(uid) for uid in range(1, len(KINDS) + 1)]
    damages = break_one_by_one(rows, NOW)
    assert len({damage.kind.name for damage in damages}) == len(damages) == len(KINDS)


def test_a_mailbox_too_small_for_every_kind_is_hurt_as_far_as_it_goes() -> None:
    """With three messages only the first three kinds are done, and nothing fails."""
    assert len(break_one_by_one([truth(1), truth(2), truth(3)], NOW)) == 3


def test_a_kind_that_fits_no_row_is_left_out() -> None:
    """A mailbox where everything was read has nothing missing among the unread."""
    read = [dict(truth(uid)) | {"flagseen": True} for uid in range(1, 41)]
    assert "unseen not listed" not in {damage.kind.name for damage in break_one_by_one(read, NOW)}


def test_damaging_writes_carry_the_stamp_they_were_given() -> None:
    """The stamp decides whether a repair may touch the place, so none is left to the driver."""
    for damage in break_one_by_one([truth(uid) for uid in range(1, 41)], NOW):
        for write in damage.writes:
            match write:
                case Put() | Change() | Remove():
                    assert write.at in (NOW, NOW - 1)
                case Count():
                    assert damage.kind.name == "wrong counter"


def test_a_clash_is_a_second_message_at_the_same_place() -> None:
    """The other truth claims the same mailbox and uid under another message id, with content of its own."""
    rows = [truth(uid) for uid in range(1, 41)]
    (clash,) = [damage for damage in break_one_by_one(rows, NOW) if damage.kind.name == "clash"]
    put = clash.writes[0]
    assert isinstance(put, Put)
    assert put.table is IMAP_UID
    (hurt,) = [row for row in rows if row["uid"] == put.row["uid"]]
    assert put.row["messageid"] != hurt["messageid"]
    assert isinstance(put.row["messageid"], UUID)
    assert put.row["mailboxid"] == hurt["mailboxid"]


def test_a_dangling_row_is_beyond_every_uid_in_use() -> None:
    """Its place belongs to no message, so nothing healthy is overwritten."""
    rows = [truth(uid) for uid in range(1, 41)]
    (dangling,) = [damage for damage in break_one_by_one(rows, NOW) if damage.kind.name == "dangling projection"]
    put = dangling.writes[0]
    assert isinstance(put, Put)
    assert put.table is MESSAGE_ID
    assert put.row["uid"] not in {row["uid"] for row in rows}
    assert set(put.row) <= set(MESSAGES.mirror.table.names)
