"""How many fixes a second: ten thousand damages in a sound keyspace, mended by the ordinary repair."""

from dataclasses import dataclass
from itertools import islice

from cql.applying import ensure_ledger
from model.operations import Remove, Scan
from model.projections.verdicts import Verdict
from repair.clock import SystemClock, Timing
from repair.ledger.leases import Leases
from repair.ledger.runs import Ledger
from repair.mending.engine import RepairSettings
from repair.mending.runner import RepairTools, repair
from spark_repair.message_inconsistencies import SparkEngine
from tests.bench.scanning import Keyspace
from tests.support.progress import SilentProgress

DAMAGES = 10_000


@dataclass(frozen=True, slots=True)
class Mended:
    """So many fixes, each with its before-image and read back."""

    fixes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Fixes a second, from the second look to the last outcome."""
        return self.fixes / self.seconds


def mend(place: Keyspace, ledger_keyspace: str) -> Mended:
    """Take away ten thousand mirror rows, and repair."""
    mail, family, clock = place.cluster.keyspace(place.name), place.family, SystemClock()
    mirror = family.mirror.table
    keys = [mirror.key_of(row) for row in islice(mail.scan(Scan(mirror, ("mailboxid", "uid"))), DAMAGES)]
    errors = [error for error in mail.write_all([Remove(mirror, key, clock.micros()) for key in keys]) if error]
    assert not errors, errors[0]
    ensure_ledger(place.cluster, ledger_keyspace, place.name)
    tables = place.cluster.keyspace(ledger_keyspace)
    engine = SparkEngine(place.session, place.cluster.contact, place.name, ledger_keyspace)
    means = RepairTools(
        engine, clock, place.cluster, SilentProgress(), None, Ledger(tables, clock), Leases(tables, clock, "bench")
    )
    order = RepairSettings(place.name, (family,), delay_seconds=0, timing=Timing(no_writers=True))
    summary = repair(order, means, lambda _: None)
    assert summary.fixed[Verdict.PROJECT] == len(keys), summary
    return Mended(len(keys), summary.seconds["recheck"])
