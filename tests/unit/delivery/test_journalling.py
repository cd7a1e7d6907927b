"""The journal of attempts: what is in it when, and what becomes of a mail that comes again."""

import logging
from datetime import timedelta
from itertools import count, product
from typing import Any

import pytest

from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage, NextHop, SmtpReply, UncertainPolicy
from mailmend.delivery.mail.entries import EntryState, QueuedEntry
from mailmend.delivery.mail.envelopes import first_id, lacking_mail, queued_entries
from mailmend.delivery.mail.hooks import DeleteRecipient, PutOffDelivery
from mailmend.delivery.metrics import JOURNAL_UNWRITTEN, JOURNAL_UP, UNCERTAIN
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.transports import SourceAddress
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.comparison import Redriven
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail
from mailmend.model.errors import BadPayload, CannotReach, WrongUse
from mailmend.model.ids import BlobId, EnqueueId
from tests.support.deliveries import ACCEPTED, FULL, LATER, NEVER, DeliverySite
from tests.support.thorough import first_of
from tests.unit.delivery.test_hooks import deciding

BOB, CY = "bob@one.example", "cy@two.example"
HOLD, ASSUME, RETRY = UncertainPolicy.HOLD, UncertainPolicy.ASSUME, UncertainPolicy.RETRY
BEFORE_STARTED, STARTED, TAKEN, ENDED = 2, 3, 5, 7
"""Steps of the process of a mail with one recipient: the attempt has begun; its row is there; its server has the mail;
its outcome is there."""


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(journals=True)


async def entries(site: DeliverySite) -> list[QueuedEntry]:
    return [one async for mail in site.queue.browse() for one in queued_entries(mail, site.clock.now)]


async def outcomes(site: DeliverySite, mail: EnqueueId) -> list[tuple[int, AttemptOutcome | None]]:
    return [(one.entry.number, one.outcome) for one in await site.recorded(mail)]


async def test_no_value_of_a_sender_keeps_an_attempt_out_of_the_journal(site: DeliverySite) -> None:
    """Given a job without end, and a tenant with half a surrogate pair."""
    broken = attribute("acme").replace("acme", "ac\\ud800me")
    mail = await site.put(BOB, attributes={"jobid": attribute("ä" * 1_000_000), "tenantid": broken})
    await site.serve(30)
    (one,) = await site.recorded(mail)
    assert one.outcome is AttemptOutcome.DELIVERED
    assert one.fields[PickupField.JOB_ID] == "ä" * 510 + "..."
    assert one.fields[PickupField.TENANT_ID] == "ac\ufffdme"


async def test_an_attempt_is_recorded_with_what_policies_counted_it_by(site: DeliverySite) -> None:
    """Its times, its server and process, the addresses that it could come from; no address of a person, no reply."""
    sources = (SourceAddress("192.0.2.8"), SourceAddress("192.0.2.9"), SourceAddress("2001:db8::1"))
    mail = await site.put(BOB, attributes={"jobid": attribute("spring"), "tenantid": attribute("acme")})
    put_at = site.clock.now
    await site.serve(30, sources=sources)
    (one,) = await site.recorded(mail)
    assert {named.value: text for named, text in one.fields.items()} == {
        "jobid": "spring",
        "tenantid": "acme",
        "recipientdomain": "one.example",
        "remotemx": "mx.one.example",
        "remoteip": "192.0.2.1",
        "localip": "192.0.2.8",
    }
    assert (one.mail, one.entry.mail, one.entry.number) == (mail, mail, 0)
    assert (one.sources, one.host, one.server) == (("192.0.2.8", "192.0.2.9"), "mx.one.example", "server")
    assert (one.outcome, one.stage, one.status) == (AttemptOutcome.DELIVERED, AttemptStage.DATA, "2.0.0")
    assert one.ready_at is not None
    assert one.ended_at is not None
    assert put_at <= one.ready_at <= one.started_at < one.ended_at
    assert one.content_bytes > 0
    rows = str(site.tables.__dict__)
    assert BOB not in rows
    assert "taken" not in rows


