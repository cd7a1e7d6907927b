"""What the journal of attempts decides of a recipient whose mail comes again."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.attempts import ENDS, OUTCOMES, AttemptOutcome, JournalledAttempt, UncertainPolicy, decisive
from mailmend.delivery.mail.entries import EntryEnd, EntryId
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.ids import EnqueueId
from tests.support.clock import VirtualClock

CLOCK = VirtualClock()
HERE, THERE = EnqueueId(UUID(int=1)), EnqueueId(UUID(int=2))
KINDS = st.sampled_from([*AttemptOutcome, None])


def attempt(
    outcome: AttemptOutcome | None,
    passage: EnqueueId = HERE,
    host: str = "mx.example",
    address: str | None = "192.0.2.1",
) -> JournalledAttempt:
    return JournalledAttempt(
        entry=EntryId(THERE, 0),
        mail=passage,
        id=CLOCK.new_uuid(),
        fields={PickupField.REMOTE_IP: address} if address else {},
        sources=("",),
        host=host,
        content_bytes=7,
        urgent=False,
        outcome=outcome,
        server="ann@here pid 7",
    )


@given(st.lists(KINDS), st.lists(KINDS))
def test_a_delivery_decides_else_the_last_attempt_unless_it_came_to_nothing(
    here: list[AttemptOutcome | None], there: list[AttemptOutcome | None]
) -> None:
    """A delivery of any passage, else the last attempt of the passage that is asked for."""
    mine, others = [attempt(one) for one in here], [attempt(one, THERE) for one in there]
    found = decisive([*others, *mine], HERE)
    if AttemptOutcome.DELIVERED in [*there, *here]:
        assert found is [*others, *mine][[*there, *here].index(AttemptOutcome.DELIVERED)]
    elif here and here[-1] is not AttemptOutcome.RETURNED:
        assert found is mine[-1]
    else:
        assert found is None


def test_a_later_attempt_of_another_passage_does_not_decide() -> None:
    """Only a delivery counts wherever it was made."""
    mine, other = attempt(AttemptOutcome.REFUSED), attempt(AttemptOutcome.FAILED, THERE)
    assert decisive([mine, other], HERE) is mine
    assert decisive([other], HERE) is None


def test_every_end_has_an_outcome_that_leads_to_it_again() -> None:
    """But for those that no attempt has by itself: too old, or given up by a hook."""
    assert set(OUTCOMES) == set(EntryEnd)
    assert set(ENDS) == set(AttemptOutcome)
    others = {end for end, outcome in OUTCOMES.items() if ENDS[outcome] is not end}
    assert others == {EntryEnd.EXPIRED, EntryEnd.DELETED}


def test_a_doubt_names_the_server_the_time_and_who_tried() -> None:
    """A server that has no name by its address alone."""
    began = f"{CLOCK.now:%Y-%m-%d %H:%M:%S} UTC has no known outcome (by ann@here pid 7)"
    assert attempt(None).doubt == f"mx.example [192.0.2.1] may have the mail: an attempt of {began}"
    unnamed = attempt(None, host="192.0.2.1").doubt
    assert unnamed == f"192.0.2.1 may have the mail: an attempt of {began}"
    assert attempt(None, address=None).doubt.startswith("mx.example may have the mail")


def test_an_attempt_that_goes_on_has_no_status() -> None:
    assert attempt(None).status == ""


def test_only_a_retry_may_send_twice() -> None:
    assert [one for one in UncertainPolicy if one.doubles] == [UncertainPolicy.RETRY]
