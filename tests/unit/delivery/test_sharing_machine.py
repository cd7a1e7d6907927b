"""Several servers share limits, whatever goes wrong: never more than the limit at once, nor more than a rate allows."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mailmend.delivery.policy.engine import Picked
from mailmend.delivery.policy.policy import CounterPolicy, ExactValue, PickupField, Threshold, ThresholdCondition
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.shares import ShareState, turn_of
from tests.support.sharing import Ledger, SharingServer, Wire
from tests.support.thorough import run_stories

DOMAINS = ("one", "few", "many", "rated", "slow", "long")
NAMES = ("a", "b", "c", "d")
ON_ONE_HOST = ("a", "b")
"""Who is started there knows which of those before were killed; of the others nobody does."""

RATES = {
    "rated": DeliveryRate(7, 60 * SECOND),
    "slow": DeliveryRate(2, 200 * SECOND),
    "long": DeliveryRate(110, 3000 * SECOND),
    "late": DeliveryRate(3, 3000 * SECOND),
}
DRIFT_MAX = 0.01
"""A machine's clock that never goes back goes on by so much more or less than others', at most."""


def policies_of(scale: int) -> tuple[CounterPolicy, ...]:
    most = {"one": 1, "few": 3 * scale, "many": 9 * scale}
    thresholds = {
        **{domain: Threshold(count) for domain, count in most.items()},
        **{domain: Threshold(rate=rate) for domain, rate in RATES.items()},
    }
    conditions = (
        ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue(domain),)}, limit)
        for domain, limit in thresholds.items()
    )
    return (
        CounterPolicy((PickupField.RECIPIENT_DOMAIN,), conditions=tuple(conditions)),
        CounterPolicy(default=Threshold(15 * scale)),
    )


def domain_of(picked: Picked) -> str:
    return picked.mail.values[PickupField.RECIPIENT_DOMAIN]


class SharingMachine(RuleBasedStateMachine):
    """Servers come, go, are killed, cut off and late; their clocks differ; answers are lost; limits change."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.servers: list[SharingServer] = []
        self.scale = 1
        self.saves_late = False
        self.off = dict.fromkeys(NAMES, 0.0)
        self.allowed = self.limits()
        self.going_on: set[Picked] = set()
        self.begun: dict[str, list[float]] = {domain: [] for domain in RATES}

    def limits(self) -> dict[str, int]:
        return {"one": 1, "few": 3 * self.scale, "many": 9 * self.scale, "": 15 * self.scale}

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for name in NAMES[:count]:
            self.servers.append(self.server(name, 0.0))
            self.live(6, end_every=5, turn_every=1)

    def server(self, name: str, faster: float) -> SharingServer:
        off, host = self.off[name], "here" if name in ON_ONE_HOST else ""
        policies = policies_of(self.scale)
        return SharingServer(self.ledger, name, policies, RateAlgorithm.SLIDING, faster, off=off, host=host)

    @rule(name=st.sampled_from(NAMES), faster=st.floats(-DRIFT_MAX, DRIFT_MAX))
    def start(self, name: str, faster: float) -> None:
        if len(self.servers) < len(NAMES):
            self.servers.append(self.server(name, faster))

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), orderly=st.booleans())
    def leave(self, data: Any, orderly: bool) -> None:
        server = self.one(data)
        self.servers.remove(server)
        server.stop() if orderly else server.kill()

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), steps=st.integers(1, 9))
    def go_on(self, data: Any, steps: int) -> None:
        server = self.one(data)
        for _ in range(steps):
            server.step()
            self.press(server)

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), seconds=st.sampled_from((20, 40, 70, 150)), again=st.booleans())
    def is_cut_off(self, data: Any, seconds: int, again: bool) -> None:
        """For a while, in which somebody may start it a second time."""
        server = self.one(data)
        server.tables.wire = Wire.CUT
        if again and len(self.servers) < len(NAMES):
            self.servers.append(self.server(server.name, 0.0))
        self.live(seconds, end_every=200, turn_every=3)
        server.tables.wire = Wire.WELL
        self.live(10, end_every=5, turn_every=1)

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), name=st.sampled_from(NAMES), orderly=st.booleans(), seconds=st.integers(0, 90))
    def is_started_again(self, data: Any, name: str, orderly: bool, seconds: int) -> None:
        self.leave(data, orderly)
        self.live(seconds, end_every=50, turn_every=3)
        self.start(name, 0.0)
        self.live(10, end_every=50, turn_every=1)

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), orderly=st.booleans(), seconds=st.sampled_from((0, 30, 60, 63)), late=st.integers(0, 4))
    def comes_again_with_its_name(self, data: Any, orderly: bool, seconds: int, late: int) -> None:
        """It waits for its membership; what began last may not be written yet."""
        server = self.one(data)
        for _ in range(late):
            server.turn()
            self.press_one(server, "late")
        self.servers.remove(server)
        server.stop() if orderly else server.kill()
        self.live(seconds, end_every=50, turn_every=3)
        self.servers.append(self.server(server.name, 0.0))
        self.servers[-1].limits.insists = True
        self.live(8, end_every=50, turn_every=1)
        for _ in range(late):
            for one in self.servers:
                one.turn()
                self.press_one(one, "late")

    @rule(seconds=st.integers(1, 75), end_every=st.integers(1, 30), turn_every=st.integers(1, 5))
    def live(self, seconds: int, end_every: int, turn_every: int) -> None:
        """Time goes on, and everybody does what is due."""
        for second in range(1, seconds + 1):
            self.pass_time(1.0)
            for server in self.servers:
                if second % turn_every == 0:
                    server.turn()
                if second % end_every == 0 and server.under_way:
                    server.end_one()
                self.press(server)

    @precondition(lambda self: self.servers)
    @rule(data=st.data())
    def finish_all(self, data: Any) -> None:
        self.one(data).end_all()

    @rule(seconds=st.sampled_from((0.25, 1.0, 6.0, 31.0, 70.0)))
    def pause(self, seconds: float) -> None:
        """Time goes on, and everybody is late."""
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.ledger.seconds += seconds
        for server in self.servers:
            server.limits.check()

    def press(self, *servers: SharingServer) -> None:
        """These, or all, begin whatever may begin, and save it."""
        for server in servers or self.servers:
            for domain in DOMAINS:
                while self.press_one(server, domain):
                    if not self.saves_late:
                        server.save()
        self.check_at_once()

    def press_one(self, server: SharingServer, domain: str) -> bool:
        """A server begins what may begin, one of that domain among it; whether anything did."""
        begun = server.begin(domain)
        for picked in begun:
            self.note(server, picked)
        return bool(begun)

    def note(self, server: SharingServer, picked: Picked) -> None:
        to = domain_of(picked)
        if to in RATES:
            self.begun[to].append(self.ledger.seconds)
            server.engine.end(picked, server.now)
            server.under_way.remove(picked)

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), wire=st.sampled_from(Wire))
    def wire(self, data: Any, wire: Wire) -> None:
        self.one(data).tables.wire = wire

    @rule(saves_late=st.booleans())
    def save_late(self, saves_late: bool) -> None:
        """What begins is written with the next turn only, if that comes."""
        self.saves_late = saves_late

    @rule(ahead=st.floats(0.0, 5.0))
    def nodes_clocks_differ(self, ahead: float) -> None:
        self.ledger.ahead = ahead

    @precondition(lambda self: self.servers)
    @rule(name=st.sampled_from(NAMES), off=st.floats(0.1, 1e6))
    def wall_clock_is_set_back(self, name: str, off: float) -> None:
        self.off[name] -= off
        for server in self.servers:
            server.clock.off = self.off[server.name]

    @rule(scale=st.integers(1, 3))
    def reload(self, scale: int) -> None:
        """What is under way goes on; others begin by the new limits."""
        self.scale = scale
        for server in self.servers:
            server.engine.reload(policies_of(scale), server.now)
        self.going_on = {one for server in self.servers for one in server.under_way}
        self.allowed = {key: max(limit, self.allowed[key]) for key, limit in self.limits().items()}

    @rule(ends=st.integers(1, 9), seconds=st.integers(0, 3))
    def limits_are_lowered(self, ends: int, seconds: int) -> None:
        """When as much is under way as they allow; some of it ends."""
        self.reload(3)
        self.press()
        self.reload(1)
        for server in self.servers:
            for _ in range(min(ends, len(server.under_way))):
                server.end_one()
        self.live(seconds, end_every=1, turn_every=1)

    def one(self, data: Any) -> SharingServer:
        found: SharingServer = data.draw(st.sampled_from(self.servers))
        return found

    def running(self) -> tuple[Counter[str], Counter[str]]:
        """What is under way for each limit, and what of it was at the last reload."""
        under_way = {one: domain_of(one) for server in self.servers for one in server.under_way}
        self.going_on &= under_way.keys()
        all_now, before = Counter(under_way.values()), Counter(under_way[one] for one in self.going_on)
        all_now[""], before[""] = all_now.total(), before.total()
        return all_now, before

    def check_at_once(self) -> None:
        """Never more at once than the limit; after a reload, as long as anything goes on, than the greater one.

        What began since is never more than the new one.
        """
        now, before = self.running()
        for key, limit in self.limits().items():
            self.allowed[key] = self.allowed[key] if before[key] else limit
            assert now[key] <= self.allowed[key], (now, self.allowed)
            assert now[key] - before[key] <= limit, (now, before)

    @invariant()
    def all_begin_what_they_may(self) -> None:
        self.press()

    @invariant()
    def never_more_in_any_interval_than_the_rate(self) -> None:
        for domain, rate in RATES.items():
            begun, within = self.begun[domain], rate.interval / SECOND / (1 + 2 * DRIFT_MAX)
            for first, last in zip(begun, begun[rate.count :], strict=False):
                assert last - first >= within, (domain, begun)

    def teardown(self) -> None:
        """Once nothing goes wrong any more, the servers have all of each limit between them."""
        if not self.servers:
            return
        for server in self.servers:
            server.tables.wire = Wire.WELL
            server.limits.insists = False
            server.end_all()
        for _ in range(200):
            if self.is_shared_out():
                return
            self.pass_time(1.0)
            for server in self.servers:
                server.turn()
        assert self.is_shared_out()

    def is_shared_out(self) -> bool:
        policy = policies_of(self.scale)[0]
        shares = [server.limits.engine.share.now for server in self.servers]
        return {server.limits.state for server in self.servers} == {ShareState.HAS_SHARE} and all(
            sum(one.of(limit, turn_of(policy, (domain,))) for one in shares) == limit
            for domain, limit in self.limits().items()
        )


def test_a_limit_that_was_lowered_holds_for_whatever_begins_from_then_on() -> None:
    """A server that has more under way than its new part begins nothing; meanwhile another one may."""
    # Given
    ledger, before, lowered = Ledger(), CounterPolicy(default=Threshold(30)), CounterPolicy(default=Threshold(4))
    busy, idle = (SharingServer(ledger, name, [before], RateAlgorithm.SLIDING) for name in "ab")
    for _ in range(9):
        ledger.seconds += 1
        busy.turn()
        idle.turn()

    def begun(server: SharingServer) -> int:
        return sum(len(server.begin("one.example")) for _ in range(40))

    assert begun(busy) == 15
    # When
    for server in (busy, idle):
        server.engine.reload([lowered], server.now)
    # Then
    assert (begun(busy), begun(idle)) == (0, 2)
    for _ in range(13):
        busy.end_one()
    assert begun(busy) == 0
    busy.end_one()
    assert begun(busy) == 1


def test_however_servers_come_and_go_they_never_exceed_a_limit(story_seed: int) -> None:
    run_stories(SharingMachine, story_seed, stories=100, steps=20, few=12)
