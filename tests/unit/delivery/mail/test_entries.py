"""Where an entry may go from where it stands."""

from uuid import UUID

import pytest

from mailmend.delivery.mail.entries import NEXT_STAGES, DeliveryEntry, EntryId, EntryStage, EntryState
from mailmend.model.ids import EnqueueId

MAIL = EnqueueId(UUID(int=7))
ENTRY = DeliveryEntry(EntryId(MAIL, 2), "bob@Example.ORG")


def test_an_entry_is_named_by_its_mail_and_its_number() -> None:
    """As people type it."""
    assert str(ENTRY.id) == "00000000-0000-0000-0000-000000000007:2"


def test_the_domain_of_an_entry_is_what_stands_behind_its_last_at_sign() -> None:
    """In small letters, whatever is quoted before it."""
    assert ENTRY.domain == "example.org"
    assert DeliveryEntry(EntryId(MAIL, 0), '"a@b"@Example.org').domain == "example.org"


def test_every_stage_says_what_may_follow_it() -> None:
    """From each stage but the last one, every entry can come to its end."""
    assert set(NEXT_STAGES) == set(EntryStage)
    for stage in EntryStage:
        assert stage is EntryStage.GONE or EntryStage.GONE in _reachable(stage)
    assert not NEXT_STAGES[EntryStage.GONE]


def _reachable(stage: EntryStage) -> set[EntryStage]:
    found, more = set[EntryStage](), {stage}
    while more:
        found |= more
        more = {after for one in more for after in NEXT_STAGES[one]} - found
    return found


def test_an_active_entry_goes_through_its_five_stages() -> None:
    """Pre-delivery, DNS, waiting, delivering, post-delivery: and then it is gone, deferred, or held."""
    entry = ENTRY
    for stage in (EntryStage.DNS, EntryStage.WAITING, EntryStage.DELIVERING, EntryStage.POST_DELIVERY):
        assert entry.stage.state is EntryState.ACTIVE
        entry = entry.moved(stage)
    for stage in (EntryStage.GONE, EntryStage.DEFER, EntryStage.HOLD):
        assert entry.moved(stage).stage is stage


def test_what_is_being_delivered_is_not_touched() -> None:
    """Its attempt ends first, whatever somebody wants of it."""
    delivering = DeliveryEntry(EntryId(MAIL, 0), "bob@example.org", EntryStage.DELIVERING)
    for stage in set(EntryStage) - {EntryStage.POST_DELIVERY}:
        with pytest.raises(AssertionError):
            delivering.moved(stage)


def test_the_state_of_an_entry_follows_from_its_stage() -> None:
    """Three states; none once it is gone."""
    assert EntryStage.HOLD.state is EntryState.HOLD
    assert EntryStage.DEFER.state is EntryState.DEFER
    assert EntryStage.GONE.state is None
