"""What a server remembers of its attempts: counts of a minute, last replies, and of a bounded number of sub-queues."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.entries import DeliveryEntry, EndedEntry, EntryEnd, EntryId
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.server.recent import COUNTED_FOR, SUB_QUEUES_MAX, RecentAttempts, SubQueueKey, key_of
from mailmend.model.ids import EnqueueId
from tests.support.queues import queued

AT = datetime(2026, 12, 1, 8, tzinfo=UTC)
ENTRY = DeliveryEntry(EntryId(EnqueueId(queued(1).enqueue_id), 0), "bob@example.org")
DECIDED = (EntryEnd.DELIVERED, EntryEnd.REFUSED, EntryEnd.FAILED)
MINUTE = int(COUNTED_FOR.total_seconds())
SLOT_SECONDS = 5


def key(domain: str) -> SubQueueKey:
    return key_of({PickupField.RECIPIENT_DOMAIN: domain})


def ended(end: EntryEnd = EntryEnd.DELIVERED, reply: str = "") -> EndedEntry:
    return EndedEntry(replace(ENTRY, reply=reply), end, AT)


def counts(recent: RecentAttempts, domain: str, second: int) -> Counter[EntryEnd]:
    found = {name: ends for name, ends, _ in recent.counted(second * SECOND)}
    return Counter(dict(zip(DECIDED, found[key(domain)], strict=True)))


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(EntryEnd)), max_size=30), st.integers(300, 400))
def test_what_ended_in_the_last_minute_is_counted_and_what_is_older_is_not(
    ends: list[tuple[int, EntryEnd]], now: int
) -> None:
    """To within five seconds: a server keeps no time for each attempt."""
    recent = RecentAttempts()
    recent.note(key("a"), ended(), None, 0)
    for second, end in sorted(ends, key=lambda one: one[0]):
        recent.note(key("a"), ended(end), None, second * SECOND)
    found = counts(recent, "a", now)
    counted = [(second, end) for second, end in ends if end in DECIDED]
    surely = Counter(end for second, end in counted if second > now - MINUTE + SLOT_SECONDS)
    at_most = Counter(end for second, end in counted if second > now - MINUTE - SLOT_SECONDS)
    assert surely <= found <= at_most


def test_the_last_reply_stays_where_a_later_attempt_had_none() -> None:
    """With when the mail is tried again; control characters are blanks."""
    recent = RecentAttempts()
    again_at = AT + timedelta(hours=1)
    recent.note(key("a"), ended(EntryEnd.REFUSED, "421 4.3.2 too\x1b[2J busy"), again_at, 0)
    recent.note(key("a"), ended(EntryEnd.RETURNED), None, SECOND)
    ((_, _, last),) = recent.counted(SECOND)
    assert last is not None
    assert (last.text, last.again_at, last.end) == ("421 4.3.2 too [2J busy", again_at, EntryEnd.REFUSED)


def test_the_sub_queues_that_were_tried_last_are_remembered_and_no_more() -> None:
    recent = RecentAttempts()
    for number in range(SUB_QUEUES_MAX + 10):
        recent.note(key(f"{number}.example"), ended(), None, 0)
        recent.note(key("busy.example"), ended(), None, 0)
    known = {name for name, _, _ in recent.counted(0)}
    assert len(known) == SUB_QUEUES_MAX
    assert key("busy.example") in known
    assert key("11.example") in known
    assert key("10.example") not in known


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(EntryEnd)), max_size=40), st.integers(1, 4))
def test_the_domains_with_most_refusals_are_named_with_their_last_refusal(
    ends: list[tuple[str, EntryEnd]], at_most: int
) -> None:
    """Two tenants of a domain count together; a domain without refusals is not named."""
    recent = RecentAttempts()
    for number, (domain, end) in enumerate(ends):
        tenant = f"tenant{number % 2}"
        values = {PickupField.RECIPIENT_DOMAIN: domain, PickupField.TENANT_ID: tenant}
        at = AT + timedelta(seconds=number)
        recent.note(key_of(values), replace(ended(end, f"450 {number}"), at=at), None, 0)
    refused = Counter(domain for domain, end in ends if end is EntryEnd.REFUSED)
    found = list(recent.most_refused(0, at_most))
    assert [count for _, count, _ in found] == [count for _, count in refused.most_common(at_most)]
    assert {domain: count for domain, count, _ in found}.items() <= refused.items()
    assert all(reply is None or reply.end is EntryEnd.REFUSED for _, _, reply in found)


def test_refusals_of_more_than_a_minute_ago_and_mails_without_a_domain_are_in_no_metric() -> None:
    recent = RecentAttempts()
    recent.note(key("old.example"), ended(EntryEnd.REFUSED, "450 busy"), None, 0)
    recent.note(key(""), ended(EntryEnd.REFUSED, "450 busy"), None, 2 * MINUTE * SECOND)
    assert list(recent.most_refused(2 * MINUTE * SECOND, 10)) == []