async def test_each_server_that_is_tried_and_each_try_is_an_attempt_of_its_own(site: DeliverySite) -> None:
    """By the mail's first id, although it comes again under another; with the limits' own server."""
    hops = (NextHop("mx1.one.example", "192.0.2.1"), NextHop("mx2.one.example", "192.0.2.2"))
    site.hops.table["one.example"] = hops
    site.relay.silent = {"mx1.one.example"}
    site.relay.scripts[BOB] = [LATER, ACCEPTED]
    mail = await site.put(BOB)
    await site.serve(600)
    found = await site.recorded(mail)
    assert [(one.host[:3], one.outcome and one.outcome.value, one.stage and one.stage.value) for one in found] == [
        ("mx1", "returned", "connect"),
        ("mx2", "refused", "recipient"),
        ("mx1", "returned", "connect"),
        ("mx2", "delivered", "data"),
    ]
    assert [one.fields[PickupField.REMOTE_IP] for one in found[:2]] == ["192.0.2.1", "192.0.2.2"]
    assert len({one.mail for one in found}) == 2
    assert found[1].ready_at == found[0].ended_at


async def test_nothing_is_sent_before_the_journal_has_it(site: DeliverySite) -> None:
    """Given a process that is killed before the row is there, the server has nothing; the mail comes again."""
    mail = await site.put(BOB)
    await site.serve(60, dies_at=BEFORE_STARTED)
    assert (site.relay.had, await outcomes(site, mail)) == ([], [])
    await site.serve(60, uncertain=ASSUME)
    assert site.relay.had == [BOB]


