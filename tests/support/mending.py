"""A whole repair of a small keyspace by the local engine, and what a check still finds afterwards."""

from dataclasses import dataclass

from model.catalog.mail import MESSAGES
from model.ports import Clock, NodeClocks, Tables
from model.projections.findings import Finding
from model.projections.verdicts import Verdict
from repair.clock import Timing
from repair.ledger.leases import TTL_SECONDS, Leases
from repair.ledger.runs import Ledger
from repair.mending.counters import CounterMender
from repair.mending.engine import RepairSettings
from repair.mending.runner import RepairResult, RepairTools, check, repair
from repair.scanners.local import LocalEngine
from tests.support.progress import SilentProgress


@dataclass(frozen=True, slots=True)
class Workplace:
    """A mail keyspace, its ledger and their clocks."""

    mail: Tables
    ledger: Tables
    clock: Clock
    nodes: NodeClocks

    def order(self, timing: Timing, delay_seconds: float = 0.0) -> RepairSettings:
        """A repair of all that follows from the messages."""
        return RepairSettings("mail", (MESSAGES,), delay_seconds=delay_seconds, timing=timing)

    def means(self, timing: Timing, lease_seconds: int = TTL_SECONDS) -> RepairTools:
        """What it works with: the local engine."""
        ledger, leases = Ledger(self.ledger, self.clock), Leases(self.ledger, self.clock, "a test", lease_seconds)
        counters = CounterMender(self.mail, "mail", (MESSAGES,), self.clock, timing, ledger, leases)
        engine = LocalEngine(self.mail, ledger, self.clock)
        return RepairTools(engine, self.clock, self.nodes, SilentProgress(), counters, ledger, leases)

    def repair(self) -> RepairResult:
        """Mend everything, while nobody writes."""
        timing = Timing(no_writers=True)
        return repair(self.order(timing), self.means(timing), lambda _: None)

    def drift(self) -> list[Finding]:
        """What a check finds, leaks apart."""
        timing, found = Timing(no_writers=True), list[Finding]()
        check(self.order(timing), self.means(timing), found.append)
        return [one for one in found if one.verdict not in (Verdict.AGREE, Verdict.LEAK)]
