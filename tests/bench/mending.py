"""How many fixes a second: ten thousand damages in a sound keyspace, mended by the ordinary repair, and undone."""

import time
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from mailmend.cql.applying import ensure_ledger
from mailmend.model.operations import Level, Read, Remove, Scan
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import SystemClock, Timing
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.runner import RepairTools, repair
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.spark_repair.message_inconsistencies import SparkEngine
from tests.bench.scanning import Keyspace, walk_per_second
from tests.support.progress import SilentProgress

DAMAGES = 10_000


@dataclass(frozen=True, slots=True)
class Mended:
    """So many fixes, each with its before-image and read back.

    Attributes:
        seconds: from the second look to the last outcome.
        undo_seconds: for all of them.
        serial_seconds: for reading their truths at SERIAL and nothing else, one by one: neither can do without.
        walk_seconds: for a walk that looks at so many messages as James does, by two point reads, and mends none.
    """

    fixes: int
    seconds: float
    undo_seconds: float
    serial_seconds: float
    walk_seconds: float

    def __str__(self) -> str:
        seconds = (self.seconds, self.undo_seconds, self.serial_seconds, self.walk_seconds)
        rates = [f"{self.fixes / one:,.0f}/s" for one in seconds]
        reported = "{:,} fixes: {}; undone: {}; their truths alone, at SERIAL: {}; a walk that reads as James does: {}"
        return reported.format(self.fixes, *rates)

    def as_json(self) -> dict[str, Any]:
        rates = {"per_second": self.fixes / self.seconds, "undo_per_second": self.fixes / self.undo_seconds}
        return asdict(self) | {name: round(rate, 1) for name, rate in rates.items()}


def mend(place: Keyspace, ledger_keyspace: str) -> Mended:
    """Take away ten thousand mirror rows, repair, and undo."""
    mail, family, clock = place.cluster.keyspace(place.name), place.family, SystemClock()
    mirror = family.mirror.table
    walk = walk_per_second(mail, family)
    rows = list(islice(mail.scan(Scan(mirror, ("mailboxid", "uid", "messageid"))), DAMAGES))
    errors = [
        error for error in mail.write_all([Remove(mirror, mirror.key_of(row), clock.micros()) for row in rows]) if error
    ]
    assert not errors, errors[0]
    ensure_ledger(place.cluster, ledger_keyspace, place.name)
    tables = place.cluster.keyspace(ledger_keyspace)
    engine, ledger = (
        SparkEngine(place.session, place.cluster.contact, place.name, ledger_keyspace),
        Ledger(tables, clock),
    )
    tools = RepairTools(engine, clock, place.cluster, SilentProgress(), None, ledger, Leases(tables, clock, "bench"))
    order = RepairSettings(place.name, (family,), delay_seconds=0, timing=Timing(no_writers=True))
    summary = repair(order, tools, lambda _: None)
    assert summary.fixed[Verdict.PROJECT] == len(rows), summary
    began = time.perf_counter()
    mail.read_all([Read(family.truth, (row["messageid"],), Level.SERIAL, times=True) for row in rows])
    serial_seconds = time.perf_counter() - began
    assert summary.run is not None
    settings = UndoSettings(summary.run, place.name, (family,))
    undone = undo(settings, UndoTools(mail, ledger, clock, SilentProgress()), lambda _: None)
    assert undone.fixed.total() == len(rows), undone
    return Mended(len(rows), summary.seconds["recheck"], undone.seconds["undo"], serial_seconds, len(rows) / walk)
