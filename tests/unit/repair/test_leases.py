"""One holder at a time: contenders, killed holders, lost answers, and a heartbeat that keeps the whole row alive."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.ledger import REPAIR_LEASE
from mailmend.model.errors import DoubtfulWrite, LeaseHeld, LeaseLost, MailmendError, NotEnoughReplicas
from mailmend.model.operations import ChangeIf, PutIfAbsent, Read, RemoveIf
from mailmend.repair.ledger.leases import TTL_SECONDS, Lease, Leases, TakenLease, beat_once
from tests.support.clock import VirtualClock
from tests.support.skewed import SkewedClock


class Contenders:
    """Two contenders on one table."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.tables = MemoryTables(self.clock.micros)
        self.ours = Leases(self.tables, self.clock, "us@here pid 1")
        self.theirs = Leases(self.tables, self.clock, "them@there pid 2")

    def on(self, kind: type[Any], fate: Callable[[Callable[[], Any]], Any]) -> None:
        """What happens to every conditional write of a kind; everything else is carried out."""

        def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            return fate(carry_out) if isinstance(operation, kind) else carry_out()

        self.tables.surround = surround

    def calm(self) -> None:
        self.tables.surround = lambda _, carry_out: carry_out()


def applied_but_unheard(carry_out: Callable[[], Any]) -> Any:
    """The write happened; its answer was lost."""
    carry_out()
    raise DoubtfulWrite("no answer in time")


def never_arrived(_: Callable[[], Any]) -> Any:
    """The write was lost on its way; the answer is the same."""
    raise DoubtfulWrite("no answer in time")


def unreachable(_: Callable[[], Any]) -> Any:
    raise NotEnoughReplicas("two of three replicas are down")


def test_the_second_contender_hears_who_holds_it_since_when_and_until_when() -> None:
    """Everything that a person at 3 in the morning needs to know."""
    contenders = Contenders()
    contenders.ours.acquire("repair mail", "repair messages")
    with pytest.raises(LeaseHeld) as refusal:
        contenders.theirs.acquire("repair mail", "repair messages")
    for word in ("us@here pid 1", "repair messages", "2026-08-29 10:40:00", "2026-08-29 10:41:00"):
        assert word in refusal.value.what


def test_different_leases_do_not_meet() -> None:
    contenders = Contenders()
    contenders.ours.acquire("repair one", "repair messages")
    assert contenders.theirs.acquire("repair two", "repair messages").owner == "them@there pid 2"


def test_released_is_free_at_once() -> None:
    contenders = Contenders()
    contenders.ours.release(contenders.ours.acquire("repair mail", "repair messages"))
    assert contenders.ours.holder("repair mail") is None
    contenders.theirs.acquire("repair mail", "repair messages")


def test_a_killed_holder_frees_it_by_time() -> None:
    contenders = Contenders()
    contenders.ours.acquire("repair mail", "repair messages")
    contenders.clock.sleep(TTL_SECONDS - 2)
    with pytest.raises(LeaseHeld):
        contenders.theirs.acquire("repair mail", "repair messages")
    contenders.clock.sleep(3)
    assert contenders.theirs.acquire("repair mail", "repair messages").owner == "them@there pid 2"


def test_heartbeats_keep_every_column_alive() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    for _ in range(40):
        contenders.clock.sleep(TTL_SECONDS / 4)
        lease = contenders.ours.renew(lease)
    (seen,) = contenders.tables.read(Read(REPAIR_LEASE, ("repair mail",)))
    assert None not in seen.row.values()
    assert contenders.theirs.holder("repair mail") == lease
    with pytest.raises(LeaseHeld, match="us@here pid 1"):
        contenders.theirs.acquire("repair mail", "repair messages")


def test_after_a_pause_too_long_the_lease_is_lost_and_not_renewed() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    contenders.clock.sleep(TTL_SECONDS + 1)
    newer = contenders.theirs.acquire("repair mail", "repair messages")
    with pytest.raises(LeaseLost, match="held by them@there pid 2"):
        contenders.ours.renew(lease)
    contenders.ours.release(lease)
    assert contenders.ours.holder("repair mail") == newer


def test_a_lease_that_expired_and_was_taken_by_nobody_is_lost_too() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    contenders.clock.sleep(TTL_SECONDS + 1)
    with pytest.raises(LeaseLost, match="held by nobody"):
        contenders.ours.renew(lease)


def test_a_doubtful_acquisition_that_happened_is_ours() -> None:
    """The row says so, read at SERIAL."""
    contenders = Contenders()
    contenders.on(PutIfAbsent, applied_but_unheard)
    assert contenders.ours.acquire("repair mail", "repair messages") == contenders.ours.holder("repair mail")


def test_a_doubtful_acquisition_that_did_not_happen_is_not_ours() -> None:
    contenders = Contenders()
    contenders.on(PutIfAbsent, never_arrived)
    with pytest.raises(LeaseHeld, match="just now"):
        contenders.ours.acquire("repair mail", "repair messages")


def test_a_doubtful_acquisition_of_a_held_lease_names_its_holder() -> None:
    """The SERIAL read finds the other's row."""
    contenders = Contenders()
    contenders.theirs.acquire("repair mail", "repair messages")
    contenders.on(PutIfAbsent, never_arrived)
    with pytest.raises(LeaseHeld, match="them@there pid 2"):
        contenders.ours.acquire("repair mail", "repair messages")


