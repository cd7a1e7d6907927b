"""Servers are killed or end, and are taken up by who has their names: never more begins than a rate lets begin."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mailmend.delivery.policy.policy import CounterPolicy, ExactValue, PickupField, Threshold, ThresholdCondition
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from tests.support.sharing import Ledger, SharingServer, Wire
from tests.support.thorough import run_stories

NAMES = ("a", "b")
RATES = {
    "few": DeliveryRate(5, 3000 * SECOND),
    "many": DeliveryRate(110, 3000 * SECOND),
}
DOMAINS = st.sampled_from(tuple(RATES))
BY_DOMAIN = CounterPolicy(
    (PickupField.RECIPIENT_DOMAIN,),
    conditions=tuple(
        ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue(domain),)}, Threshold(rate=rate))
        for domain, rate in RATES.items()
    ),
)


class RestartMachine(RuleBasedStateMachine):
    """One name or two; what a process wrote last, and by which clock, is all that the next one of its name knows."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.servers: list[SharingServer] = []
        self.off = dict.fromkeys(NAMES, 0.0)
        self.begun: dict[str, list[float]] = {domain: [] for domain in RATES}

    @initialize()
    def begin(self) -> None:
        self.start(NAMES[0])

    def start(self, name: str, host: str = "here") -> None:
        server = SharingServer(self.ledger, name, [BY_DOMAIN], RateAlgorithm.SLIDING, off=self.off[name], host=host)
        server.limits.insists = True
        self.servers.append(server)
        self.live(10)

    def live(self, seconds: int, every: int = 1) -> None:
        """Nobody begins anything; all that runs keeps its membership, and saves what it began."""
        for _ in range(0, seconds, every):
            self.ledger.seconds += every
            for server in self.servers:
                server.limits.check()
                server.turn()

    def one(self, data: Any) -> SharingServer:
        found: SharingServer = data.draw(st.sampled_from(self.servers))
        return found

    @rule(data=st.data(), domain=DOMAINS, many=st.integers(1, 3), wire=st.sampled_from(Wire))
    def begins(self, data: Any, domain: str, many: int, wire: Wire) -> None:
        server = self.one(data)
        server.tables.wire = wire
        self.begin_at(server, domain, many)
        server.tables.wire = Wire.WELL

    def begin_at(self, server: SharingServer, domain: str, most: int) -> None:
        """Begin as many as may, up to a number; what began last is not saved."""
        many = 0
        while many < most:
            picked = server.begin(domain, most - many)
            if not picked:
                server.save()
                picked = server.begin(domain, most - many)
            if not picked:
                break
            server.end_all()
            many += len(picked)
            for one in picked:
                self.note(one.mail.values[PickupField.RECIPIENT_DOMAIN])

    def note(self, domain: str) -> None:
        begun, rate = self.begun[domain], RATES[domain]
        begun.append(self.ledger.seconds)
        if len(begun) > rate.count:
            assert begun[-1] - begun[-1 - rate.count] >= rate.interval / SECOND, (domain, begun)

    @rule(
        data=st.data(),
        domain=DOMAINS,
        many=st.integers(1, 3),
        back=st.sampled_from((0.0, 4000.0)),
        orderly=st.booleans(),
        seconds=st.sampled_from((0, 40, 70, 150)),
        by=st.sampled_from((*NAMES, None, None, None)),
        host=st.sampled_from(("here", "")),
    )
    def is_taken_up(
        self,
        *,
        data: Any,
        domain: str,
        many: int,
        back: float,
        orderly: bool,
        seconds: int,
        by: str | None,
        host: str,
    ) -> None:
        """By a process of its name, or of another one first; just before, the clock was set back for a while.

        On another host nobody knows that it was killed.
        """
        server = self.one(data)
        server.clock.off -= back
        self.begin_at(server, domain, many)
        server.clock.off += back
        self.servers.remove(server)
        server.stop() if orderly else server.kill()
        self.live(seconds, 5)
        for name in dict.fromkeys((by or server.name, server.name)):
            if all(name != one.name for one in self.servers):
                self.start(name, host)
        self.live(65 - seconds, 5)

    @rule(data=st.data(), off=st.floats(1.0, 1e5))
    def wall_clock_is_set_back(self, data: Any, off: float) -> None:
        server = self.one(data)
        self.off[server.name] -= off
        server.clock.off = self.off[server.name]

    @rule(seconds=st.sampled_from((1, 20, 100, 1000)))
    def time_passes(self, seconds: int) -> None:
        self.ledger.seconds += seconds
        self.live(10)

    def teardown(self) -> None:
        """All begin what they may."""
        self.live(75, 5)
        for server in self.servers:
            for domain in RATES:
                self.begin_at(server, domain, 120)


def test_whoever_takes_up_a_server_begins_no_more_than_its_rates_let_begin(story_seed: int) -> None:
    run_stories(RestartMachine, story_seed, stories=200, steps=12, few=25)
