"""How many client timeouts a change survives: several of the driver's waits fit between a stamp and its age (A)."""

from collections.abc import Callable
from typing import Any

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.model.catalog.ledger import REPAIR_LEASE
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID
from mailmend.model.errors import TimedOut
from mailmend.model.operations import ChangeIf, Count, Put, PutIfAbsent, Read, Remove, RemoveIf, Scan
from mailmend.repair.store.writes import StampSource, WriterSettings
from tests.support.writing import Desk, mail

WAIT = Contact().write_seconds


def silent(desk: Desk, timeouts: int) -> Callable[[Any, Callable[[], Any]], Any]:
    """The first writes of the mirror get no answer, each for as long as the driver waits."""
    left = [timeouts]

    def surround(operation: Any, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Put) and operation.table is MESSAGE_ID and left[0]:
            left[0] -= 1
            desk.clock.advance(WAIT)
            raise TimedOut("no answer came in time")
        return carry_out()

    return surround


@pytest.mark.parametrize(
    ("stamp", "timeouts"), [(StampSource.TRUTH, 2), (StampSource.FLOOR, 1)], ids=lambda one: getattr(one, "name", one)
)
def test_a_change_whose_projection_meets_client_timeouts_is_sent_again(stamp: StampSource, timeouts: int) -> None:
    desk = Desk(WriterSettings(stamp=stamp))
    desk.tables.surround = silent(desk, timeouts)
    stored = desk.store.add(desk.inbox, mail())
    assert not stored.lagged
    assert desk.mirror(stored.place) is not None


def test_a_change_that_meets_timeouts_until_its_stamp_is_too_old_lags() -> None:
    desk = Desk()
    desk.tables.surround = silent(desk, 100)
    assert desk.store.add(desk.inbox, mail()).lagged


def test_what_is_waited_for_briefly_is_what_may_be_sent_again_or_settled_by_a_read() -> None:
    contact, key = Contact(), ("a",)
    brief = (
        Put(IMAP_UID, {}),
        Remove(IMAP_UID, key),
        PutIfAbsent(REPAIR_LEASE, {}),
        ChangeIf(REPAIR_LEASE, key, {}, {}),
        RemoveIf(REPAIR_LEASE, key, {}),
    )
    assert {contact.seconds_for(one) for one in brief} == {contact.write_seconds}
    patient = (Read(IMAP_UID, key), Scan(IMAP_UID, ("uid",)), Count(MAILBOX_COUNTERS, key, {}))
    assert {contact.seconds_for(one) for one in patient} == {contact.request_seconds}
    assert Contact(request_seconds=1).seconds_for(brief[0]) == 1