def test_a_doubtful_heartbeat_tells_how_long_the_lease_really_lasts() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    contenders.clock.sleep(10)
    contenders.on(ChangeIf, never_arrived)
    assert contenders.ours.renew(lease).expires_at == lease.expires_at
    contenders.on(ChangeIf, applied_but_unheard)
    assert contenders.ours.renew(lease).expires_at == lease.expires_at + timedelta(seconds=10)


def test_a_cluster_that_does_not_answer_is_no_free_lease() -> None:
    contenders = Contenders()
    contenders.on(PutIfAbsent, unreachable)
    with pytest.raises(NotEnoughReplicas):
        contenders.ours.acquire("repair mail", "repair messages")


def test_a_release_that_fails_is_left_to_time() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    contenders.on(RemoveIf, unreachable)
    contenders.ours.release(lease)
    contenders.clock.sleep(TTL_SECONDS + 1)
    assert contenders.ours.holder("repair mail") is None


def test_force_ends_the_holding_that_was_seen_and_tells_why() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    ended = contenders.theirs.force_release("repair mail", "host is gone")
    assert ended == replace(lease, purpose="repair messages (ended by them@there pid 2: host is gone)")
    with pytest.raises(LeaseLost):
        contenders.ours.renew(lease)
    assert contenders.theirs.force_release("repair mail", "again") is None


def test_check_refuses_when_too_little_time_is_left() -> None:
    contenders = Contenders()
    held = TakenLease(contenders.ours.acquire("repair mail", "repair messages"), contenders.clock)
    held.check(seconds=20)
    contenders.clock.sleep(40)
    with pytest.raises(LeaseLost, match="s left"):
        held.check(seconds=20)


def test_a_heartbeat_that_cannot_reach_the_cluster_tries_again_until_time_is_up() -> None:
    contenders = Contenders()
    held = TakenLease(contenders.ours.acquire("repair mail", "repair messages"), contenders.clock)
    contenders.on(ChangeIf, unreachable)
    contenders.clock.sleep(15)
    assert beat_once(contenders.ours, held)
    contenders.calm()
    assert beat_once(contenders.ours, held)
    held.check(seconds=40)
    contenders.on(ChangeIf, unreachable)
    contenders.clock.sleep(TTL_SECONDS + 1)
    assert not beat_once(contenders.ours, held)
    with pytest.raises(LeaseLost, match="replicas are down"):
        held.check()


def test_a_heartbeat_that_finds_another_holder_stops() -> None:
    contenders = Contenders()
    held = TakenLease(contenders.ours.acquire("repair mail", "repair messages"), contenders.clock)
    contenders.theirs.force_release("repair mail", "host is gone")
    assert not beat_once(contenders.ours, held)
    with pytest.raises(LeaseLost, match="was lost"):
        held.check()


def test_the_context_holds_while_the_body_runs_and_releases_after_an_error_too() -> None:
    contenders = Contenders()

    def work() -> None:
        with contenders.ours.held("repair mail", "repair messages") as held:
            assert contenders.theirs.holder("repair mail") == held.lease
            raise KeyError("the body fails")

    with pytest.raises(KeyError):
        work()
    assert contenders.theirs.holder("repair mail") is None


def test_the_heartbeat_thread_renews_by_itself_and_ends_with_the_body() -> None:
    """It beats four times per time to live: of a second, so that the first beat is soon seen."""
    contenders = Contenders()
    beaten = threading.Event()

    def beat(carry_out: Callable[[], Any]) -> Any:
        answer = carry_out()
        beaten.set()
        return answer

    contenders.on(ChangeIf, beat)
    quick = Leases(contenders.tables, contenders.clock, "us", ttl_seconds=1)
    with quick.held("repair mail", "repair messages"):
        assert beaten.wait(10)
    assert not [thread for thread in threading.enumerate() if thread.name == "lease repair mail"]


def test_one_of_many_contenders_wins() -> None:
    contenders = Contenders()
    won: list[Lease] = []
    lost: list[MailmendError] = []

    def contend(number: int) -> None:
        try:
            won.append(
                Leases(contenders.tables, contenders.clock, str(number)).acquire("repair mail", "repair messages")
            )
        except LeaseHeld as held:
            lost.append(held)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 19)


def test_a_lease_ends_for_its_holder_though_the_clock_is_set_back() -> None:
    """Nobody answers its heartbeats; the servers let the lease expire by their own clocks."""
    contenders = Contenders()
    wall = SkewedClock(contenders.clock, timedelta())
    ours = Leases(contenders.tables, wall, "us@here pid 1")
    held = TakenLease(ours.acquire("repair mail", "repair messages"), wall)
    held.check()
    contenders.on(ChangeIf, unreachable)

    wall.ahead = -timedelta(seconds=600)
    contenders.clock.advance(TTL_SECONDS - 1)
    assert beat_once(ours, held)
    with pytest.raises(LeaseLost, match=r"has -5\.0 s left"):
        held.check()

    contenders.clock.advance(1)
    assert not beat_once(ours, held)
    contenders.theirs.acquire("repair mail", "repair messages")


def test_a_renewal_whose_answer_was_lost_counts_from_the_renewal_that_arrived() -> None:
    contenders = Contenders()
    lease = contenders.ours.acquire("repair mail", "repair messages")
    contenders.clock.advance(10)

    contenders.on(ChangeIf, never_arrived)
    assert contenders.ours.renew(lease).lives_until == lease.lives_until

    contenders.on(ChangeIf, applied_but_unheard)
    assert contenders.ours.renew(lease).lives_until == lease.lives_until + 10