@pytest.mark.parametrize(("policy", "had"), [(RETRY, 2), (HOLD, 1), (ASSUME, 1)])
async def test_what_has_begun_and_has_no_outcome_follows_the_policy(
    site: DeliverySite, policy: UncertainPolicy, had: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a process that is killed once the server has the mail: it is logged, and counted."""
    caplog.set_level(logging.WARNING, "mailmend.delivery")
    mail = await site.put(BOB)
    await site.serve(60, dies_at=TAKEN, uncertain=policy)
    assert (site.relay.had, await outcomes(site, mail)) == ([BOB], [(0, None)])
    caplog.clear()
    await site.serve(60, uncertain=policy)
    assert site.relay.had == [BOB] * had
    assert len(await site.mails()) == (policy is HOLD)
    (line,) = caplog.records
    assert (line.getMessage(), line.__dict__["mail"]) == ("an attempt has no known outcome", f"{mail}:0")
    counted = {sample.labels[1]: sample.value for sample in site.server.samples() if sample.metric is UNCERTAIN}
    assert counted == {one.value: int(one is policy) for one in UncertainPolicy}


async def test_what_is_held_says_who_may_have_the_mail_since_when(site: DeliverySite) -> None:
    """Once it is released, it is tried."""
    mail = await site.put(BOB)
    await site.serve(60, dies_at=STARTED)
    await site.serve(60, uncertain=HOLD)
    (one,) = await site.held()
    assert one.entry.order
    (attempt,) = await site.recorded(mail)
    assert one.entry.order.reason == (
        "mx.one.example [192.0.2.1] may have the mail: an attempt of "
        f"{attempt.started_at:%Y-%m-%d %H:%M:%S} UTC has no known outcome (by server)"
    )
    assert one.entry.order.owner == "delivery serve"


async def test_what_is_assumed_is_reported_as_relayed(site: DeliverySite) -> None:
    wanted = {"dsn-notify": attribute({BOB: "SUCCESS"})}
    await site.put(BOB, attributes=wanted)
    await site.serve(60, dies_at=TAKEN)
    await site.serve(600, uncertain=ASSUME)
    assert site.relay.reports() == [(BOB, "relayed")]


async def test_a_kill_between_delivery_and_ack_delivers_nothing_twice(site: DeliverySite) -> None:
    """Whatever the policy, as the outcome is known."""
    await site.put(BOB)
    await site.serve(60, dies_at=ENDED)
    assert (site.relay.had, len(await site.mails())) == ([BOB], 1)
    await site.serve(60)
    assert (site.relay.had, await site.mails()) == ([BOB], [])


async def test_what_a_server_had_before_a_kill_is_not_reported_as_expired(site: DeliverySite) -> None:
    """However late its mail comes again."""
    at = (site.clock.now + timedelta(minutes=30)).isoformat()
    await site.put(BOB, attributes={"expires": attribute(at)})
    await site.serve(60, dies_at=ENDED)
    assert (site.relay.had, len(await site.mails())) == ([BOB], 1)

    site.clock.advance(3600)
    await site.serve(60)

    assert (site.relay.recipients, site.relay.reports()) == ([BOB], [])
    assert await site.mails() == []


async def test_a_refusal_before_a_kill_counts_and_no_second_attempt_is_made_for_it(site: DeliverySite) -> None:
    """It is put off as its schedule says, and remembers the refusal."""
    site.relay.scripts[BOB] = [FULL, ACCEPTED]
    await site.put(BOB)
    await site.serve(60, dies_at=ENDED)
    await site.serve(20)
    ((entry,), (wait,)) = await entries(site), await site.waits()
    assert (len(site.relay.attempts), site.relay.had, entry.entry.refusals) == (1, [], 1)
    assert wait.total_seconds() > 30
    await site.serve(600)
    assert site.relay.had == [BOB]


async def test_a_failure_before_a_kill_is_reported_without_another_attempt(site: DeliverySite) -> None:
    """With its status, and a sentence of ours in place of the lost reply."""
    site.relay.scripts[BOB] = [NEVER]
    await site.put(BOB)
    await site.serve(60, dies_at=4)
    assert site.relay.recipients == [BOB]
    await site.serve(600)
    assert site.relay.recipients == [BOB, "ann@sender.example"]
    assert site.relay.reports() == [(BOB, "failed")]
    assert b"Status: 5.1.1" in site.relay.taken[0][1]


@pytest.mark.parametrize(("policy", "had"), [(RETRY, 2), (HOLD, 1), (ASSUME, 1)])
async def test_an_answer_that_is_lost_while_the_process_lives_follows_the_policy_too(
    site: DeliverySite, policy: UncertainPolicy, had: int
) -> None:
    """By default it is a refusal for now, as RFC 5321 has it."""
    site.relay.breaking = {"mx.one.example"}
    mail = await site.put(BOB)
    await site.serve(90, uncertain=policy)
    assert site.relay.had == [BOB] * had
    assert len(await site.held()) == (policy is HOLD)
    known = AttemptOutcome.REFUSED if policy is RETRY else None
    assert (await outcomes(site, mail))[0] == (0, known)


@pytest.mark.parametrize(("policy", "left"), [(RETRY, EntryState.ACTIVE), (HOLD, EntryState.HOLD), (ASSUME, None)])
async def test_an_attempt_that_is_cut_off_at_the_end_of_the_server_follows_the_policy(
    site: DeliverySite, policy: UncertainPolicy, left: EntryState | None
) -> None:
    """Given one recipient of two that has the mail, and another whose server is silent behind the content."""
    site.relay.stalling = {"mx.two.example"}
    await site.put(BOB, CY)
    await site.serve(10, uncertain=policy)
    assert site.relay.had == [BOB]
    assert [(one.entry.recipient, one.state) for one in await entries(site)] == ([(CY, left)] if left else [])


async def test_an_attempt_that_came_to_nothing_decides_nothing_of_the_next(site: DeliverySite) -> None:
    """Given a server that is not there, and another whose limit is reached, the mail comes again, and is tried."""
    closed = CounterPolicy((PickupField.REMOTE_IP,), default=Threshold(rate=DeliveryRate(1, 100 * SECOND)))
    hops = (NextHop("mx1.one.example", "192.0.2.1"), NextHop("mx2.one.example", "192.0.2.2"))
    site.hops.table |= {"one.example": hops, "two.example": hops[1:]}
    site.relay.silent = {"mx1.one.example"}
    await site.put(CY)
    mail = await site.put(BOB)
    await site.serve(10, [closed])
    assert await outcomes(site, mail) == [(0, AttemptOutcome.RETURNED)]
    await site.serve(600, [closed])
    assert site.relay.had == [CY, BOB]
    assert {one.mail for one in await site.recorded(mail)} == {mail}


async def test_a_hook_decides_of_an_outcome_of_before_as_it_would_have(site: DeliverySite) -> None:
    """What it made of the attempt is the attempt's outcome; one that deletes tells nobody."""
    hooks = DeliveryHooks(site.clock, post=deciding(DeleteRecipient("unwanted")))
    site.relay.scripts[BOB] = [NEVER]
    await site.put(BOB)
    await site.serve(60, dies_at=4, hooks=hooks)
    await site.serve(600, hooks=hooks)
    assert (site.relay.recipients, await site.mails()) == ([BOB], [])


async def test_what_a_hook_puts_off_without_a_retry_is_returned(site: DeliverySite) -> None:
    site.relay.scripts[BOB] = [LATER]
    mail = await site.put(BOB)
    await site.serve(30, hooks=DeliveryHooks(site.clock, post=deciding(PutOffDelivery(counts=False))))
    assert await outcomes(site, mail) == [(0, AttemptOutcome.RETURNED)]


async def test_deliveries_go_on_without_a_journal_where_a_mail_may_go_twice(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once; and what came again is tried, as nothing is known of it."""
    site.attempts.silent = True
    await site.put(BOB)
    await site.put(CY)
    await site.serve(60)
    assert sorted(site.relay.had) == [BOB, CY]
    assert caplog.text.count("deliveries go on without a journal") == 1
    site.attempts.silent = False
    mail = await site.put(BOB)
    await site.serve(60)
    assert await outcomes(site, mail) == [(0, AttemptOutcome.DELIVERED)]


async def test_metrics_tell_of_a_journal_that_does_not_answer_and_of_attempts_without_it(site: DeliverySite) -> None:
    """Given an attempt whose server does not answer, while the journal has not its beginning."""
    seen = list[tuple[float, float]]()

    async def looking() -> None:
        for _ in range(2):
            await site.clock.pause(5)
            values = {one.metric: one.value for one in site.server.samples()}
            seen.append((values[JOURNAL_UP], values[JOURNAL_UNWRITTEN]))
            site.attempts.silent = False
            await site.put(CY)

    site.attempts.silent = True
    site.relay.stalling = {"mx.one.example"}
    await site.put(BOB)
    await site.serve(60, beside=looking())
    assert seen == [(0, 1), (1, 1)]


@pytest.mark.parametrize("policy", [HOLD, ASSUME])
async def test_without_a_journal_no_content_is_sent_where_none_may_go_twice(
    site: DeliverySite, policy: UncertainPolicy
) -> None:
    """The mail comes again once the journal answers; that counts as no retry."""
    site.attempts.silent = True
    mail = await site.put(BOB)

    async def answers_later() -> None:
        await site.clock.pause(40)
        assert (site.relay.recipients, site.relay.had) == ([BOB], [])
        site.attempts.silent = False

    await site.serve(600, uncertain=policy, beside=answers_later())
    assert (site.relay.had, await site.mails()) == ([BOB], [])
    assert await outcomes(site, mail) == [(0, AttemptOutcome.RETURNED), (0, AttemptOutcome.DELIVERED)]


@pytest.mark.parametrize("policy", [HOLD, ASSUME])
async def test_a_beginning_that_was_kept_without_saying_so_is_no_delivery(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch, policy: UncertainPolicy
) -> None:
    """Given a write that times out although it lands, the attempt has its end before its mail comes again."""
    write, failed = site.attempts.write, list[None]()

    async def doubtful(one: Any) -> None:
        await write(one)
        if not failed:
            failed.append(None)
            raise CannotReach("no answer in time")

    monkeypatch.setattr(site.attempts, "write", doubtful)
    await site.put(BOB)
    await site.serve(600, uncertain=policy)
    assert (site.relay.had, await site.mails()) == ([BOB], [])


@pytest.mark.parametrize("policy", [HOLD, ASSUME])
async def test_nothing_follows_from_an_outcome_before_the_journal_has_it(
    site: DeliverySite, monkeypatch: pytest.MonkeyPatch, policy: UncertainPolicy
) -> None:
    """Given a journal that fails behind a refusal, the mail stays unacked until it answers."""
    write = site.attempts.write

    async def failing(one: Any) -> None:
        if one.row.get("outcome") == "refused" and site.clock.monotonic() < until:
            raise CannotReach("the ledger does not answer")
        await write(one)

    until = site.clock.monotonic() + 100
    monkeypatch.setattr(site.attempts, "write", failing)
    site.relay.scripts[BOB] = [FULL]
    mail = await site.put(BOB)
    await site.serve(60, uncertain=policy, grace=timedelta(0))
    assert await outcomes(site, mail) == [(0, None)]
    assert (len(await site.mails()), await site.waits()) == (1, [])


@pytest.mark.parametrize("policy", [HOLD, ASSUME])
async def test_a_mail_of_which_nothing_can_be_known_is_not_tried_where_none_may_go_twice(
    site: DeliverySite, policy: UncertainPolicy
) -> None:
    """It goes back to the queue until the journal answers."""
    await site.put(BOB)
    await site.serve(60, dies_at=TAKEN)
    site.attempts.silent = True
    await site.serve(30, uncertain=policy)
    assert (site.relay.had, len(await site.mails()), len(await site.held())) == ([BOB], 1, 0)
    site.attempts.silent = False
    await site.serve(600, uncertain=policy)
    assert (site.relay.had, len(await site.held())) == ([BOB], policy is HOLD)


async def test_a_fresh_mail_costs_no_look_into_the_journal(site: DeliverySite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that may have been had: it came before, or was delayed."""
    reads, read = list[Any](), site.attempts.read

    async def counting(one: Any) -> Any:
        reads.append(one)
        return await read(one)

    monkeypatch.setattr(site.attempts, "read", counting)
    site.relay.scripts[BOB] = [LATER, ACCEPTED]
    await site.put(BOB)
    await site.serve(30)
    assert reads == []
    await site.serve(600)
    assert (len(reads), site.relay.had) == (1, [BOB])


REPLIES = ([ACCEPTED], [FULL, ACCEPTED], [LATER, ACCEPTED], [NEVER])
QUICK = [
    (RETRY, [ACCEPTED]),
    (HOLD, [FULL, ACCEPTED]),
    (HOLD, [NEVER]),
    (ASSUME, [FULL, ACCEPTED]),
    (ASSUME, [NEVER]),
]
"""Whoever may have a mail twice, and where no mail may go twice: one that was refused for now, and a report."""

KILLED = QUICK + [case for case in product(UncertainPolicy, REPLIES) if case not in QUICK]
"""A policy, and what the server answers; those that are not in QUICK in `make test-all`."""


@pytest.mark.parametrize(("policy", "replies"), first_of(KILLED, 5))
async def test_at_each_step_a_kill_loses_nothing_and_doubles_only_what_may_be(
    policy: UncertainPolicy, replies: list[SmtpReply]
) -> None:
    """Before and after the attempt's beginning, the server's answer, the outcome, a mail put off, a report, the ack.

    Where no mail may go twice, none does: also none that was refused for now, and no report.
    """
    deaths = list[tuple[int, int]]()
    for dies_at in count(1):
        site = DeliverySite(journals=True)
        site.relay.scripts[BOB] = list(replies)
        await site.put(BOB, CY)
        await site.serve(30, dies_at=dies_at, uncertain=policy)
        assumed = decided(site)
        if not site.relay.life.dead:
            break
        await site.serve(900, uncertain=policy)
        assumed = assumed + decided(site) if policy is ASSUME else 0
        served = [*site.relay.had, *(one for one, _ in site.relay.reports())]
        waits = [one.entry.recipient for one in await site.held()]
        deaths.append((served.count(BOB), served.count(CY)))
        assert served.count(BOB) + served.count(CY) + len(waits) + assumed >= 2
        assert max(served.count(BOB), served.count(CY)) <= 2
        if policy is not RETRY:
            assert max(served.count(BOB), served.count(CY)) <= 1
        assert sum([len(one.recipients) for one in await site.mails()]) == len(waits)
    assert len(deaths) > 10
    assert any(max(one) > 1 for one in deaths) or policy is not RETRY


async def test_a_kill_while_a_recipient_without_an_attempt_is_put_off_does_not_double_it() -> None:
    """Given one whose server was not known then, and is known to the next process, which delivers at once."""
    for dies_at in count(1):
        site = DeliverySite(journals=True)
        site.relay.scripts[CY] = [LATER, ACCEPTED]
        site.hops.table["one.example"] = SmtpReply(451, "4.4.3", "DNS does not answer", ours=True)
        await site.put(BOB, CY)
        await site.serve(30, dies_at=dies_at, uncertain=HOLD)
        if not site.relay.life.dead:
            break
        site.hops.table.clear()
        await site.serve(900, uncertain=HOLD)
        assert sorted(site.relay.had) == sorted({BOB, CY} - {one.entry.recipient for one in await site.held()})
        assert len(await site.mails()) == len(await site.held())
    assert dies_at > 8


def decided(site: DeliverySite) -> int:
    return round(sum(one.value for one in site.server.samples() if one.metric is UNCERTAIN))


async def test_a_dead_letter_goes_back_for_those_alone_that_lack_their_mail(site: DeliverySite) -> None:
    """Given a mail that could not be put off, one of its recipients has it; another was refused for now."""
    site.relay.scripts[BOB] = [LATER, ACCEPTED]
    site.refusing["enqueue"] = [BadPayload("not with notes"), WrongUse("not without them")]
    mail = await site.put(BOB, CY)
    await site.serve(30)
    assert (len(site.queue.dead), site.relay.had) == (1, [CY])

    async def lacking(queued: QueuedMail) -> Mail | None:
        return lacking_mail(queued, await site.recorded(first_id(queued)), site.clock.now)

    found = await site.queue.redrive(lacking=lacking)
    await site.serve(600)

    assert found == Redriven(redriven=1, recipients_skipped=1)
    assert site.relay.had == [CY, BOB]
    kinds = [AttemptOutcome.REFUSED, AttemptOutcome.DELIVERED, AttemptOutcome.DELIVERED]
    assert await outcomes(site, mail) == list(zip([0, 0, 1], kinds, strict=True))
    assert await lacking(QueuedMail(mail, Mail("m", (BOB, CY)), MailBlobs(BlobId("h"), BlobId("b")))) is None
